// transpose, first rung: one element a thread, read along a row of x and written down a column of
// out.
//
// Ownership: a block of 32 x 8 threads owns 32 x 8 elements of x; a warp reads 128 bytes of one
// row. Bytes per element: 8 asked for; a warp's write touches 32 sectors of 32 bytes for 4 bytes
// each,
//   which L2 puts together only where neighbouring rows arrive before the sector is evicted.
// Levers left unused: shared memory, so that writes too lie side by side.
#include <cstdint>

#include "kernels.h"

namespace cuda_vs_triton {
namespace {

constexpr int kCols = 32;
constexpr int kRows = 8;

__global__ void __launch_bounds__(kCols* kRows)
    transpose_naive_kernel(const float* x, float* out, int64_t n_rows, int64_t n_cols,
                           int64_t n_col_blocks) {
  const int64_t row = blockIdx.x / n_col_blocks * kRows + threadIdx.y;
  const int64_t col = blockIdx.x % n_col_blocks * kCols + threadIdx.x;
  if (row < n_rows && col < n_cols) out[col * n_rows + row] = x[row * n_cols + col];
}

}  // namespace

cudaError_t transpose_naive(const void* x, void* out, int64_t n_rows, int64_t n_cols,
                            cudaStream_t stream) {
  if (n_rows == 0 || n_cols == 0) return cudaSuccess;
  const int64_t n_col_blocks = (n_cols + kCols - 1) / kCols;
  const int64_t n_row_blocks = (n_rows + kRows - 1) / kRows;
  const auto n_blocks = static_cast<unsigned>(n_row_blocks * n_col_blocks);
  transpose_naive_kernel<<<n_blocks, dim3(kCols, kRows), 0, stream>>>(
      static_cast<const float*>(x), static_cast<float*>(out), n_rows, n_cols, n_col_blocks);
  return cudaGetLastError();
}

}  // namespace cuda_vs_triton
