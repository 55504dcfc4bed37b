// dlogits[row, :] = softmax(x[row, :]) - onehot(target[row]), and loss[row]; f32, bf16, f16.
//
// Ownership: threads_per_row threads own one row; short rows share a block, wide rows are shared by
//   the blocks_per_row blocks of a cluster (sm_90).
// Bytes: 2 * sizeof(T) an element, 12 a row; about 8 flops and two exp2 an element: bound by DRAM.
// Forms: registers (rows to 32 KB), shared (row staged by cp.async, in a block or a cluster, to 3
//   MB), looped (any width, reads x twice). Rows at any address keep 16-byte accesses; where x and
//   dlogits differ in alignment the looped form takes element accesses.
// NaN or +Inf in a row, or a row of -Inf only, gives NaN; a target outside 0 to n_cols - 1 gives a
//   loss of NaN and a plain softmax. dlogits may be exactly x.
// Choice: one barrier a row; whoever holds the target's logit writes the loss.
#include <cstdint>

#include "common/async_copy.cuh"
#include "common/exp_sum.cuh"
#include "common/launch.cuh"
#include "common/merge.cuh"
#include "common/pack.cuh"
#include "common/peeled_row.cuh"
#include "common/reduce.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

constexpr int kMinBlock = 128;           // threads a block at least: short rows are grouped
constexpr int kMaxPacks = 4;             // of a row that a thread keeps in registers
constexpr int kMaxThreads = 512;         // a row in the register form
constexpr int kSharedReserve = 1024;     // static shared memory beside a staged row
constexpr int kMaxBlocks = 16;           // of a cluster; more than 8 is Hopper's own
constexpr int64_t kMaxBlockRow = 65536;  // bytes of a row that one block stages, given clusters

enum Form { kAuto = 0, kRegisters = 1, kShared = 2, kLooped = 3 };

struct Args {
  const void* x;
  const int64_t* target;
  void* dlogits;
  float* loss;
  int64_t n_rows, n_cols, x_stride, dlogits_stride;
};

// What is written of a row whose sum is known. Values come with their columns, and the thread that
// meets the target's has its logit for the loss.
template <typename T>
struct Gradient {
  T* dlogits;
  float* loss;
  int64_t target;
  ExpSum row;
  float offset, scale;  // 0 times infinity makes NaN of a row of -Inf only

  __device__ __forceinline__ Gradient(const Args& args, int64_t index, int64_t target, ExpSum row)
      : dlogits(static_cast<T*>(args.dlogits) + index * args.dlogits_stride),
        loss(args.loss + index),
        target(target),
        row(row),
        offset(finite_offset(row.max)),
        scale(1.0f / row.sum) {}

  __device__ __forceinline__ float value(float logit) const {
    return exp_minus(logit, offset) * scale;
  }
  __device__ __forceinline__ void write_loss(float logit) const {
    *loss = row.max - logit + logf(row.sum);
  }
  __device__ __forceinline__ void write_element(int64_t column, float logit) const {
    const bool hit = column == target;
    if (hit) write_loss(logit);
    dlogits[column] = from_float<T>(value(logit) - (hit ? 1.0f : 0.0f));
  }
  // A pack whose first element is in `column`.
  __device__ __forceinline__ void write_pack(int64_t column, const uint4& raw) const {
    float logits[kPackSize<T>], v[kPackSize<T>];
    unpack<T>(raw, logits);
#pragma unroll
    for (int j = 0; j < kPackSize<T>; ++j) v[j] = value(logits[j]);
    const int64_t at = target - column;
    if (at >= 0 && at < kPackSize<T>) {
      float logit = 0.0f;
#pragma unroll
      for (int j = 0; j < kPackSize<T>; ++j) {
        logit = j == at ? logits[j] : logit;
        v[j] -= j == at ? 1.0f : 0.0f;
      }
      write_loss(logit);
    }
    store_pack_whole(dlogits + column, pack<T>(v));
  }
  // By one thread a row: nobody meets a target that is no column.
  __device__ __forceinline__ void write_missing(int64_t n_cols) const {
    if (target < 0 || target >= n_cols) *loss = NAN;
  }
};

// Adds packs to what a thread knows of its row: one rescale for all of them.
template <typename T, int kPacks>
__device__ __forceinline__ void add_packs(const uint4 (&raw)[kPacks], ExpSum& mine) {
  const float max = fmaxf(mine.max, max_of_packs<T>(raw));
  const float offset = finite_offset(max);
  float sum = mine.sum * exp_minus(mine.max, offset);
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    float v[kPackSize<T>];
    unpack<T>(raw[i], v);
#pragma unroll
    for (int j = 0; j < kPackSize<T>; ++j) sum += exp_minus(v[j], offset);
  }
  mine = {max, sum};
}

__device__ __forceinline__ ExpSum sum_of(float v) { return {v, exp_minus(v, finite_offset(v))}; }

// ---- registers: the row's packs stay in registers as they came, one read, one write -------------

__host__ __device__ constexpr int block_threads(int threads_per_row) {
  return threads_per_row < kMinBlock ? kMinBlock : threads_per_row;
}

// Blocks an SM, as a limit on registers: the most threads whose packs fit without spills.
__host__ __device__ constexpr int min_blocks(int block, int packs, int element_bytes) {
  return (packs > 2 && element_bytes == 2 ? 1024 : 1280) / block;
}

template <typename T, int kThreads, int kPacks>
__global__ void __launch_bounds__(block_threads(kThreads),
                                  min_blocks(block_threads(kThreads), kPacks, int(sizeof(T))))
    cross_entropy_dlogits_kernel(Args args) {
  constexpr int kBlock = block_threads(kThreads);
  constexpr int kWarps = kThreads / kWarpSize;
  const int64_t index =
      static_cast<int64_t>(blockIdx.x) * (kBlock / kThreads) + threadIdx.x / kThreads;
  const int lane = threadIdx.x % kThreads;
  // Threads of rows past the end stay for the shuffles and barriers, with no columns of their own.
  const bool real = index < args.n_rows;
  const PeeledRow<T> x(static_cast<const T*>(args.x) + (real ? index : 0) * args.x_stride,
                       real ? args.n_cols : 0);
  const int64_t target = real ? args.target[index] : 0;
  uint4 raw[kPacks];
  load_packs<T, kThreads>(x, lane, raw);
  const float edge = x.edge_or_nothing(lane);

  ExpSum mine = sum_of(edge);
  add_packs<T>(raw, mine);
  mine = merge_lanes<kWarpSize>(mine, MergeExpSums());
  mine = merge_row<kWarps, 1, kBlock / kWarpSize>(mine);
  if (!real) return;

  const Gradient<T> gradient(args, index, target, mine);
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int p = lane + i * kThreads;
    if (p < x.n_packs) gradient.write_pack(x.pack_column(p), raw[i]);
  }
  if (lane < x.n_edges) gradient.write_element(x.edge_column(lane), edge);
  if (lane == 0) gradient.write_missing(args.n_cols);
}

// ---- shared: blocks stage a row in shared memory; each thread re-reads only what it copied ------

// Packs of a row that the first of `blocks` blocks of `threads` threads stages, no block more:
// whole turns of all blocks, then what the last turn leaves it.
constexpr int64_t staged_packs(int64_t n_packs, int threads, int blocks) {
  const int64_t turn = int64_t(threads) * blocks;
  const int64_t rest = n_packs % turn;
  return n_packs / turn * threads + (rest < threads ? rest : threads);
}

template <typename T, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads) cross_entropy_dlogits_shared_kernel(Args args) {
  extern __shared__ __align__(16) uint4 s_row[];
  constexpr int kWarps = kThreads / kWarpSize;
  constexpr int kTurn = kThreads * kBlocks;  // packs of the row between two of a thread
  constexpr int kBatch = 4;                  // packs a rescale
  begin_row<kBlocks>();
  const int64_t index = blockIdx.x / kBlocks;
  const int lane = blockIdx.x % kBlocks * kThreads + threadIdx.x;
  const PeeledRow<T> x(static_cast<const T*>(args.x) + index * args.x_stride, args.n_cols);
  const int n_mine = lane < x.n_packs ? (x.n_packs - lane - 1) / kTurn + 1 : 0;
  uint4* staged = s_row + threadIdx.x;

  for (int i = 0; i < n_mine; ++i) {
    async_copy_16(shared_address(staged + i * kThreads), x.packs() + lane + i * kTurn);
  }
  async_copy_commit();
  const int64_t target = args.target[index];
  const float edge = x.edge_or_nothing(lane);
  async_copy_wait<0>();  // a thread reads back its own packs: no barrier

  ExpSum mine = sum_of(edge);
  for (int first = 0; first < n_mine; first += kBatch) {
    uint4 raw[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      raw[i] = nothing_pack<T>();
      if (first + i < n_mine) raw[i] = staged[(first + i) * kThreads];
    }
    add_packs<T>(raw, mine);
  }
  mine = merge_lanes<kWarpSize>(mine, MergeExpSums());
  mine = merge_row<kWarps, kBlocks, kWarps>(mine);

  const Gradient<T> gradient(args, index, target, mine);
#pragma unroll 2
  for (int i = 0; i < n_mine; ++i) {
    gradient.write_pack(x.pack_column(lane + i * kTurn), staged[i * kThreads]);
  }
  if (lane < x.n_edges) gradient.write_element(x.edge_column(lane), edge);
  if (lane == 0) gradient.write_missing(args.n_cols);
}

// ---- looped: any width; an online (maximum, sum) pass, then a second read ----------------------

template <typename T, int kThreads>
__global__ void __launch_bounds__(kThreads) cross_entropy_dlogits_looped_kernel(Args args) {
  constexpr int kWarps = kThreads / kWarpSize;
  constexpr int kBatch = 4;  // independent loads in flight a thread
  constexpr int kStep = kBatch * kThreads;
  const int64_t index = blockIdx.x;
  const PeeledRow<T> x(static_cast<const T*>(args.x) + index * args.x_stride, args.n_cols);
  const int lane = threadIdx.x;
  const int64_t target = args.target[index];
  const float edge = x.edge_or_nothing(lane);

  ExpSum mine = sum_of(edge);
  for (int64_t first = lane; first < x.n_packs; first += kStep) {
    uint4 raw[kBatch];
    load_packs<T, kThreads>(x, static_cast<int>(first), raw);
    add_packs<T>(raw, mine);
  }
  mine = merge_lanes<kWarpSize>(mine, MergeExpSums());
  mine = merge_row<kWarps, 1, kWarps>(mine);

  const Gradient<T> gradient(args, index, target, mine);
  for (int64_t first = lane; first < x.n_packs; first += kStep) {
    uint4 raw[kBatch];
    load_packs<T, kThreads>(x, static_cast<int>(first), raw);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int64_t p = first + i * kThreads;
      if (p < x.n_packs) gradient.write_pack(x.pack_column(static_cast<int>(p)), raw[i]);
    }
  }
  if (lane < x.n_edges) gradient.write_element(x.edge_column(lane), edge);
  if (lane == 0) gradient.write_missing(args.n_cols);
}

// For rows of x and dlogits that differ in alignment: element accesses.
template <typename T, int kThreads>
__global__ void __launch_bounds__(kThreads) cross_entropy_dlogits_element_kernel(Args args) {
  constexpr int kWarps = kThreads / kWarpSize;
  const int64_t index = blockIdx.x;
  const T* x = static_cast<const T*>(args.x) + index * args.x_stride;
  const int64_t target = args.target[index];

  ExpSum mine = {-INFINITY, 0.0f};
#pragma unroll 4
  for (int64_t c = threadIdx.x; c < args.n_cols; c += kThreads) {
    mine = MergeExpSums()(mine, sum_of(to_float(x[c])));
  }
  mine = merge_lanes<kWarpSize>(mine, MergeExpSums());
  mine = merge_row<kWarps, 1, kWarps>(mine);

  const Gradient<T> gradient(args, index, target, mine);
#pragma unroll 4
  for (int64_t c = threadIdx.x; c < args.n_cols; c += kThreads) {
    gradient.write_element(c, to_float(x[c]));
  }
  if (threadIdx.x == 0) gradient.write_missing(args.n_cols);
}

// ---- launchers ---------------------------------------------------------------------------------

template <typename T, int kThreads, int kPacks>
cudaError_t launch_registers(const Args& args, cudaStream_t stream) {
  constexpr int kBlock = block_threads(kThreads);
  constexpr int kRows = kBlock / kThreads;
  const int64_t n_blocks = (args.n_rows + kRows - 1) / kRows;
  cross_entropy_dlogits_kernel<T, kThreads, kPacks>
      <<<static_cast<unsigned>(n_blocks), kBlock, 0, stream>>>(args);
  return cudaGetLastError();
}

// The fewest packs a thread that cover the row.
template <typename T, int kThreads>
cudaError_t launch_packs(const Args& args, cudaStream_t stream) {
  const int64_t n_packs = args.n_cols / kPackSize<T>;
  if (n_packs > kThreads * kMaxPacks) return cudaErrorInvalidValue;
  if (n_packs <= kThreads * 2) return launch_registers<T, kThreads, 2>(args, stream);
  return launch_registers<T, kThreads, kMaxPacks>(args, stream);
}

template <typename T>
cudaError_t launch_register_form(const Args& args, int threads, cudaStream_t stream) {
  switch (threads) {
    case 32: return launch_packs<T, 32>(args, stream);
    case 64: return launch_packs<T, 64>(args, stream);
    case 128: return launch_packs<T, 128>(args, stream);
    case 256: return launch_packs<T, 256>(args, stream);
    case 512: return launch_packs<T, 512>(args, stream);
    default: return cudaErrorInvalidValue;
  }
}

template <typename T, int kThreads, int kBlocks>
cudaError_t launch_shared(const Args& args, int shared_limit, cudaStream_t stream) {
  // The most that any alignment of a row leaves between its edges.
  const int64_t bytes = kPackBytes * staged_packs(args.n_cols / kPackSize<T>, kThreads, kBlocks);
  if (bytes > shared_limit - kSharedReserve) return cudaErrorInvalidValue;
  constexpr auto* kKernel = cross_entropy_dlogits_shared_kernel<T, kThreads, kBlocks>;
  const cudaError_t error = allow_shared_memory<kKernel>(shared_limit - kSharedReserve);
  if (error != cudaSuccess) return error;
  if constexpr (kBlocks > 1) {
    return launch_clusters<kKernel>(args.n_rows * kBlocks, kThreads, static_cast<size_t>(bytes),
                                    kBlocks, stream, args);
  } else {
    kKernel<<<static_cast<unsigned>(args.n_rows), kThreads, static_cast<size_t>(bytes), stream>>>(
        args);
    return cudaGetLastError();
  }
}

template <typename T, int kBlocks>
cudaError_t launch_shared_threads(const Args& args, int threads, int shared_limit,
                                  cudaStream_t stream) {
  switch (threads) {
    case 256: return launch_shared<T, 256, kBlocks>(args, shared_limit, stream);
    case 512: return launch_shared<T, 512, kBlocks>(args, shared_limit, stream);
    default: return cudaErrorInvalidValue;
  }
}

template <typename T>
cudaError_t launch_shared_form(const Args& args, int threads_per_row, int blocks, int shared_limit,
                               cudaStream_t stream) {
  const int threads = threads_per_row % blocks == 0 ? threads_per_row / blocks : 0;
  switch (blocks) {
    case 1: return launch_shared_threads<T, 1>(args, threads, shared_limit, stream);
    case 2: return launch_shared_threads<T, 2>(args, threads, shared_limit, stream);
    case 4: return launch_shared_threads<T, 4>(args, threads, shared_limit, stream);
    case 8: return launch_shared_threads<T, 8>(args, threads, shared_limit, stream);
    case 16: return launch_shared_threads<T, 16>(args, threads, shared_limit, stream);
    default: return cudaErrorInvalidValue;
  }
}

template <typename T>
cudaError_t launch_looped_form(const Args& args, bool alike, int threads, cudaStream_t stream) {
  const unsigned n_blocks = static_cast<unsigned>(args.n_rows);
  if (!alike) {
    if (threads != 512) return cudaErrorInvalidValue;  // one instance: it need not be tuned
    cross_entropy_dlogits_element_kernel<T, 512><<<n_blocks, 512, 0, stream>>>(args);
  } else if (threads == 512) {
    cross_entropy_dlogits_looped_kernel<T, 512><<<n_blocks, 512, 0, stream>>>(args);
  } else if (threads == 1024) {
    cross_entropy_dlogits_looped_kernel<T, 1024><<<n_blocks, 1024, 0, stream>>>(args);
  } else {
    return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

// Threads of a row in the register form: two packs each to two warps, then four each.
int register_threads(int64_t n_packs) {
  int threads = n_packs <= 64 ? 32 : 64;
  while (threads < kMaxThreads && threads * int64_t(kMaxPacks) < n_packs) threads *= 2;
  return threads;
}

// Blocks of a cluster: 32 KB of the row in each, so that an SM stages six blocks at a time.
int cluster_blocks(int64_t row_bytes) {
  int blocks = 2;
  while (blocks < kMaxBlocks && row_bytes > blocks * int64_t(32 * 1024)) blocks *= 2;
  return blocks;
}

template <typename T>
cudaError_t dispatch(const Args& args, int threads, int form, int blocks, cudaStream_t stream) {
  // Do x and dlogits cross 16-byte boundaries in the same columns of every row?
  const auto address = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
  const int64_t gap = args.n_rows > 1 ? args.x_stride - args.dlogits_stride : 0;
  const bool alike =
      (address(args.x) - address(args.dlogits)) % kPackBytes == 0 && gap % kPackSize<T> == 0;
  DeviceFacts facts;
  if (cudaError_t error = device_facts(&facts); error != cudaSuccess) return error;

  const int64_t n_packs = args.n_cols / kPackSize<T>;
  const int64_t row_bytes = args.n_cols * int64_t(sizeof(T));
  const int64_t block_bytes = facts.shared_bytes - kSharedReserve;
  const bool clusters = facts.major >= 9;
  if (row_bytes > kMaxRowBytes) return cudaErrorInvalidValue;
  if (form == kAuto) {
    if (threads != 0 || blocks != 0) return cudaErrorInvalidValue;  // of which form?
    if (!alike) {
      form = kLooped;
    } else if (n_packs <= kMaxThreads * kMaxPacks) {
      form = kRegisters;
    } else if (row_bytes <= (clusters ? kMaxBlocks : 1) * block_bytes) {
      form = kShared;
    } else {
      form = kLooped;
    }
  }
  if (form != kShared && blocks != 0) return cudaErrorInvalidValue;
  switch (form) {
    case kRegisters:
      if (!alike) return cudaErrorInvalidValue;
      if (threads == 0) threads = register_threads(n_packs);
      return launch_register_form<T>(args, threads, stream);
    case kShared:
      if (blocks == 0) {
        blocks = clusters && row_bytes > kMaxBlockRow ? cluster_blocks(row_bytes) : 1;
      }
      if (!alike || blocks < 1 || (blocks > 1 && !clusters)) return cudaErrorInvalidValue;
      if (threads == 0) threads = blocks * (blocks == 1 && row_bytes > 40 * 1024 ? 512 : 256);
      return launch_shared_form<T>(args, threads, blocks, facts.shared_bytes, stream);
    case kLooped:
      if (threads == 0) threads = alike ? 1024 : 512;
      return launch_looped_form<T>(args, alike, threads, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t cross_entropy_dlogits(const void* x, const int64_t* target, void* dlogits, float* loss,
                                  int64_t n_rows, int64_t n_cols, int64_t x_stride,
                                  int64_t dlogits_stride, DType dtype, int threads_per_row,
                                  int form, int blocks_per_row, cudaStream_t stream) {
  if (n_rows == 0) return cudaSuccess;
  const Args args = {x, target, dlogits, loss, n_rows, n_cols, x_stride, dlogits_stride};
  const auto run = [&](auto launcher) {
    return launcher(args, threads_per_row, form, blocks_per_row, stream);
  };
  switch (dtype) {
    case DType::kF32: return run(dispatch<float>);
    case DType::kBF16: return run(dispatch<__nv_bfloat16>);
    case DType::kF16: return run(dispatch<__half>);
  }
  return cudaErrorInvalidValue;
}

}  // namespace cuda_vs_triton
