// Sums of exponentials relative to a maximum: what a part of a row contributes to its softmax.
#pragma once

#include <cmath>

namespace cuda_vs_triton {

constexpr float kLog2e = 1.4426950408889634f;

// exp(v - offset). Subtracting before the scale by log2(e) keeps large |v| exact and finite.
__device__ __forceinline__ float exp_minus(float v, float offset) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"((v - offset) * kLog2e));
  return result;
}

// The maximum as an offset for exps: -Inf (nothing seen but -Inf) would make NaN of -Inf - -Inf in
// a part of a row, so such a part counts from 0 and sums to 0.
__device__ __forceinline__ float finite_offset(float max) { return max == -INFINITY ? 0.0f : max; }

// What a group of threads knows of its row: sum of exp(v - max).
struct ExpSum {
  float max, sum;
};

struct MergeExpSums {
  __device__ __forceinline__ ExpSum operator()(const ExpSum& a, const ExpSum& b) const {
    const float max = fmaxf(a.max, b.max);
    const float offset = finite_offset(max);
    return {max, a.sum * exp_minus(a.max, offset) + b.sum * exp_minus(b.max, offset)};
  }
};

}  // namespace cuda_vs_triton
