// The matrix product of sm_80 and newer: cp.async into shared memory, ldmatrix, mma.sync.
//
// Ownership: a block owns one tile of out, block_m x block_n; a warp a rectangle of it.
// Any m, n, k; k = 0 leaves epilogue(bias). Rows that are not whole 16-byte chunks, or a pointer
// that is no multiple of 16 bytes, take an element-load form of one tile: right, several times
// slower. The four layouts differ in how copies walk and in which ldmatrix reads; nothing is
// transposed beforehand.
#pragma once

#include <cstdint>

#include "common/launch.cuh"
#include "common/matmul_fragments.cuh"
#include "common/matmul_problem.cuh"
#include "common/matmul_tile.cuh"
#include "common/tile_order.cuh"

namespace cuda_vs_triton {

constexpr int kMmaBand = 8;    // tile rows that share their w tiles in L2 before moving on
constexpr int kMmaOutPad = 8;  // elements: rows of the staged output start 4 banks apart

// kWarpsM x kWarpsN warps share the tile.
template <int kM, int kN, int kK, int kStageCount, int kRows, int kCols>
struct MmaTile {
  static constexpr int kBlockM = kM, kBlockN = kN, kBlockK = kK, kStages = kStageCount;
  static constexpr int kWarpsM = kRows, kWarpsN = kCols;
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr int kWarpM = kBlockM / kWarpsM, kWarpN = kBlockN / kWarpsN;
  static constexpr int kLoopBytes = (kBlockM + kBlockN) * kBlockK * 2 * kStages;
  static constexpr int kOutBytes = kBlockM * (kBlockN + kMmaOutPad) * 2;
  static constexpr int kSharedBytes = kLoopBytes > kOutBytes ? kLoopBytes : kOutBytes;
  static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0 && kBlockK % 32 == 0 && kStages >= 3);

  // 0 agrees with all.
  static bool agrees(const MatmulConfig& c) {
    return (c.block_m == 0 || c.block_m == kBlockM) && (c.block_n == 0 || c.block_n == kBlockN) &&
           (c.stages == 0 || c.stages == kStages) && c.cluster == 0 && c.blocks == 0;
  }
};

template <typename Tile>
using MmaSums = float[Tile::kWarpM / 16][Tile::kWarpN / 8][4];

// The sums of a finished tile go out through shared memory, so that a warp stores whole 128-byte
// lines. kAligned: rows of out are whole chunks.
template <typename T, typename Epilogue, typename Tile, bool kAligned>
__device__ __forceinline__ void store_mma_tile(const MatmulProblem& problem, int64_t row0,
                                               int64_t col0, int warp_row, int warp_col,
                                               const MmaSums<Tile>& sums, T* s_out) {
  constexpr int kStride = Tile::kBlockN + kMmaOutPad;
  const int lane = threadIdx.x % 32;
  const auto bias = [&](int64_t col) {
    if constexpr (!Epilogue::kHasBias) return 0.0f;
    return col < problem.n ? to_float(static_cast<const T*>(problem.bias)[col]) : 0.0f;
  };
  const auto done = [](float sum, float b) {
    return Epilogue::apply(Epilogue::kHasBias ? sum + b : sum);
  };
#pragma unroll
  for (int j = 0; j < Tile::kWarpN / 8; ++j) {
    const int col = warp_col + j * 8 + lane % 4 * 2;
    const float b0 = bias(col0 + col), b1 = bias(col0 + col + 1);
#pragma unroll
    for (int i = 0; i < Tile::kWarpM / 16; ++i) {
      const float (&sum)[4] = sums[i][j];
      T* to = s_out + (warp_row + i * 16 + lane / 4) * kStride + col;
      *reinterpret_cast<uint32_t*>(to) = pair_from_floats<T>(done(sum[0], b0), done(sum[1], b1));
      *reinterpret_cast<uint32_t*>(to + 8 * kStride) =
          pair_from_floats<T>(done(sum[2], b0), done(sum[3], b1));
    }
  }
  __syncthreads();  // the output tile is complete
  constexpr int kChunksPerRow = Tile::kBlockN / kChunk;
  constexpr int kRowStep = Tile::kThreads / kChunksPerRow;
  const int chunk = threadIdx.x % kChunksPerRow;
  const int64_t col = col0 + chunk * kChunk;
  T* out = static_cast<T*>(problem.out);
  for (int row = threadIdx.x / kChunksPerRow; row < Tile::kBlockM; row += kRowStep) {
    if (row0 + row >= problem.m) break;
    const T* from = s_out + row * kStride + chunk * kChunk;
    T* to = out + (row0 + row) * problem.n + col;
    if constexpr (kAligned) {
      if (col < problem.n) {
        store_pack(reinterpret_cast<uint4*>(to), *reinterpret_cast<const uint4*>(from));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        if (col + i < problem.n) to[i] = from[i];
      }
    }
  }
}

template <typename T, typename Epilogue, typename Tile, bool kXTransposed, bool kWTransposed,
          bool kAligned>
__global__ void __launch_bounds__(Tile::kThreads)
    matmul_mma_kernel(const MatmulProblem problem, uint32_t n_tiles_m, uint32_t n_tiles_n) {
  using XTile = MatrixTile<Tile::kBlockM, Tile::kBlockK, !kXTransposed>;
  using WTile = MatrixTile<Tile::kBlockN, Tile::kBlockK, kWTransposed>;
  using XFragments = Fragments<Operand::kX, XTile, Tile::kWarpM>;
  using WFragments = Fragments<Operand::kW, WTile, Tile::kWarpN>;
  extern __shared__ __align__(128) char s_memory[];
  const uint32_t s_x = shared_address(s_memory);
  const uint32_t s_w = s_x + XTile::kBytes * Tile::kStages;
  const int warp = threadIdx.x / 32;
  const int warp_row = warp / Tile::kWarpsN * Tile::kWarpM;
  const int warp_col = warp % Tile::kWarpsN * Tile::kWarpN;
  const TilePosition tile = banded_tile(blockIdx.x, n_tiles_m, n_tiles_n, kMmaBand);
  const int64_t row0 = int64_t{tile.row} * Tile::kBlockM;
  const int64_t col0 = int64_t{tile.col} * Tile::kBlockN;
  const int n_k_tiles = static_cast<int>((problem.k + Tile::kBlockK - 1) / Tile::kBlockK);

  TileCopy<T, XTile, Tile::kThreads, kAligned> copy_x(problem.x, row0, problem.m, problem.k);
  TileCopy<T, WTile, Tile::kThreads, kAligned> copy_w(problem.w, col0, problem.n, problem.k);
  // Starts the copy of the next K tile, if any; always one commit, so that groups count tiles.
  const auto start_copy = [&](bool exists, int stage) {
    if (exists) {
      copy_x.run(s_x + stage * XTile::kBytes);
      copy_w.run(s_w + stage * WTile::kBytes);
      copy_x.advance();
      copy_w.advance();
    }
    async_copy_commit();
  };

  MmaSums<Tile> sums = {};
  XFragments x[2];
  WFragments w[2];
  const uint32_t x_lane = XFragments::lane_address(s_x, warp_row);
  const uint32_t w_lane = WFragments::lane_address(s_w, warp_col);
  const auto load_fragments = [&](int which, int stage, int step) {
    x[which].load(x_lane + stage * XTile::kBytes, step);
    w[which].load(w_lane + stage * WTile::kBytes, step);
  };

#pragma unroll
  for (int stage = 0; stage < Tile::kStages - 1; ++stage) {
    start_copy(stage < n_k_tiles, stage);
  }
  async_copy_wait<Tile::kStages - 2>();
  __syncthreads();  // K tile 0 has landed for all threads
  if (n_k_tiles > 0) load_fragments(0, 0, 0);

  constexpr int kSteps = Tile::kBlockK / 16;  // even: fragments 0 start every tile
  int stage = 0;                              // of the tile in use
  int free_stage = Tile::kStages - 1;         // of the tile before it, used up
  for (int k_tile = 0; k_tile < n_k_tiles; ++k_tile) {
    const int next_stage = stage + 1 == Tile::kStages ? 0 : stage + 1;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step == kSteps - 1) {
        async_copy_wait<Tile::kStages - 2>();
        __syncthreads();  // the next K tile has landed; the fragments of this one are all read
        load_fragments((step + 1) % 2, next_stage, 0);
      } else {
        load_fragments((step + 1) % 2, stage, step + 1);
      }
      if (step == 0) start_copy(k_tile + Tile::kStages - 1 < n_k_tiles, free_stage);
      const auto& of_x = x[step % 2].words;
      const auto& of_w = w[step % 2].words;
#pragma unroll
      for (int i = 0; i < Tile::kWarpM / 16; ++i) {
#pragma unroll
        for (int j = 0; j < Tile::kWarpN / 8; ++j) {
          mma_16x8x16<T>(sums[i][j], of_x[i], of_w[j / 2][j % 2 * 2], of_w[j / 2][j % 2 * 2 + 1]);
        }
      }
    }
    free_stage = stage;
    stage = next_stage;
  }
  async_copy_wait<0>();
  __syncthreads();  // nobody reads or writes K tiles any more: the memory becomes the output tile
  store_mma_tile<T, Epilogue, Tile, kAligned>(problem, row0, col0, warp_row, warp_col, sums,
                                              reinterpret_cast<T*>(s_memory));
}

template <typename T, typename Epilogue, typename Tile, bool kXTransposed, bool kWTransposed,
          bool kAligned>
cudaError_t launch_mma(const MatmulProblem& problem, cudaStream_t stream) {
  const int64_t n_tiles_m = (problem.m + Tile::kBlockM - 1) / Tile::kBlockM;
  const int64_t n_tiles_n = (problem.n + Tile::kBlockN - 1) / Tile::kBlockN;
  constexpr auto* kKernel =
      matmul_mma_kernel<T, Epilogue, Tile, kXTransposed, kWTransposed, kAligned>;
  if (cudaError_t error = allow_shared_memory<kKernel>(Tile::kSharedBytes); error != cudaSuccess) {
    return error;
  }
  kKernel<<<static_cast<unsigned>(n_tiles_m * n_tiles_n), Tile::kThreads, Tile::kSharedBytes,
            stream>>>(problem, static_cast<uint32_t>(n_tiles_m), static_cast<uint32_t>(n_tiles_n));
  return cudaGetLastError();
}

template <typename... Tiles>
struct MmaTileList {
  static bool contains(const MatmulConfig& config) { return (Tiles::agrees(config) || ...); }

  // With the first tile that agrees with what the configuration fixes.
  template <typename T, typename Epilogue, bool kXTransposed, bool kWTransposed>
  static cudaError_t launch(const MatmulProblem& problem, const MatmulConfig& config,
                            cudaStream_t stream) {
    cudaError_t error = cudaErrorInvalidValue;
    const auto with = [&](auto tile) {
      using Tile = decltype(tile);
      if (!Tile::agrees(config)) return false;
      error = launch_mma<T, Epilogue, Tile, kXTransposed, kWTransposed, true>(problem, stream);
      return true;
    };
    (void)(with(Tiles{}) || ...);
    return error;
  }
};

// 64x64 warp tiles (128 accumulators a thread) need the fewest shared reads a flop. The large tiles
// have 8 such warps and one block an SM: least L2 traffic. 128x128 has 4 and two blocks an SM: one
// block's epilogue runs beside the other's main loop, which pays while K is small. 32 deep and 4
// stages fit the 99 KB that a block of sm_86 and sm_89 may use.
using MmaTiles = MmaTileList<MmaTile<128, 256, 64, 3, 2, 4>, MmaTile<128, 256, 32, 4, 2, 4>,
                             MmaTile<256, 128, 64, 3, 4, 2>, MmaTile<128, 128, 64, 3, 2, 2>,
                             MmaTile<128, 128, 32, 4, 2, 2>, MmaTile<64, 64, 64, 4, 2, 2>>;
using MmaElementTile = MmaTile<128, 128, 32, 3, 2, 4>;

inline MatmulConfig chosen_mma_tile(const MatmulProblem& problem, const DeviceFacts& facts) {
  const auto n_tiles = [&](int64_t m, int64_t n) {
    return ((problem.m + m - 1) / m) * ((problem.n + n - 1) / n);
  };
  const int stages = facts.shared_bytes >= 144 * 1024 ? 3 : 4;
  if (n_tiles(128, 256) >= facts.n_sms) return {128, 256, stages};
  if (n_tiles(128, 128) >= facts.n_sms / 2) return {128, 128, stages};
  return {64, 64, 4};
}

template <typename T, typename Epilogue, bool kXTransposed, bool kWTransposed>
cudaError_t matmul_mma_of_layout(const MatmulProblem& problem, MatmulConfig config,
                                 cudaStream_t stream) {
  const auto aligned = [](const void* p) {
    return reinterpret_cast<uintptr_t>(p) % kPackBytes == 0;
  };
  const int64_t x_row = kXTransposed ? problem.m : problem.k;
  const int64_t w_row = kWTransposed ? problem.k : problem.n;
  const bool all_aligned = (x_row | w_row | problem.n) % kChunk == 0 && aligned(problem.x) &&
                           aligned(problem.w) && aligned(problem.out);
  if (!MmaTiles::contains(config)) return cudaErrorInvalidValue;
  if (!all_aligned) {
    return launch_mma<T, Epilogue, MmaElementTile, kXTransposed, kWTransposed, false>(problem,
                                                                                      stream);
  }
  if (config.block_m == 0 && config.block_n == 0 && config.stages == 0) {
    DeviceFacts facts;
    if (cudaError_t error = device_facts(&facts); error != cudaSuccess) return error;
    config = chosen_mma_tile(problem, facts);
  }
  return MmaTiles::launch<T, Epilogue, kXTransposed, kWTransposed>(problem, config, stream);
}

// cudaErrorInvalidValue for a configuration that is none of MmaTiles, and for a transposed operand
// of a fused product, which no op has.
template <typename T, typename Epilogue>
cudaError_t matmul_mma(const MatmulProblem& problem, const MatmulConfig& config,
                       cudaStream_t stream) {
  const bool x_t = problem.x_transposed, w_t = problem.w_transposed;
  if (!x_t && !w_t) return matmul_mma_of_layout<T, Epilogue, false, false>(problem, config, stream);
  if constexpr (!Epilogue::kHasBias) {
    if (!x_t) return matmul_mma_of_layout<T, Epilogue, false, true>(problem, config, stream);
    if (!w_t) return matmul_mma_of_layout<T, Epilogue, true, false>(problem, config, stream);
    return matmul_mma_of_layout<T, Epilogue, true, true>(problem, config, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace cuda_vs_triton
