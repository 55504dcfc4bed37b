// How matmul_wgmma_kernel is launched: what it takes, its tiles, and what fills in a configuration.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "common/cluster.cuh"
#include "common/launch.cuh"
#include "common/matmul_problem.cuh"
#include "common/matmul_wgmma_kernel.cuh"
#include "common/tensor_map.cuh"
#include "kernels.h"

namespace cuda_vs_triton {

// What tensor maps can describe: rows of whole 16-byte packs. K = 0 has nothing to load.
inline bool tma_takes(const MatmulProblem& p) {
  const auto packs = [](int64_t n) { return n % kPackSize<__half> == 0; };
  const auto aligned = [](const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % kPackBytes == 0;
  };
  return p.k > 0 && p.m <= kMaxMapExtent && p.n <= kMaxMapExtent && p.k <= kMaxMapExtent &&
         packs(p.x_transposed ? p.m : p.k) && packs(p.w_transposed ? p.k : p.n) && packs(p.n) &&
         aligned(p.x) && aligned(p.w) && aligned(p.out) && aligned(p.bias);
}

struct TensorMaps {
  CUtensorMap x, w, out;
};

// Memory is [m, k] or, transposed, [k, m] for x; [n, k] where w is transposed, else [k, n]. A box
// is kBoxCols wide and as high as the operand's tile along K; across K both sides are kBoxCols.
template <typename Tile>
cudaError_t make_tensor_maps(TensorMaps* maps, const MatmulProblem& p, DType dtype, int cluster) {
  const int x_box = p.x_transposed ? kBoxCols : Tile::kBlockM;
  const int w_box = p.w_transposed ? Tile::kBlockN / cluster : kBoxCols;
  cudaError_t error = make_tensor_map(&maps->x, p.x, dtype, p.x_transposed ? p.k : p.m,
                                      p.x_transposed ? p.m : p.k, x_box);
  if (error != cudaSuccess) return error;
  error = make_tensor_map(&maps->w, p.w, dtype, p.w_transposed ? p.n : p.k,
                          p.w_transposed ? p.k : p.n, w_box);
  if (error != cudaSuccess) return error;
  return make_tensor_map(&maps->out, p.out, dtype, p.m, p.n, kWgmmaM);
}

// Of static shared memory: the barriers, and the bias of the widest tile for each consumer.
constexpr int kStaticBytes =
    2 * kMaxStages * static_cast<int>(sizeof(Barrier)) + kConsumers * kMaxBlockN * 2;

template <typename Tile>
int max_stages(const DeviceFacts& facts) {
  const int bytes = facts.shared_bytes - kStaticBytes - Tile::shared_bytes(0);
  return bytes / Tile::kStageBytes < kMaxStages ? bytes / Tile::kStageBytes : kMaxStages;
}

// The fewest blocks that need no more turns than all multiprocessors would: their tiles are spread
// evenly, and under the power limit the rest of the card runs faster. On an H200 128 instead of 132
// took 0.3 to 0.5 % off 4096 and 8192 cubed.
inline int even_blocks(int64_t n_cluster_tiles, int cluster, const DeviceFacts& facts) {
  const int64_t n_clusters = facts.n_sms / cluster;
  const int64_t turns = (n_cluster_tiles + n_clusters - 1) / n_clusters;
  return static_cast<int>((n_cluster_tiles + turns - 1) / turns) * cluster;
}

// Blocks of a cluster share boxes of w of 64 columns, so each needs one.
template <typename Tile>
constexpr int kMaxCluster = Tile::kBlockN >= 2 * kBoxCols ? 2 : 1;

// A cluster of 2 unless an odd last row of tiles, half of whose work is for nothing, is more than a
// sixteenth of all rows.
template <typename Tile>
int choose_cluster(int64_t tile_rows, int blocks) {
  const bool pays = tile_rows % 2 == 0 || tile_rows >= 16;
  return pays && blocks != 1 ? kMaxCluster<Tile> : 1;
}

// Fills in what `config` leaves open; its tile is Tile. False where it cannot be launched.
template <typename Tile>
bool complete(MatmulConfig* config, const MatmulProblem& p, const DeviceFacts& facts) {
  const int64_t tile_rows = (p.m + Tile::kBlockM - 1) / Tile::kBlockM;
  const int64_t tile_cols = (p.n + Tile::kBlockN - 1) / Tile::kBlockN;
  if (config->cluster == 0) config->cluster = choose_cluster<Tile>(tile_rows, config->blocks);
  if (config->stages == 0) config->stages = max_stages<Tile>(facts);
  if (config->cluster < 1 || config->cluster > kMaxCluster<Tile> || config->stages < 2 ||
      config->stages > max_stages<Tile>(facts) || config->blocks < 0) {
    return false;
  }
  const int64_t n_clusters = (tile_rows + config->cluster - 1) / config->cluster * tile_cols;
  if (n_clusters > INT32_MAX) return false;  // tiles are numbered in 32 bits
  if (config->blocks == 0) config->blocks = even_blocks(n_clusters, config->cluster, facts);
  if (config->blocks > n_clusters * config->cluster) {
    config->blocks = static_cast<int>(n_clusters) * config->cluster;
  }
  config->blocks -= config->blocks % config->cluster;
  return config->blocks > 0;
}

template <typename T, typename Epilogue, typename Tile, Major kX, Major kW>
cudaError_t launch_wgmma(const MatmulProblem& p, MatmulConfig config, const DeviceFacts& facts,
                         cudaStream_t stream) {
  if (!complete<Tile>(&config, p, facts)) return cudaErrorInvalidValue;
  TensorMaps maps;
  constexpr DType kDType = std::is_same_v<T, __half> ? DType::kF16 : DType::kBF16;
  if (cudaError_t error = make_tensor_maps<Tile>(&maps, p, kDType, config.cluster);
      error != cudaSuccess) {
    return error;
  }
  const int row_height = Tile::kBlockM * config.cluster;
  const WgmmaArgs args = {p.bias,
                          p.n,
                          static_cast<uint32_t>((p.m + row_height - 1) / row_height),
                          static_cast<uint32_t>((p.n + Tile::kBlockN - 1) / Tile::kBlockN),
                          static_cast<uint32_t>(kBandHeight / row_height),
                          static_cast<int>((p.k + Tile::kBlockK - 1) / Tile::kBlockK),
                          config.stages,
                          config.cluster};
  constexpr auto* kKernel = matmul_wgmma_kernel<T, Epilogue, Tile, kX, kW>;
  if (cudaError_t error = allow_shared_memory<kKernel>(facts.shared_bytes - kStaticBytes);
      error != cudaSuccess) {
    return error;
  }
  return launch_clusters<kKernel>(config.blocks, kMatmulThreads, Tile::shared_bytes(config.stages),
                                  config.cluster, stream, maps.x, maps.w, maps.out, args);
}

// The widest tile of which there are enough for three quarters of the multiprocessors: on an H200
// 128 x 256 beat smaller ones at 2048 cubed (97 % of them), and lost at 1024 cubed (24 %).
inline void choose_tile(MatmulConfig* config, const MatmulProblem& p, const DeviceFacts& facts) {
  if (config->block_m == 0) config->block_m = 128;
  if (config->block_n != 0) return;
  const auto occupy = [&](int64_t block_n) {
    const int64_t n_tiles =
        ((p.m + config->block_m - 1) / config->block_m) * ((p.n + block_n - 1) / block_n);
    return n_tiles >= facts.n_sms * 3 / 4;
  };
  const bool is_tall = config->block_m > 128;
  config->block_n = is_tall ? 128 : occupy(256) ? 256 : occupy(128) ? 128 : 64;
}

template <typename T, typename Epilogue, Major kX, Major kW>
cudaError_t launch_tile(const MatmulProblem& p, MatmulConfig config, cudaStream_t stream) {
  DeviceFacts facts;
  if (cudaError_t error = device_facts(&facts); error != cudaSuccess) return error;
  choose_tile(&config, p, facts);
  const auto is = [&](int m, int n) { return config.block_m == m && config.block_n == n; };
  const auto launch = [&](auto tile) {
    return launch_wgmma<T, Epilogue, decltype(tile), kX, kW>(p, config, facts, stream);
  };
  if (is(128, 256)) return launch(WgmmaTile<128, 256>{});
  if (is(256, 128)) return launch(WgmmaTile<256, 128>{});
  if (is(128, 128)) return launch(WgmmaTile<128, 128>{});
  if (is(128, 64)) return launch(WgmmaTile<128, 64>{});
  return cudaErrorInvalidValue;
}

// For a problem that TMA takes, on a device on which the form is available. The fused ops have no
// transposed operands.
template <typename T, typename Epilogue>
cudaError_t matmul_wgmma(const MatmulProblem& p, const MatmulConfig& config, cudaStream_t stream) {
  constexpr Major kAlong = Major::kAlongK, kAcross = Major::kAcrossK;
  if constexpr (!Epilogue::kHasBias) {
    if (p.x_transposed && p.w_transposed) {
      return launch_tile<T, Epilogue, kAcross, kAlong>(p, config, stream);
    }
    if (p.x_transposed) return launch_tile<T, Epilogue, kAcross, kAcross>(p, config, stream);
    if (p.w_transposed) return launch_tile<T, Epilogue, kAlong, kAlong>(p, config, stream);
  }
  if (p.x_transposed || p.w_transposed) return cudaErrorInvalidValue;
  return launch_tile<T, Epilogue, kAlong, kAcross>(p, config, stream);
}

// Whether the current device is a Hopper and the code that it loaded was compiled for sm_90a: in
// any other the kernel is empty and has no barriers.
template <typename T, typename Epilogue>
bool wgmma_available() {
  DeviceFacts facts;
  return device_facts(&facts) == cudaSuccess && facts.major == 9 &&
         has_code<matmul_wgmma_kernel<T, Epilogue, WgmmaTile<128, 128>, Major::kAlongK,
                                      Major::kAcrossK>>();
}

}  // namespace cuda_vs_triton
