// sigmoid(v) = 1 / (1 + exp(-v)) in two instructions of the special function unit.
#pragma once

namespace cuda_vs_triton {

// Absolute value and infinities are safe: exp(-v) overflows to Inf, whose reciprocal is 0. So is
// every result below 2^-126 (v < -87.3). NaN stays NaN.
__device__ __forceinline__ float sigmoid(float v) {
  constexpr float kMinusLog2e = -1.4426950408889634f;
  float exponential, result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(exponential) : "f"(v * kMinusLog2e));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(1.0f + exponential));
  return result;
}

}  // namespace cuda_vs_triton
