// matmul, tenth rung: two blocks of a cluster compute tiles below each other and share those of w.
//
// Ownership: as in the rung below. Each block copies its own tile of x and half of the tile of w,
//   that half into both blocks; so a stage is free when the warpgroups of both have read it.
// Bytes: 2 K (1/256 + 1/256) from L2 for each output, two thirds of the rung below.
// Levers left unused, which the headline has: one product in flight while the next is queued, and a
//   tile's way out by the copy engine.
#include "common/cluster.cuh"
#include "common/matmul_hopper_rungs.cuh"
#include "common/tile_order.cuh"

namespace cuda_vs_triton {
namespace {

using Tile = rungs::Shape<128, 256, 4, 2, 3 * kWarpgroupThreads>;
constexpr int kCluster = 2;
constexpr int kBand = kBandHeight / (Tile::kBlockM * kCluster);  // rows of clusters

// Of the block `rank` in the cluster that takes this pair of tiles.
[[maybe_unused]] __device__ __forceinline__ TilePosition tile_origin(uint32_t pair, int rank,
                                                                     const rungs::Args& args) {
  const TilePosition at = banded_tile(pair, args.n_rows / kCluster, args.n_cols, kBand);
  return {(at.row * kCluster + rank) * Tile::kBlockM, at.col * Tile::kBlockN};
}

[[maybe_unused]] __device__ __forceinline__ void load_shared_stage(uint32_t s_stage,
                                                                   const CUtensorMap& x_map,
                                                                   const CUtensorMap& w_map,
                                                                   TilePosition origin, int rank,
                                                                   int k, Barrier& landed) {
  constexpr int kBoxes = Tile::kBlockN / kBoxCols / kCluster;
  landed.arrive_expecting(Tile::kStageBytes);  // the other block's half of w counts here too
  load_box(s_stage, x_map, origin.row, k, landed);
  for (int i = rank * kBoxes; i < (rank + 1) * kBoxes; ++i) {
    load_box_multicast(s_stage + Tile::kXBytes + i * kBoxBytes, w_map, k, origin.col + i * kBoxCols,
                       landed, (1 << kCluster) - 1);
  }
}

__global__ void __launch_bounds__(Tile::kThreads, 1)
    matmul_multicast_kernel(const __grid_constant__ CUtensorMap x_map,
                            const __grid_constant__ CUtensorMap w_map, const rungs::Args args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char s_memory[];
  __shared__ Barrier s_full[Tile::kStages], s_empty[Tile::kStages];
  const uint32_t s_stages = rungs::first_stage(s_memory);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      s_full[stage].init(1);
      s_empty[stage].init(Tile::kConsumers * kCluster);
    }
    fence_barrier_init();
  }
  sync_cluster();  // the barriers of both blocks are ready

  const int rank = blockIdx.x % kCluster;
  const uint32_t first = blockIdx.x / kCluster, step = gridDim.x / kCluster;
  const uint32_t n_pairs = args.n_rows / kCluster * args.n_cols;
  const int warpgroup = threadIdx.x / kWarpgroupThreads;
  RingPosition at;
  if (warpgroup == 0) {
    shrink_registers<40>();
    if (threadIdx.x == 0) {
      for (uint32_t pair = first; pair < n_pairs; pair += step) {
        const TilePosition origin = tile_origin(pair, rank, args);
        for (int k_tile = 0; k_tile < args.n_k_tiles; ++k_tile) {
          s_empty[at.stage].wait(at.parity ^ 1);
          load_shared_stage(s_stages + at.stage * Tile::kStageBytes, x_map, w_map, origin, rank,
                            k_tile * rungs::kDepth, s_full[at.stage]);
          at.advance(Tile::kStages);
        }
      }
    }
  } else {
    grow_registers<232>();
    const int consumer = warpgroup - 1, thread = threadIdx.x % kWarpgroupThreads;
    for (uint32_t pair = first; pair < n_pairs; pair += step) {
      Tile::Sums sums;
      for (int k_tile = 0; k_tile < args.n_k_tiles; ++k_tile) {
        s_full[at.stage].wait(at.parity);
        rungs::multiply_stage<Tile>(sums, s_stages + at.stage * Tile::kStageBytes, consumer,
                                    k_tile == 0);
        if (thread < kCluster) s_empty[at.stage].arrive_at(thread);
        at.advance(Tile::kStages);
      }
      const TilePosition origin = tile_origin(pair, rank, args);
      rungs::store_sums<Tile>(sums, args, origin.row, origin.col, consumer);
    }
  }
  sync_cluster();  // nobody writes to, or arrives at, a block that has ended
#endif
}

}  // namespace

cudaError_t matmul_multicast(const void* x, const void* w, void* out, int64_t m, int64_t n,
                             int64_t k, bool x_transposed, bool w_transposed, cudaStream_t stream) {
  return rungs::launch<matmul_multicast_kernel, Tile>(
      {x, w, nullptr, out, m, n, k, x_transposed, w_transposed}, stream, true, kCluster);
}

}  // namespace cuda_vs_triton
