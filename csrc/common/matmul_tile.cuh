// Tiles of a 16-bit matrix in shared memory: where each 16-byte chunk lies, and the copies there.
//
// A matrix of a product has an extent of its own (m of x, n of w: here `side`) and k. Memory may
// have either of them along its rows; a tile in shared memory keeps memory's order, so that copies
// never transpose: ldmatrix does, on the way to registers.
#pragma once

#include <cstdint>

#include "common/async_copy.cuh"
#include "common/pack.cuh"

namespace cuda_vs_triton {

constexpr int kChunk = 8;  // 16-bit elements in 16 bytes: the unit of copies and swizzles

// kAlongK: k runs along the rows of memory, as in a row-major x.
template <int kSideExtent, int kDepthExtent, bool kAlongKValue>
struct MatrixTile {
  static constexpr int kSide = kSideExtent, kDepth = kDepthExtent;
  static constexpr bool kAlongK = kAlongKValue;
  static constexpr int kRows = kAlongK ? kSide : kDepth;
  static constexpr int kCols = kAlongK ? kDepth : kSide;
  static constexpr int kChunksPerRow = kCols / kChunk;
  static constexpr int kBytes = kSide * kDepth * 2;
  static_assert(kCols == 32 || kCols % 64 == 0);

  // Where a chunk lies, in chunks. Eight rows that one ldmatrix reads together must lie in
  // different 16-byte bank groups; in tiles of 32 columns two rows share each 128 bytes.
  __device__ __forceinline__ static int slot(int row, int chunk) {
    if constexpr (kCols == 32) {
      return row * 4 + (chunk ^ ((row >> 1) & 3));
    } else {
      return row * kChunksPerRow + (chunk ^ (row & 7));
    }
  }
};

// The first n_valid of 8 elements, then zeros: for rows that cp.async cannot take.
template <typename T>
__device__ __forceinline__ uint4 load_elements(const T* from, int64_t n_valid) {
  const uint16_t* bits = reinterpret_cast<const uint16_t*>(from);
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t lo = 2 * i < n_valid ? bits[2 * i] : 0;
    const uint32_t hi = 2 * i + 1 < n_valid ? bits[2 * i + 1] : 0;
    words[i] = lo | hi << 16;
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// Copies the tiles of one panel of a matrix into shared memory, one after the other along k, zeros
// outside of the matrix. `source` and the two `left` counts belong to this thread's first chunk.
// Swizzles repeat every 8 rows, so the shared address of a thread's i-th chunk is its first one
// plus a constant.
template <typename T, typename Tile, int kThreads, bool kAligned>
struct TileCopy {
  static constexpr int kRowStep = kThreads / Tile::kChunksPerRow;
  static constexpr int kSteps = Tile::kRows / kRowStep;
  static_assert(kThreads % Tile::kChunksPerRow == 0 && kRowStep % 8 == 0);
  static_assert(Tile::kRows % kRowStep == 0);

  const T* source;
  int64_t n_cols;
  int64_t rows_left, cols_left;
  uint32_t target;  // byte offset in a stage

  __device__ __forceinline__ TileCopy(const void* matrix, int64_t side0, int64_t n_side,
                                      int64_t n_k)
      : n_cols(Tile::kAlongK ? n_k : n_side) {
    const int chunk = threadIdx.x % Tile::kChunksPerRow;
    const int64_t row = (Tile::kAlongK ? side0 : 0) + threadIdx.x / Tile::kChunksPerRow;
    const int64_t col = (Tile::kAlongK ? 0 : side0) + chunk * kChunk;
    source = static_cast<const T*>(matrix) + row * n_cols + col;
    rows_left = (Tile::kAlongK ? n_side : n_k) - row;
    cols_left = n_cols - col;
    target = Tile::slot(threadIdx.x / Tile::kChunksPerRow, chunk) * kPackBytes;
  }

  __device__ __forceinline__ void run(uint32_t s_tile) const {
    const T* from = source;
    // Compared once in 64 bits, then in 32 for each chunk.
    const int rows = cols_left <= 0 ? 0 : static_cast<int>(min(rows_left, int64_t{Tile::kRows}));
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const uint32_t to = s_tile + target + i * kRowStep * Tile::kChunksPerRow * kPackBytes;
      if constexpr (kAligned) {
        async_copy_16(to, from, i * kRowStep < rows);
      } else {
        store_shared_16(to, load_elements(from, i * kRowStep < rows ? cols_left : 0));
      }
      from += kRowStep * n_cols;
    }
  }

  __device__ __forceinline__ void advance() {
    if constexpr (Tile::kAlongK) {
      source += Tile::kDepth;
      cols_left -= Tile::kDepth;
    } else {
      source += Tile::kDepth * n_cols;
      rows_left -= Tile::kDepth;
    }
  }
};

}  // namespace cuda_vs_triton
