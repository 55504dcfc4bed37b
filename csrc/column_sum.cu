// out[col] = sum over rows of x[row, col], the bias gradient; f32, bf16, f16, summed and written in
// float32: thousands of gradients go into it, and rounding N results to bf16 would save nothing.
//
// Ownership: a warp reads 32 packs of 16 bytes of a row, a thread owns one pack of columns, the 8
//   warps of a block take 8 rows at a time; `splits` blocks share the rows of one column tile. Each
//   leaves its sums; the last block of a tile to finish adds them. One launch.
// Bytes per element: sizeof(T) read, one add: bound by DRAM.
// Limits: none on extents. A view whose rows are not 16-byte aligned takes element accesses.
// Choice: splits fill the GPU once, however few columns there are, and rows are dealt out in turn,
// so
//   blocks differ by one step at most. 4 or 8 rows a thread are loaded before the first is added.
//   No float atomics: results repeat bit for bit.
// Levers left unused: a tile under 32 packs (short rows leave lanes idle); clusters for the splits.
#include <cstdint>
#include <type_traits>

#include "common/last_block.cuh"
#include "common/launch.cuh"
#include "common/pack.cuh"
#include "common/reduce.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = kThreads / kWarpSize;  // that a block reads at a time
constexpr int kDefaultVectors = 8;
constexpr int kDefaultBlocksPerSm = 4;  // with 8 loads a thread 128 KB an SM in flight
constexpr int kMostBlocks = 2048;       // that share tiles; each leaves a partial of kMostColumns
constexpr int kMostColumns = 256;
static_assert(kMostBlocks <= kScratchCounters && kMostBlocks * kMostColumns <= kScratchPartials);

// kWidth neighbouring elements, loaded at once: a pack or a single element.
template <typename T, int kWidth>
using Loaded = std::conditional_t<kWidth == 1, T, uint4>;

template <typename T, int kWidth>
__device__ __forceinline__ void add(const Loaded<T, kWidth>& raw, float (&sums)[kWidth]) {
  if constexpr (kWidth == 1) {
    sums[0] += to_float(raw);
  } else {
    float v[kWidth];
    unpack<T>(raw, v);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sums[j] += v[j];
  }
}

// Sums of the kWidth columns at x over the rows row, row + step, ... below n_rows. kVectors rows
// are loaded before the first is added.
template <typename T, int kWidth, int kVectors>
__device__ __forceinline__ void sum_rows(const T* x, int64_t stride, int64_t row, int64_t step,
                                         int64_t n_rows, float (&sums)[kWidth]) {
  using Raw = Loaded<T, kWidth>;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) sums[j] = 0.0f;
  const T* next = x + row * stride;
  const int64_t advance = step * stride;
  // In 32 bits: 2^31 steps of 8 rows are more than any memory holds.
  int left = row < n_rows ? static_cast<int>((n_rows - row + step - 1) / step) : 0;
  for (; left >= kVectors; left -= kVectors) {
    Raw raw[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i, next += advance) {
      raw[i] = *reinterpret_cast<const Raw*>(next);
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) add<T, kWidth>(raw[i], sums);
  }
  Raw raw[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i, next += advance) {
    if (i < left) raw[i] = *reinterpret_cast<const Raw*>(next);
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (i < left) add<T, kWidth>(raw[i], sums);
  }
}

// Thread c < kColumns gets the block's sum of column c of its tile. A thread holds kWidth columns
// from kWidth * (threadIdx.x % kLanes) on, of one of the kThreads / kLanes rows.
template <int kColumns, int kWidth>
__device__ __forceinline__ float merge_rows(const float (&sums)[kWidth], float* slots) {
  // Slot (row, column) is number threadIdx.x * kWidth + j: rows follow each other.
#pragma unroll
  for (int j = 0; j < kWidth; ++j) slots[threadIdx.x * kWidth + j] = sums[j];
  __syncthreads();
  float total = 0.0f;
  if (threadIdx.x < kColumns) {
#pragma unroll
    for (int i = 0; i < kThreads * kWidth / kColumns; ++i) {
      total += slots[i * kColumns + threadIdx.x];
    }
  }
  return total;
}

template <typename T, int kVectors, bool kAligned>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads)
    column_sum_kernel(const T* x, float* out, int64_t n_rows, int64_t n_cols, int64_t stride,
                      int n_tiles, int splits, Scratch scratch) {
  constexpr int kWidth = kAligned ? kPackSize<T> : 1;
  constexpr int kColumns = kWarpSize * kWidth;
  static_assert(kColumns <= kMostColumns && kColumns <= kThreads);
  __shared__ __align__(
      16) float slots[kRows * kColumns < 4 * kThreads ? 4 * kThreads : kRows * kColumns];
  const int tile = blockIdx.x % n_tiles;  // blocks that run together read whole rows
  const int split = blockIdx.x / n_tiles;
  const int64_t first_col = static_cast<int64_t>(tile) * kColumns;

  float sums[kWidth];
  const int64_t col = first_col + threadIdx.x % kWarpSize * kWidth;
  const int64_t row = static_cast<int64_t>(split) * kRows + threadIdx.x / kWarpSize;
  // A thread beside the matrix has no rows.
  sum_rows<T, kWidth, kVectors>(x + col, stride, row, static_cast<int64_t>(splits) * kRows,
                                col < n_cols ? n_rows : 0, sums);
  float total = merge_rows<kColumns>(sums, slots);

  if (splits > 1) {
    // Partials: [splits, n_tiles * kColumns], so that they are read as x is, 4 columns a thread.
    const int64_t width = static_cast<int64_t>(n_tiles) * kColumns;
    float* partials = scratch.partials + first_col;
    if (threadIdx.x < kColumns) partials[split * width + threadIdx.x] = total;
    if (!is_last_block(scratch.counters + tile, splits)) return;
    constexpr int kLanes = kColumns / 4;
    float merged[4];
    sum_rows<float, 4, 4>(partials + threadIdx.x % kLanes * 4, width, threadIdx.x / kLanes,
                          kThreads / kLanes, splits, merged);
    total = merge_rows<kColumns>(merged, slots);
  }
  if (threadIdx.x < kColumns && first_col + threadIdx.x < n_cols) {
    out[first_col + threadIdx.x] = total;
  }
}

template <typename T, int kVectors, bool kAligned>
cudaError_t launch(const void* x, void* out, int64_t n_rows, int64_t n_cols, int64_t stride,
                   Scratch scratch, int blocks_per_sm, cudaStream_t stream) {
  constexpr int kColumns = kWarpSize * (kAligned ? kPackSize<T> : 1);
  DeviceFacts facts;
  if (cudaError_t error = device_facts(&facts); error != cudaSuccess) return error;
  const int64_t n_tiles = (n_cols + kColumns - 1) / kColumns;
  if (n_tiles > INT32_MAX) return cudaErrorInvalidConfiguration;
  int64_t n_blocks = static_cast<int64_t>(facts.n_sms) * blocks_per_sm;
  if (n_blocks > kMostBlocks) n_blocks = kMostBlocks;
  const int64_t most_splits = (n_rows + kRows - 1) / kRows;
  int64_t splits = n_blocks / n_tiles;
  if (splits > most_splits) splits = most_splits;
  if (splits < 1) splits = 1;
  column_sum_kernel<T, kVectors, kAligned>
      <<<static_cast<unsigned>(n_tiles * splits), kThreads, 0, stream>>>(
          static_cast<const T*>(x), static_cast<float*>(out), n_rows, n_cols, stride,
          static_cast<int>(n_tiles), static_cast<int>(splits), scratch);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_as(const void* x, void* out, int64_t n_rows, int64_t n_cols, int64_t stride,
                      Scratch scratch, int vectors, int blocks_per_sm, cudaStream_t stream) {
  const bool aligned = reinterpret_cast<uintptr_t>(x) % kPackBytes == 0 &&
                       n_cols % kPackSize<T> == 0 && stride % kPackSize<T> == 0;
  if (vectors != 4 && vectors != 8) return cudaErrorInvalidValue;
  auto* launch_form = !aligned       ? launch<T, 8, false>
                      : vectors == 4 ? launch<T, 4, true>
                                     : launch<T, 8, true>;
  return launch_form(x, out, n_rows, n_cols, stride, scratch, blocks_per_sm, stream);
}

}  // namespace

cudaError_t column_sum(const void* x, void* out, int64_t n_rows, int64_t n_cols, int64_t x_stride,
                       DType dtype, Scratch scratch, int vectors, int blocks_per_sm,
                       cudaStream_t stream) {
  if (vectors == 0) vectors = kDefaultVectors;
  if (blocks_per_sm == 0) blocks_per_sm = kDefaultBlocksPerSm;
  if (blocks_per_sm < 0 || blocks_per_sm > 16) return cudaErrorInvalidValue;
  if (n_cols == 0) return cudaSuccess;
  const auto launch_type = [&](auto of_type) {
    return launch_as<decltype(of_type)>(x, out, n_rows, n_cols, x_stride, scratch, vectors,
                                        blocks_per_sm, stream);
  };
  switch (dtype) {
    case DType::kF32: return launch_type(float{});
    case DType::kBF16: return launch_type(__nv_bfloat16{});
    case DType::kF16: return launch_type(__half{});
  }
  return cudaErrorInvalidValue;
}

}  // namespace cuda_vs_triton
