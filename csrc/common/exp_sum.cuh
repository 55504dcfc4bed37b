// Sums of exponentials relative to a maximum: what a part of a row contributes to its softmax.
#pragma once

#include <cmath>
#include <type_traits>

#include "common/merge.cuh"
#include "common/pack.cuh"

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

// The largest element of packs, NaN left out; those of 16 bits are compared as they are, in pairs.
template <typename T, int kPacks>
__device__ __forceinline__ float max_of_packs(const uint4 (&raw)[kPacks]) {
  if constexpr (sizeof(T) == 4) {
    float max = -INFINITY;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      float v[kPackSize<T>];
      unpack<T>(raw[i], v);
#pragma unroll
      for (int j = 0; j < kPackSize<T>; ++j) max = fmaxf(max, v[j]);
    }
    return max;
  } else {
    using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
    const auto pair = [](const uint32_t& word) { return reinterpret_cast<const Pair&>(word); };
    Pair max = pair(raw[0].x);
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      max = __hmax2(max, __hmax2(__hmax2(pair(raw[i].x), pair(raw[i].y)),
                                 __hmax2(pair(raw[i].z), pair(raw[i].w))));
    }
    return fmaxf(to_float(max.x), to_float(max.y));
  }
}

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

// The two halves of merging a row's partials, whose warps agree already: over kWarps warps of the
// block, then over the kBlocks blocks of a cluster. Every thread gets the row's result.
template <int kBlocks>
__device__ __forceinline__ void begin_row() {
#if __CUDA_ARCH__ >= 900
  if constexpr (kBlocks > 1) cluster_arrive();  // merge_row waits for it before it writes elsewhere
#endif
}

template <int kWarps, int kBlocks, int kWarpsInBlock>
__device__ __forceinline__ ExpSum merge_row(ExpSum mine) {
  if constexpr (kWarps > 1) {
    __shared__ ExpSum of_warps[kWarpsInBlock];
    mine = merge_warps<kWarps>(mine, of_warps, MergeExpSums());
  }
#if __CUDA_ARCH__ >= 900
  if constexpr (kBlocks > 1) {
    __shared__ ExpSum of_blocks[kBlocks];
    mine = merge_cluster<kBlocks>(mine, of_blocks, MergeExpSums());
  }
#endif
  return mine;
}

}  // namespace cuda_vs_triton
