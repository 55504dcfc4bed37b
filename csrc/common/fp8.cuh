// Rows and groups of bf16 or f16 to e4m3 with one scale: the largest magnitude, the conversion, and
// 16-byte stores.
#pragma once

#include <cuda_fp8.h>

#include <cstdint>

#include "common/pack.cuh"
#include "common/reduce.cuh"

namespace cuda_vs_triton {

constexpr float kLargestE4m3 = 448.0f;
// Below this an amax counts as this: zeros get a finite scale, and 448 / amax stays finite. vLLM's
// 1e-10, as a power of two.
constexpr uint32_t kSmallestAmaxBits = 94u << 23;  // 2^-33

// As bits of non-negative floats, so that the largest integer is the largest value and NaN is
// larger than all: fmaxf would drop it.
struct LargerBits {
  __device__ uint32_t operator()(uint32_t a, uint32_t b) const { return a > b ? a : b; }
};

__device__ __forceinline__ uint32_t abs_bits(float v) { return __float_as_uint(v) & 0x7fffffffu; }

// Of the largest magnitude in a pack. NaN wins here too.
template <typename T>
__device__ __forceinline__ uint32_t amax_bits(const uint4& raw) {
  using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
  const auto magnitudes = [](uint32_t word) {
    word &= 0x7fff7fffu;
    return reinterpret_cast<const Pair&>(word);
  };
  const Pair most = __hmax2_nan(__hmax2_nan(magnitudes(raw.x), magnitudes(raw.y)),
                                __hmax2_nan(magnitudes(raw.z), magnitudes(raw.w)));
  return LargerBits()(abs_bits(to_float(most.x)), abs_bits(to_float(most.y)));
}

// The factor of x and the scale that undoes it; both are rounded once.
__device__ __forceinline__ float factor_of(uint32_t amax_bits) {
  return kLargestE4m3 / __uint_as_float(amax_bits);
}
__device__ __forceinline__ float scale_of(uint32_t amax_bits) {
  return __uint_as_float(amax_bits) / kLargestE4m3;
}

// Rounds to nearest even and saturates; NaN stays NaN. One cvt instruction on sm_89 and newer.
__device__ __forceinline__ uint32_t e4m3_pair(float lo, float hi) {
  return __nv_cvt_float2_to_fp8x2(make_float2(lo, hi), __NV_SATFINITE, __NV_E4M3);
}
__device__ __forceinline__ uint8_t e4m3(float v) {
  return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3);
}

// Eight elements of 16 bits to eight of 8.
template <typename T>
__device__ __forceinline__ uint2 e4m3_pack(const uint4& raw, float factor) {
  float v[8];
  unpack<T>(raw, v);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] *= factor;
  return make_uint2(e4m3_pair(v[0], v[1]) | e4m3_pair(v[2], v[3]) << 16,
                    e4m3_pair(v[4], v[5]) | e4m3_pair(v[6], v[7]) << 16);
}

// A lane has 8 bytes at each of two places, its even and odd neighbour the 8 bytes beside them: the
// even lane takes 16 bytes of the first place, the odd one of the second. All lanes call it.
__device__ __forceinline__ uint4 exchange_halves(const uint2& first, const uint2& second) {
  const bool odd = threadIdx.x % 2 != 0;
  const uint2 given = odd ? first : second;
  const uint2 taken =
      make_uint2(__shfl_xor_sync(kFullMask, given.x, 1), __shfl_xor_sync(kFullMask, given.y, 1));
  return odd ? make_uint4(taken.x, taken.y, second.x, second.y)
             : make_uint4(first.x, first.y, taken.x, taken.y);
}

}  // namespace cuda_vs_triton
