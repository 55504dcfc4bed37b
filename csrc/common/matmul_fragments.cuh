// From a tile in shared memory to the operands of mma.sync, for both operands and both orders.
//
// A fragment is 16 of the matrix's own extent by 16 of k: four 8x8 matrices, one ldmatrix. As x it
// is one operand of 16 rows, as w two of 8 columns each, words 0 1 and 2 3. mma wants every lane to
// hold two neighbours in k: ldmatrix gives that where k runs along the rows of memory, and its
// transposing form where it runs across them.
#pragma once

#include <cstdint>

#include "common/matmul_tile.cuh"
#include "common/mma.cuh"

namespace cuda_vs_triton {

enum class Operand { kX, kW };

// The fragments of one 16-deep step of a warp that owns kWarpSide of the tile's own extent.
template <Operand kOperand, typename Tile, int kWarpSide>
struct Fragments {
  static constexpr int kCount = kWarpSide / 16;
  uint32_t words[kCount][4];

  // Shared address, in a tile at `s_tile`, of this lane's row and chunk at step 0 and fragment 0.
  __device__ __forceinline__ static uint32_t lane_address(uint32_t s_tile, int warp_side) {
    const int lane = threadIdx.x % 32;
    // The 32 addresses of an ldmatrix are 16 rows by 2 chunks. Its matrices, lanes 8 i to 8 i + 7,
    // come in the order of mma's registers: for x those of the next 8 m before those of the next
    // 8 k, for w the other way round. So rows come first in x along k and in w across it.
    constexpr bool kRowsFirst = Tile::kAlongK == (kOperand == Operand::kX);
    const int row = kRowsFirst ? lane % 16 : lane % 8 + lane / 16 * 8;
    const int chunk = kRowsFirst ? lane / 16 : lane / 8 % 2;
    const int slot = Tile::kAlongK ? Tile::slot(warp_side + row, chunk)
                                   : Tile::slot(row, warp_side / kChunk + chunk);
    return s_tile + slot * kPackBytes;
  }

  // Stages and rows are multiples of 128 bytes (64 in a tile of 32 columns), and a fragment is two
  // chunks wide, 32 bytes, so moving by whole fragments along a swizzled row is an exclusive or
  // with the same multiple of 32; warps start at multiples of kWarpSide, a power of two.
  __device__ __forceinline__ void load(uint32_t lane, int step) {
    static_assert((kWarpSide & (kWarpSide - 1)) == 0);
    constexpr int kRowBytes = Tile::kCols * 2;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if constexpr (Tile::kAlongK) {
        load_matrix_x4(words[i], (lane ^ (step * 32)) + i * 16 * kRowBytes);
      } else {
        load_matrix_x4_trans(words[i], (lane ^ (i * 32)) + step * 16 * kRowBytes);
      }
    }
  }
};

}  // namespace cuda_vs_triton
