// The order in which blocks take the tiles of a matrix.
#pragma once

#include <cstdint>

namespace cuda_vs_triton {

constexpr int kBandHeight = 2048;  // rows of out: 132 tiles of 128 x 256 are then about a square

struct TilePosition {
  int row, col;  // in tiles
};

// Bands of `band` tile rows, walked column by column: the tiles that run at the same time then need
// about as many rows of x as columns of w, and both stay in L2. The last band may be lower.
__device__ __forceinline__ TilePosition banded_tile(uint32_t index, uint32_t n_rows,
                                                    uint32_t n_cols, uint32_t band) {
  const uint32_t first_row = index / (band * n_cols) * band;
  const uint32_t height = min(n_rows - first_row, band);
  const uint32_t in_band = index % (band * n_cols);
  return {static_cast<int>(first_row + in_band % height), static_cast<int>(in_band / height)};
}

}  // namespace cuda_vs_triton
