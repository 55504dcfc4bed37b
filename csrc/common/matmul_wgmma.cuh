// The Hopper matrix product (sm_90a): TMA brings tiles into a ring of shared-memory stages, wgmma
// multiplies them there, and the copy engine takes the result away.
//
// A block is persistent and has three warpgroups: one thread of the first produces, that is, walks
// the tiles of out and fills stages; the other two consume, each half of the tile's rows. Producer
// and consumers meet at two barriers a stage, `full` and `empty`. Blocks of a cluster compute tiles
// below each other, which need the same tile of w: each loads a part of it and multicasts it.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "common/cluster.cuh"
#include "common/launch.cuh"
#include "common/matmul_problem.cuh"
#include "common/mbarrier.cuh"
#include "common/out_boxes.cuh"
#include "common/pack.cuh"
#include "common/tensor_map.cuh"
#include "common/tile_order.cuh"
#include "common/tma.cuh"
#include "common/warpgroup.cuh"
#include "common/wgmma.cuh"

namespace cuda_vs_triton {

constexpr int kMaxStages = 8;
constexpr int kConsumers = 2;
constexpr int kMatmulThreads = (1 + kConsumers) * kWarpgroupThreads;
constexpr int kBandHeight = 2048;  // rows of out: 132 tiles of 128 x 256 are then about a square

// A stage holds kBlockK columns of x and as many rows of w: 128 bytes, the width of a swizzled row.
template <int kM, int kN>
struct WgmmaTile {
  static constexpr int kBlockM = kM, kBlockN = kN, kBlockK = kBoxCols;
  static constexpr int kRowTiles = kM / (kConsumers * kWgmmaM);  // of a consumer
  static constexpr int kSums = kN / 2;                           // of a thread in a row tile
  static constexpr int kXBytes = kM * kSwizzleBytes, kWBytes = kN * kSwizzleBytes;
  static constexpr int kStageBytes = kXBytes + kWBytes;
  static constexpr int kOutBytes = kConsumers * kOutBuffers * kOutBoxBytes;
  static constexpr int shared_bytes(int stages) {
    return kOutBytes + stages * kStageBytes + kBoxAlignment;  // the last to align the first
  }
};

struct WgmmaArgs {
  const void* bias;
  int64_t n;
  uint32_t n_rows, n_cols;  // of tiles; a row is as high as the cluster
  uint32_t band;            // in such rows
  int n_k_tiles, stages, cluster;
};

// The tiles of out that one block computes, one after the other: every gridDim-th.
struct TileWalk {
  uint32_t index, n_tiles, step;

  __device__ __forceinline__ explicit TileWalk(const WgmmaArgs& args)
      : index(blockIdx.x / args.cluster),
        n_tiles(args.n_rows * args.n_cols),
        step(gridDim.x / args.cluster) {}
  __device__ __forceinline__ bool is_over() const { return index >= n_tiles; }
  __device__ __forceinline__ void advance() { index += step; }
  // First row and column of the tile, of the block with this rank in its cluster.
  template <typename Tile>
  __device__ __forceinline__ TilePosition origin(const WgmmaArgs& args, uint32_t rank) const {
    const TilePosition at = banded_tile(index, args.n_rows, args.n_cols, args.band);
    return {static_cast<int>(at.row * args.cluster + rank) * Tile::kBlockM, at.col * Tile::kBlockN};
  }
};

// The ring in shared memory: where its stages are, and the barriers of each.
struct Ring {
  uint32_t stages;  // address of the first
  Barrier* full;    // a stage's bytes have landed
  Barrier* empty;   // all consumers of the cluster are done with it
};

// kRows rows (along K) or kRows columns (across K) of an operand, beginning at `first`, of the
// kBoxCols elements of K that begin at k.
template <Major kMajor, typename Load>
__device__ __forceinline__ void load_operand(uint32_t smem, int first, int n_rows, int k,
                                             const Load& load) {
  if constexpr (kMajor == Major::kAlongK) {
    load(smem, first, k);
  } else {
    for (int i = 0; i < n_rows; i += kBoxCols) load(smem + i * kSwizzleBytes, k, first + i);
  }
}

template <typename Tile, Major kX, Major kW>
__device__ __forceinline__ void produce(const CUtensorMap& x_map, const CUtensorMap& w_map,
                                        const WgmmaArgs& args, const Ring& ring, uint32_t rank) {
  const int w_rows = Tile::kBlockN / args.cluster;  // this block's part of the tile of w
  const uint16_t all_blocks = static_cast<uint16_t>((1 << args.cluster) - 1);
  RingPosition at;
  for (TileWalk walk(args); !walk.is_over(); walk.advance()) {
    const TilePosition origin = walk.origin<Tile>(args, rank);
    for (int k_tile = 0; k_tile < args.n_k_tiles; ++k_tile) {
      Barrier& full = ring.full[at.stage];
      const uint32_t s_x = ring.stages + at.stage * Tile::kStageBytes;
      const uint32_t s_w = s_x + Tile::kXBytes + rank * w_rows * kSwizzleBytes;
      const int k = k_tile * Tile::kBlockK;
      ring.empty[at.stage].wait(at.parity ^ 1);
      full.arrive_expecting(Tile::kStageBytes);
      load_operand<kX>(s_x, origin.row, Tile::kBlockM, k, [&](uint32_t smem, int row, int col) {
        load_box(smem, x_map, row, col, full);
      });
      load_operand<kW>(s_w, origin.col + rank * w_rows, w_rows, k,
                       [&](uint32_t smem, int row, int col) {
                         if (args.cluster == 1) {
                           load_box(smem, w_map, row, col, full);
                         } else {
                           load_box_multicast(smem, w_map, row, col, full, all_blocks);
                         }
                       });
      at.advance(args.stages);
    }
  }
}

// The products of one stage, queued as one batch. x, w: descriptors of what this consumer reads.
template <typename T, typename Tile, Major kX, Major kW>
__device__ __forceinline__ void multiply_stage(float (&acc)[Tile::kRowTiles][Tile::kSums],
                                               uint64_t x, uint64_t w, bool is_first) {
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < Tile::kBlockK / kWgmmaK; ++step) {
#pragma unroll
    for (int i = 0; i < Tile::kRowTiles; ++i) {
      wgmma<T, kX, kW>(acc[i], x + descriptor_bytes(step * kStepBytes<kX> + i * kOutBoxBytes),
                       w + descriptor_bytes(step * kStepBytes<kW>), step > 0 || !is_first);
    }
  }
  wgmma_commit();
}

// One warpgroup's copy of the bias of its tile, a thread two columns. Fetched while the tensor
// cores run: read from global memory in the epilogue it cost 1.4 us a tile on an H200.
template <typename T>
class TileBias {
 public:
  __device__ __forceinline__ explicit TileBias(uint32_t* s_pairs) : s_pairs_(s_pairs) {}

  // n and the tile's width are even.
  template <typename Tile>
  __device__ __forceinline__ void fetch(const void* bias, int64_t col, int64_t n) const {
    const int thread = threadIdx.x % kWarpgroupThreads;
    if (2 * thread >= Tile::kBlockN) return;
    const auto* pairs = static_cast<const uint32_t*>(bias);
    s_pairs_[thread] = col + 2 * thread < n ? pairs[col / 2 + thread] : 0;
  }

  // Of columns 8 * j + 2 * (lane % 4) and the next.
  __device__ __forceinline__ float2 at(int j) const {
    const uint32_t pair = s_pairs_[4 * j + threadIdx.x % 4];
    const auto* elements = reinterpret_cast<const T*>(&pair);
    return {to_float(elements[0]), to_float(elements[1])};
  }

 private:
  uint32_t* s_pairs_;
};

// Block j of 16 columns of the sums, as OutBoxes takes it.
template <typename T, typename Epilogue, int kSums>
__device__ __forceinline__ void finish_block(const float (&acc)[kSums], const TileBias<T>& bias,
                                             int j, uint32_t (&block)[4]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float2 b = Epilogue::kHasBias ? bias.at(2 * j + i) : float2{0.0f, 0.0f};
    const float* sums = acc + 8 * j + 4 * i;
    block[2 * i] =
        pair_from_floats<T>(Epilogue::apply(sums[0] + b.x), Epilogue::apply(sums[1] + b.y));
    block[2 * i + 1] =
        pair_from_floats<T>(Epilogue::apply(sums[2] + b.x), Epilogue::apply(sums[3] + b.y));
  }
}

template <typename T, typename Epilogue, typename Tile, Major kX, Major kW>
__device__ __forceinline__ void consume(const CUtensorMap& out_map, const WgmmaArgs& args,
                                        const Ring& ring, uint32_t rank, int consumer,
                                        uint32_t s_out, uint32_t* s_bias) {
  const int thread = threadIdx.x % kWarpgroupThreads;
  const auto release = [&](int stage) {
    if (thread < args.cluster) ring.empty[stage].arrive_at(thread);
  };
  OutBoxes boxes(out_map, s_out + consumer * kOutBuffers * kOutBoxBytes, consumer + 1);
  const TileBias<T> bias(s_bias + consumer * Tile::kBlockN / 2);
  RingPosition at;
  for (TileWalk walk(args); !walk.is_over(); walk.advance()) {
    const TilePosition origin = walk.origin<Tile>(args, rank);
    float acc[Tile::kRowTiles][Tile::kSums];
    int previous = 0;
    for (int k_tile = 0; k_tile < args.n_k_tiles; ++k_tile) {
      const uint32_t s_x = ring.stages + at.stage * Tile::kStageBytes;
      ring.full[at.stage].wait(at.parity);
      multiply_stage<T, Tile, kX, kW>(
          acc, operand_descriptor(s_x + consumer * Tile::kRowTiles * kOutBoxBytes, kOutBoxBytes),
          operand_descriptor(s_x + Tile::kXBytes, kOutBoxBytes), k_tile == 0);
      if (k_tile == 0) {
        if constexpr (Epilogue::kHasBias) bias.template fetch<Tile>(args.bias, origin.col, args.n);
      } else {
        wgmma_wait<1>();
        release(previous);
      }
      previous = at.stage;
      at.advance(args.stages);
    }
    if constexpr (Epilogue::kHasBias) sync_warpgroup(consumer + 1);  // all of the bias is there
    wgmma_wait<0>();
    release(previous);
#pragma unroll
    for (int i = 0; i < Tile::kRowTiles; ++i) {
      keep_in_registers(acc[i]);
      boxes.template store<Tile::kBlockN>(
          origin.row + (consumer * Tile::kRowTiles + i) * kWgmmaM, origin.col,
          [&](int j, uint32_t (&block)[4]) { finish_block<T, Epilogue>(acc[i], bias, j, block); });
    }
  }
  boxes.finish();
}

template <typename T, typename Epilogue, typename Tile, Major kX, Major kW>
__global__ void __launch_bounds__(kMatmulThreads, 1)
    matmul_wgmma_kernel(const __grid_constant__ CUtensorMap x_map,
                        const __grid_constant__ CUtensorMap w_map,
                        const __grid_constant__ CUtensorMap out_map, const WgmmaArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char s_memory[];
  __shared__ Barrier s_full[kMaxStages], s_empty[kMaxStages];
  __shared__ uint32_t s_bias[Epilogue::kHasBias ? kConsumers * Tile::kBlockN / 2 : 1];
  const uint32_t s_start = static_cast<uint32_t>(__cvta_generic_to_shared(s_memory));
  const uint32_t s_out = (s_start + kBoxAlignment - 1) / kBoxAlignment * kBoxAlignment;
  const Ring ring = {s_out + Tile::kOutBytes, s_full, s_empty};
  const uint32_t rank = blockIdx.x % args.cluster;
  const int warpgroup = threadIdx.x / kWarpgroupThreads;
  if (threadIdx.x == 0) {
    prefetch_tensor_map(x_map);
    prefetch_tensor_map(w_map);
    prefetch_tensor_map(out_map);
    for (int stage = 0; stage < args.stages; ++stage) {
      s_full[stage].init(1);
      s_empty[stage].init(kConsumers * args.cluster);
    }
    fence_barrier_init();
  }
  sync_cluster();  // all barriers of the cluster are ready
  // 168 registers a thread at launch; 40 + 2 * 232 is what 3 * 168 becomes.
  if (warpgroup == 0) {
    shrink_registers<40>();
    if (threadIdx.x == 0) produce<Tile, kX, kW>(x_map, w_map, args, ring, rank);
  } else {
    grow_registers<232>();
    consume<T, Epilogue, Tile, kX, kW>(out_map, args, ring, rank, warpgroup - 1, s_out, s_bias);
  }
  sync_cluster();  // nobody arrives at a barrier of a block that has ended
#endif
}

// ---- host side -------------------------------------------------------------------------------

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
  if (config->blocks == 0) config->blocks = facts.n_sms;
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
