// out[row, :] = exp(x[row, :] - max) / sum(exp(x[row, :] - max)); f32, bf16, f16, fp32 inside.
//
// Ownership: threads_per_row threads own one row; short rows share a block, wide rows are shared by
//   the blocks_per_row blocks of a cluster (sm_90).
// Bytes per element: 2 * sizeof(T), about 6 flops and 1 to 2 exp2: bound by DRAM.
// Forms: registers (rows to 32 K), shared (row staged by cp.async, to about 200 KB), looped (any
//   width, reads x twice); cluster (registers, to 256 K) and shared cluster (to about 3 MB). A view
//   with an unaligned row takes element accesses: registers or looped.
// NaN or +Inf in a row, or a row of -Inf only, gives a row of NaN as torch does; results under
//   2^-126 become 0. out may be exactly x.
// Choice: one barrier a row. Each warp reduces against its own maximum and the (maximum, sum) pairs
//   are merged once, through distributed shared memory in a cluster; registers keep the exps.
#include <cstdint>

#include "common/async_copy.cuh"
#include "common/exp_sum.cuh"
#include "common/launch.cuh"
#include "common/merge.cuh"
#include "common/pack.cuh"
#include "common/reduce.cuh"
#include "common/rows.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

constexpr int kMinBlock = 128;            // threads a block at least: short rows are grouped
constexpr int kMaxRegisterElements = 32;  // fp32 values a thread keeps; 64 would halve occupancy
constexpr int kSharedReserve = 1024;      // static shared memory beside a staged row
constexpr int kMaxBlocks = 16;            // of a cluster; more than 8 is Hopper's own
constexpr int64_t kMaxBlockRow = 65536;   // bytes of a row that one block stages, given clusters

enum Form {
  kAuto = 0,
  kRegisters = 1,
  kShared = 2,
  kLooped = 3,
  kCluster = 4,
  kSharedCluster = 5,
};

struct Args {
  const void* x;
  void* out;
  int64_t n_rows, n_cols, x_stride, out_stride;
};

// Factor that turns exp(v - my_max) into the softmax: 0 for a part of -Inf only in a row that has
// more, NaN for a row of -Inf only (-Inf - -Inf) and for a row with NaN or +Inf (its sum is NaN).
__device__ __forceinline__ float scale_of(float my_max, const ExpSum& row) {
  return exp_minus(my_max, row.max) / row.sum;
}

// ---- registers: the row lives in registers, one read, one write --------------------------------

__host__ __device__ constexpr int block_threads(int threads_per_row, int blocks) {
  const int threads = threads_per_row / blocks;
  return threads < kMinBlock ? kMinBlock : threads;
}

// Blocks an SM, as a limit on registers: the most threads whose elements fit without spills on
// sm_80 and sm_90. Left alone, ptxas takes 64 registers for 32 bf16 elements and 256 threads,
// not 48.
__host__ __device__ constexpr int min_blocks(int block, int elements, int element_bytes) {
  const bool wide = element_bytes == 4;
  const int threads = elements > 16 ? (wide ? 1024 : 1280) : (wide ? 1536 : 2048);
  return threads / block;
}

// kBlocks > 1: the blocks of a cluster share a row, and a thread's packs are those of one block of
// kThreadsPerRow threads.
template <typename T, int kThreadsPerRow, int kElements, bool kPacked, int kBlocks = 1>
__global__ void __launch_bounds__(block_threads(kThreadsPerRow, kBlocks),
                                  kPacked ? min_blocks(block_threads(kThreadsPerRow, kBlocks),
                                                       kElements, int(sizeof(T)))
                                          : 1) softmax_kernel(Args args) {
  constexpr int kBlock = block_threads(kThreadsPerRow, kBlocks);
  constexpr int kThreadsHere = kThreadsPerRow / kBlocks;  // of a row, in this block
  constexpr int kLanes = kThreadsHere < kWarpSize ? kThreadsHere : kWarpSize;
  constexpr int kSize = kPacked ? kPackSize<T> : 1;
  constexpr int kAccesses = kElements / kSize;

  begin_row<kBlocks>();
  const int64_t row = static_cast<int64_t>(blockIdx.x / kBlocks) * (kBlock / kThreadsHere) +
                      threadIdx.x / kThreadsHere;
  const int lane = blockIdx.x % kBlocks * kThreadsHere + threadIdx.x % kThreadsHere;
  // Threads of rows past the end stay for the shuffles and barriers, with no columns of their own.
  const int n_accesses = row < args.n_rows ? static_cast<int>(args.n_cols / kSize) : 0;
  const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
  T* out = static_cast<T*>(args.out) + row * args.out_stride;

  float v[kAccesses][kSize];
  if constexpr (kPacked) {
    load_row<T, kThreadsPerRow, kAccesses>(x, n_accesses, lane, -INFINITY, v);
  } else {
#pragma unroll
    for (int i = 0; i < kAccesses; ++i) {
      const int p = lane + i * kThreadsPerRow;
      v[i][0] = p < n_accesses ? to_float(x[p]) : -INFINITY;
    }
  }

  float max = -INFINITY;
#pragma unroll
  for (int i = 0; i < kAccesses; ++i) {
#pragma unroll
    for (int j = 0; j < kSize; ++j) max = fmaxf(max, v[i][j]);
  }
  max = lanes_max<kLanes>(max);
  const float offset = finite_offset(max);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kAccesses; ++i) {
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      v[i][j] = exp_minus(v[i][j], offset);
      sum += v[i][j];
    }
  }
  const ExpSum result =
      merge_row<kThreadsHere / kLanes, kBlocks, kBlock / kWarpSize>({max, lanes_sum<kLanes>(sum)});
  const float scale = scale_of(max, result);

#pragma unroll
  for (int i = 0; i < kAccesses; ++i) {
#pragma unroll
    for (int j = 0; j < kSize; ++j) v[i][j] *= scale;
  }
  if constexpr (kPacked) {
    store_row<T, kThreadsPerRow, kAccesses>(out, n_accesses, lane, v);
  } else {
#pragma unroll
    for (int i = 0; i < kAccesses; ++i) {
      const int p = lane + i * kThreadsPerRow;
      if (p < n_accesses) out[p] = from_float<T>(v[i][0]);
    }
  }
}

// ---- shared: blocks stage a row in shared memory; each thread re-reads only what it copied ------

// Packs of a row that the first of `blocks` blocks of `threads` threads stages, no block more:
// whole turns of all blocks, then what the last turn leaves it.
__host__ __device__ constexpr int64_t staged_packs(int64_t n_packs, int threads, int blocks) {
  const int64_t turn = int64_t(threads) * blocks;
  const int64_t rest = n_packs % turn;
  return n_packs / turn * threads + (rest < threads ? rest : threads);
}

template <typename T, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads) softmax_shared_kernel(Args args) {
  extern __shared__ __align__(16) uint4 s_row[];
  constexpr int kSize = kPackSize<T>;
  constexpr int kTurn = kThreads * kBlocks;  // packs of the row between two of a thread
  begin_row<kBlocks>();
  const int n_packs = static_cast<int>(args.n_cols / kSize);
  const int64_t row = blockIdx.x / kBlocks;
  const int lane = blockIdx.x % kBlocks * kThreads + threadIdx.x;
  const int n_mine = lane < n_packs ? (n_packs - lane - 1) / kTurn + 1 : 0;
  const uint4* x =
      reinterpret_cast<const uint4*>(static_cast<const T*>(args.x) + row * args.x_stride) + lane;
  uint4* out = reinterpret_cast<uint4*>(static_cast<T*>(args.out) + row * args.out_stride) + lane;
  uint4* staged = s_row + threadIdx.x;

  for (int i = 0; i < n_mine; ++i) {
    async_copy_16(shared_address(staged + i * kThreads), x + i * kTurn);
  }
  async_copy_commit();
  async_copy_wait<0>();  // a thread reads back its own packs: no barrier

  float max = -INFINITY;
#pragma unroll 4
  for (int i = 0; i < n_mine; ++i) {
    float v[kSize];
    unpack<T>(staged[i * kThreads], v);
#pragma unroll
    for (int j = 0; j < kSize; ++j) max = fmaxf(max, v[j]);
  }
  max = lanes_max<kWarpSize>(max);
  const float offset = finite_offset(max);
  float sum = 0.0f;
#pragma unroll 4
  for (int i = 0; i < n_mine; ++i) {
    float v[kSize];
    unpack<T>(staged[i * kThreads], v);
#pragma unroll
    for (int j = 0; j < kSize; ++j) sum += exp_minus(v[j], offset);
  }
  constexpr int kWarps = kThreads / kWarpSize;
  const ExpSum result = merge_row<kWarps, kBlocks, kWarps>({max, lanes_sum<kWarpSize>(sum)});
  const float scale = scale_of(max, result);
#pragma unroll 4
  for (int i = 0; i < n_mine; ++i) {
    float v[kSize];
    unpack<T>(staged[i * kThreads], v);
#pragma unroll
    for (int j = 0; j < kSize; ++j) v[j] = exp_minus(v[j], offset) * scale;
    store_pack(out + i * kTurn, pack<T>(v));
  }
}

// ---- looped: any width; an online (maximum, sum) pass, then a second read ----------------------

template <typename T, bool kPacked>
__device__ __forceinline__ void load_values(const T* x, int64_t p,
                                            float (&v)[kPacked ? kPackSize<T> : 1]) {
  if constexpr (kPacked) {
    unpack<T>(reinterpret_cast<const uint4*>(x)[p], v);
  } else {
    v[0] = to_float(x[p]);
  }
}

template <typename T, int kThreads, bool kPacked>
__global__ void __launch_bounds__(kThreads) softmax_looped_kernel(Args args) {
  constexpr int kSize = kPacked ? kPackSize<T> : 1;
  constexpr int kBatch = kPacked ? 4 : 8;  // independent accesses in flight a thread
  const int64_t n_accesses = args.n_cols / kSize;
  const int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(args.x) + row * args.x_stride;
  T* out = static_cast<T*>(args.out) + row * args.out_stride;

  ExpSum mine = {-INFINITY, 0.0f};
  for (int64_t first = threadIdx.x; first < n_accesses; first += kBatch * kThreads) {
    float v[kBatch][kSize];
    float max = mine.max;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int64_t p = first + i * kThreads;
      if (p < n_accesses) {
        load_values<T, kPacked>(x, p, v[i]);
      } else {
#pragma unroll
        for (int j = 0; j < kSize; ++j) v[i][j] = -INFINITY;
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) max = fmaxf(max, v[i][j]);
    }
    const float offset = finite_offset(max);
    float sum = mine.sum * exp_minus(mine.max, offset);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) sum += exp_minus(v[i][j], offset);
    }
    mine = {max, sum};
  }
  mine = merge_lanes<kWarpSize>(mine, MergeExpSums());
  constexpr int kWarps = kThreads / kWarpSize;
  const ExpSum result = merge_row<kWarps, 1, kWarps>(mine);
  const float offset = finite_offset(result.max);
  const float scale = scale_of(result.max, result);

  for (int64_t first = threadIdx.x; first < n_accesses; first += kBatch * kThreads) {
    float v[kBatch][kSize];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int64_t p = first + i * kThreads;
      if (p < n_accesses) load_values<T, kPacked>(x, p, v[i]);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int64_t p = first + i * kThreads;
      if (p >= n_accesses) break;
#pragma unroll
      for (int j = 0; j < kSize; ++j) v[i][j] = exp_minus(v[i][j], offset) * scale;
      if constexpr (kPacked) {
        store_pack(reinterpret_cast<uint4*>(out) + p, pack<T>(v[i]));
      } else {
        out[p] = from_float<T>(v[i][0]);
      }
    }
  }
}

// ---- launchers ---------------------------------------------------------------------------------

template <typename T, int kThreadsPerRow, int kElements, bool kPacked>
cudaError_t launch_registers(const Args& args, cudaStream_t stream) {
  constexpr int kBlock = block_threads(kThreadsPerRow, 1);
  constexpr int kRows = kBlock / kThreadsPerRow;
  const int64_t n_blocks = (args.n_rows + kRows - 1) / kRows;
  softmax_kernel<T, kThreadsPerRow, kElements, kPacked>
      <<<static_cast<unsigned>(n_blocks), kBlock, 0, stream>>>(args);
  return cudaGetLastError();
}

// The fewest elements a thread that cover the row.
template <typename T, int kThreadsPerRow>
cudaError_t launch_elements(const Args& args, bool packed, cudaStream_t stream) {
  if (args.n_cols > kThreadsPerRow * kMaxRegisterElements) return cudaErrorInvalidValue;
  if (!packed) {
    if constexpr (kThreadsPerRow == 8 || kThreadsPerRow == 32 || kThreadsPerRow == 128 ||
                  kThreadsPerRow == 512) {
      return launch_registers<T, kThreadsPerRow, 32, false>(args, stream);
    } else {
      return cudaErrorInvalidValue;  // fewer instances of the slow form: it need not be tuned
    }
  }
  if (args.n_cols <= kThreadsPerRow * 8) {
    return launch_registers<T, kThreadsPerRow, 8, true>(args, stream);
  }
  if (args.n_cols <= kThreadsPerRow * 16) {
    return launch_registers<T, kThreadsPerRow, 16, true>(args, stream);
  }
  return launch_registers<T, kThreadsPerRow, 32, true>(args, stream);
}

template <typename T>
cudaError_t launch_register_form(const Args& args, bool packed, int threads_per_row,
                                 cudaStream_t stream) {
  switch (threads_per_row) {
    case 8: return launch_elements<T, 8>(args, packed, stream);
    case 16: return launch_elements<T, 16>(args, packed, stream);
    case 32: return launch_elements<T, 32>(args, packed, stream);
    case 64: return launch_elements<T, 64>(args, packed, stream);
    case 128: return launch_elements<T, 128>(args, packed, stream);
    case 256: return launch_elements<T, 256>(args, packed, stream);
    case 512: return launch_elements<T, 512>(args, packed, stream);
    case 1024: return launch_elements<T, 1024>(args, packed, stream);
    default: return cudaErrorInvalidValue;
  }
}

template <typename T, int kThreads, int kBlocks>
cudaError_t launch_shared(const Args& args, int shared_limit, cudaStream_t stream) {
  const int64_t bytes = kPackBytes * staged_packs(args.n_cols / kPackSize<T>, kThreads, kBlocks);
  if (bytes > shared_limit - kSharedReserve) return cudaErrorInvalidValue;
  constexpr auto* kKernel = softmax_shared_kernel<T, kThreads, kBlocks>;
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

template <typename T>
cudaError_t launch_shared_form(const Args& args, int threads, int shared_limit,
                               cudaStream_t stream) {
  switch (threads) {
    case 128: return launch_shared<T, 128, 1>(args, shared_limit, stream);
    case 256: return launch_shared<T, 256, 1>(args, shared_limit, stream);
    case 512: return launch_shared<T, 512, 1>(args, shared_limit, stream);
    case 1024: return launch_shared<T, 1024, 1>(args, shared_limit, stream);
    default: return cudaErrorInvalidValue;
  }
}

// kThreads threads in each of kBlocks blocks, with kMaxRegisterElements each or in shared memory.
template <typename T, int kThreads, int kBlocks>
cudaError_t launch_cluster(const Args& args, bool registers, int shared_limit,
                           cudaStream_t stream) {
  if (!registers) return launch_shared<T, kThreads, kBlocks>(args, shared_limit, stream);
  constexpr int kThreadsPerRow = kThreads * kBlocks;
  if (args.n_cols > kThreadsPerRow * kMaxRegisterElements) return cudaErrorInvalidValue;
  return launch_clusters<softmax_kernel<T, kThreadsPerRow, kMaxRegisterElements, true, kBlocks>>(
      args.n_rows * kBlocks, kThreads, 0, kBlocks, stream, args);
}

template <typename T, int kBlocks>
cudaError_t launch_cluster_threads(const Args& args, int threads, bool registers, int shared_limit,
                                   cudaStream_t stream) {
  switch (threads) {
    case 256: return launch_cluster<T, 256, kBlocks>(args, registers, shared_limit, stream);
    case 512: return launch_cluster<T, 512, kBlocks>(args, registers, shared_limit, stream);
    default: return cudaErrorInvalidValue;
  }
}

template <typename T>
cudaError_t launch_cluster_form(const Args& args, int threads_per_row, int blocks, bool registers,
                                int shared_limit, cudaStream_t stream) {
  if (blocks < 1) return cudaErrorInvalidValue;
  const int threads = threads_per_row % blocks == 0 ? threads_per_row / blocks : 0;
  switch (blocks) {
    case 2: return launch_cluster_threads<T, 2>(args, threads, registers, shared_limit, stream);
    case 4: return launch_cluster_threads<T, 4>(args, threads, registers, shared_limit, stream);
    case 8: return launch_cluster_threads<T, 8>(args, threads, registers, shared_limit, stream);
    case 16: return launch_cluster_threads<T, 16>(args, threads, registers, shared_limit, stream);
    default: return cudaErrorInvalidValue;
  }
}

template <typename T, bool kPacked>
cudaError_t launch_looped_form(const Args& args, int threads, cudaStream_t stream) {
  const unsigned n_blocks = static_cast<unsigned>(args.n_rows);
  switch (threads) {
    case 256: softmax_looped_kernel<T, 256, kPacked><<<n_blocks, 256, 0, stream>>>(args); break;
    case 512: softmax_looped_kernel<T, 512, kPacked><<<n_blocks, 512, 0, stream>>>(args); break;
    case 1024: softmax_looped_kernel<T, 1024, kPacked><<<n_blocks, 1024, 0, stream>>>(args); break;
    default: return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

// Threads of a row in the register form: 8 elements each to one warp, then 32 each.
int register_threads(int64_t n_cols) {
  if (n_cols <= 64) return 8;
  if (n_cols <= 128) return 16;
  int threads = 32;
  while (threads < 1024 && threads * int64_t(kMaxRegisterElements) < n_cols) threads *= 2;
  return threads;
}

int element_threads(int64_t n_cols) {  // the unpacked register form exists for these only
  for (int threads : {8, 32, 128}) {
    if (n_cols <= threads * kMaxRegisterElements) return threads;
  }
  return 512;
}

// Blocks of a cluster: 32 KB of the row in each, so that an SM stages six blocks at a time.
int cluster_blocks(int64_t row_bytes) {
  int blocks = 2;
  while (blocks < kMaxBlocks && row_bytes > blocks * int64_t(32 * 1024)) blocks *= 2;
  return blocks;
}

template <typename T>
cudaError_t dispatch(const Args& args, int threads, int form, int blocks, cudaStream_t stream) {
  const auto unaligned = [](const void* p, int64_t stride) {
    return reinterpret_cast<uintptr_t>(p) % kPackBytes != 0 || stride % kPackSize<T> != 0;
  };
  // The stride of a single row never gets used.
  const bool packed = args.n_cols % kPackSize<T> == 0 &&
                      !unaligned(args.x, args.n_rows > 1 ? args.x_stride : 0) &&
                      !unaligned(args.out, args.n_rows > 1 ? args.out_stride : 0);
  DeviceFacts facts;
  if (cudaError_t error = device_facts(&facts); error != cudaSuccess) return error;

  const int64_t row_bytes = args.n_cols * int64_t(sizeof(T));
  const bool clusters = packed && facts.major >= 9;
  if (form == kAuto) {
    const int64_t register_limit = packed ? 8192 : 512 * kMaxRegisterElements;
    const int64_t block_bytes = facts.shared_bytes - kSharedReserve;
    if (blocks != 0) return cudaErrorInvalidValue;  // which cluster form?
    if (threads != 0) {
      form = args.n_cols <= threads * int64_t(kMaxRegisterElements) ? kRegisters : kLooped;
    } else if (args.n_cols <= register_limit) {
      form = kRegisters;
    } else if (packed && row_bytes <= (clusters ? kMaxBlockRow : block_bytes)) {
      form = kShared;
    } else if (clusters && row_bytes <= kMaxBlocks * block_bytes) {
      form = kSharedCluster;
    } else {
      form = kLooped;
    }
  }
  if (blocks != 0 && form != kCluster && form != kSharedCluster) return cudaErrorInvalidValue;
  switch (form) {
    case kRegisters:
      if (threads == 0)
        threads = packed ? register_threads(args.n_cols) : element_threads(args.n_cols);
      return launch_register_form<T>(args, packed, threads, stream);
    case kShared: {
      if (!packed) return cudaErrorInvalidValue;
      // Several blocks an SM until one row takes more than half of the shared memory.
      if (threads == 0)
        threads = row_bytes <= 40 * 1024 ? 256 : row_bytes <= 80 * 1024 ? 512 : 1024;
      return launch_shared_form<T>(args, threads, facts.shared_bytes, stream);
    }
    case kLooped:
      if (threads == 0) threads = 1024;
      return packed ? launch_looped_form<T, true>(args, threads, stream)
                    : launch_looped_form<T, false>(args, threads, stream);
    case kCluster:
    case kSharedCluster:
      if (!clusters) return cudaErrorInvalidValue;
      if (blocks == 0) blocks = cluster_blocks(row_bytes);
      if (threads == 0) {
        const bool crowded = form == kCluster && args.n_cols > blocks * 256 * kMaxRegisterElements;
        threads = blocks * (crowded ? 512 : 256);
      }
      return launch_cluster_form<T>(args, threads, blocks, form == kCluster, facts.shared_bytes,
                                    stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t softmax(const void* x, void* out, int64_t n_rows, int64_t n_cols, int64_t x_stride,
                    int64_t out_stride, DType dtype, int threads_per_row, int form,
                    int blocks_per_row, cudaStream_t stream) {
  if (n_rows == 0 || n_cols == 0) return cudaSuccess;
  const Args args = {x, out, n_rows, n_cols, x_stride, out_stride};
  switch (dtype) {
    case DType::kF32: return dispatch<float>(args, threads_per_row, form, blocks_per_row, stream);
    case DType::kBF16:
      return dispatch<__nv_bfloat16>(args, threads_per_row, form, blocks_per_row, stream);
    case DType::kF16: return dispatch<__half>(args, threads_per_row, form, blocks_per_row, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace cuda_vs_triton
