// matmul, first rung: one thread an output, which walks along a row of x and a column of w.
//
// Ownership: a block of 32 x 8 threads owns 32 x 8 outputs; the threads of a warp lie below each
//   other in out.
// Bytes: 4 K asked for by each output. Of x, a warp's 32 loads are 32 rows apart: 32 sectors of 32
//   bytes for 2 useful ones each; so are its stores. Its loads of w are all of one element.
// Levers left unused: neighbouring threads on neighbouring addresses, any reuse of what was loaded.
#include "common/matmul_rungs.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

using rungs::bf16;
using rungs::Operand;

constexpr int kRows = 32, kCols = 8;

__global__ void __launch_bounds__(kRows* kCols)
    matmul_naive_kernel(const Operand x, const Operand w, bf16* out, int64_t n_col_tiles) {
  const int64_t row = blockIdx.x / n_col_tiles * kRows + threadIdx.x;
  const int64_t col = blockIdx.x % n_col_tiles * kCols + threadIdx.y;
  if (row >= x.n_rows || col >= w.n_cols) return;
  float sum = 0.0f;
  for (int64_t k = 0; k < x.n_cols; ++k) sum += x.at(row, k) * w.at(k, col);
  out[row * w.n_cols + col] = __float2bfloat16_rn(sum);
}

}  // namespace

cudaError_t matmul_naive(const void* x, const void* w, void* out, int64_t m, int64_t n, int64_t k,
                         bool x_transposed, bool w_transposed, cudaStream_t stream) {
  if (m == 0 || n == 0) return cudaSuccess;
  const MatmulProblem p = {x, w, nullptr, out, m, n, k, x_transposed, w_transposed};
  matmul_naive_kernel<<<rungs::n_blocks(p, kRows, kCols), dim3(kRows, kCols), 0, stream>>>(
      rungs::x_of(p), rungs::w_of(p), static_cast<bf16*>(out), (n + kCols - 1) / kCols);
  return cudaGetLastError();
}

}  // namespace cuda_vs_triton
