// matmul, eighth rung: tiles of 128 x 256, of two warpgroups that multiply and one that copies.
//
// Ownership: a block owns 128 x 256 outputs; each multiplying warpgroup 64 of the rows, as one
//   wgmma of 64 x 256, whose 128 sums a thread are why registers are handed over by role. They
//   share a stage's tile of w, and one multiplies while the other waits for its last product.
// Bytes: 2 K (1/128 + 1/256) from L2 for each output, a quarter less than in the rung below.
// Levers left unused: the tile's way out, during which its multiprocessor multiplies nothing; an
//   order of tiles that finds more of x and w in L2.
#include "common/matmul_hopper_rungs.cuh"

namespace cuda_vs_triton {
namespace {

using Tile = rungs::Shape<128, 256, 4, 2, 3 * kWarpgroupThreads>;

__global__ void __launch_bounds__(Tile::kThreads, 1)
    matmul_wide_kernel(const __grid_constant__ CUtensorMap x_map,
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
      s_empty[stage].init(Tile::kConsumers);
    }
    fence_barrier_init();
  }
  __syncthreads();  // the barriers are ready

  const int warpgroup = threadIdx.x / kWarpgroupThreads;
  RingPosition at;
  // 168 registers a thread at launch; 40 + 2 * 232 is what 3 * 168 becomes.
  if (warpgroup == 0) {
    shrink_registers<40>();
    if (threadIdx.x == 0) {
      for (int k_tile = 0; k_tile < args.n_k_tiles; ++k_tile) {
        s_empty[at.stage].wait(at.parity ^ 1);
        rungs::load_stage<Tile>(s_stages + at.stage * Tile::kStageBytes, x_map, w_map, row, col,
                                k_tile * rungs::kDepth, s_full[at.stage]);
        at.advance(Tile::kStages);
      }
    }
  } else {
    grow_registers<232>();
    const int consumer = warpgroup - 1;
    Tile::Sums sums;
    for (int k_tile = 0; k_tile < args.n_k_tiles; ++k_tile) {
      s_full[at.stage].wait(at.parity);
      rungs::multiply_stage<Tile>(sums, s_stages + at.stage * Tile::kStageBytes, consumer,
                                  k_tile == 0);
      if (threadIdx.x % kWarpgroupThreads == 0) s_empty[at.stage].arrive();
      at.advance(Tile::kStages);
    }
    rungs::store_sums<Tile>(sums, args, row, col, consumer);
  }
#endif
}

}  // namespace

cudaError_t matmul_wide(const void* x, const void* w, void* out, int64_t m, int64_t n, int64_t k,
                        bool x_transposed, bool w_transposed, cudaStream_t stream) {
  return rungs::launch<matmul_wide_kernel, Tile>(
      {x, w, nullptr, out, m, n, k, x_transposed, w_transposed}, stream);
}

}  // namespace cuda_vs_triton
