// 16 bytes at a time: the widest access of one thread, and conversions between its elements and
// fp32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace cuda_vs_triton {

constexpr int kPackBytes = 16;

template <typename T>
constexpr int kPackSize = kPackBytes / sizeof(T);  // elements in a pack

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }

template <typename T>
__device__ __forceinline__ T from_float(float v);  // rounds to nearest even
template <>
__device__ __forceinline__ float from_float<float>(float v) {
  return v;
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float v) {
  return __float2bfloat16_rn(v);
}
template <>
__device__ __forceinline__ __half from_float<__half>(float v) {
  return __float2half_rn(v);
}

// Two floats to one 32-bit word of T pairs, low half first: one cvt instruction on sm_80 and newer.
template <typename T>
__device__ __forceinline__ uint32_t pair_from_floats(float lo, float hi);
template <>
__device__ __forceinline__ uint32_t pair_from_floats<__nv_bfloat16>(float lo, float hi) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(lo, hi);
  return reinterpret_cast<const uint32_t&>(pair);
}
template <>
__device__ __forceinline__ uint32_t pair_from_floats<__half>(float lo, float hi) {
  const __half2 pair = __floats2half2_rn(lo, hi);
  return reinterpret_cast<const uint32_t&>(pair);
}

template <typename T>
__device__ __forceinline__ void unpack(const uint4& raw, float (&v)[kPackSize<T>]) {
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4) {
      v[i] = __uint_as_float(words[i]);
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      v[2 * i] = __uint_as_float(words[i] << 16);  // bf16 is the top half of an fp32
      v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    } else {
      const float2 pair = __half22float2(reinterpret_cast<const __half2&>(words[i]));
      v[2 * i] = pair.x;
      v[2 * i + 1] = pair.y;
    }
  }
}

template <typename T>
__device__ __forceinline__ uint4 pack(const float (&v)[kPackSize<T>]) {
  if constexpr (sizeof(T) == 4) {
    return make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                      __float_as_uint(v[3]));
  } else {
    return make_uint4(pair_from_floats<T>(v[0], v[1]), pair_from_floats<T>(v[2], v[3]),
                      pair_from_floats<T>(v[4], v[5]), pair_from_floats<T>(v[6], v[7]));
  }
}

// Plain accesses. Not evict-first (__ldcs, __stcs): on an H200 whose L2 was full of clean lines
// that cost 10 % of the bandwidth of a large add, 818 against 736 us at 2^28 f32, since lines to
// evict first leave for DRAM one by one. Not the read-only (.nc) path: an op may run in place.
__device__ __forceinline__ uint4 load_pack(const uint4* p) { return *p; }
__device__ __forceinline__ void store_pack(uint4* p, const uint4& v) { *p = v; }

}  // namespace cuda_vs_triton
