// transpose, third rung: rows of the tile are one element longer, so that a column meets all banks.
//
// Ownership: a block of 32 x 8 threads owns a tile of 32 x 32; a warp moves 128 bytes of one row.
// Bytes per element: 8, in whole sectors on both sides.
// Levers left unused: 16-byte accesses, more than 16 bytes in flight a thread, an order of tiles
//   that suits DRAM.
#include <cstdint>

#include "kernels.h"

namespace cuda_vs_triton {
namespace {

constexpr int kSide = 32;
constexpr int kRows = 8;  // rows of threads; each thread moves kSide / kRows elements

__global__ void __launch_bounds__(kSide* kRows)
    transpose_padded_kernel(const float* x, float* out, int64_t n_rows, int64_t n_cols,
                            int64_t n_col_tiles) {
  __shared__ float s_tile[kSide][kSide + 1];
  const int64_t first_row = blockIdx.x / n_col_tiles * kSide;
  const int64_t first_col = blockIdx.x % n_col_tiles * kSide;

  const int64_t col = first_col + threadIdx.x;
#pragma unroll
  for (int i = threadIdx.y; i < kSide; i += kRows) {
    const int64_t row = first_row + i;
    if (row < n_rows && col < n_cols) s_tile[i][threadIdx.x] = x[row * n_cols + col];
  }
  __syncthreads();  // the tile is complete

  const int64_t out_col = first_row + threadIdx.x;
#pragma unroll
  for (int i = threadIdx.y; i < kSide; i += kRows) {
    const int64_t out_row = first_col + i;
    if (out_row < n_cols && out_col < n_rows) {
      out[out_row * n_rows + out_col] = s_tile[threadIdx.x][i];
    }
  }
}

}  // namespace

cudaError_t transpose_padded(const void* x, void* out, int64_t n_rows, int64_t n_cols,
                             cudaStream_t stream) {
  if (n_rows == 0 || n_cols == 0) return cudaSuccess;
  const int64_t n_col_tiles = (n_cols + kSide - 1) / kSide;
  const int64_t n_row_tiles = (n_rows + kSide - 1) / kSide;
  const auto n_blocks = static_cast<unsigned>(n_row_tiles * n_col_tiles);
  transpose_padded_kernel<<<n_blocks, dim3(kSide, kRows), 0, stream>>>(
      static_cast<const float*>(x), static_cast<float*>(out), n_rows, n_cols, n_col_tiles);
  return cudaGetLastError();
}

}  // namespace cuda_vs_triton
