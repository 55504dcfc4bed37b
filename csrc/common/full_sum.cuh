// out[0] = sum of Term::of(x[i]) over a whole vector, float32, in one launch.
//
// Ownership: thread t of all T threads of the grid owns the 16-byte packs t, t + T, t + 2T, ...;
//   kVectors of them are loaded before the first is used, so every block has the same share down to
//   one pack a thread. A block leaves one partial; the last block to finish adds the partials.
// The order of all additions depends on n, the alignment and the configuration alone: results
//   repeat bit for bit on one kind of GPU. A thread adds within a pack as a tree, then pack by
//   pack.
// A Term gives 0 for 0, since missing packs count as zeros.
#pragma once

#include <cstdint>

#include "common/last_block.cuh"
#include "common/launch.cuh"
#include "common/merge.cuh"
#include "common/pack.cuh"
#include "common/reduce.cuh"
#include "kernels.h"

namespace cuda_vs_triton {

// Threads of an SM that a form is compiled for: with 8 packs a thread 1024 of them have 128 KB of
// loads in flight, with 4 as many as 2048.
constexpr int sum_threads_an_sm(int vectors) { return vectors > 4 ? 1024 : 2048; }

template <typename Term, typename T>
__device__ __forceinline__ float sum_of_pack(const uint4& raw) {
  float v[kPackSize<T>];
  unpack<T>(raw, v);
#pragma unroll
  for (int i = 0; i < kPackSize<T>; ++i) v[i] = Term::of(v[i]);
#pragma unroll
  for (int width = kPackSize<T> / 2; width > 0; width /= 2) {
#pragma unroll
    for (int i = 0; i < width; ++i) v[i] += v[i + width];
  }
  return v[0];
}

// Every thread gets the block's sum.
template <int kThreads>
__device__ __forceinline__ float sum_of_block(float v, float* slots) {
  v = lanes_sum<kWarpSize>(v);
  return merge_warps<kThreads / kWarpSize>(v, slots, [](float a, float b) { return a + b; });
}

// What one thread of the grid owns of n = n_head scalars up to the first 16-byte boundary, n_packs
// packs, and a scalar tail; head and tail are shorter than a pack and belong to the first threads.
template <typename Term, typename T, int kThreads, int kVectors>
__device__ __forceinline__ float sum_of_thread(const T* x, int64_t n, int64_t n_head,
                                               int64_t n_packs) {
  const uint4* packs = reinterpret_cast<const uint4*>(x + n_head);
  const int64_t n_threads = static_cast<int64_t>(gridDim.x) * kThreads;
  int64_t p = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  float sum = 0.0f;
  if (p < kPackSize<T>) {
    const int64_t tail = n_head + n_packs * kPackSize<T>;
    if (p < n_head) sum += Term::of(to_float(x[p]));
    if (p < n - tail) sum += Term::of(to_float(x[tail + p]));
  }
  for (; p + (kVectors - 1) * n_threads < n_packs; p += kVectors * n_threads) {
    uint4 raw[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) raw[i] = load_pack(packs + p + i * n_threads);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) sum += sum_of_pack<Term, T>(raw[i]);
  }
  uint4 raw[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int64_t q = p + i * n_threads;
    raw[i] = q < n_packs ? load_pack(packs + q) : make_uint4(0, 0, 0, 0);
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) sum += sum_of_pack<Term, T>(raw[i]);
  return sum;
}

// The whole kernel.
template <typename Term, typename T, int kThreads, int kVectors>
__device__ __forceinline__ void full_sum(const T* x, float* out, int64_t n, int64_t n_head,
                                         int64_t n_packs, Scratch scratch) {
  __shared__ float slots[kThreads / kWarpSize];
  float sum = sum_of_thread<Term, T, kThreads, kVectors>(x, n, n_head, n_packs);
  sum = sum_of_block<kThreads>(sum, slots);
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) scratch.partials[blockIdx.x] = sum;
    if (!is_last_block(scratch.counters, gridDim.x)) return;
    sum = 0.0f;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += kThreads) sum += scratch.partials[i];
    sum = sum_of_block<kThreads>(sum, slots);
  }
  if (threadIdx.x == 0) *out = sum;
}

template <typename T>
using FullSumKernel = void(const T*, float*, int64_t, int64_t, int64_t, Scratch);

// At most blocks_per_sm blocks an SM, and no more than have a pack for every thread.
template <typename T>
cudaError_t launch_full_sum(FullSumKernel<T>* kernel, const void* x, void* out, int64_t n,
                            Scratch scratch, int threads, int blocks_per_sm, cudaStream_t stream) {
  DeviceFacts facts;
  if (cudaError_t error = device_facts(&facts); error != cudaSuccess) return error;
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(x) % kPackBytes);
  const int64_t to_boundary = (kPackBytes - past) % kPackBytes / int64_t{sizeof(T)};
  const int64_t n_head = to_boundary < n ? to_boundary : n;
  const int64_t n_packs = (n - n_head) / kPackSize<T>;
  int64_t n_blocks = static_cast<int64_t>(facts.n_sms) * blocks_per_sm;
  if (n_blocks > kScratchCounters) n_blocks = kScratchCounters;
  const int64_t useful = (n_packs + threads - 1) / threads;
  if (n_blocks > useful) n_blocks = useful > 0 ? useful : 1;
  kernel<<<static_cast<unsigned>(n_blocks), threads, 0, stream>>>(
      static_cast<const T*>(x), static_cast<float*>(out), n, n_head, n_packs, scratch);
  return cudaGetLastError();
}

// Chooses the instance of an op whose kernels are Op::kernel<T, threads, vectors>().
template <typename Op, typename T>
cudaError_t launch_full_sum_as(const void* x, void* out, int64_t n, Scratch scratch, int threads,
                               int vectors, int blocks_per_sm, cudaStream_t stream) {
  const auto launch = [&](FullSumKernel<T>* kernel) {
    return launch_full_sum<T>(kernel, x, out, n, scratch, threads, blocks_per_sm, stream);
  };
  if (threads == 256 && vectors == 4) return launch(Op::template kernel<T, 256, 4>());
  if (threads == 256 && vectors == 8) return launch(Op::template kernel<T, 256, 8>());
  if (threads == 512 && vectors == 4) return launch(Op::template kernel<T, 512, 4>());
  if (threads == 512 && vectors == 8) return launch(Op::template kernel<T, 512, 8>());
  return cudaErrorInvalidValue;
}

template <typename Op>
cudaError_t launch_full_sum_of(const void* x, void* out, int64_t n, DType dtype, Scratch scratch,
                               int threads, int vectors, int blocks_per_sm, cudaStream_t stream) {
  if (threads == 0) threads = 256;
  if (vectors == 0) vectors = 8;
  if (blocks_per_sm == 0) blocks_per_sm = sum_threads_an_sm(vectors) / threads;
  if (blocks_per_sm < 0 || blocks_per_sm > 32) return cudaErrorInvalidValue;
  const auto launch = [&](auto of_type) {
    return launch_full_sum_as<Op, decltype(of_type)>(x, out, n, scratch, threads, vectors,
                                                     blocks_per_sm, stream);
  };
  switch (dtype) {
    case DType::kF32: return launch(float{});
    case DType::kBF16: return launch(__nv_bfloat16{});
    case DType::kF16: return launch(__half{});
  }
  return cudaErrorInvalidValue;
}

}  // namespace cuda_vs_triton
