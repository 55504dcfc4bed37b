// matmul, fifth rung: the tensor cores, by mma.sync of one warp, fed by cp.async through shared
// memory.
//
// Ownership: a block owns a tile of out, a warp a rectangle of it; the kernel is that of
//   common/matmul_mma.cuh, which other products and other GPUs use as well.
// Bytes: 4 K / 128 or less from global memory for each output, copied while the block multiplies;
//   operands pass from shared memory through registers, and each warp reads its own.
// Levers left unused on Hopper: wgmma, which reads shared memory itself and issues for four warps;
//   mma.sync peaks at about 65 % of it.
#include "common/matmul_mma.cuh"
#include "kernels.h"

namespace cuda_vs_triton {

cudaError_t matmul_mma(const void* x, const void* w, void* out, int64_t m, int64_t n, int64_t k,
                       bool x_transposed, bool w_transposed, cudaStream_t stream) {
  if (m == 0 || n == 0) return cudaSuccess;
  const MatmulProblem p = {x, w, nullptr, out, m, n, k, x_transposed, w_transposed};
  return matmul_mma<__nv_bfloat16, NoEpilogue>(p, {}, stream);
}

}  // namespace cuda_vs_triton
