// One row held in the registers of kThreads threads, in 16-byte packs: thread `lane` of the row has
// packs lane, lane + kThreads, ..., so that neighbouring threads read neighbouring packs.
#pragma once

#include "common/pack.cuh"

namespace cuda_vs_triton {

// The packs as they are in memory, half the registers of 16-bit elements in fp32. Those past the
// row are zeros.
template <typename T, int kThreads, int kPacks>
__device__ __forceinline__ void load_packs(const T* row, int n_packs, int lane,
                                           uint4 (&raw)[kPacks]) {
  const uint4* packs = reinterpret_cast<const uint4*>(row);
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int p = lane + i * kThreads;
    raw[i] = p < n_packs ? load_pack(packs + p) : make_uint4(0, 0, 0, 0);
  }
}

// Makes a later unpack convert again: else the compiler keeps the fp32 values of an earlier one.
__device__ __forceinline__ void forget_unpacked(uint4& raw) {
  asm("" : "+r"(raw.x), "+r"(raw.y), "+r"(raw.z), "+r"(raw.w));
}

// All loads are issued before the first is used. Elements past the row become `fill`.
template <typename T, int kThreads, int kPacks>
__device__ __forceinline__ void load_row(const T* row, int n_packs, int lane, float fill,
                                         float (&v)[kPacks][kPackSize<T>]) {
  const uint4* packs = reinterpret_cast<const uint4*>(row);
  uint4 raw[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int p = lane + i * kThreads;
    if (p < n_packs) raw[i] = load_pack(packs + p);
  }
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int p = lane + i * kThreads;
    if (p < n_packs) {
      unpack<T>(raw[i], v[i]);
    } else {
#pragma unroll
      for (int j = 0; j < kPackSize<T>; ++j) v[i][j] = fill;
    }
  }
}

template <typename T, int kThreads, int kPacks>
__device__ __forceinline__ void store_row(T* row, int n_packs, int lane,
                                          const float (&v)[kPacks][kPackSize<T>]) {
  uint4* packs = reinterpret_cast<uint4*>(row);
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int p = lane + i * kThreads;
    if (p < n_packs) store_pack(packs + p, pack<T>(v[i]));
  }
}

}  // namespace cuda_vs_triton
