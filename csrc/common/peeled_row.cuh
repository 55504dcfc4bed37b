// A row that starts at any element, as 16-byte packs between the few elements that lie before the
// first 16-byte boundary and behind the last: its edges, fewer than a warp has lanes. A row has
// at most 2^30 packs, 16 GB.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/pack.cuh"

namespace cuda_vs_triton {

constexpr int64_t kMaxRowBytes = int64_t(kPackBytes) << 30;

template <typename T>
struct PeeledRow {
  const T* elements;
  int n_head;   // edges before the packs; the others are behind them
  int n_edges;  // both
  int n_packs;  // none where the row is too short to hold an aligned one

  __device__ __forceinline__ PeeledRow(const T* row, int64_t n_cols) : elements(row) {
    const int past = static_cast<int>(reinterpret_cast<uintptr_t>(row) % kPackBytes / sizeof(T));
    const int head = past == 0 ? 0 : kPackSize<T> - past;
    n_head = head < n_cols ? head : static_cast<int>(n_cols);
    n_packs = static_cast<int>((n_cols - n_head) / kPackSize<T>);
    n_edges = static_cast<int>(n_cols - int64_t(n_packs) * kPackSize<T>);
  }

  __device__ __forceinline__ const uint4* packs() const {
    return reinterpret_cast<const uint4*>(elements + n_head);
  }
  __device__ __forceinline__ int64_t pack_column(int p) const {
    return n_head + int64_t(p) * kPackSize<T>;
  }
  __device__ __forceinline__ int64_t edge_column(int edge) const {
    return edge < n_head ? edge : edge + int64_t(n_packs) * kPackSize<T>;
  }
  // An element that adds nothing to a sum of exponentials where there is no such edge.
  __device__ __forceinline__ float edge_or_nothing(int edge) const {
    return edge < n_edges ? to_float(elements[edge_column(edge)]) : -INFINITY;
  }
};

// -Inf in every element of a pack.
template <typename T>
__device__ __forceinline__ uint4 nothing_pack() {
  uint32_t word = 0xff800000u;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) word = 0xff80ff80u;
  if constexpr (std::is_same_v<T, __half>) word = 0xfc00fc00u;
  return make_uint4(word, word, word, word);
}

// store_pack to a place in a row that only an element's address and a column tell: nvcc 13.0 splits
// the plain form into four stores of 4 bytes for sm_80 and sm_90.
__device__ __forceinline__ void store_pack_whole(void* p, const uint4& v) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}

// kPacks packs of one thread, kStep apart, the first at `first`; past the row nothing_pack.
template <typename T, int kStep, int kPacks>
__device__ __forceinline__ void load_packs(const PeeledRow<T>& row, int first,
                                           uint4 (&raw)[kPacks]) {
  const uint4* packs = row.packs() + first;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    raw[i] = nothing_pack<T>();
    if (first + i * kStep < row.n_packs) raw[i] = load_pack(packs + i * kStep);
  }
}

}  // namespace cuda_vs_triton
