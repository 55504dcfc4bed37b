// matmul, seventh rung: one warp copies ahead, into a ring of stages, while a warpgroup multiplies.
//
// Ownership: a block owns 128 x 128 outputs: a warpgroup that multiplies, and a producer warp of
//   which one thread works. A stage has two barriers: `full` ends when its bytes have landed,
//   `empty` when they have been read. Nobody meets anywhere else.
// Bytes: as in the rung below, but up to 2 stages of 32 KB are on their way while one is used.
// Two blocks a multiprocessor: one stores its tile while the other multiplies.
// Levers left unused: wider tiles, which ask L2 for fewer bytes a product.
#include "common/matmul_hopper_rungs.cuh"

namespace cuda_vs_triton {
namespace {

using Tile = rungs::Shape<128, 128, 3, 1, kWarpgroupThreads + 32>;

__global__ void __launch_bounds__(Tile::kThreads, 2)
    matmul_ring_kernel(const __grid_constant__ CUtensorMap x_map,
                       const __grid_constant__ CUtensorMap w_map, const rungs::Args args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char s_memory[];
  __shared__ Barrier s_full[Tile::kStages], s_empty[Tile::kStages];
  const uint32_t s_stages = rungs::first_stage(s_memory);
  const int row = blockIdx.x / args.n_cols * Tile::kBlockM;
  const int col = blockIdx.x % args.n_cols * Tile::kBlockN;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      s_full[stage].init(1);
      s_empty[stage].init(1);
    }
    fence_barrier_init();
  }
  __syncthreads();  // the barriers are ready

  RingPosition at;
  if (threadIdx.x >= kWarpgroupThreads) {
    if (threadIdx.x > kWarpgroupThreads) return;  // one thread starts all copies
    for (int k_tile = 0; k_tile < args.n_k_tiles; ++k_tile) {
      s_empty[at.stage].wait(at.parity ^ 1);
      rungs::load_stage<Tile>(s_stages + at.stage * Tile::kStageBytes, x_map, w_map, row, col,
                              k_tile * rungs::kDepth, s_full[at.stage]);
      at.advance(Tile::kStages);
    }
  } else {
    Tile::Sums sums;
    for (int k_tile = 0; k_tile < args.n_k_tiles; ++k_tile) {
      s_full[at.stage].wait(at.parity);
      rungs::multiply_stage<Tile>(sums, s_stages + at.stage * Tile::kStageBytes, 0, k_tile == 0);
      if (threadIdx.x == 0) s_empty[at.stage].arrive();
      at.advance(Tile::kStages);
    }
    rungs::store_sums<Tile>(sums, args, row, col, 0);
  }
#endif
}

}  // namespace

cudaError_t matmul_ring(const void* x, const void* w, void* out, int64_t m, int64_t n, int64_t k,
                        bool x_transposed, bool w_transposed, cudaStream_t stream) {
  return rungs::launch<matmul_ring_kernel, Tile>(
      {x, w, nullptr, out, m, n, k, x_transposed, w_transposed}, stream);
}

}  // namespace cuda_vs_triton
