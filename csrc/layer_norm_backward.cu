// dx = rstd * (w dy - mean(w dy) - xhat mean(w dy xhat)) a row, with xhat = (x - mean) * rstd;
// dw = sum of dy xhat and db = sum of dy over rows; f32, bf16, f16, fp32 inside. dw and db have the
// parameters' dtype, as autograd wants them.
//
// Ownership: threads_per_row threads own a row, blocks (or clusters, sm_90) stay and deal out the
//   rows in turn; a thread keeps fp32 dw and db of its columns and leaves one partial row a block;
//   a second kernel adds the partial rows. No float atomics: results repeat bit for bit.
// Bytes per element: 3 * sizeof(T), about 20 flops: bound by DRAM; partials stay in L2.
// Forms: staged (x and dy of the next rows travel by cp.async; rows to 32 KB a block, 8 blocks);
//   looped (any width and alignment: dx by rows, dw and db by columns, 5 * sizeof(T)).
// Choice: x and dy wait in shared memory, so the registers are left to the accumulators.
// Levers left unused: overlapping the second kernel's launch (programmatic dependent launch).
#include <cstdint>

#include "common/async_copy.cuh"
#include "common/launch.cuh"
#include "common/merge.cuh"
#include "common/pack.cuh"
#include "common/reduce.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

constexpr int kMinBlock = 256;  // threads a block at least: short rows are grouped
constexpr int kStages = 3;      // rows in shared memory: one in use, two on their way
constexpr int kMaxBlocks = 8;   // of a cluster
constexpr int kSharedBytesSm90 = 227 * 1024;
constexpr int kLoopedThreads = 512;
constexpr int kColumnThreads = 256;
constexpr int kColumnRows = kColumnThreads / kWarpSize;
constexpr int kReduceThreads = 256;
constexpr int kReduceLanes = 8;  // of 4 columns each
constexpr int kReduceColumns = 4 * kReduceLanes;
constexpr int kReduceSlices = kReduceThreads / kReduceLanes;
constexpr int64_t kMostPartials = 1024;       // rows of partial sums
constexpr int64_t kMostColumnSums = 1 << 22;  // columns times rows of them: 32 MB of dw and db

enum Form { kAuto = 0, kStaged = 1, kLooped = 2 };

struct Args {
  const void *dy, *x, *w;
  const float *mean, *rstd;
  void *dx, *dw, *db;
  float* partials;  // [n_partials, 2, width]: dw, then db
  int64_t n_rows, n_cols, width;
  float inverse_cols;
};

// Columns of a partial row: whole 16-byte packs of floats.
int64_t partial_width(int64_t n_cols) { return (n_cols + 3) / 4 * 4; }

int64_t most_partials(int64_t n_cols) {
  const int64_t most = kMostColumnSums / partial_width(n_cols);
  return most > kMostPartials ? kMostPartials : most < 1 ? 1 : most;
}

// What a row's elements have in common: sums of w dy (x - mean) and of w dy. The root is taken out
// of the sum: without xhat an element takes 10 operations, not 12.
struct RowSums {
  float with_distance, plain;
};

struct AddRowSums {
  __device__ __forceinline__ RowSums operator()(const RowSums& a, const RowSums& b) const {
    return {a.with_distance + b.with_distance, a.plain + b.plain};
  }
};

struct RowStats {
  float mean, rstd;
  __device__ __forceinline__ float distance(float x) const { return x - mean; }
};

__device__ __forceinline__ RowStats stats_of(const Args& args, int64_t row) {
  if (row >= args.n_rows) return {0.0f, 0.0f};
  return {args.mean[row], args.rstd[row]};
}

// An element's share of both sums of its row.
__device__ __forceinline__ void add_to(RowSums& sums, float w, float dy, float dy_distance) {
  sums.with_distance = fmaf(w, dy_distance, sums.with_distance);
  sums.plain = fmaf(w, dy, sums.plain);
}

// dx / rstd falls by `slope` with each unit of x, from w dy - `mean` at the row's mean.
struct RowLine {
  float slope, mean;
};

// One root after the other: the square of a small one is 0.
__device__ __forceinline__ RowLine line_of(const RowSums& sums, const RowStats& stats,
                                           const Args& args) {
  return {sums.with_distance * args.inverse_cols * stats.rstd * stats.rstd,
          sums.plain * args.inverse_cols};
}

__device__ __forceinline__ float dx_of(const RowStats& stats, const RowLine& line, float dy,
                                       float x, float w) {
  return fmaf(-stats.distance(x), line.slope, fmaf(w, dy, -line.mean)) * stats.rstd;
}

// ---- staged: rows come through shared memory, blocks stay
// ----------------------------------------

__host__ __device__ constexpr int block_threads(int threads) {
  return threads < kMinBlock ? kMinBlock : threads;
}

__host__ __device__ constexpr int shared_bytes(int threads, int packs) {
  return kStages * 2 * packs * block_threads(threads) * kPackBytes;
}

// Blocks an SM, as a limit on registers: those whose accumulators, two an element, and whose rows
// have room.
__host__ __device__ constexpr int min_blocks(int threads, int packs, int elements) {
  const int by_registers = (elements <= 8    ? 1024
                            : elements <= 16 ? 768
                                             : 512) /
                           block_threads(threads);
  const int by_rows = kSharedBytesSm90 / shared_bytes(threads, packs);
  const int fewer = by_registers < by_rows ? by_registers : by_rows;
  return fewer > 1 ? fewer : 1;
}

// kThreads threads of a block, or of each of kBlocks blocks of a cluster, own a row at a time and
// kPacks packs of it each.
template <typename T, int kThreads, int kPacks, int kBlocks>
__global__ void __launch_bounds__(block_threads(kThreads),
                                  min_blocks(kThreads, kPacks, kPacks* kPackSize<T>))
    layer_norm_backward_kernel(Args args) {
  constexpr int kBlock = block_threads(kThreads);
  constexpr int kGroups = kBlock / kThreads;  // rows that a block has at a time
  constexpr int kWarps = kThreads / kWarpSize;
  constexpr int kStep = kThreads * kBlocks;  // packs of a row between two of a thread
  constexpr int kSize = kPackSize<T>;
  static_assert(kGroups == 1 || kBlocks == 1);
  extern __shared__ __align__(16) uint4 s_rows[];  // [kStages][x, dy][kPacks][kBlock]
  __shared__ RowSums of_warps[2][kBlock / kWarpSize];
#if __CUDA_ARCH__ >= 900
  if constexpr (kBlocks > 1) cluster_arrive();  // merge_cluster waits before it writes elsewhere
#endif
  const int group = threadIdx.x / kThreads;
  const int lane = static_cast<int>(blockIdx.x % kBlocks * kThreads + threadIdx.x % kThreads);
  const int n_packs = static_cast<int>(args.n_cols / kSize);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x / kBlocks) * kGroups;
  const int64_t row_step = static_cast<int64_t>(gridDim.x / kBlocks) * kGroups;
  // Of the block's first group; a group without a row in the last turn goes along with zeros.
  const int n_turns = static_cast<int>((args.n_rows - first_row + row_step - 1) / row_step);

  // Each thread copies and reads its own packs alone: no barrier.
  constexpr int kStage = 2 * kPacks * kBlock;  // packs of a stage
  const auto next_stage = [](int at) { return at + kStage < kStages * kStage ? at + kStage : 0; };
  uint4* const mine = s_rows + threadIdx.x;  // x of the first stage; dy is kPacks * kBlock further
  int64_t staged_row = first_row + group;
  int free_stage = 0;
  const auto stage = [&] {
    const int64_t first = staged_row * args.n_cols + lane * kSize;
    const uint4* x = reinterpret_cast<const uint4*>(static_cast<const T*>(args.x) + first);
    const uint4* dy = reinterpret_cast<const uint4*>(static_cast<const T*>(args.dy) + first);
    const int n_left = staged_row < args.n_rows ? n_packs - lane : 0;
    const uint32_t to = shared_address(mine + free_stage);
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const bool valid = i * kStep < n_left;
      async_copy_16(to + i * kBlock * kPackBytes, x + i * kStep, valid);
      async_copy_16(to + (kPacks + i) * kBlock * kPackBytes, dy + i * kStep, valid);
    }
    async_copy_commit();
    staged_row += row_step;
    free_stage = next_stage(free_stage);
  };
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) stage();

  const uint4* w = static_cast<const uint4*>(args.w) + lane;  // never overlaps dx: read-only loads
  float dw[kPacks][kSize], db[kPacks][kSize];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
#pragma unroll
    for (int j = 0; j < kSize; ++j) dw[i][j] = db[i][j] = 0.0f;
  }

  int64_t row = first_row + group;
  const uint4* staged = mine;
  RowStats next_stats = stats_of(args, row);
#pragma unroll 1
  for (int turn = 0; turn < n_turns; ++turn, row += row_step) {
    const RowStats stats = next_stats;
    next_stats = stats_of(args, row + row_step);
    stage();
    async_copy_wait<kStages - 1>();

    const int n_left = row < args.n_rows ? n_packs - lane : 0;
    RowSums sums = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (i * kStep >= n_left) break;
      float x[kSize], dy[kSize], weight[kSize];
      unpack<T>(staged[i * kBlock], x);
      unpack<T>(staged[(kPacks + i) * kBlock], dy);
      unpack<T>(__ldg(w + i * kStep), weight);
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const float dy_distance = dy[j] * stats.distance(x[j]);
        add_to(sums, weight[j], dy[j], dy_distance);
        dw[i][j] = fmaf(dy_distance, stats.rstd, dw[i][j]);
        db[i][j] += dy[j];
      }
    }
    sums = merge_lanes<kWarpSize>(sums, AddRowSums());
    // Two sets of slots: who writes one again has passed the barrier of the other, so all have
    // read it.
    if constexpr (kWarps > 1) sums = merge_warps<kWarps>(sums, of_warps[turn % 2], AddRowSums());
#if __CUDA_ARCH__ >= 900
    if constexpr (kBlocks > 1) {
      __shared__ RowSums of_blocks[kBlocks];
      sums = merge_cluster<kBlocks>(sums, of_blocks, AddRowSums());
      if (turn + 1 < n_turns) cluster_arrive();
    }
#endif
    const RowLine line = line_of(sums, stats, args);
    uint4* dx = reinterpret_cast<uint4*>(static_cast<T*>(args.dx) + row * args.n_cols) + lane;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      if (i * kStep >= n_left) break;
      float x[kSize], dy[kSize], weight[kSize];
      unpack<T>(staged[i * kBlock], x);
      unpack<T>(staged[(kPacks + i) * kBlock], dy);
      unpack<T>(__ldg(w + i * kStep), weight);
#pragma unroll
      for (int j = 0; j < kSize; ++j) x[j] = dx_of(stats, line, dy[j], x[j], weight[j]);
      store_pack(dx + i * kStep, pack<T>(x));
    }
    staged = mine + next_stage(static_cast<int>(staged - mine));
  }

  if constexpr (kGroups > 1) {
    // Halves of the groups are added to the others until one is left, through shared memory.
    async_copy_wait<0>();  // empty groups at the end write zeros there
    float* slots = reinterpret_cast<float*>(s_rows);
#pragma unroll
    for (int half = kGroups / 2; half > 0; half /= 2) {
      __syncthreads();  // before: rows or the previous half were read
      float* sums = slots + (group % half) * kThreads + threadIdx.x % kThreads;
      const int stride = half * kThreads;
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
#pragma unroll
        for (int j = 0; j < kSize; ++j) {
          if (group >= half && group < 2 * half) {
            sums[(i * kSize + j) * 2 * stride] = dw[i][j];
            sums[((i * kSize + j) * 2 + 1) * stride] = db[i][j];
          }
        }
      }
      __syncthreads();  // the upper half is there
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
#pragma unroll
        for (int j = 0; j < kSize; ++j) {
          if (group < half) {
            dw[i][j] += sums[(i * kSize + j) * 2 * stride];
            db[i][j] += sums[((i * kSize + j) * 2 + 1) * stride];
          }
        }
      }
    }
    if (group != 0) return;
  }
  float* partial = args.partials + static_cast<int64_t>(blockIdx.x / kBlocks) * 2 * args.width;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int p = lane + i * kStep;
    if (p >= n_packs) break;
#pragma unroll
    for (int j = 0; j < kSize; j += 4) {
      const int64_t col = static_cast<int64_t>(p) * kSize + j;
      *reinterpret_cast<float4*>(partial + col) =
          make_float4(dw[i][j], dw[i][j + 1], dw[i][j + 2], dw[i][j + 3]);
      *reinterpret_cast<float4*>(partial + args.width + col) =
          make_float4(db[i][j], db[i][j + 1], db[i][j + 2], db[i][j + 3]);
    }
  }
}

// ---- looped: any width, any alignment
// ------------------------------------------------------------

template <typename T, bool kPacked>
constexpr int kAccess = kPacked ? kPackSize<T> : 1;  // elements of an access

template <typename T, bool kPacked>
__device__ __forceinline__ void load_values(const void* tensor, int64_t first, int64_t access,
                                            float (&v)[kAccess<T, kPacked>]) {
  const T* row = static_cast<const T*>(tensor) + first;
  if constexpr (kPacked) {
    unpack<T>(load_pack(reinterpret_cast<const uint4*>(row) + access), v);
  } else {
    v[0] = to_float(row[access]);
  }
}

// A block owns one row: a walk for its sums, another to write dx.
template <typename T, bool kPacked>
__global__ void __launch_bounds__(kLoopedThreads) layer_norm_backward_looped_kernel(Args args) {
  constexpr int kSize = kAccess<T, kPacked>;
  constexpr int kWarps = kLoopedThreads / kWarpSize;
  __shared__ RowSums of_warps[kWarps];
  const int64_t n_accesses = args.n_cols / kSize;
  const int64_t row = blockIdx.x;
  const int64_t first = row * args.n_cols;
  const RowStats stats = stats_of(args, row);

  RowSums sums = {0.0f, 0.0f};
#pragma unroll 4
  for (int64_t p = threadIdx.x; p < n_accesses; p += kLoopedThreads) {
    float x[kSize], dy[kSize], w[kSize];
    load_values<T, kPacked>(args.x, first, p, x);
    load_values<T, kPacked>(args.dy, first, p, dy);
    load_values<T, kPacked>(args.w, 0, p, w);
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      add_to(sums, w[j], dy[j], dy[j] * stats.distance(x[j]));
    }
  }
  sums = merge_lanes<kWarpSize>(sums, AddRowSums());
  const RowLine line = line_of(merge_warps<kWarps>(sums, of_warps, AddRowSums()), stats, args);

  T* dx = static_cast<T*>(args.dx) + first;
#pragma unroll 4
  for (int64_t p = threadIdx.x; p < n_accesses; p += kLoopedThreads) {
    float x[kSize], dy[kSize], w[kSize];
    load_values<T, kPacked>(args.x, first, p, x);
    load_values<T, kPacked>(args.dy, first, p, dy);
    load_values<T, kPacked>(args.w, 0, p, w);
#pragma unroll
    for (int j = 0; j < kSize; ++j) x[j] = dx_of(stats, line, dy[j], x[j], w[j]);
    if constexpr (kPacked) {
      store_pack(reinterpret_cast<uint4*>(dx) + p, pack<T>(x));
    } else {
      dx[p] = from_float<T>(x[0]);
    }
  }
}

// A warp reads 32 accesses of a row, a block kColumnRows rows at a time; `splits` blocks share the
// rows of a tile of columns and leave a partial row each.
template <typename T, bool kPacked>
__global__ void __launch_bounds__(kColumnThreads)
    layer_norm_backward_columns_kernel(Args args, int64_t n_tiles, int splits) {
  constexpr int kSize = kAccess<T, kPacked>;
  constexpr int kColumns = kWarpSize * kSize;
  __shared__ float slots[2][kColumnRows * kColumns];
  const int64_t tile = blockIdx.x % n_tiles;
  const int split = static_cast<int>(blockIdx.x / n_tiles);
  const int64_t access = tile * kWarpSize + threadIdx.x % kWarpSize;
  const int64_t n_accesses = args.n_cols / kSize;

  float dw[kSize], db[kSize];
#pragma unroll
  for (int j = 0; j < kSize; ++j) dw[j] = db[j] = 0.0f;
  if (access < n_accesses) {
    const int64_t step = static_cast<int64_t>(splits) * kColumnRows;
    int64_t row = static_cast<int64_t>(split) * kColumnRows + threadIdx.x / kWarpSize;
#pragma unroll 4
    for (; row < args.n_rows; row += step) {
      float x[kSize], dy[kSize];
      load_values<T, kPacked>(args.x, row * args.n_cols, access, x);
      load_values<T, kPacked>(args.dy, row * args.n_cols, access, dy);
      const RowStats stats = {args.mean[row], args.rstd[row]};
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        dw[j] = fmaf(dy[j] * stats.distance(x[j]), stats.rstd, dw[j]);
        db[j] += dy[j];
      }
    }
  }
  // Slot (row, column) is number threadIdx.x * kSize + j: rows follow each other.
#pragma unroll
  for (int j = 0; j < kSize; ++j) {
    slots[0][threadIdx.x * kSize + j] = dw[j];
    slots[1][threadIdx.x * kSize + j] = db[j];
  }
  __syncthreads();  // the sums of all rows of the block are there
  float* partial = args.partials + static_cast<int64_t>(split) * 2 * args.width;
  for (int c = threadIdx.x; c < 2 * kColumns; c += kColumnThreads) {
    const int which = c / kColumns, column = c % kColumns;
    float total = 0.0f;
#pragma unroll
    for (int r = 0; r < kColumnRows; ++r) total += slots[which][r * kColumns + column];
    const int64_t col = tile * kColumns + column;
    if (col < args.n_cols) partial[which * args.width + col] = total;
  }
}

// ---- the second kernel of both
// -------------------------------------------------------------------

// Column sums of the partial rows. A thread adds 4 columns of every kReduceSlices-th row.
template <typename T>
__global__ void __launch_bounds__(kReduceThreads)
    layer_norm_backward_reduce_kernel(Args args, int n_partials) {
  __shared__ float slots[kReduceSlices][kReduceColumns];
  const int lane = threadIdx.x % kReduceLanes;
  const int slice = threadIdx.x / kReduceLanes;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * kReduceColumns;  // of 2 * width
  const int64_t col = first_col + lane * 4;
  float4 sums = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (col < 2 * args.width) {
#pragma unroll 8
    for (int row = slice; row < n_partials; row += kReduceSlices) {
      const float4 v = *reinterpret_cast<const float4*>(args.partials + row * 2 * args.width + col);
      sums = make_float4(sums.x + v.x, sums.y + v.y, sums.z + v.z, sums.w + v.w);
    }
  }
  *reinterpret_cast<float4*>(&slots[slice][lane * 4]) = sums;
  __syncthreads();  // the sums of all slices are there
  if (threadIdx.x >= kReduceColumns) return;
  float total = 0.0f;
#pragma unroll
  for (int s = 0; s < kReduceSlices; ++s) total += slots[s][threadIdx.x];
  const int64_t mine = first_col + threadIdx.x;
  const bool is_db = mine >= args.width;
  const int64_t column = is_db ? mine - args.width : mine;
  if (mine < 2 * args.width && column < args.n_cols) {
    static_cast<T*>(is_db ? args.db : args.dw)[column] = from_float<T>(total);
  }
}

// ---- launchers
// -----------------------------------------------------------------------------------

template <typename T>
cudaError_t launch_reduce(const Args& args, int64_t n_partials, cudaStream_t stream) {
  if (cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  const int64_t n_blocks = (2 * args.width + kReduceColumns - 1) / kReduceColumns;
  if (n_blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  layer_norm_backward_reduce_kernel<T>
      <<<static_cast<unsigned>(n_blocks), kReduceThreads, 0, stream>>>(
          args, static_cast<int>(n_partials));
  return cudaGetLastError();
}

template <typename T, int kThreads, int kPacks, int kBlocks>
cudaError_t launch_staged(const Args& args, int blocks_per_sm, cudaStream_t stream) {
  constexpr auto* kKernel = layer_norm_backward_kernel<T, kThreads, kPacks, kBlocks>;
  constexpr int kBlock = block_threads(kThreads);
  constexpr int kGroups = kBlock / kThreads;
  constexpr int kSharedBytes = shared_bytes(kThreads, kPacks);
  DeviceFacts facts;
  cudaError_t error = device_facts(&facts);
  if (error != cudaSuccess) return error;
  if (kSharedBytes > facts.shared_bytes - 1024) return cudaErrorInvalidValue;
  error = allow_shared_memory<kKernel>(kSharedBytes);
  if (error != cudaSuccess) return error;
  int resident = 0;
  if constexpr (kBlocks > 1) {
    error = resident_clusters<kKernel>(kBlock, kSharedBytes, kBlocks, &resident);
  } else {
    error = resident_blocks<kKernel>(kBlock, kSharedBytes, &resident);
  }
  if (error != cudaSuccess) return error;
  int64_t most = most_partials(args.n_cols);
  const int64_t asked = static_cast<int64_t>(facts.n_sms) * blocks_per_sm / kBlocks;
  if (resident < most) most = resident;
  if (blocks_per_sm > 0 && asked < most) most = asked > 0 ? asked : 1;
  // As few as have as many rows each, but for one turn: all end together.
  const int64_t turns = (args.n_rows + most * kGroups - 1) / (most * kGroups);
  const int64_t n_clusters = (args.n_rows + turns * kGroups - 1) / (turns * kGroups);
  if constexpr (kBlocks > 1) {
    error =
        launch_clusters<kKernel>(n_clusters * kBlocks, kBlock, kSharedBytes, kBlocks, stream, args);
    if (error != cudaSuccess) return error;
  } else {
    kKernel<<<static_cast<unsigned>(n_clusters), kBlock, kSharedBytes, stream>>>(args);
  }
  return launch_reduce<T>(args, n_clusters, stream);
}

// The fewest of the kPacks that cover the row.
template <typename T, int kThreads, int kBlocks, int... kPacks>
cudaError_t launch_fewest(const Args& args, int64_t n_packs, int blocks_per_sm,
                          cudaStream_t stream) {
  cudaError_t error = cudaErrorInvalidValue;
  ((n_packs <= int64_t{kThreads} * kBlocks * kPacks &&
    (error = launch_staged<T, kThreads, kPacks, kBlocks>(args, blocks_per_sm, stream), true)) ||
   ...);
  return error;
}

template <typename T, int kBlocks>
cudaError_t launch_cluster(const Args& args, int64_t n_packs, bool wide, int blocks_per_sm,
                           cudaStream_t stream) {
  return wide ? launch_fewest<T, 512, kBlocks, 4>(args, n_packs, blocks_per_sm, stream)
              : launch_fewest<T, 256, kBlocks, 4>(args, n_packs, blocks_per_sm, stream);
}

template <typename T>
cudaError_t launch_staged_form(const Args& args, int64_t n_packs, int threads_per_row, int blocks,
                               int blocks_per_sm, cudaStream_t stream) {
  if (blocks == 1) {
    switch (threads_per_row) {
      case 32: return launch_fewest<T, 32, 1, 1, 2, 4>(args, n_packs, blocks_per_sm, stream);
      case 128: return launch_fewest<T, 128, 1, 1, 2, 4>(args, n_packs, blocks_per_sm, stream);
      case 256: return launch_fewest<T, 256, 1, 1, 2, 4>(args, n_packs, blocks_per_sm, stream);
      case 512: return launch_fewest<T, 512, 1, 1, 4>(args, n_packs, blocks_per_sm, stream);
      default: return cudaErrorInvalidValue;
    }
  }
  const bool wide = threads_per_row == 512 * blocks;
  if (!wide && threads_per_row != 256 * blocks) return cudaErrorInvalidValue;
  switch (blocks) {
    case 2: return launch_cluster<T, 2>(args, n_packs, wide, blocks_per_sm, stream);
    case 4: return launch_cluster<T, 4>(args, n_packs, wide, blocks_per_sm, stream);
    case 8: return launch_cluster<T, 8>(args, n_packs, wide, blocks_per_sm, stream);
    default: return cudaErrorInvalidValue;
  }
}

template <typename T, bool kPacked>
cudaError_t launch_looped(const Args& args, cudaStream_t stream) {
  constexpr int kColumns = kWarpSize * kAccess<T, kPacked>;
  DeviceFacts facts;
  if (cudaError_t error = device_facts(&facts); error != cudaSuccess) return error;
  if (args.n_rows > INT32_MAX) return cudaErrorInvalidConfiguration;
  layer_norm_backward_looped_kernel<T, kPacked>
      <<<static_cast<unsigned>(args.n_rows), kLoopedThreads, 0, stream>>>(args);
  if (cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  // Four blocks an SM, as long as each has rows and their partial rows have room.
  const int64_t n_tiles = (args.n_cols + kColumns - 1) / kColumns;
  int64_t splits = 4 * int64_t{facts.n_sms} / n_tiles;
  const int64_t useful = (args.n_rows + kColumnRows - 1) / kColumnRows;
  for (int64_t most : {useful, most_partials(args.n_cols)}) splits = splits < most ? splits : most;
  if (splits < 1) splits = 1;
  if (n_tiles * splits > INT32_MAX) return cudaErrorInvalidConfiguration;
  layer_norm_backward_columns_kernel<T, kPacked>
      <<<static_cast<unsigned>(n_tiles * splits), kColumnThreads, 0, stream>>>(
          args, n_tiles, static_cast<int>(splits));
  return launch_reduce<T>(args, splits, stream);
}

// A warp a row while its accumulators fit, 4 packs a thread; then more warps with as many. On an
// H200 16384 x 4096 bf16 took 112.9 us so, 120.2 with 256 threads of 2 packs.
int staged_threads(int64_t n_packs) {
  if (n_packs <= 32 * 4) return 32;
  if (n_packs <= 128 * 4) return 128;
  return n_packs <= 256 * 4 ? 256 : 512;
}

// Blocks of a cluster: 16 KB of x in each, so that an SM holds two; then 32 KB.
int cluster_blocks(int64_t n_packs, int most) {
  int blocks = n_packs <= 2048 ? 1 : 2;
  while (blocks < most && n_packs > blocks * int64_t{1024}) blocks *= 2;
  return blocks;
}

template <typename T>
cudaError_t dispatch(const Args& args, int threads, int form, int blocks, int blocks_per_sm,
                     cudaStream_t stream) {
  if (args.n_rows == 0) return launch_reduce<T>(args, 0, stream);
  DeviceFacts facts;
  if (cudaError_t error = device_facts(&facts); error != cudaSuccess) return error;
  bool packed = args.n_cols % kPackSize<T> == 0;
  for (const void* p : {args.dy, args.x, args.w, static_cast<const void*>(args.dx)}) {
    packed = packed && reinterpret_cast<uintptr_t>(p) % kPackBytes == 0;
  }
  const int64_t n_packs = args.n_cols / kPackSize<T>;
  const int most_blocks = facts.major >= 9 ? kMaxBlocks : 1;
  if (form == kAuto) {
    if (threads != 0 || blocks != 0) return cudaErrorInvalidValue;  // of which form?
    // Three stages of the widest rows are more than an SM before sm_90 has.
    const int64_t widest = facts.shared_bytes > shared_bytes(512, 4) + 1024 ? 2048 : 1024;
    form = packed && n_packs <= most_blocks * widest ? kStaged : kLooped;
  }
  switch (form) {
    case kStaged:
      if (blocks == 0) blocks = cluster_blocks(n_packs, most_blocks);
      if (threads == 0) {
        threads = blocks == 1 ? staged_threads(n_packs)
                              : blocks * (n_packs <= blocks * int64_t{1024} ? 256 : 512);
      }
      if (!packed || blocks > most_blocks) return cudaErrorInvalidValue;
      return launch_staged_form<T>(args, n_packs, threads, blocks, blocks_per_sm, stream);
    case kLooped:
      if (threads != 0 || blocks != 0 || blocks_per_sm != 0) return cudaErrorInvalidValue;
      return packed ? launch_looped<T, true>(args, stream) : launch_looped<T, false>(args, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace

int64_t layer_norm_backward_scratch(int64_t n_cols) {
  return n_cols == 0 ? 0 : 2 * partial_width(n_cols) * most_partials(n_cols);
}

cudaError_t layer_norm_backward(const void* dy, const void* x, const void* w, const float* mean,
                                const float* rstd, void* dx, void* dw, void* db, int64_t n_rows,
                                int64_t n_cols, DType dtype, float* scratch, int threads_per_row,
                                int form, int blocks_per_row, int blocks_per_sm,
                                cudaStream_t stream) {
  if (n_cols == 0) return cudaSuccess;
  if (blocks_per_sm < 0) return cudaErrorInvalidValue;
  const Args args = {dy,
                     x,
                     w,
                     mean,
                     rstd,
                     dx,
                     dw,
                     db,
                     scratch,
                     n_rows,
                     n_cols,
                     partial_width(n_cols),
                     1.0f / static_cast<float>(n_cols)};
  const auto launch = [&](auto of_type) {
    return dispatch<decltype(of_type)>(args, threads_per_row, form, blocks_per_row, blocks_per_sm,
                                       stream);
  };
  switch (dtype) {
    case DType::kF32: return launch(float{});
    case DType::kBF16: return launch(__nv_bfloat16{});
    case DType::kF16: return launch(__half{});
  }
  return cudaErrorInvalidValue;
}

}  // namespace cuda_vs_triton
