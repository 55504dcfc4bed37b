// Rows divided by their root mean square: what rms_norm and add_rms_norm share. Each owns its
// __global__ functions, which call the forms below, and hands them to launch_rms as an Op.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "common/launch.cuh"
#include "common/merge.cuh"
#include "common/pack.cuh"
#include "common/reduce.cuh"
#include "kernels.h"

namespace cuda_vs_triton {

constexpr int kRmsMinBlock = 128;     // threads a block at least: short rows are grouped
constexpr int kRmsLoopedBlock = 512;  // threads of the looped form
constexpr int kRmsElements = 16;      // element accesses a thread where rows are not aligned

enum RmsForm { kRmsAuto = 0, kRmsRegisters = 1, kRmsCluster = 2, kRmsLooped = 3 };

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

// ---- registers: rows live in registers, one read, one write ------------------------------------

__host__ __device__ constexpr int rms_block(int threads_per_row, int blocks) {
  const int threads = threads_per_row / blocks;
  return threads < kRmsMinBlock ? kRmsMinBlock : threads;
}

// kThreadsPerRow threads share a row and have kAccesses accesses each of kRows rows. kBlocks > 1:
// the blocks of a cluster share a row.
template <typename T, int kThreadsPerRow, int kAccesses, int kRows, int kBlocks, bool kPacked,
          bool kAdd>
__device__ __forceinline__ void rms_registers(const RmsArgs& args) {
  using A = Access<T, kPacked>;
  constexpr int kBlock = rms_block(kThreadsPerRow, kBlocks);
  constexpr int kThreadsHere = kThreadsPerRow / kBlocks;  // of a row, in this block
  constexpr int kLanes = kThreadsHere < kWarpSize ? kThreadsHere : kWarpSize;
  constexpr int kWarps = kThreadsHere / kLanes;
  constexpr int kGroups = kBlock / kThreadsHere;  // rows that the block has side by side
  static_assert(kRows == 1 || kWarps == 1, "one sum a thread goes through shared memory");
#if __CUDA_ARCH__ >= 900
  if constexpr (kBlocks > 1) cluster_arrive();  // merge_cluster waits for it
#endif
  const int lane = blockIdx.x % kBlocks * kThreadsHere + threadIdx.x % kThreadsHere;
  const int64_t first_row =
      static_cast<int64_t>(blockIdx.x / kBlocks) * (kGroups * kRows) + threadIdx.x / kThreadsHere;
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
  if constexpr (kWarps > 1) {
    __shared__ float of_warps[kBlock / kWarpSize];
    sums[0] = merge_warps<kWarps>(sums[0], of_warps, Sum());
  }
#if __CUDA_ARCH__ >= 900
  if constexpr (kBlocks > 1) {
    __shared__ float of_blocks[kBlocks];
    sums[0] = merge_cluster<kBlocks>(sums[0], of_blocks, Sum());
  }
#endif

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
  __shared__ float of_warps[kWarps];
  sum = merge_warps<kWarps>(lanes_sum<kWarpSize>(sum), of_warps, Sum());
  const float rstd = inverse_rms(sum, args);

  // h is written in this pass alone: it may be x or r, which both passes read.
  for (int64_t first = threadIdx.x; first < n_accesses; first += kBatch * kRmsLoopedBlock) {
    Kept<T, kPacked, kAdd> kept[kBatch];
    load_batch(first, kept);
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const int64_t p = first + k * kRmsLoopedBlock;
      if (p >= n_accesses) break;
      typename A::Values v, weight;
      A::unpack_to(A::load(w, p), weight);
      kept[k].get(v);
      if constexpr (kAdd) A::store(h_row, p, v);
      scale(v, rstd, weight);
      A::store(out_row, p, v);
    }
  }
}

// ---- launchers ---------------------------------------------------------------------------------
//
// An Op has the member templates registers<T, kThreadsPerRow, kAccesses, kRows, kBlocks, kPacked>
// and looped<T, kPacked>, pointers to its __global__ functions, which take RmsArgs.

template <class Op, typename T, int kThreadsPerRow, int kAccesses, int kRows, bool kPacked = true>
cudaError_t launch_rms_registers(const RmsArgs& args, cudaStream_t stream) {
  constexpr int kBlock = rms_block(kThreadsPerRow, 1);
  constexpr int kRowsInBlock = kBlock / kThreadsPerRow * kRows;
  constexpr auto* kKernel = Op::template registers<T, kThreadsPerRow, kAccesses, kRows, 1, kPacked>;
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

// kThreads threads in each of kBlocks blocks: 4 packs each, or 8 of 512.
template <class Op, typename T, int kThreads, int kBlocks>
cudaError_t launch_rms_blocks(const RmsArgs& args, int64_t n_packs, cudaStream_t stream) {
  constexpr int kThreadsPerRow = kThreads * kBlocks;
  const int64_t n_blocks = args.n_rows * kBlocks;
  if (n_packs <= 4 * kThreadsPerRow) {
    constexpr auto* kKernel = Op::template registers<T, kThreadsPerRow, 4, 1, kBlocks, true>;
    return launch_clusters<kKernel>(n_blocks, kThreads, 0, kBlocks, stream, args);
  }
  if constexpr (kThreads == 512) {
    if (n_packs <= 8 * kThreadsPerRow) {
      constexpr auto* kKernel = Op::template registers<T, kThreadsPerRow, 8, 1, kBlocks, true>;
      return launch_clusters<kKernel>(n_blocks, kThreads, 0, kBlocks, stream, args);
    }
  }
  return cudaErrorInvalidValue;
}

template <class Op, typename T, int kBlocks>
cudaError_t launch_rms_cluster(const RmsArgs& args, int64_t n_packs, int threads_per_row,
                               cudaStream_t stream) {
  switch (threads_per_row) {
    case 256 * kBlocks: return launch_rms_blocks<Op, T, 256, kBlocks>(args, n_packs, stream);
    case 512 * kBlocks: return launch_rms_blocks<Op, T, 512, kBlocks>(args, n_packs, stream);
    default: return cudaErrorInvalidValue;
  }
}

template <class Op, typename T>
cudaError_t launch_rms_clusters(const RmsArgs& args, int64_t n_packs, int threads_per_row,
                                int blocks, cudaStream_t stream) {
  switch (blocks) {
    case 2: return launch_rms_cluster<Op, T, 2>(args, n_packs, threads_per_row, stream);
    case 4: return launch_rms_cluster<Op, T, 4>(args, n_packs, threads_per_row, stream);
    case 8: return launch_rms_cluster<Op, T, 8>(args, n_packs, threads_per_row, stream);
    case 16: return launch_rms_cluster<Op, T, 16>(args, n_packs, threads_per_row, stream);
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

// Threads of a row in the register form: a pack or two each up to 64 packs, then four.
inline int rms_threads(int64_t n_packs) {
  if (n_packs <= 8) return 8;
  if (n_packs <= 32) return 16;
  int threads = 32;
  while (threads < 512 && threads * 4 < n_packs) threads *= 2;
  return threads;
}

inline int rms_element_threads(int64_t n_cols) {
  if (n_cols <= 32 * kRmsElements) return 32;
  return n_cols <= 128 * kRmsElements ? 128 : 512;
}

// Blocks of a cluster: 256 threads with 16 KB of the row in each.
inline int rms_cluster_blocks(int64_t n_packs) {
  int blocks = 2;
  while (blocks < 16 && blocks * 1024 < n_packs) blocks *= 2;
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

template <class Op, typename T>
cudaError_t launch_rms_of(const RmsArgs& args, RmsConfig config, cudaStream_t stream) {
  DeviceFacts facts;
  if (cudaError_t error = device_facts(&facts); error != cudaSuccess) return error;
  const bool packed = rms_rows_are_packs<T>(args);
  const bool clusters = packed && facts.major >= 9;
  const int64_t n_packs = args.n_cols / kPackSize<T>;
  if (config.form == kRmsAuto) {
    const int64_t most = packed ? (clusters ? 2048 : 4096) : 512 * kRmsElements;
    if (config.blocks_per_row > 1) {
      config.form = kRmsCluster;
    } else if (config.threads_per_row != 0 || (packed ? n_packs : args.n_cols) <= most) {
      config.form = kRmsRegisters;
    } else {
      config.form = clusters && n_packs <= 16 * 512 * 8 ? kRmsCluster : kRmsLooped;
    }
  }
  int threads = config.threads_per_row;
  int blocks = config.blocks_per_row;
  const int rows = config.rows_per_thread;
  switch (config.form) {
    case kRmsRegisters:
      if (blocks > 1) return cudaErrorInvalidValue;
      if (!packed) {
        if (rows > 1) return cudaErrorInvalidValue;
        return launch_rms_elements<Op, T>(
            args, threads == 0 ? rms_element_threads(args.n_cols) : threads, stream);
      }
      return launch_rms_packed<Op, T>(args, n_packs, threads == 0 ? rms_threads(n_packs) : threads,
                                      rows, stream);
    case kRmsCluster:
      if (!clusters || rows > 1) return cudaErrorInvalidValue;
      if (blocks == 0) blocks = rms_cluster_blocks(n_packs);
      if (threads == 0) threads = blocks * (n_packs > blocks * 1024 ? 512 : 256);
      return launch_rms_clusters<Op, T>(args, n_packs, threads, blocks, stream);
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
