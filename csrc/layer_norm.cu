// out[row, :] = (x[row, :] - mean) * rsqrt(variance + eps) * w + b, the variance biased; f32, bf16,
// f16, fp32 inside, rounded once.
//
// Ownership: threads_per_row threads own one row; short rows share a block, wide ones are shared by
//   the blocks_per_row blocks of a cluster (sm_90).
// Bytes per element: 2 * sizeof(T), about 8 flops: bound by DRAM; w and b come from chip.
// Forms: registers (one row a group of threads, rows to 64 KB); resident (blocks or clusters stay,
//   keep w and b in shared memory and load the next row during this one; to 1 MB); looped (any
//   width, reads x twice). Rows that are not 16-byte aligned take element accesses, looped.
// Choice: one barrier a row. A warp makes two passes over its own registers, for its mean and the
//   distances from it, and (count, sum, distances) are merged, through distributed shared memory in
//   a cluster. NaN or Inf makes its row NaN. out may be exactly x.
#include <cstdint>

#include "common/async_copy.cuh"
#include "common/launch.cuh"
#include "common/merge.cuh"
#include "common/moments.cuh"
#include "common/pack.cuh"
#include "common/reduce.cuh"
#include "common/rows.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

constexpr int kMinBlock = 128;  // threads a block at least: short rows are grouped
constexpr int kMaxBlocks = 16;  // of a cluster; more than 8 is Hopper's own
constexpr int kNarrow = 4096;   // columns that the looped form gives to its smaller block

enum Form { kAuto = 0, kRegisters = 1, kResident = 2, kLooped = 3 };

struct Args {
  const void *x, *w, *b;
  void* out;
  int64_t n_rows, n_cols, x_stride, out_stride;
  float eps;
};

struct Normaliser {
  float mean, rstd;

  __device__ __forceinline__ Normaliser(const Moments& row, float eps)
      : mean(row.sum / row.n), rstd(rsqrtf(row.distances / row.n + eps)) {}

  __device__ __forceinline__ float operator()(float v, float w, float b) const {
    return fmaf((v - mean) * rstd, w, b);
  }

  template <typename T>
  __device__ __forceinline__ uint4 of_pack(const uint4& x, const uint4& w, const uint4& b) const {
    float v[kPackSize<T>], weight[kPackSize<T>], bias[kPackSize<T>];
    unpack<T>(x, v);
    unpack<T>(w, weight);
    unpack<T>(b, bias);
#pragma unroll
    for (int j = 0; j < kPackSize<T>; ++j) v[j] = (*this)(v[j], weight[j], bias[j]);
    return pack<T>(v);
  }
};

// w and b never overlap out: the read-only path lets their loads pass the stores before them.
__device__ __forceinline__ uint4 load_parameters(const void* parameters, int pack) {
  return __ldg(static_cast<const uint4*>(parameters) + pack);
}

__host__ __device__ constexpr int block_threads(int threads_per_row) {
  return threads_per_row < kMinBlock ? kMinBlock : threads_per_row;
}

template <typename T>
__device__ __forceinline__ const T* x_row(const Args& args, int64_t row) {
  return static_cast<const T*>(args.x) + row * args.x_stride;
}

template <typename T>
__device__ __forceinline__ uint4* out_packs(const Args& args, int64_t row) {
  return reinterpret_cast<uint4*>(static_cast<T*>(args.out) + row * args.out_stride);
}

// ---- registers: a row a group of threads -------------------------------------------------------

// Blocks an SM, as a limit on registers: as many threads as have room without spills.
__host__ __device__ constexpr int min_blocks(int block, int packs) {
  return (packs <= 2 ? 1536 : packs <= 4 ? 1280 : 512) / block;
}

template <typename T, int kThreadsPerRow, int kPacks>
__global__ void __launch_bounds__(block_threads(kThreadsPerRow),
                                  min_blocks(block_threads(kThreadsPerRow), kPacks))
    layer_norm_kernel(Args args) {
  constexpr int kBlock = block_threads(kThreadsPerRow);
  constexpr int kLanes = kThreadsPerRow < kWarpSize ? kThreadsPerRow : kWarpSize;
  constexpr int kWarps = kThreadsPerRow / kLanes;
  const int64_t row =
      static_cast<int64_t>(blockIdx.x) * (kBlock / kThreadsPerRow) + threadIdx.x / kThreadsPerRow;
  const int lane = threadIdx.x % kThreadsPerRow;
  // Threads of rows past the end stay for the shuffles and barriers, with no columns of their own.
  const int n_packs = row < args.n_rows ? static_cast<int>(args.n_cols / kPackSize<T>) : 0;

  uint4 x[kPacks];
  load_packs<T, kThreadsPerRow>(x_row<T>(args, row), n_packs, lane, x);
  Moments moments = moments_of_lanes<T, kLanes, kThreadsPerRow>(x, n_packs, lane);
  if constexpr (kWarps > 1) {
    __shared__ Moments of_warps[kBlock / kWarpSize];
    moments = merge_warps<kWarps>(moments, of_warps, MergeMoments());
  }
  const Normaliser normalise(moments, args.eps);

  uint4* out = out_packs<T>(args, row);
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int p = lane + i * kThreadsPerRow;
    if (p < n_packs) {
      store_pack(out + p, normalise.of_pack<T>(x[i], load_parameters(args.w, p),
                                               load_parameters(args.b, p)));
    }
  }
}

// ---- resident: blocks or clusters that stay for many rows --------------------------------------

template <typename T, int kThreads, int kPacks, int kBlocks>
__global__ void __launch_bounds__(kThreads, kPacks <= 4 ? 1024 / kThreads : 1)
    layer_norm_resident_kernel(Args args) {
  constexpr int kStep = kThreads * kBlocks;  // packs of a row between two of a thread
  constexpr int kWarps = kThreads / kWarpSize;
  extern __shared__ __align__(16) uint4 s_parameters[];  // this block's packs of w, then of b
  __shared__ Moments of_warps[2][kWarps];
#if __CUDA_ARCH__ >= 900
  if constexpr (kBlocks > 1) cluster_arrive();  // merge_cluster waits before it writes elsewhere
#endif
  const int n_packs = static_cast<int>(args.n_cols / kPackSize<T>);
  const int lane = static_cast<int>(blockIdx.x % kBlocks * kThreads + threadIdx.x);
  const int64_t step = gridDim.x / kBlocks;  // rows between two of this cluster
  int64_t row = blockIdx.x / kBlocks;

  uint4* s_w = s_parameters + threadIdx.x;
  uint4* s_b = s_w + kThreads * kPacks;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int p = lane + i * kStep;
    const bool valid = p < n_packs;
    async_copy_16(shared_address(s_w + i * kThreads), static_cast<const uint4*>(args.w) + p, valid);
    async_copy_16(shared_address(s_b + i * kThreads), static_cast<const uint4*>(args.b) + p, valid);
  }
  async_copy_commit();
  uint4 x[kPacks];
  load_packs<T, kStep>(x_row<T>(args, row), row < args.n_rows ? n_packs : 0, lane, x);
  async_copy_wait<0>();  // a thread reads back its own packs: no barrier

  for (int turn = 0; row < args.n_rows; row += step, turn ^= 1) {
    const int64_t next_row = row + step;
    const bool last = next_row >= args.n_rows;
    uint4 next[kPacks];
    load_packs<T, kStep>(x_row<T>(args, next_row), last ? 0 : n_packs, lane, next);

    Moments moments = moments_of_lanes<T, kWarpSize, kStep>(x, n_packs, lane);
    // Two sets of slots: who writes one again has passed the barrier of the other, so all have
    // read it.
    moments = merge_warps<kWarps>(moments, of_warps[turn], MergeMoments());
#if __CUDA_ARCH__ >= 900
    if constexpr (kBlocks > 1) {
      __shared__ Moments of_blocks[kBlocks];
      moments = merge_cluster<kBlocks>(moments, of_blocks, MergeMoments());
      if (!last) cluster_arrive();
    }
#endif
    const Normaliser normalise(moments, args.eps);
    uint4* out = out_packs<T>(args, row);
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int p = lane + i * kStep;
      if (p < n_packs) {
        store_pack(out + p, normalise.of_pack<T>(x[i], s_w[i * kThreads], s_b[i * kThreads]));
      }
      x[i] = next[i];
    }
  }
}

// ---- looped: any width, any alignment; a second read -------------------------------------------

template <typename T, bool kPacked>
__device__ __forceinline__ void load_values(const T* row, int64_t p,
                                            float (&v)[kPacked ? kPackSize<T> : 1]) {
  if constexpr (kPacked) {
    unpack<T>(reinterpret_cast<const uint4*>(row)[p], v);
  } else {
    v[0] = to_float(row[p]);
  }
}

template <typename T, int kThreads, bool kPacked>
__global__ void __launch_bounds__(kThreads) layer_norm_looped_kernel(Args args) {
  constexpr int kSize = kPacked ? kPackSize<T> : 1;
  constexpr int kBatch = kPacked ? 4 : 8;  // independent accesses in flight a thread
  constexpr int kWarps = kThreads / kWarpSize;
  __shared__ Moments of_warps[kWarps];
  const int64_t n_accesses = args.n_cols / kSize;
  const int64_t row = blockIdx.x;
  const T* x = x_row<T>(args, row);
  T* out = static_cast<T*>(args.out) + row * args.out_stride;

  Moments moments = {0.0f, 0.0f, 0.0f};
  for (int64_t first = threadIdx.x; first < n_accesses; first += kBatch * kThreads) {
    float v[kBatch][kSize];
    int held = 0;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int64_t p = first + i * kThreads;
      if (p < n_accesses) {
        load_values<T, kPacked>(x, p, v[i]);
        held = i + 1;
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) sum += i < held ? v[i][j] : 0.0f;
    }
    const float n = static_cast<float>(held * kSize);
    const float mean = sum / n;  // the first access of a batch is always there
    float distances = 0.0f;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        const float distance = i < held ? v[i][j] - mean : 0.0f;
        distances = fmaf(distance, distance, distances);
      }
    }
    moments = MergeMoments()(moments, {n, sum, distances});
  }
  moments = merge_lanes<kWarpSize>(moments, MergeMoments());
  const Normaliser normalise(merge_warps<kWarps>(moments, of_warps, MergeMoments()), args.eps);

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
      float w[kSize], b[kSize];
      load_values<T, kPacked>(static_cast<const T*>(args.w), p, w);
      load_values<T, kPacked>(static_cast<const T*>(args.b), p, b);
#pragma unroll
      for (int j = 0; j < kSize; ++j) v[i][j] = normalise(v[i][j], w[j], b[j]);
      if constexpr (kPacked) {
        store_pack(reinterpret_cast<uint4*>(out) + p, pack<T>(v[i]));
      } else {
        out[p] = from_float<T>(v[i][0]);
      }
    }
  }
}

// ---- launchers ---------------------------------------------------------------------------------

template <typename T, int kThreadsPerRow, int kPacks>
cudaError_t launch_registers(const Args& args, cudaStream_t stream) {
  constexpr int kBlock = block_threads(kThreadsPerRow);
  constexpr int kRows = kBlock / kThreadsPerRow;
  const int64_t n_blocks = (args.n_rows + kRows - 1) / kRows;
  if (n_blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  layer_norm_kernel<T, kThreadsPerRow, kPacks>
      <<<static_cast<unsigned>(n_blocks), kBlock, 0, stream>>>(args);
  return cudaGetLastError();
}

// The fewest of the kPacks that cover the row.
template <typename T, int kThreadsPerRow, int... kPacks>
cudaError_t launch_fewest(const Args& args, int64_t n_packs, cudaStream_t stream) {
  cudaError_t error = cudaErrorInvalidValue;
  ((n_packs <= kThreadsPerRow * kPacks &&
    (error = launch_registers<T, kThreadsPerRow, kPacks>(args, stream), true)) ||
   ...);
  return error;
}

template <typename T>
cudaError_t launch_register_form(const Args& args, int64_t n_packs, int threads_per_row,
                                 cudaStream_t stream) {
  switch (threads_per_row) {
    case 8: return launch_fewest<T, 8, 1>(args, n_packs, stream);
    case 16: return launch_fewest<T, 16, 1>(args, n_packs, stream);
    case 32: return launch_fewest<T, 32, 1, 2, 4>(args, n_packs, stream);
    case 64: return launch_fewest<T, 64, 2, 4>(args, n_packs, stream);
    case 128: return launch_fewest<T, 128, 2, 4>(args, n_packs, stream);
    case 256: return launch_fewest<T, 256, 2, 4>(args, n_packs, stream);
    case 512: return launch_fewest<T, 512, 2, 4, 8>(args, n_packs, stream);
    default: return cudaErrorInvalidValue;
  }
}

template <typename T, int kThreads, int kPacks, int kBlocks>
cudaError_t launch_resident(const Args& args, cudaStream_t stream) {
  constexpr auto* kKernel = layer_norm_resident_kernel<T, kThreads, kPacks, kBlocks>;
  constexpr int kSharedBytes = 2 * kPackBytes * kPacks * kThreads;
  cudaError_t error = allow_shared_memory<kKernel>(kSharedBytes);
  if (error != cudaSuccess) return error;
  int most = 0;
  if constexpr (kBlocks > 1) {
    error = resident_clusters<kKernel>(kThreads, kSharedBytes, kBlocks, &most);
  } else {
    error = resident_blocks<kKernel>(kThreads, kSharedBytes, &most);
  }
  if (error != cudaSuccess) return error;
  // As few as have as many rows each, but for one: all end together.
  const int64_t turns = (args.n_rows + most - 1) / most;
  const int64_t n_clusters = (args.n_rows + turns - 1) / turns;
  if constexpr (kBlocks > 1) {
    return launch_clusters<kKernel>(n_clusters * kBlocks, kThreads, kSharedBytes, kBlocks, stream,
                                    args);
  } else {
    kKernel<<<static_cast<unsigned>(n_clusters), kThreads, kSharedBytes, stream>>>(args);
    return cudaGetLastError();
  }
}

template <typename T, int kBlocks>
cudaError_t launch_resident_blocks(const Args& args, int64_t n_packs, int threads,
                                   cudaStream_t stream) {
  const int64_t packs = (n_packs + kBlocks - 1) / kBlocks;  // of a block
  if constexpr (kBlocks == 1) {
    if (threads == 128 && packs <= 512) return launch_resident<T, 128, 4, 1>(args, stream);
    if (threads == 256 && packs <= 512) return launch_resident<T, 256, 2, 1>(args, stream);
  }
  if (threads == 256 && packs <= 1024) return launch_resident<T, 256, 4, kBlocks>(args, stream);
  if (threads == 512 && packs <= 1024) return launch_resident<T, 512, 2, kBlocks>(args, stream);
  if (threads == 512 && packs <= 2048) return launch_resident<T, 512, 4, kBlocks>(args, stream);
  if constexpr (kBlocks == kMaxBlocks && sizeof(T) == 4) {
    if (threads == 512 && packs <= 4096) return launch_resident<T, 512, 8, kBlocks>(args, stream);
  }
  return cudaErrorInvalidValue;
}

template <typename T>
cudaError_t launch_resident_form(const Args& args, int64_t n_packs, int threads_per_row, int blocks,
                                 cudaStream_t stream) {
  const int threads = threads_per_row / blocks;
  switch (blocks) {
    case 1: return launch_resident_blocks<T, 1>(args, n_packs, threads, stream);
    case 2: return launch_resident_blocks<T, 2>(args, n_packs, threads, stream);
    case 4: return launch_resident_blocks<T, 4>(args, n_packs, threads, stream);
    case 8: return launch_resident_blocks<T, 8>(args, n_packs, threads, stream);
    case 16: return launch_resident_blocks<T, 16>(args, n_packs, threads, stream);
    default: return cudaErrorInvalidValue;
  }
}

template <typename T, int kThreads>
cudaError_t launch_looped(const Args& args, bool packed, cudaStream_t stream) {
  auto* kernel = packed ? layer_norm_looped_kernel<T, kThreads, true>
                        : layer_norm_looped_kernel<T, kThreads, false>;
  if (args.n_rows > INT32_MAX) return cudaErrorInvalidConfiguration;
  kernel<<<static_cast<unsigned>(args.n_rows), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

// Threads of a row in the register form: one pack each to a warp, then four.
int register_threads(int64_t n_packs) {
  int threads = 8;
  while (threads < 32 && threads < n_packs) threads *= 2;
  while (threads < 512 && threads * 4 < n_packs) threads *= 2;
  return threads;
}

// Blocks of a cluster: 32 KB of the row in each, so that an SM holds two of 512 threads.
int cluster_blocks(int64_t n_packs) {
  int blocks = 1;
  while (blocks < kMaxBlocks && n_packs > blocks * int64_t{2048}) blocks *= 2;
  return blocks;
}

template <typename T>
bool is_packed(const Args& args) {
  const auto aligned = [&args](const void* p, int64_t stride) {
    // The stride of a single row never gets used.
    return reinterpret_cast<uintptr_t>(p) % kPackBytes == 0 &&
           (args.n_rows <= 1 || stride % kPackSize<T> == 0);
  };
  return args.n_cols % kPackSize<T> == 0 && aligned(args.x, args.x_stride) &&
         aligned(args.out, args.out_stride) && aligned(args.w, 0) && aligned(args.b, 0);
}

template <typename T>
cudaError_t dispatch(const Args& args, int threads, int form, int blocks, cudaStream_t stream) {
  DeviceFacts facts;
  if (cudaError_t error = device_facts(&facts); error != cudaSuccess) return error;
  const bool packed = is_packed<T>(args);
  const int64_t n_packs = args.n_cols / kPackSize<T>;
  if (form == kAuto) {
    if (threads != 0 || blocks != 0) return cudaErrorInvalidValue;  // of which form?
    const int64_t most_resident =
        facts.major >= 9 ? kMaxBlocks * int64_t{sizeof(T) == 4 ? 4096 : 2048} : 2048;
    form = !packed                    ? kLooped
           : n_packs <= 1024          ? kRegisters
           : n_packs <= most_resident ? kResident
           : n_packs <= 4096          ? kRegisters
                                      : kLooped;
  }
  switch (form) {
    case kRegisters:
      if (!packed || blocks != 0) return cudaErrorInvalidValue;
      if (threads == 0) threads = register_threads(n_packs);
      return launch_register_form<T>(args, n_packs, threads, stream);
    case kResident:
      if (blocks == 0) blocks = cluster_blocks(n_packs);
      if (threads == 0) threads = blocks * 512;
      if (!packed || blocks < 0 || (blocks > 1 && facts.major < 9)) return cudaErrorInvalidValue;
      return launch_resident_form<T>(args, n_packs, threads, blocks, stream);
    case kLooped:
      if (threads != 0 || blocks != 0) return cudaErrorInvalidValue;
      return args.n_cols <= kNarrow ? launch_looped<T, 128>(args, packed, stream)
                                    : launch_looped<T, 512>(args, packed, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t layer_norm(const void* x, const void* w, const void* b, void* out, int64_t n_rows,
                       int64_t n_cols, int64_t x_stride, int64_t out_stride, float eps, DType dtype,
                       int threads_per_row, int form, int blocks_per_row, cudaStream_t stream) {
  if (n_rows == 0 || n_cols == 0) return cudaSuccess;
  const Args args = {x, w, b, out, n_rows, n_cols, x_stride, out_stride, eps};
  switch (dtype) {
    case DType::kF32: return dispatch<float>(args, threads_per_row, form, blocks_per_row, stream);
    case DType::kBF16:
      return dispatch<__nv_bfloat16>(args, threads_per_row, form, blocks_per_row, stream);
    case DType::kF16: return dispatch<__half>(args, threads_per_row, form, blocks_per_row, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace cuda_vs_triton
