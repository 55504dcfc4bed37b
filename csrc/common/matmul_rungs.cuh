// What the lower rungs of matmul's ladder share: operands by strides, tiles in plain order.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "common/matmul_problem.cuh"

namespace cuda_vs_triton::rungs {

using bf16 = __nv_bfloat16;

// x or w with its strides in elements, so that one kernel takes the transposed views too.
struct Operand {
  const bf16* data;
  int64_t n_rows, n_cols, row_stride, col_stride;

  __device__ __forceinline__ bool has(int64_t row, int64_t col) const {
    return row < n_rows && col < n_cols;
  }
  __device__ __forceinline__ float at(int64_t row, int64_t col) const {
    return __bfloat162float(data[row * row_stride + col * col_stride]);
  }
  // Zeros outside add nothing to a sum.
  __device__ __forceinline__ float at_or_zero(int64_t row, int64_t col) const {
    return has(row, col) ? at(row, col) : 0.0f;
  }
};

inline Operand operand(const void* data, int64_t n_rows, int64_t n_cols, bool transposed) {
  return {static_cast<const bf16*>(data), n_rows, n_cols, transposed ? 1 : n_cols,
          transposed ? n_rows : 1};
}

inline Operand x_of(const MatmulProblem& p) { return operand(p.x, p.m, p.k, p.x_transposed); }
inline Operand w_of(const MatmulProblem& p) { return operand(p.w, p.k, p.n, p.w_transposed); }

// Blocks for tiles of rows x cols elements, one each; a grid in x alone, which may be the longest.
inline unsigned n_blocks(const MatmulProblem& p, int rows, int cols) {
  return static_cast<unsigned>(((p.m + rows - 1) / rows) * ((p.n + cols - 1) / cols));
}

}  // namespace cuda_vs_triton::rungs
