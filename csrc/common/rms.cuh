// Rows divided by their root mean square: what rms_norm and add_rms_norm share. Each owns its
// __global__ functions, which call the forms below, and hands them to launch_rms as an Op.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "common/async_copy.cuh"
#include "common/launch.cuh"
#include "common/merge.cuh"
#include "common/pack.cuh"
#include "common/reduce.cuh"
#include "kernels.h"

namespace cuda_vs_triton {

constexpr int kRmsMinBlock = 128;     // threads a block at least: short rows are grouped
constexpr int kRmsLoopedBlock = 512;  // threads of the looped form
constexpr int kRmsElements = 16;      // element accesses a thread where rows are not aligned

constexpr int kRmsSharedReserve = 1024;           // static shared memory beside a staged row
constexpr int64_t kRmsRegisterBytes = 32 * 1024;  // of a row; wider ones are staged
constexpr int64_t kRmsBlockBytes = 64 * 1024;     // that a block stages, given clusters
constexpr int64_t kRmsTurnBytes = 32 * 1024;      // that 1024 threads stage of x and r in one go

enum RmsForm { kRmsAuto = 0, kRmsRegisters = 1, kRmsStaged = 2, kRmsLooped = 3 };

struct RmsArgs {
  const void *x, *r, *w;  // r is null without an addition
  void *out, *h;          // h is null without an addition
  int64_t n_rows, n_cols, x_stride, r_stride, out_stride, h_stride;
  float inverse_cols, eps;
};

struct RmsConfig {
  int form, threads_per_row, blocks_per_row, rows_per_thread;
};

struct Sum {
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};

// One access of a thread: a pack, or an element where rows are not aligned.
template <typename T, bool kPacked>
struct Access {
  using Raw = std::conditional_t<kPacked, uint4, T>;
  static constexpr int kSize = kPacked ? kPackSize<T> : 1;
  using Values = float[kSize];

  static __device__ __forceinline__ Raw zeros() {
    if constexpr (kPacked)
      return make_uint4(0, 0, 0, 0);
    else
      return from_float<T>(0.0f);
  }
  static __device__ __forceinline__ Raw load(const T* row, int64_t p) {
    return reinterpret_cast<const Raw*>(row)[p];
  }
  static __device__ __forceinline__ void unpack_to(const Raw& raw, Values& v) {
    if constexpr (kPacked)
      unpack<T>(raw, v);
    else
      v[0] = to_float(raw);
  }
  static __device__ __forceinline__ void store(T* row, int64_t p, const Values& v) {
    if constexpr (kPacked)
      reinterpret_cast<uint4*>(row)[p] = pack<T>(v);
    else
      row[p] = from_float<T>(v[0]);
  }
};

// unpack in other words. ptxas would take a second unpack for the first one and keep float32
// values, twice the registers of what they came as.
template <typename T>
__device__ __forceinline__ void unpack_again(const uint4& raw, float (&v)[kPackSize<T>]) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[2 * i] = __uint_as_float(__byte_perm(words[i], 0, 0x1044));
      v[2 * i + 1] = __uint_as_float(__byte_perm(words[i], 0, 0x3244));
    }
  } else {
    unpack<T>(raw, v);
  }
}

// What a thread keeps of an access until the row's sum is known: x as it came, or the float32 sum
// x + r, which is not rounded before it is normalised.
template <typename T, bool kPacked, bool kAdd>
struct Kept;

template <typename T, bool kPacked>
struct Kept<T, kPacked, false> {
  using A = Access<T, kPacked>;
  typename A::Raw raw;
  __device__ __forceinline__ void set(const typename A::Raw& x, const typename A::Raw&) { raw = x; }
  __device__ __forceinline__ void get(typename A::Values& v) const { A::unpack_to(raw, v); }
  __device__ __forceinline__ void get_again(typename A::Values& v) const {
    if constexpr (kPacked)
      unpack_again<T>(raw, v);
    else
      A::unpack_to(raw, v);
  }
};

template <typename T, bool kPacked>
struct Kept<T, kPacked, true> {
  using A = Access<T, kPacked>;
  typename A::Values sum;
  __device__ __forceinline__ void set(const typename A::Raw& x, const typename A::Raw& r) {
    typename A::Values added;
    A::unpack_to(x, sum);
    A::unpack_to(r, added);
#pragma unroll
    for (int j = 0; j < A::kSize; ++j) sum[j] += added[j];
  }
  __device__ __forceinline__ void get(typename A::Values& v) const {
#pragma unroll
    for (int j = 0; j < A::kSize; ++j) v[j] = sum[j];
  }
  __device__ __forceinline__ void get_again(typename A::Values& v) const { get(v); }
};

template <int kSize>
__device__ __forceinline__ float add_squares(float sum, const float (&v)[kSize]) {
#pragma unroll
  for (int j = 0; j < kSize; ++j) sum = fmaf(v[j], v[j], sum);
  return sum;
}

// v * rstd * w, in the order in which torch multiplies.
template <int kSize>
__device__ __forceinline__ void scale(float (&v)[kSize], float rstd, const float (&w)[kSize]) {
#pragma unroll
  for (int j = 0; j < kSize; ++j) v[j] = v[j] * rstd * w[j];
}

__device__ __forceinline__ float inverse_rms(float sum, const RmsArgs& args) {
  return rsqrtf(sum * args.inverse_cols + args.eps);
}

// Over the kWarps warps of a row, whose lanes agree already, then over the kBlocks blocks of a
// cluster that share it, which has called begin_rms.
template <int kBlocks>
__device__ __forceinline__ void begin_rms() {
#if __CUDA_ARCH__ >= 900
  if constexpr (kBlocks > 1) cluster_arrive();  // merge_cluster waits for it
#endif
}

template <int kWarps, int kBlocks, int kWarpsInBlock>
__device__ __forceinline__ float merge_sums(float sum) {
  if constexpr (kWarps > 1) {
    __shared__ float of_warps[kWarpsInBlock];
    sum = merge_warps<kWarps>(sum, of_warps, Sum());
  }
#if __CUDA_ARCH__ >= 900
  if constexpr (kBlocks > 1) {
    __shared__ float of_blocks[kBlocks];
    sum = merge_cluster<kBlocks>(sum, of_blocks, Sum());
  }
#endif
  return sum;
}

// ---- registers: rows live in registers, one read, one write ------------------------------------

__host__ __device__ constexpr int rms_block(int threads_per_row) {
  return threads_per_row < kRmsMinBlock ? kRmsMinBlock : threads_per_row;
}

// kThreadsPerRow threads share a row and have kAccesses accesses each of kRows rows.
template <typename T, int kThreadsPerRow, int kAccesses, int kRows, bool kPacked, bool kAdd>
__device__ __forceinline__ void rms_registers(const RmsArgs& args) {
  using A = Access<T, kPacked>;
  constexpr int kBlock = rms_block(kThreadsPerRow);
  constexpr int kLanes = kThreadsPerRow < kWarpSize ? kThreadsPerRow : kWarpSize;
  constexpr int kWarps = kThreadsPerRow / kLanes;
  constexpr int kGroups = kBlock / kThreadsPerRow;  // rows that the block has side by side
  static_assert(kRows == 1 || kWarps == 1, "one sum a thread goes through shared memory");
  const int lane = threadIdx.x % kThreadsPerRow;
  const int64_t first_row =
      static_cast<int64_t>(blockIdx.x) * (kGroups * kRows) + threadIdx.x / kThreadsPerRow;
  const int n_accesses = static_cast<int>(args.n_cols / A::kSize);
  // Threads of rows past the end stay for the shuffles and barriers, with nothing of their own.
  const auto mine = [&](int i, int k) {
    return first_row + i * kGroups < args.n_rows && lane + k * kThreadsPerRow < n_accesses;
  };

  typename A::Raw x[kRows][kAccesses], r[kRows][kAccesses];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int64_t row = first_row + i * kGroups;
    const T* x_row = static_cast<const T*>(args.x) + row * args.x_stride;
    const T* r_row = static_cast<const T*>(args.r) + row * args.r_stride;
#pragma unroll
    for (int k = 0; k < kAccesses; ++k) {
      x[i][k] = r[i][k] = A::zeros();
      if (mine(i, k)) {
        x[i][k] = A::load(x_row, lane + k * kThreadsPerRow);
        if constexpr (kAdd) r[i][k] = A::load(r_row, lane + k * kThreadsPerRow);
      }
    }
  }
  // w comes from L1 or L2. Its loads overlap those of x while registers allow for that.
  constexpr bool kEarlyW = kAccesses * A::kSize <= 4 * kPackSize<T>;
  typename A::Raw w[kAccesses];
  const auto load_w = [&](int k) {
    const int p = lane + k * kThreadsPerRow;
    w[k] = A::zeros();
    if (p < n_accesses) w[k] = A::load(static_cast<const T*>(args.w), p);
  };
  if constexpr (kEarlyW) {
#pragma unroll
    for (int k = 0; k < kAccesses; ++k) load_w(k);
  }

  Kept<T, kPacked, kAdd> kept[kRows][kAccesses];
  float sums[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    T* h_row = static_cast<T*>(args.h) + (first_row + i * kGroups) * args.h_stride;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kAccesses; ++k) {
      kept[i][k].set(x[i][k], r[i][k]);
      typename A::Values v;
      kept[i][k].get(v);
      if constexpr (kAdd) {
        if (mine(i, k)) A::store(h_row, lane + k * kThreadsPerRow, v);
      }
      sum = add_squares(sum, v);
    }
    sums[i] = lanes_sum<kLanes>(sum);
  }
  sums[0] = merge_sums<kWarps, 1, kBlock / kWarpSize>(sums[0]);

#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const float rstd = inverse_rms(sums[i], args);
    T* out_row = static_cast<T*>(args.out) + (first_row + i * kGroups) * args.out_stride;
#pragma unroll
    for (int k = 0; k < kAccesses; ++k) {
      if constexpr (!kEarlyW) load_w(k);
      typename A::Values v, weight;
      A::unpack_to(w[k], weight);
      kept[i][k].get_again(v);
      scale(v, rstd, weight);
      if (mine(i, k)) A::store(out_row, lane + k * kThreadsPerRow, v);
    }
  }
}

// ---- staged: blocks keep a row in shared memory; a thread reads back only what it copied --------

// Packs of a row, or of each of two, that each thread of all blocks stages at most.
__host__ __device__ constexpr int rms_staged_packs(int64_t n_packs, int threads_per_row) {
  return static_cast<int>((n_packs + threads_per_row - 1) / threads_per_row);
}

template <typename T, int kThreads, int kBlocks, bool kAdd>
__device__ __forceinline__ void rms_staged(const RmsArgs& args) {
  extern __shared__ __align__(16) uint4 s_rows[];
  using A = Access<T, true>;
  constexpr int kTurn = kThreads * kBlocks;  // packs of the row between two of a thread
  constexpr int kBatch = 4;                  // loads of w in flight a thread
  begin_rms<kBlocks>();
  const int n_packs = static_cast<int>(args.n_cols / A::kSize);
  const int64_t row = blockIdx.x / kBlocks;
  const int lane = blockIdx.x % kBlocks * kThreads + threadIdx.x;
  const int n_mine = lane < n_packs ? (n_packs - lane - 1) / kTurn + 1 : 0;
  const T* x_row = static_cast<const T*>(args.x) + row * args.x_stride;
  const T* r_row = static_cast<const T*>(args.r) + row * args.r_stride;
  T* out_row = static_cast<T*>(args.out) + row * args.out_stride;
  T* h_row = static_cast<T*>(args.h) + row * args.h_stride;
  uint4* x_mine = s_rows + threadIdx.x;
  uint4* r_mine = x_mine + rms_staged_packs(n_packs, kTurn) * kThreads;

  for (int i = 0; i < n_mine; ++i) {
    const int p = lane + i * kTurn;
    async_copy_16(shared_address(x_mine + i * kThreads), reinterpret_cast<const uint4*>(x_row) + p);
    if constexpr (kAdd) {
      async_copy_16(shared_address(r_mine + i * kThreads),
                    reinterpret_cast<const uint4*>(r_row) + p);
    }
  }
  async_copy_commit();
  async_copy_wait<0>();  // a thread reads back its own packs: no barrier

  const auto get = [&](int i, typename A::Values& v) {
    Kept<T, true, kAdd> kept;
    kept.set(x_mine[i * kThreads], kAdd ? r_mine[i * kThreads] : A::zeros());
    kept.get(v);
  };
  float sum = 0.0f;
#pragma unroll 4
  for (int i = 0; i < n_mine; ++i) {
    typename A::Values v;
    get(i, v);
    if constexpr (kAdd) A::store(h_row, lane + i * kTurn, v);
    sum = add_squares(sum, v);
  }
  constexpr int kWarps = kThreads / kWarpSize;
  const float rstd =
      inverse_rms(merge_sums<kWarps, kBlocks, kWarps>(lanes_sum<kWarpSize>(sum)), args);

  for (int first = 0; first < n_mine; first += kBatch) {
    typename A::Raw w[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      w[k] = A::zeros();
      if (first + k < n_mine) {
        w[k] = A::load(static_cast<const T*>(args.w), lane + (first + k) * kTurn);
      }
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      if (first + k >= n_mine) break;
      typename A::Values v, weight;
      get(first + k, v);
      A::unpack_to(w[k], weight);
      scale(v, rstd, weight);
      A::store(out_row, lane + (first + k) * kTurn, v);
    }
  }
}

// ---- looped: a block walks a row of any width twice --------------------------------------------

template <typename T, bool kPacked, bool kAdd>
__device__ __forceinline__ void rms_looped(const RmsArgs& args) {
  using A = Access<T, kPacked>;
  constexpr int kBatch = kAdd ? 2 : 4;  // independent accesses of a tensor in flight a thread
  constexpr int kWarps = kRmsLoopedBlock / kWarpSize;
  const int64_t row = blockIdx.x;
  const int64_t n_accesses = args.n_cols / A::kSize;
  const T* x_row = static_cast<const T*>(args.x) + row * args.x_stride;
  const T* r_row = static_cast<const T*>(args.r) + row * args.r_stride;
  T* out_row = static_cast<T*>(args.out) + row * args.out_stride;
  T* h_row = static_cast<T*>(args.h) + row * args.h_stride;
  const T* w = static_cast<const T*>(args.w);

  const auto load_batch = [&](int64_t first, Kept<T, kPacked, kAdd>(&kept)[kBatch]) {
    typename A::Raw x[kBatch], r[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const int64_t p = first + k * kRmsLoopedBlock;
      x[k] = r[k] = A::zeros();
      if (p < n_accesses) {
        x[k] = A::load(x_row, p);
        if constexpr (kAdd) r[k] = A::load(r_row, p);
      }
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) kept[k].set(x[k], r[k]);
  };

  float sum = 0.0f;
  for (int64_t first = threadIdx.x; first < n_accesses; first += kBatch * kRmsLoopedBlock) {
    Kept<T, kPacked, kAdd> kept[kBatch];
    load_batch(first, kept);
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      typename A::Values v;
      kept[k].get(v);
      sum = add_squares(sum, v);
    }
  }
  const float rstd = inverse_rms(merge_sums<kWarps, 1, kWarps>(lanes_sum<kWarpSize>(sum)), args);

  // h is written in this pass alone: it may be x or r, which both passes read.
  for (int64_t first = threadIdx.x; first < n_accesses; first += kBatch * kRmsLoopedBlock) {
    Kept<T, kPacked, kAdd> kept[kBatch];
    load_batch(first, kept);
    typename A::Raw raw_w[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const int64_t p = first + k * kRmsLoopedBlock;
      raw_w[k] = A::zeros();
      if (p < n_accesses) raw_w[k] = A::load(w, p);
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const int64_t p = first + k * kRmsLoopedBlock;
      if (p >= n_accesses) break;
      typename A::Values v, weight;
      A::unpack_to(raw_w[k], weight);
      kept[k].get(v);
      if constexpr (kAdd) A::store(h_row, p, v);
      scale(v, rstd, weight);
      A::store(out_row, p, v);
    }
  }
}

// ---- launchers ---------------------------------------------------------------------------------
//
// An Op has kAdd and the member templates registers<T, kThreadsPerRow, kAccesses, kRows, kPacked>,
// staged<T, kThreads, kBlocks> and looped<T, kPacked>, pointers to its __global__ functions, which
// take RmsArgs.

template <class Op, typename T, int kThreadsPerRow, int kAccesses, int kRows, bool kPacked = true>
cudaError_t launch_rms_registers(const RmsArgs& args, cudaStream_t stream) {
  constexpr int kBlock = rms_block(kThreadsPerRow);
  constexpr int kRowsInBlock = kBlock / kThreadsPerRow * kRows;
  constexpr auto* kKernel = Op::template registers<T, kThreadsPerRow, kAccesses, kRows, kPacked>;
  const int64_t n_blocks = (args.n_rows + kRowsInBlock - 1) / kRowsInBlock;
  if (n_blocks > INT32_MAX) return cudaErrorInvalidValue;  // of a grid along x
  kKernel<<<static_cast<unsigned>(n_blocks), kBlock, 0, stream>>>(args);
  return cudaGetLastError();
}

// Short rows: a group of at most a warp has one to four packs of one to four rows.
template <class Op, typename T, int kThreadsPerRow>
cudaError_t launch_rms_short(const RmsArgs& args, int64_t n_packs, int rows, cudaStream_t stream) {
  if (n_packs <= kThreadsPerRow) {
    switch (rows) {
      case 2: return launch_rms_registers<Op, T, kThreadsPerRow, 1, 2>(args, stream);
      case 0:
      case 4: return launch_rms_registers<Op, T, kThreadsPerRow, 1, 4>(args, stream);
      default: return cudaErrorInvalidValue;
    }
  }
  if (n_packs <= 2 * kThreadsPerRow) {
    if (rows != 0 && rows != 2) return cudaErrorInvalidValue;
    return launch_rms_registers<Op, T, kThreadsPerRow, 2, 2>(args, stream);
  }
  if (n_packs > 4 * kThreadsPerRow || rows > 1) return cudaErrorInvalidValue;
  return launch_rms_registers<Op, T, kThreadsPerRow, 4, 1>(args, stream);
}

// Long rows: the fewest packs a thread that cover the row.
template <class Op, typename T, int kThreadsPerRow>
cudaError_t launch_rms_long(const RmsArgs& args, int64_t n_packs, int rows, cudaStream_t stream) {
  if (n_packs > 8 * kThreadsPerRow || rows > 1) return cudaErrorInvalidValue;
  if (n_packs <= 2 * kThreadsPerRow) {
    return launch_rms_registers<Op, T, kThreadsPerRow, 2, 1>(args, stream);
  }
  if (n_packs <= 3 * kThreadsPerRow) {
    return launch_rms_registers<Op, T, kThreadsPerRow, 3, 1>(args, stream);
  }
  if (n_packs <= 4 * kThreadsPerRow) {
    return launch_rms_registers<Op, T, kThreadsPerRow, 4, 1>(args, stream);
  }
  return launch_rms_registers<Op, T, kThreadsPerRow, 8, 1>(args, stream);
}

template <class Op, typename T>
cudaError_t launch_rms_packed(const RmsArgs& args, int64_t n_packs, int threads, int rows,
                              cudaStream_t stream) {
  switch (threads) {
    case 8: return launch_rms_short<Op, T, 8>(args, n_packs, rows, stream);
    case 16: return launch_rms_short<Op, T, 16>(args, n_packs, rows, stream);
    case 32: return launch_rms_short<Op, T, 32>(args, n_packs, rows, stream);
    case 64: return launch_rms_long<Op, T, 64>(args, n_packs, rows, stream);
    case 128: return launch_rms_long<Op, T, 128>(args, n_packs, rows, stream);
    case 256: return launch_rms_long<Op, T, 256>(args, n_packs, rows, stream);
    case 512: return launch_rms_long<Op, T, 512>(args, n_packs, rows, stream);
    default: return cudaErrorInvalidValue;
  }
}

// Few instances of the slow form: it need not be tuned.
template <class Op, typename T>
cudaError_t launch_rms_elements(const RmsArgs& args, int threads, cudaStream_t stream) {
  if (args.n_cols > int64_t{threads} * kRmsElements) return cudaErrorInvalidValue;
  switch (threads) {
    case 32: return launch_rms_registers<Op, T, 32, kRmsElements, 1, false>(args, stream);
    case 128: return launch_rms_registers<Op, T, 128, kRmsElements, 1, false>(args, stream);
    case 512: return launch_rms_registers<Op, T, 512, kRmsElements, 1, false>(args, stream);
    default: return cudaErrorInvalidValue;
  }
}

template <class Op>
int64_t rms_staged_bytes(int64_t n_packs, int threads_per_row, int blocks) {
  const int64_t packs = int64_t{rms_staged_packs(n_packs, threads_per_row)} * threads_per_row;
  return packs / blocks * kPackBytes * (Op::kAdd ? 2 : 1);
}

template <class Op, typename T, int kThreads, int kBlocks>
cudaError_t launch_rms_staged(const RmsArgs& args, int64_t n_packs, int shared_limit,
                              cudaStream_t stream) {
  const int64_t bytes = rms_staged_bytes<Op>(n_packs, kThreads * kBlocks, kBlocks);
  if (bytes > shared_limit) return cudaErrorInvalidValue;
  constexpr auto* kKernel = Op::template staged<T, kThreads, kBlocks>;
  if (cudaError_t error = allow_shared_memory<kKernel>(shared_limit); error != cudaSuccess) {
    return error;
  }
  if constexpr (kBlocks > 1) {
    return launch_clusters<kKernel>(args.n_rows * kBlocks, kThreads, static_cast<size_t>(bytes),
                                    kBlocks, stream, args);
  } else {
    if (args.n_rows > INT32_MAX) return cudaErrorInvalidValue;  // of a grid along x
    kKernel<<<static_cast<unsigned>(args.n_rows), kThreads, static_cast<size_t>(bytes), stream>>>(
        args);
    return cudaGetLastError();
  }
}

template <class Op, typename T, int kBlocks>
cudaError_t launch_rms_staged_threads(const RmsArgs& args, int64_t n_packs, int threads_per_row,
                                      int shared_limit, cudaStream_t stream) {
  switch (threads_per_row) {
    case 256 * kBlocks:
      return launch_rms_staged<Op, T, 256, kBlocks>(args, n_packs, shared_limit, stream);
    case 512 * kBlocks:
      return launch_rms_staged<Op, T, 512, kBlocks>(args, n_packs, shared_limit, stream);
    case 1024 * kBlocks:
      if constexpr (kBlocks == 1) {
        return launch_rms_staged<Op, T, 1024, 1>(args, n_packs, shared_limit, stream);
      }
      [[fallthrough]];
    default: return cudaErrorInvalidValue;
  }
}

template <class Op, typename T>
cudaError_t launch_rms_staged_blocks(const RmsArgs& args, int64_t n_packs, int threads, int blocks,
                                     int limit, cudaStream_t stream) {
  switch (blocks) {
    case 1: return launch_rms_staged_threads<Op, T, 1>(args, n_packs, threads, limit, stream);
    case 2: return launch_rms_staged_threads<Op, T, 2>(args, n_packs, threads, limit, stream);
    case 4: return launch_rms_staged_threads<Op, T, 4>(args, n_packs, threads, limit, stream);
    case 8: return launch_rms_staged_threads<Op, T, 8>(args, n_packs, threads, limit, stream);
    case 16: return launch_rms_staged_threads<Op, T, 16>(args, n_packs, threads, limit, stream);
    default: return cudaErrorInvalidValue;
  }
}

template <class Op, typename T, bool kPacked>
cudaError_t launch_rms_looped(const RmsArgs& args, cudaStream_t stream) {
  if (args.n_rows > INT32_MAX) return cudaErrorInvalidValue;
  constexpr auto* kKernel = Op::template looped<T, kPacked>;
  kKernel<<<static_cast<unsigned>(args.n_rows), kRmsLoopedBlock, 0, stream>>>(args);
  return cudaGetLastError();
}

// Threads of a row in the register form: a pack or two each, as far as a block of 512 goes.
inline int rms_threads(int64_t n_packs) {
  if (n_packs <= 8) return 8;
  int threads = 16;
  while (threads < 512 && threads * 2 < n_packs) threads *= 2;
  return threads;
}

inline int rms_element_threads(int64_t n_cols) {
  if (n_cols <= 32 * kRmsElements) return 32;
  return n_cols <= 128 * kRmsElements ? 128 : 512;
}

// Blocks that stage a row of `bytes`, kRmsBlockBytes each, so that an SM has three at a time.
inline int rms_blocks(int64_t bytes) {
  int blocks = 1;
  while (blocks < 16 && bytes > blocks * kRmsBlockBytes) blocks *= 2;
  return blocks;
}

// Whether 16-byte accesses fit every row; the stride of a single row never gets used.
template <typename T>
bool rms_rows_are_packs(const RmsArgs& args) {
  const auto aligned = [&](const void* p, int64_t stride) {
    return reinterpret_cast<uintptr_t>(p) % kPackBytes == 0 &&
           (args.n_rows == 1 || stride % kPackSize<T> == 0);
  };
  return args.n_cols % kPackSize<T> == 0 && aligned(args.x, args.x_stride) &&
         aligned(args.r, args.r_stride) && aligned(args.w, 0) &&
         aligned(args.out, args.out_stride) && aligned(args.h, args.h_stride);
}

// What the caller left open, filled in.
template <class Op, typename T>
RmsConfig complete_rms(const RmsArgs& args, RmsConfig config, bool packed, bool clusters,
                       int shared_limit) {
  const int64_t n_packs = args.n_cols / kPackSize<T>;
  const int64_t row_bytes = args.n_cols * int64_t(sizeof(T));
  const int64_t staged_bytes = row_bytes * (Op::kAdd ? 2 : 1);
  if (config.form == kRmsAuto) {
    const bool fits = packed ? row_bytes <= kRmsRegisterBytes : args.n_cols <= 512 * kRmsElements;
    // Blocks stage whole turns.
    const int64_t most = packed ? (shared_limit - kRmsTurnBytes) * (clusters ? 16 : 1) : 0;
    if (config.blocks_per_row > 1)
      config.form = kRmsStaged;
    else if (fits || config.threads_per_row != 0)
      config.form = kRmsRegisters;
    else
      config.form = staged_bytes <= most ? kRmsStaged : kRmsLooped;
  }
  if (config.form == kRmsRegisters && config.threads_per_row == 0) {
    config.threads_per_row = packed ? rms_threads(n_packs) : rms_element_threads(args.n_cols);
  }
  if (config.form == kRmsStaged) {
    if (config.blocks_per_row == 0) config.blocks_per_row = clusters ? rms_blocks(staged_bytes) : 1;
    if (config.threads_per_row == 0) {
      config.threads_per_row = config.blocks_per_row == 1 ? 1024 : 512 * config.blocks_per_row;
    }
  }
  return config;
}

template <class Op, typename T>
cudaError_t launch_rms_of(const RmsArgs& args, const RmsConfig& given, cudaStream_t stream) {
  DeviceFacts facts;
  if (cudaError_t error = device_facts(&facts); error != cudaSuccess) return error;
  const bool packed = rms_rows_are_packs<T>(args);
  const bool clusters = packed && facts.major >= 9;
  const int shared_limit = facts.shared_bytes - kRmsSharedReserve;
  const RmsConfig config = complete_rms<Op, T>(args, given, packed, clusters, shared_limit);
  const int64_t n_packs = args.n_cols / kPackSize<T>;
  const int threads = config.threads_per_row;
  const int blocks = config.blocks_per_row;
  const int rows = config.rows_per_thread;
  switch (config.form) {
    case kRmsRegisters:
      if (blocks > 1) return cudaErrorInvalidValue;
      if (packed) return launch_rms_packed<Op, T>(args, n_packs, threads, rows, stream);
      return rows > 1 ? cudaErrorInvalidValue : launch_rms_elements<Op, T>(args, threads, stream);
    case kRmsStaged:
      if (!packed || rows > 1 || (blocks > 1 && !clusters)) return cudaErrorInvalidValue;
      return launch_rms_staged_blocks<Op, T>(args, n_packs, threads, blocks, shared_limit, stream);
    case kRmsLooped:
      if (threads != 0 || blocks > 1 || rows > 1) return cudaErrorInvalidValue;
      return packed ? launch_rms_looped<Op, T, true>(args, stream)
                    : launch_rms_looped<Op, T, false>(args, stream);
    default: return cudaErrorInvalidValue;
  }
}

template <class Op>
cudaError_t launch_rms(const RmsArgs& args, DType dtype, const RmsConfig& config,
                       cudaStream_t stream) {
  if (args.n_rows == 0 || args.n_cols == 0) return cudaSuccess;
  switch (dtype) {
    case DType::kF32: return launch_rms_of<Op, float>(args, config, stream);
    case DType::kBF16: return launch_rms_of<Op, __nv_bfloat16>(args, config, stream);
    case DType::kF16: return launch_rms_of<Op, __half>(args, config, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace cuda_vs_triton
