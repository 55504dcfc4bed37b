// matmul, sixth rung: Hopper's tensor cores, which read shared memory by themselves, and its copy
// engine, which fills it by itself. They take turns.
//
// Ownership: a block of one warpgroup owns 128 x 128 outputs, two wgmma of 64 rows after each
//   other. One thread starts the copies of 64 of K; all wait, multiply, and wait again.
// Bytes: 4 K / 128 from L2 for each output. Nobody multiplies while a stage lands, except the other
//   blocks of the multiprocessor.
// Levers left unused: copies ahead of their use; wider tiles.
#include "common/matmul_hopper_rungs.cuh"

namespace cuda_vs_triton {
namespace {

using Tile = rungs::Shape<128, 128, 1, 1, kWarpgroupThreads>;

__global__ void __launch_bounds__(Tile::kThreads)
    matmul_tma_wgmma_kernel(const __grid_constant__ CUtensorMap x_map,
                            const __grid_constant__ CUtensorMap w_map, const rungs::Args args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char s_memory[];
  __shared__ Barrier s_landed;
  const uint32_t s_stage = rungs::first_stage(s_memory);
  const int row = blockIdx.x / args.n_cols * Tile::kBlockM;
  const int col = blockIdx.x % args.n_cols * Tile::kBlockN;
  if (threadIdx.x == 0) {
    s_landed.init(1);
    fence_barrier_init();
  }
  __syncthreads();  // the barrier is ready

  Tile::Sums sums;
  for (int k_tile = 0; k_tile < args.n_k_tiles; ++k_tile) {
    if (threadIdx.x == 0) {
      rungs::load_stage<Tile>(s_stage, x_map, w_map, row, col, k_tile * rungs::kDepth, s_landed);
    }
    s_landed.wait(k_tile % 2);
    rungs::multiply_stage<Tile>(sums, s_stage, 0, k_tile == 0);
    __syncthreads();  // all warps are done with the stage
  }
  rungs::store_sums<Tile>(sums, args, row, col, 0);
#endif
}

}  // namespace

cudaError_t matmul_tma_wgmma(const void* x, const void* w, void* out, int64_t m, int64_t n,
                             int64_t k, bool x_transposed, bool w_transposed, cudaStream_t stream) {
  return rungs::launch<matmul_tma_wgmma_kernel, Tile>(
      {x, w, nullptr, out, m, n, k, x_transposed, w_transposed}, stream);
}

}  // namespace cuda_vs_triton
