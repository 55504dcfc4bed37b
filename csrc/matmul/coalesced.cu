// matmul, second rung: the threads of a warp lie beside each other in out.
//
// Ownership: a block of 32 x 8 threads owns 8 x 32 outputs.
// Bytes: as in the first rung 4 K asked for by each output, but a warp's 32 elements of w are 64
//   bytes in a row, as are its stores, and all its threads read one element of x.
//   (Of a transposed w they are in 32 rows again.)
// Levers left unused: any reuse; every product costs two loads.
#include "common/matmul_rungs.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

using rungs::bf16;
using rungs::Operand;

constexpr int kRows = 8, kCols = 32;

__global__ void __launch_bounds__(kRows* kCols)
    matmul_coalesced_kernel(const Operand x, const Operand w, bf16* out, int64_t n_col_tiles) {
  const int64_t row = blockIdx.x / n_col_tiles * kRows + threadIdx.y;
  const int64_t col = blockIdx.x % n_col_tiles * kCols + threadIdx.x;
  if (row >= x.n_rows || col >= w.n_cols) return;
  float sum = 0.0f;
  for (int64_t k = 0; k < x.n_cols; ++k) sum += x.at(row, k) * w.at(k, col);
  out[row * w.n_cols + col] = __float2bfloat16_rn(sum);
}

}  // namespace

cudaError_t matmul_coalesced(const void* x, const void* w, void* out, int64_t m, int64_t n,
                             int64_t k, bool x_transposed, bool w_transposed, cudaStream_t stream) {
  if (m == 0 || n == 0) return cudaSuccess;
  const MatmulProblem p = {x, w, nullptr, out, m, n, k, x_transposed, w_transposed};
  matmul_coalesced_kernel<<<rungs::n_blocks(p, kRows, kCols), dim3(kCols, kRows), 0, stream>>>(
      rungs::x_of(p), rungs::w_of(p), static_cast<bf16*>(out), (n + kCols - 1) / kCols);
  return cudaGetLastError();
}

}  // namespace cuda_vs_triton
