// What every matrix product of this folder shares: the problem, and what becomes of a finished sum.
//
// out[m, n] = epilogue(sum_k x[m, k] * w[k, n], bias[n]), 16-bit operands, fp32 sums, one rounding.
#pragma once

#include <cstdint>

namespace cuda_vs_triton {

// x is [m, k] and w [k, n], each row-major or, where transposed, the row-major matrix of the other
// order: x_transposed says that memory holds [k, m]. out is row-major.
struct MatmulProblem {
  const void *x, *w, *bias;
  void* out;
  int64_t m, n, k;
  bool x_transposed, w_transposed;
};

// How to compute it; 0 chooses. `cluster` and `blocks` speak of the wgmma form alone.
struct MatmulConfig {
  int block_m, block_n;  // the tile of out that a block computes at a time
  int stages;            // K tiles in flight
  int cluster;           // blocks, below each other in out, that share their tiles of w
  int blocks;            // of the persistent grid
};

// An epilogue acts on one fp32 sum; kHasBias says whether `bias` is read at all.
struct NoEpilogue {
  static constexpr bool kHasBias = false;
  __device__ __forceinline__ static float apply(float sum) { return sum; }
};

struct BiasRelu {
  static constexpr bool kHasBias = true;
  // NaN passes, -0 becomes +0.
  __device__ __forceinline__ static float apply(float v) { return v <= 0.0f ? 0.0f : v; }
};

// gelu by tanh, 0.5 v (1 + tanh(u)) with u = sqrt(2/pi) (v + 0.044715 v^3), as v / (1 + exp(-2u)):
// one exponential and one division. exp overflows to infinity for very negative v, which gives -0.
struct BiasGelu {
  static constexpr bool kHasBias = true;
  __device__ __forceinline__ static float apply(float v) {
    constexpr float kScale = -2.302208198f;  // -2 sqrt(2/pi) log2(e)
    const float exponent = kScale * v * fmaf(0.044715f * v, v, 1.0f);
    return __fdividef(v, 1.0f + exp2f(exponent));
  }
};

}  // namespace cuda_vs_triton
