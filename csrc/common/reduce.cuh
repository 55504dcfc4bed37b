// Reductions over the lanes of a warp, or over aligned groups of kLanes of them.
#pragma once

namespace cuda_vs_triton {

constexpr int kWarpSize = 32;
constexpr unsigned kFullMask = 0xffffffffu;

// Every lane of the group gets the result. fmaxf drops NaN, so callers let NaN travel in the sum.
template <int kLanes>
__device__ __forceinline__ float lanes_max(float v) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    v = fmaxf(v, __shfl_xor_sync(kFullMask, v, offset));
  }
  return v;
}

template <int kLanes>
__device__ __forceinline__ float lanes_sum(float v) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    v += __shfl_xor_sync(kFullMask, v, offset);
  }
  return v;
}

}  // namespace cuda_vs_triton
