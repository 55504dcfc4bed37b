// Mean and variance of a row from its parts, without the difference of large numbers that
// E[x^2] - E[x]^2 is.
#pragma once

#include <cuda_runtime.h>

#include "common/pack.cuh"
#include "common/reduce.cuh"
#include "common/rows.cuh"

namespace cuda_vs_triton {

// What a group of threads knows of its row: how many elements, their sum, and the sum of their
// squared distances from their own mean.
struct Moments {
  float n, sum, distances;
};

// Chan, Golub and LeVeque's merge. Approximate reciprocals do: they err in a term of the variance,
// relative to that term, and never in the sum.
struct MergeMoments {
  __device__ __forceinline__ Moments operator()(const Moments& a, const Moments& b) const {
    const auto inverse = [](float n) { return __fdividef(1.0f, fmaxf(n, 1.0f)); };
    // Not contracted: merge(a, b) has the bits of merge(b, a).
    const float gap = __fsub_rn(__fmul_rn(a.sum, inverse(a.n)), __fmul_rn(b.sum, inverse(b.n)));
    const float n = a.n + b.n;
    const float weight = a.n * b.n * inverse(n);
    const float between = weight > 0.0f ? gap * gap * weight : 0.0f;  // an infinite gap to nothing
    return {n, a.sum + b.sum, a.distances + b.distances + between};
  }
};
template <typename T>
__device__ __forceinline__ float sum_in_pack(const uint4& raw) {
  float v[kPackSize<T>];
  unpack<T>(raw, v);
#pragma unroll
  for (int width = kPackSize<T> / 2; width > 0; width /= 2) {
#pragma unroll
    for (int j = 0; j < width; ++j) v[j] += v[j + width];
  }
  return v[0];
}

template <typename T>
__device__ __forceinline__ float distances_in_pack(const uint4& raw, float mean) {
  float v[kPackSize<T>], sum = 0.0f;
  unpack<T>(raw, v);
#pragma unroll
  for (int j = 0; j < kPackSize<T>; ++j) {
    const float distance = v[j] - mean;
    sum = fmaf(distance, distance, sum);
  }
  return sum;
}

// Over an aligned group of kLanes lanes, each with the packs lane, lane + kStep, ... of a row of
// n_packs; those past its end are zeros. Two passes: the group's mean, then distances from it. The
// packs stay as they are; they are only unpacked again each time.
template <typename T, int kLanes, int kStep, int kPacks>
__device__ __forceinline__ Moments moments_of_lanes(uint4 (&raw)[kPacks], int n_packs, int lane) {
  const int first_lane = lane - static_cast<int>(threadIdx.x % kLanes);
  int held = 0;  // packs of the row that the group has
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    held += min(max(n_packs - (first_lane + i * kStep), 0), kLanes);
    sum += sum_in_pack<T>(raw[i]);
    forget_unpacked(raw[i]);
  }
  sum = lanes_sum<kLanes>(sum);
  const float n = static_cast<float>(held * kPackSize<T>);
  const float mean = sum / fmaxf(n, 1.0f);
  float distances = 0.0f;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const float in_pack = distances_in_pack<T>(raw[i], mean);
    if (lane + i * kStep < n_packs) distances += in_pack;
    forget_unpacked(raw[i]);
  }
  return {n, sum, lanes_sum<kLanes>(distances)};
}

}  // namespace cuda_vs_triton
