// matmul, third rung: a block's tiles of x and w wait in shared memory, each element for 32 sums.
//
// Ownership: a block of 32 x 32 threads owns 32 x 32 outputs, a thread one of them.
// Bytes: 4 K / 32 from global memory for each output; from shared memory two loads for every
//   product, of which one is the same for the whole warp. That is the bound now.
// Kept as fp32: an element is converted once, and a warp's 32 neighbours lie in 32 banks.
// Levers left unused: more than one output a thread, so that a loaded value serves several sums;
//   wider loads.
#include "common/matmul_rungs.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

using rungs::bf16;
using rungs::Operand;

constexpr int kSide = 32;

__global__ void __launch_bounds__(kSide* kSide)
    matmul_shared_tile_kernel(const Operand x, const Operand w, bf16* out, int64_t n_col_tiles) {
  __shared__ float s_x[kSide][kSide], s_w[kSide][kSide];
  const int i = threadIdx.y, j = threadIdx.x;
  const int64_t row = blockIdx.x / n_col_tiles * kSide + i;
  const int64_t col = blockIdx.x % n_col_tiles * kSide + j;
  float sum = 0.0f;
  for (int64_t first_k = 0; first_k < x.n_cols; first_k += kSide) {
    s_x[i][j] = x.at_or_zero(row, first_k + j);
    s_w[i][j] = w.at_or_zero(first_k + i, col);
    __syncthreads();  // both tiles are complete
#pragma unroll
    for (int k = 0; k < kSide; ++k) sum += s_x[i][k] * s_w[k][j];
    __syncthreads();  // and used up
  }
  if (row < x.n_rows && col < w.n_cols) out[row * w.n_cols + col] = __float2bfloat16_rn(sum);
}

}  // namespace

cudaError_t matmul_shared_tile(const void* x, const void* w, void* out, int64_t m, int64_t n,
                               int64_t k, bool x_transposed, bool w_transposed,
                               cudaStream_t stream) {
  if (m == 0 || n == 0) return cudaSuccess;
  const MatmulProblem p = {x, w, nullptr, out, m, n, k, x_transposed, w_transposed};
  matmul_shared_tile_kernel<<<rungs::n_blocks(p, kSide, kSide), dim3(kSide, kSide), 0, stream>>>(
      rungs::x_of(p), rungs::w_of(p), static_cast<bf16*>(out), (n + kSide - 1) / kSide);
  return cudaGetLastError();
}

}  // namespace cuda_vs_triton
