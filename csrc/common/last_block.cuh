// Which of several blocks finishes last: it merges what all of them left in global memory.
#pragma once

#include <cuda_runtime.h>

#include "kernels.h"

namespace cuda_vs_triton {

// Called once by every thread of each of the n_blocks blocks that share `counter`, which is 0
// before the launch. True for all threads of the last block to call; these see what any thread of
// the others wrote before its call. The increment wraps at n_blocks, which leaves 0 behind.
__device__ __forceinline__ bool is_last_block(unsigned* counter, unsigned n_blocks) {
  __shared__ bool is_last;
  __syncthreads();  // what the block wrote comes before its one thread's release
  if (threadIdx.x == 0) {
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(counter)), "r"(n_blocks - 1)
                 : "memory");
    is_last = before == n_blocks - 1;
  }
  __syncthreads();  // the others read after the one thread's acquire
  return is_last;
}

}  // namespace cuda_vs_triton
