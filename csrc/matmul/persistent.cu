// matmul, ninth rung: one block a multiprocessor stays and takes every gridDim-th tile, in bands.
//
// Ownership: as in the rung below, tile after tile. The ring never stops: while the multiplying
//   warpgroups store a tile, the producer fills all stages with the next one's first.
// Bytes: as below; in bands of 16 tile rows the tiles that run together are about as high as wide,
//   so that L2 answers more and DRAM less.
// Levers left unused: every block reads its tile of w for itself; stores by the threads that should
//   multiply.
#include "common/matmul_hopper_rungs.cuh"
#include "common/tile_order.cuh"

namespace cuda_vs_triton {
namespace {

using Tile = rungs::Shape<128, 256, 4, 2, 3 * kWarpgroupThreads>;
constexpr int kBand = kBandHeight / Tile::kBlockM;

[[maybe_unused]] __device__ __forceinline__ TilePosition tile_origin(uint32_t tile,
                                                                     const rungs::Args& args) {
  const TilePosition at = banded_tile(tile, args.n_rows, args.n_cols, kBand);
  return {at.row * Tile::kBlockM, at.col * Tile::kBlockN};
}

__global__ void __launch_bounds__(Tile::kThreads, 1)
    matmul_persistent_kernel(const __grid_constant__ CUtensorMap x_map,
                             const __grid_constant__ CUtensorMap w_map, const rungs::Args args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char s_memory[];
  __shared__ Barrier s_full[Tile::kStages], s_empty[Tile::kStages];
  const uint32_t s_stages = rungs::first_stage(s_memory);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      s_full[stage].init(1);
      s_empty[stage].init(Tile::kConsumers);
    }
    fence_barrier_init();
  }
  __syncthreads();  // the barriers are ready

  const uint32_t n_tiles = args.n_rows * args.n_cols;
  const int warpgroup = threadIdx.x / kWarpgroupThreads;
  RingPosition at;  // goes on from tile to tile
  if (warpgroup == 0) {
    shrink_registers<40>();
    if (threadIdx.x == 0) {
      for (uint32_t tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
        const TilePosition origin = tile_origin(tile, args);
        for (int k_tile = 0; k_tile < args.n_k_tiles; ++k_tile) {
          s_empty[at.stage].wait(at.parity ^ 1);
          rungs::load_stage<Tile>(s_stages + at.stage * Tile::kStageBytes, x_map, w_map, origin.row,
                                  origin.col, k_tile * rungs::kDepth, s_full[at.stage]);
          at.advance(Tile::kStages);
        }
      }
    }
  } else {
    grow_registers<232>();
    const int consumer = warpgroup - 1;
    for (uint32_t tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
      Tile::Sums sums;
      for (int k_tile = 0; k_tile < args.n_k_tiles; ++k_tile) {
        s_full[at.stage].wait(at.parity);
        rungs::multiply_stage<Tile>(sums, s_stages + at.stage * Tile::kStageBytes, consumer,
                                    k_tile == 0);
        if (threadIdx.x % kWarpgroupThreads == 0) s_empty[at.stage].arrive();
        at.advance(Tile::kStages);
      }
      const TilePosition origin = tile_origin(tile, args);
      rungs::store_sums<Tile>(sums, args, origin.row, origin.col, consumer);
    }
  }
#endif
}

}  // namespace

cudaError_t matmul_persistent(const void* x, const void* w, void* out, int64_t m, int64_t n,
                              int64_t k, bool x_transposed, bool w_transposed,
                              cudaStream_t stream) {
  return rungs::launch<matmul_persistent_kernel, Tile>(
      {x, w, nullptr, out, m, n, k, x_transposed, w_transposed}, stream, true);
}

}  // namespace cuda_vs_triton
