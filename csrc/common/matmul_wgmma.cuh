// How matmul_wgmma_kernel is launched: what it takes, its tiles, and what fills in a configuration.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "common/launch.cuh"
#include "common/matmul_problem.cuh"
#include "common/matmul_wgmma_kernel.cuh"
#include "common/tensor_map.cuh"
#include "kernels.h"

namespace cuda_vs_triton {

// What a tensor map can describe. 16 bytes are 8 elements; K = 0 has nothing to load.
inline bool tma_takes(const MatmulProblem& p) {
  const auto aligned = [](const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % kPackBytes == 0;
  };
  const int64_t x_pitch = p.x_transposed ? p.m : p.k, w_pitch = p.w_transposed ? p.k : p.n;
  return p.k > 0 && (p.m | p.n | p.k) <= kMaxMapExtent && x_pitch % 8 == 0 && w_pitch % 8 == 0 &&
         p.n % 8 == 0 && aligned(p.x) && aligned(p.w) && aligned(p.out) && aligned(p.bias);
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
constexpr int kStaticBytes = 2 * kMaxStages * static_cast<int>(sizeof(Barrier)) + kConsumers * 512;

template <auto* kKernel, typename Tile>
cudaError_t launch_clusters(const TensorMaps& maps, const WgmmaArgs& args, int blocks,
                            const DeviceFacts& facts, cudaStream_t stream) {
  if (cudaError_t error = allow_shared_memory<kKernel>(facts.shared_bytes - kStaticBytes);
      error != cudaSuccess) {
    return error;
  }
  cudaLaunchAttribute cluster_size = {};
  cluster_size.id = cudaLaunchAttributeClusterDimension;
  cluster_size.val.clusterDim.x = args.cluster;
  cluster_size.val.clusterDim.y = cluster_size.val.clusterDim.z = 1;
  cudaLaunchConfig_t launch = {};
  launch.gridDim = dim3(blocks);
  launch.blockDim = dim3(kMatmulThreads);
  launch.dynamicSmemBytes = Tile::shared_bytes(args.stages);
  launch.stream = stream;
  launch.attrs = &cluster_size;
  launch.numAttrs = 1;
  return cudaLaunchKernelEx(&launch, kKernel, maps.x, maps.w, maps.out, args);
}

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

// Fills in what `config` leaves open; its tile is Tile. False where it cannot be launched.
template <typename Tile>
bool complete(MatmulConfig* config, const MatmulProblem& p, const DeviceFacts& facts) {
  const int64_t tile_rows = (p.m + Tile::kBlockM - 1) / Tile::kBlockM;
  const int64_t tile_cols = (p.n + Tile::kBlockN - 1) / Tile::kBlockN;
  if (config->stages == 0) config->stages = max_stages<Tile>(facts);
  if (config->cluster == 0) {
    // An odd last row costs a cluster half its work.
    const bool pays = tile_rows % 2 == 0 || tile_rows >= 16;
    config->cluster = pays && Tile::kBlockN >= 2 * kBoxCols ? 2 : 1;
  }
  const int64_t cluster_rows = (tile_rows + config->cluster - 1) / config->cluster;
  if (config->blocks == 0)
    config->blocks = even_blocks(cluster_rows * tile_cols, config->cluster, facts);
  const int64_t needed = cluster_rows * tile_cols * config->cluster;
  if (config->blocks > needed) config->blocks = static_cast<int>(needed);
  config->blocks -= config->blocks % config->cluster;
  return config->stages >= 2 && config->stages <= max_stages<Tile>(facts) && config->blocks > 0 &&
         (config->cluster == 1 || (config->cluster == 2 && Tile::kBlockN >= 2 * kBoxCols)) &&
         cluster_rows * tile_cols < (int64_t{1} << 31);
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
  return launch_clusters<matmul_wgmma_kernel<T, Epilogue, Tile, kX, kW>, Tile>(
      maps, args, config.blocks, facts, stream);
}

// The largest tile of which there are enough to occupy the card.
inline void choose_tile(MatmulConfig* config, const MatmulProblem& p, const DeviceFacts& facts) {
  const auto n_tiles = [&](int64_t m, int64_t n) {
    return ((p.m + m - 1) / m) * ((p.n + n - 1) / n);
  };
  config->block_m = 128;
  config->block_n = n_tiles(128, 256) * 4 >= facts.n_sms * 3   ? 256
                    : n_tiles(128, 128) * 4 >= facts.n_sms * 3 ? 128
                                                               : 64;
}

template <typename T, typename Epilogue, Major kX, Major kW>
cudaError_t launch_tile(const MatmulProblem& p, MatmulConfig config, cudaStream_t stream) {
  DeviceFacts facts;
  if (cudaError_t error = device_facts(&facts); error != cudaSuccess) return error;
  if (config.block_m == 0 && config.block_n == 0) choose_tile(&config, p, facts);
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
  static std::atomic<int> known[kMaxDevices];  // 0 unknown, 1 no, 2 yes
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  if (device < kMaxDevices && known[device].load() != 0) return known[device].load() == 2;
  DeviceFacts facts;
  cudaFuncAttributes attributes;
  constexpr auto* kKernel =
      matmul_wgmma_kernel<T, Epilogue, WgmmaTile<128, 128>, Major::kAlongK, Major::kAcrossK>;
  const bool available = device_facts(&facts) == cudaSuccess && facts.major == 9 &&
                         cudaFuncGetAttributes(&attributes, kKernel) == cudaSuccess &&
                         attributes.sharedSizeBytes > 0;
  if (device < kMaxDevices) known[device].store(available ? 2 : 1);
  return available;
}

}  // namespace cuda_vs_triton
