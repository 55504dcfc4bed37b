// The Hopper matrix product (sm_90a): TMA brings tiles into a ring of shared-memory stages, wgmma
// multiplies them there, and the copy engine takes the result away.
//
// A block is persistent and has three warpgroups: one thread of the first produces, that is, walks
// the tiles of out and fills stages; the other two consume, each half of the tile's rows. Producer
// and consumers meet at two barriers a stage, `full` and `empty`. Blocks of a cluster compute tiles
// below each other, which need the same tile of w: each loads a part of it and multicasts it.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "common/cluster.cuh"
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
constexpr int kMaxBlockN = 256;  // columns of bias that shared memory is kept for
constexpr int kConsumers = 2;
constexpr int kMatmulThreads = (1 + kConsumers) * kWarpgroupThreads;

// A stage holds kBlockK columns of x and as many rows of w: 128 bytes, the width of a swizzled row.
template <int kM, int kN>
struct WgmmaTile {
  static constexpr int kBlockM = kM, kBlockN = kN, kBlockK = kBoxCols;
  static_assert(kN <= kMaxBlockN);
  static constexpr int kRowTiles = kM / (kConsumers * kWgmmaM);  // of a consumer
  static constexpr int kSums = kN / 2;                           // of a thread in a row tile
  static constexpr int kXBytes = kM * kSwizzleBytes, kWBytes = kN * kSwizzleBytes;
  static constexpr int kStageBytes = kXBytes + kWBytes;
  static constexpr int kOutBytes = kConsumers * kOutBuffers * kBoxBytes;
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

// n_rows rows (along K) or n_rows columns (across K) of an operand, beginning at `first`, of the
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
      wgmma<T, kX, kW>(acc[i], x + descriptor_bytes(step * kStepBytes<kX> + i * kBoxBytes),
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
  OutBoxes boxes(out_map, s_out + consumer * kOutBuffers * kBoxBytes, consumer + 1);
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
          acc, operand_descriptor(s_x + consumer * Tile::kRowTiles * kBoxBytes, kBoxBytes),
          operand_descriptor(s_x + Tile::kXBytes, kBoxBytes), k_tile == 0);
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

}  // namespace cuda_vs_triton
