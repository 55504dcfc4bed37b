// out[m, n] = relu(sum_k x[m, k] * w[k, n] + b[n]); bf16 and f16, row-major, fp32 accumulators.
//
// Ownership: a block owns one block_m x block_n tile of out; a warp a rectangle of it; w is read as
//   [K, N] through transposing ldmatrix, so nothing is copied or transposed beforehand.
// Bytes: 2 * (M K + K N + N + M N); flops 2 M N K: bound by the tensor cores for K >= 512 or so.
// Limits: any M, N, K including 0 (K = 0 gives relu(b)). N or K not a multiple of 8, or a pointer
//   not a multiple of 16 bytes, takes an element-load form of one tile: right, several times
//   slower.
// NaN passes relu, -0 becomes +0; bias and relu in fp32, one rounding.
// Choice: mma.sync + cp.async, which runs on sm_80 and newer; on Hopper its instruction peaks at
//   about 65 % of wgmma's. Levers left unused there: TMA, wgmma, persistent blocks.
#include <cstdint>

#include "common/async_copy.cuh"
#include "common/launch.cuh"
#include "common/mma.cuh"
#include "common/pack.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

constexpr int kChunk = 8;   // 16-bit elements in 16 bytes: the unit of copies and swizzles
constexpr int kGroupM = 8;  // tile rows that share their w tiles in L2 before moving on
constexpr int kOutPad = 8;  // elements: rows of the staged output start 4 banks apart

// kWarpsM x kWarpsN warps share the tile.
template <int kM, int kN, int kK, int kStageCount, int kRows, int kCols>
struct TileShape {
  static constexpr int kBlockM = kM, kBlockN = kN, kBlockK = kK, kStages = kStageCount;
  static constexpr int kWarpsM = kRows, kWarpsN = kCols;
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr int kWarpM = kBlockM / kWarpsM, kWarpN = kBlockN / kWarpsN;
  static constexpr int kXBytes = kBlockM * kBlockK * 2, kWBytes = kBlockK * kBlockN * 2;
  static constexpr int kLoopBytes = (kXBytes + kWBytes) * kStages;
  static constexpr int kOutBytes = kBlockM * (kBlockN + kOutPad) * 2;
  static constexpr int kSharedBytes = kLoopBytes > kOutBytes ? kLoopBytes : kOutBytes;
  static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0 && kBlockK % 32 == 0 && kStages >= 3);
};

struct Args {
  const void *x, *w, *b;
  void* out;
  int64_t m, n, k;
  int64_t n_tiles_m, n_tiles_n;
};

// Swizzles: eight rows that one ldmatrix reads together must lie in different 16-byte bank groups.
// x rows are block_k elements: 8 chunks, or 4 with two rows in each 128 bytes.
template <int kBlockK>
__device__ __forceinline__ int x_chunk(int row, int chunk) {
  if constexpr (kBlockK == 32) {
    return row * 4 + (chunk ^ ((row >> 1) & 3));
  } else {
    return row * (kBlockK / kChunk) + (chunk ^ (row & 7));
  }
}
template <int kBlockN>
__device__ __forceinline__ int w_chunk(int row, int chunk) {
  return row * (kBlockN / kChunk) + (chunk ^ (row & 7));
}

// The first n_valid of 8 elements, then zeros: for rows that cp.async cannot take.
template <typename T>
__device__ __forceinline__ uint4 load_elements(const T* from, int64_t n_valid) {
  const uint16_t* bits = reinterpret_cast<const uint16_t*>(from);
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t lo = 2 * i < n_valid ? bits[2 * i] : 0;
    const uint32_t hi = 2 * i + 1 < n_valid ? bits[2 * i + 1] : 0;
    words[i] = lo | hi << 16;
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// Copies [kRows, kCols] tiles of a row-major matrix into shared memory, zeros outside of it. One
// object walks one panel: `source` and the two `left` counts belong to this thread's first chunk.
// kSlot(row, chunk) places a chunk; swizzles repeat every 8 rows, so the shared address of a
// thread's i-th chunk is its first one plus a constant.
template <typename T, int kRows, int kCols, int kThreads, bool kAligned, int (*kSlot)(int, int)>
struct TileCopy {
  static constexpr int kChunksPerRow = kCols / kChunk;
  static constexpr int kRowStep = kThreads / kChunksPerRow;
  static constexpr int kSteps = kRows / kRowStep;
  static_assert(kThreads % kChunksPerRow == 0 && kRowStep % 8 == 0 && kRows % kRowStep == 0);

  const T* source;
  int64_t n_cols;
  int64_t rows_left, cols_left;
  uint32_t target;  // byte offset in a stage

  __device__ __forceinline__ TileCopy(const T* matrix, int64_t row0, int64_t col0, int64_t n_rows,
                                      int64_t n_cols)
      : n_cols(n_cols) {
    const int chunk = threadIdx.x % kChunksPerRow;
    const int row = threadIdx.x / kChunksPerRow;
    source = matrix + (row0 + row) * n_cols + col0 + chunk * kChunk;
    rows_left = n_rows - row0 - row;
    cols_left = n_cols - col0 - chunk * kChunk;
    target = kSlot(row, chunk) * kPackBytes;
  }

  __device__ __forceinline__ void run(uint32_t s_tile) const {
    const T* from = source;
    // Compared once in 64 bits, then in 32 for each chunk.
    const int rows = cols_left <= 0 ? 0 : static_cast<int>(min(rows_left, int64_t{kRows}));
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const uint32_t to = s_tile + target + i * kRowStep * kChunksPerRow * kPackBytes;
      if constexpr (kAligned) {
        async_copy_16(to, from, i * kRowStep < rows);
      } else {
        store_shared_16(to, load_elements(from, i * kRowStep < rows ? cols_left : 0));
      }
      from += kRowStep * n_cols;
    }
  }

  __device__ __forceinline__ void advance_cols() {
    source += kCols;
    cols_left -= kCols;
  }
  __device__ __forceinline__ void advance_rows() {
    source += kRows * n_cols;
    rows_left -= kRows;
  }
};

// Grouped order: kGroupM tile rows advance together along n, so that a wave of blocks touches about
// as many rows of x as columns of w and both panels are found in L2.
__device__ __forceinline__ void tile_of_block(const Args& args, int64_t* tile_m, int64_t* tile_n) {
  // 32 bits hold every tile number of a launchable grid, and their division is cheap.
  const uint32_t in_group = kGroupM * static_cast<uint32_t>(args.n_tiles_n);
  const uint32_t first_m = blockIdx.x / in_group * kGroupM;
  const uint32_t group_m = min(static_cast<uint32_t>(args.n_tiles_m) - first_m, uint32_t{kGroupM});
  const uint32_t i = blockIdx.x % in_group;
  *tile_m = first_m + i % group_m;
  *tile_n = i / group_m;
}

// The operands of one 16-deep step of a warp, in registers.
template <typename Tile>
struct Fragments {
  uint32_t x[Tile::kWarpM / 16][4];
  uint32_t w[Tile::kWarpN / 16][4];  // two 8-column operands each: words 0 1 and 2 3

  // x_lane, w_lane: shared addresses of this lane's row and chunk at step 0 and fragment 0. Stages
  // and rows are multiples of 128 bytes (64 in a 32-deep x tile), and two chunks are 32 bytes, so
  // moving by whole fragments along a swizzled row is an exclusive or with the same multiple of 32.
  __device__ __forceinline__ void load(uint32_t x_lane, uint32_t w_lane, int step) {
#pragma unroll
    for (int i = 0; i < Tile::kWarpM / 16; ++i) {
      load_matrix_x4(x[i], (x_lane ^ (step * 32)) + i * 16 * Tile::kBlockK * 2);
    }
#pragma unroll
    for (int j = 0; j < Tile::kWarpN / 16; ++j) {
      load_matrix_x4_trans(w[j], (w_lane ^ (j * 32)) + step * 16 * Tile::kBlockN * 2);
    }
  }
};

__device__ __forceinline__ float relu(float v) { return v <= 0.0f ? 0.0f : v; }  // NaN stays

template <typename T, typename Tile, bool kAligned>
__global__ void __launch_bounds__(Tile::kThreads) matmul_bias_relu_kernel(const Args args) {
  extern __shared__ __align__(128) char s_memory[];
  const uint32_t s_x = shared_address(s_memory);
  const uint32_t s_w = s_x + Tile::kXBytes * Tile::kStages;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp / Tile::kWarpsN * Tile::kWarpM;
  const int warp_col = warp % Tile::kWarpsN * Tile::kWarpN;
  int64_t tile_m, tile_n;
  tile_of_block(args, &tile_m, &tile_n);
  const int64_t row0 = tile_m * Tile::kBlockM, col0 = tile_n * Tile::kBlockN;
  const int n_k_tiles = static_cast<int>((args.k + Tile::kBlockK - 1) / Tile::kBlockK);

  TileCopy<T, Tile::kBlockM, Tile::kBlockK, Tile::kThreads, kAligned, x_chunk<Tile::kBlockK>>
      copy_x(static_cast<const T*>(args.x), row0, 0, args.m, args.k);
  TileCopy<T, Tile::kBlockK, Tile::kBlockN, Tile::kThreads, kAligned, w_chunk<Tile::kBlockN>>
      copy_w(static_cast<const T*>(args.w), 0, col0, args.k, args.n);
  // Starts the copy of the next K tile, if any; always one commit, so that groups count tiles.
  const auto start_copy = [&](bool exists, int stage) {
    if (exists) {
      copy_x.run(s_x + stage * Tile::kXBytes);
      copy_w.run(s_w + stage * Tile::kWBytes);
      copy_x.advance_cols();
      copy_w.advance_rows();
    }
    async_copy_commit();
  };

  float acc[Tile::kWarpM / 16][Tile::kWarpN / 8][4] = {};
  Fragments<Tile> fragments[2];
  // ldmatrix takes its 32 addresses as 16 rows by two chunks, rows first.
  const uint32_t x_lane =
      s_x + x_chunk<Tile::kBlockK>(warp_row + lane % 16, lane / 16) * kPackBytes;
  const uint32_t w_lane =
      s_w + w_chunk<Tile::kBlockN>(lane % 16, warp_col / kChunk + lane / 16) * kPackBytes;
  const auto load_fragments = [&](Fragments<Tile>& f, int stage, int step) {
    f.load(x_lane + stage * Tile::kXBytes, w_lane + stage * Tile::kWBytes, step);
  };

#pragma unroll
  for (int stage = 0; stage < Tile::kStages - 1; ++stage) {
    start_copy(stage < n_k_tiles, stage);
  }
  async_copy_wait<Tile::kStages - 2>();
  __syncthreads();  // K tile 0 has landed for all threads
  if (n_k_tiles > 0) load_fragments(fragments[0], 0, 0);

  constexpr int kSteps = Tile::kBlockK / 16;  // even: fragments[0] starts every tile
  int stage = 0;                              // of the tile in use
  int free_stage = Tile::kStages - 1;         // of the tile before it, used up
  for (int k_tile = 0; k_tile < n_k_tiles; ++k_tile) {
    const int next_stage = stage + 1 == Tile::kStages ? 0 : stage + 1;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step == kSteps - 1) {
        async_copy_wait<Tile::kStages - 2>();
        __syncthreads();  // the next K tile has landed; the fragments of this one are all read
        load_fragments(fragments[(step + 1) % 2], next_stage, 0);
      } else {
        load_fragments(fragments[(step + 1) % 2], stage, step + 1);
      }
      if (step == 0) start_copy(k_tile + Tile::kStages - 1 < n_k_tiles, free_stage);
      const Fragments<Tile>& f = fragments[step % 2];
#pragma unroll
      for (int i = 0; i < Tile::kWarpM / 16; ++i) {
#pragma unroll
        for (int j = 0; j < Tile::kWarpN / 8; ++j) {
          mma_16x8x16<T>(acc[i][j], f.x[i], f.w[j / 2][j % 2 * 2], f.w[j / 2][j % 2 * 2 + 1]);
        }
      }
    }
    free_stage = stage;
    stage = next_stage;
  }

  // Epilogue: through shared memory, so that a warp stores whole 128-byte lines.
  async_copy_wait<0>();
  __syncthreads();  // nobody reads or writes K tiles any more: the memory becomes the output tile
  constexpr int kOutStride = Tile::kBlockN + kOutPad;
  T* s_out = reinterpret_cast<T*>(s_memory);
  const T* bias = static_cast<const T*>(args.b);
#pragma unroll
  for (int j = 0; j < Tile::kWarpN / 8; ++j) {
    const int col = warp_col + j * 8 + lane % 4 * 2;
    const float b0 = col0 + col < args.n ? to_float(bias[col0 + col]) : 0.0f;
    const float b1 = col0 + col + 1 < args.n ? to_float(bias[col0 + col + 1]) : 0.0f;
#pragma unroll
    for (int i = 0; i < Tile::kWarpM / 16; ++i) {
      const int row = warp_row + i * 16 + lane / 4;
      *reinterpret_cast<uint32_t*>(s_out + row * kOutStride + col) =
          pair_from_floats<T>(relu(acc[i][j][0] + b0), relu(acc[i][j][1] + b1));
      *reinterpret_cast<uint32_t*>(s_out + (row + 8) * kOutStride + col) =
          pair_from_floats<T>(relu(acc[i][j][2] + b0), relu(acc[i][j][3] + b1));
    }
  }
  __syncthreads();  // the output tile is complete
  constexpr int kChunksPerRow = Tile::kBlockN / kChunk;
  constexpr int kRowStep = Tile::kThreads / kChunksPerRow;
  const int chunk = threadIdx.x % kChunksPerRow;
  const int64_t col = col0 + chunk * kChunk;
  T* out = static_cast<T*>(args.out);
  for (int row = threadIdx.x / kChunksPerRow; row < Tile::kBlockM; row += kRowStep) {
    if (row0 + row >= args.m) break;
    const T* from = s_out + row * kOutStride + chunk * kChunk;
    T* to = out + (row0 + row) * args.n + col;
    if constexpr (kAligned) {
      if (col < args.n) {
        store_pack(reinterpret_cast<uint4*>(to), *reinterpret_cast<const uint4*>(from));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        if (col + i < args.n) to[i] = from[i];
      }
    }
  }
}

template <typename T, typename Tile, bool kAligned>
cudaError_t launch(Args args, cudaStream_t stream) {
  args.n_tiles_m = (args.m + Tile::kBlockM - 1) / Tile::kBlockM;
  args.n_tiles_n = (args.n + Tile::kBlockN - 1) / Tile::kBlockN;
  constexpr auto* kKernel = matmul_bias_relu_kernel<T, Tile, kAligned>;
  if (cudaError_t error = allow_shared_memory<kKernel>(Tile::kSharedBytes); error != cudaSuccess) {
    return error;
  }
  const unsigned n_blocks = static_cast<unsigned>(args.n_tiles_m * args.n_tiles_n);
  kKernel<<<n_blocks, Tile::kThreads, Tile::kSharedBytes, stream>>>(args);
  return cudaGetLastError();
}

struct Config {
  int block_m, block_n, block_k, stages;
};

template <typename Tile>
constexpr bool matches(const Config& c) {
  return c.block_m == Tile::kBlockM && c.block_n == Tile::kBlockN && c.block_k == Tile::kBlockK &&
         c.stages == Tile::kStages;
}

template <typename... Tiles>
struct TileList {
  static bool contains(const Config& config) { return (matches<Tiles>(config) || ...); }

  template <typename T>
  static cudaError_t launch_matching(const Config& config, const Args& args, cudaStream_t stream) {
    cudaError_t error = cudaErrorInvalidValue;
    (void)((matches<Tiles>(config) && (error = launch<T, Tiles, true>(args, stream), true)) || ...);
    return error;
  }
};

// 64x64 warp tiles (128 accumulators a thread) need the fewest shared reads a flop. The large tiles
// have 8 such warps and one block an SM: least L2 traffic. 128x128 has 4 and two blocks an SM: one
// block's epilogue runs beside the other's main loop, which pays while K is small.
using AllTiles = TileList<TileShape<128, 256, 64, 3, 2, 4>, TileShape<128, 256, 64, 4, 2, 4>,
                          TileShape<128, 256, 32, 4, 2, 4>, TileShape<256, 128, 64, 3, 4, 2>,
                          TileShape<256, 128, 32, 4, 4, 2>, TileShape<128, 128, 64, 3, 2, 2>,
                          TileShape<128, 128, 32, 4, 2, 2>, TileShape<128, 128, 32, 5, 2, 2>,
                          TileShape<64, 128, 64, 4, 2, 2>, TileShape<64, 64, 64, 4, 2, 2>>;
using ElementTile = TileShape<128, 128, 32, 3, 2, 4>;

Config choose(const Args& args, const DeviceFacts& facts) {
  const auto n_tiles = [&](int64_t m, int64_t n) {
    return ((args.m + m - 1) / m) * ((args.n + n - 1) / n);
  };
  const bool big_shared = facts.shared_bytes >= 144 * 1024;
  if (n_tiles(128, 256) >= facts.n_sms) {
    return big_shared ? Config{128, 256, 64, 3} : Config{128, 256, 32, 4};
  }
  if (n_tiles(128, 128) >= facts.n_sms / 2) {
    return big_shared ? Config{128, 128, 64, 3} : Config{128, 128, 32, 4};
  }
  return {64, 64, 64, 4};
}

template <typename T>
cudaError_t dispatch(const Args& args, Config config, cudaStream_t stream) {
  const auto aligned = [](const void* p) {
    return reinterpret_cast<uintptr_t>(p) % kPackBytes == 0;
  };
  const bool all_aligned = args.n % kChunk == 0 && args.k % kChunk == 0 && aligned(args.x) &&
                           aligned(args.w) && aligned(args.out);
  const bool automatic = (config.block_m | config.block_n | config.block_k | config.stages) == 0;
  if (!automatic && !AllTiles::contains(config)) return cudaErrorInvalidValue;
  if (!all_aligned) return launch<T, ElementTile, false>(args, stream);
  if (automatic) {
    DeviceFacts facts;
    if (cudaError_t error = device_facts(&facts); error != cudaSuccess) return error;
    config = choose(args, facts);
  }
  return AllTiles::launch_matching<T>(config, args, stream);
}

}  // namespace

cudaError_t matmul_bias_relu(const void* x, const void* w, const void* b, void* out, int64_t m,
                             int64_t n, int64_t k, DType dtype, int block_m, int block_n,
                             int block_k, int stages, cudaStream_t stream) {
  if (m == 0 || n == 0) return cudaSuccess;
  const Args args = {x, w, b, out, m, n, k, 0, 0};
  const Config config = {block_m, block_n, block_k, stages};
  switch (dtype) {
    case DType::kBF16: return dispatch<__nv_bfloat16>(args, config, stream);
    case DType::kF16: return dispatch<__half>(args, config, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace cuda_vs_triton
