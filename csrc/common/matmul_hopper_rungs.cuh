// What the Hopper rungs of matmul's ladder share: the shape of a stage, one stage's copies and
// products, a plain way out, and the launch. x is [m, k] and w [k, n], both row-major; a stage
// holds kDepth of K: rows of x, 128 bytes each, then boxes of w, 64 k by 64 columns each.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "common/cluster.cuh"
#include "common/launch.cuh"
#include "common/matmul_problem.cuh"
#include "common/matmul_wgmma.cuh"
#include "common/pack.cuh"
#include "common/tensor_map.cuh"
#include "common/tma.cuh"
#include "common/warpgroup.cuh"
#include "common/wgmma.cuh"
#include "kernels.h"

namespace cuda_vs_triton::rungs {

using bf16 = __nv_bfloat16;

constexpr int kDepth = kBoxCols;

// kConsumers warpgroups share the rows of a tile of out.
template <int kM, int kN, int kStageCount, int kConsumerCount, int kThreadCount>
struct Shape {
  static constexpr int kBlockM = kM, kBlockN = kN, kStages = kStageCount;
  static constexpr int kConsumers = kConsumerCount, kThreads = kThreadCount;
  static constexpr int kRowTiles = kM / kWgmmaM / kConsumers;  // of a consumer
  static constexpr int kXBytes = kM * kSwizzleBytes;
  static constexpr int kStageBytes = kXBytes + kN * kSwizzleBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + kBoxAlignment;  // to align the first
  using Sums = float[kRowTiles][kN / 2];                                      // of a thread
};

struct Args {
  bf16* out;
  int64_t m, n;
  uint32_t n_rows, n_cols;  // of tiles
  int n_k_tiles;
};

// Address of the first stage in dynamic shared memory, where the swizzle's pattern begins.
__device__ __forceinline__ uint32_t first_stage(const char* s_memory) {
  const auto start = static_cast<uint32_t>(__cvta_generic_to_shared(s_memory));
  return (start + kBoxAlignment - 1) / kBoxAlignment * kBoxAlignment;
}

// Starts the copies of one stage, by one thread: kBlockM rows of x from `row`, kBlockN columns of w
// from `col`, the kDepth of K from `k`. Outside of a matrix are zeros.
template <typename Tile>
__device__ __forceinline__ void load_stage(uint32_t s_stage, const CUtensorMap& x_map,
                                           const CUtensorMap& w_map, int row, int col, int k,
                                           Barrier& landed) {
  landed.arrive_expecting(Tile::kStageBytes);
  load_box(s_stage, x_map, row, k, landed);
  for (int i = 0; i < Tile::kBlockN / kBoxCols; ++i) {
    load_box(s_stage + Tile::kXBytes + i * kBoxBytes, w_map, k, col + i * kBoxCols, landed);
  }
}

// sums += x * w of the stage, for the rows of this consumer; the first stage of a tile begins them.
// Returns when the tensor cores have read the stage.
template <typename Tile>
__device__ __forceinline__ void multiply_stage(typename Tile::Sums& sums, uint32_t s_stage,
                                               int consumer, bool is_first) {
  constexpr auto kX = Major::kAlongK, kW = Major::kAcrossK;
  const uint64_t x =
      operand_descriptor(s_stage + consumer * Tile::kRowTiles * kBoxBytes, kBoxBytes);
  const uint64_t w = operand_descriptor(s_stage + Tile::kXBytes, kBoxBytes);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kDepth / kWgmmaK; ++step) {
#pragma unroll
    for (int i = 0; i < Tile::kRowTiles; ++i) {
      wgmma<bf16, kX, kW>(sums[i], x + descriptor_bytes(step * kStepBytes<kX> + i * kBoxBytes),
                          w + descriptor_bytes(step * kStepBytes<kW>), step > 0 || !is_first);
    }
  }
  wgmma_commit();
  wgmma_wait<0>();
}

// Rounds this consumer's sums and stores them from where they are: 8 rows of 16 bytes a warp and
// instruction, half of each 32-byte sector. `row`, `col`: where the tile of out begins.
template <typename Tile>
__device__ __forceinline__ void store_sums(typename Tile::Sums& sums, const Args& args, int row,
                                           int col, int consumer) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < Tile::kRowTiles; ++i) {
    keep_in_registers(sums[i]);
    const int64_t upper = row + (consumer * Tile::kRowTiles + i) * kWgmmaM + warp * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < Tile::kBlockN / 8; ++j) {
      const int64_t at_col = col + 8 * j + lane % 4 * 2;
      if (at_col >= args.n) continue;  // n is even
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t at_row = upper + 8 * half;
        const float* pair = sums[i] + 4 * j + 2 * half;
        if (at_row < args.m) {
          *reinterpret_cast<uint32_t*>(args.out + at_row * args.n + at_col) =
              pair_from_floats<bf16>(pair[0], pair[1]);
        }
      }
    }
  }
}

// ---- host side -------------------------------------------------------------------------------

// The rungs read rows, not transposed views.
inline bool rungs_take(const MatmulProblem& p) {
  return !p.x_transposed && !p.w_transposed && cuda_vs_triton::tma_takes(p);
}

// Runs kKernel on one block a tile or, where persistent, as many as the device holds, one a
// multiprocessor; in clusters of `cluster` blocks, below each other in out. What TMA cannot
// describe, and other GPUs, take matmul_mma.
template <auto* kKernel, typename Tile>
cudaError_t launch(const MatmulProblem& p, cudaStream_t stream, bool persistent = false,
                   unsigned cluster = 1) {
  if (p.m == 0 || p.n == 0) return cudaSuccess;
  DeviceFacts facts;
  if (cudaError_t error = device_facts(&facts); error != cudaSuccess) return error;
  if (facts.major != 9 || !has_code<kKernel>() || !rungs_take(p)) {
    return matmul_mma(p.x, p.w, p.out, p.m, p.n, p.k, p.x_transposed, p.w_transposed, stream);
  }
  CUtensorMap x_map, w_map;
  cudaError_t error = make_tensor_map(&x_map, p.x, DType::kBF16, p.m, p.k, Tile::kBlockM);
  if (error != cudaSuccess) return error;
  error = make_tensor_map(&w_map, p.w, DType::kBF16, p.k, p.n, kDepth);
  if (error != cudaSuccess) return error;
  error = allow_shared_memory<kKernel>(Tile::kSharedBytes);
  if (error != cudaSuccess) return error;

  const auto tiles = [](int64_t extent, int64_t tile) {
    return static_cast<uint32_t>((extent + tile - 1) / tile);
  };
  const Args args = {static_cast<bf16*>(p.out),
                     p.m,
                     p.n,
                     tiles(p.m, Tile::kBlockM * cluster) * cluster,
                     tiles(p.n, Tile::kBlockN),
                     static_cast<int>(tiles(p.k, kDepth))};
  unsigned blocks = args.n_rows * args.n_cols;
  if (persistent) blocks = min(blocks, facts.n_sms / cluster * cluster);
  return launch_clusters<kKernel>(blocks, Tile::kThreads, Tile::kSharedBytes,
                                  static_cast<int>(cluster), stream, x_map, w_map, args);
}

}  // namespace cuda_vs_triton::rungs
