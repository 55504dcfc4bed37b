// Warpgroups (sm_90): four consecutive warps that multiply together and trade registers.
#pragma once

namespace cuda_vs_triton {

constexpr int kWarpgroupThreads = 128;

// Registers a thread may use from here on. Run by whole warpgroups, each with its own number; the
// sum over the block must fit what __launch_bounds__(threads, 1) gave it. The compiler ignores it
// (note C7508) unless each role is one branch of a single if.
template <int kRegisters>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

// A barrier of one warpgroup; `id` 1 to 15, one for each (0 is __syncthreads).
__device__ __forceinline__ void sync_warpgroup(int id) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(id), "n"(kWarpgroupThreads) : "memory");
}

}  // namespace cuda_vs_triton
