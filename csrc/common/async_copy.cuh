// cp.async (sm_80+): 16 bytes from global to shared memory without passing through registers.
#pragma once

#include <cstdint>

namespace cuda_vs_triton {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Copies 16 bytes, bypassing L1; with valid == false it reads nothing and writes 16 zero bytes
// (`gmem` is then not accessed and may point anywhere).
__device__ __forceinline__ void async_copy_16(uint32_t smem, const void* gmem, bool valid = true) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(smem), "l"(gmem),
               "r"(bytes)
               : "memory");
}

// The synchronous counterpart, for data that had to pass through registers.
__device__ __forceinline__ void store_shared_16(uint32_t smem, const uint4& v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"r"(smem), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}

__device__ __forceinline__ void async_copy_commit() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}

// Returns when at most kPending of this thread's newest groups are still in flight. Data of other
// threads needs a barrier after it.
template <int kPending>
__device__ __forceinline__ void async_copy_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

}  // namespace cuda_vs_triton
