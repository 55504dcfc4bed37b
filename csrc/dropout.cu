// out = keep ? x / (1 - p) : 0, elementwise; f32, bf16; Philox-4x32-10 recomputes keep, no mask.
//
// Ownership: a block owns one tile of threads * vectors packs of 16 bytes; a pack is one counter in
//   f32 and two in bf16: word i of counter g decides element 4 * g + i, and no word is thrown away.
// Bytes per element: 2 * sizeof(T); in bf16 some 17 instructions, 5 of them wide multiplications:
//   bound by DRAM where all four words are used, by the ALUs were it one.
// Limits: none on n, alignment or length. A dropped NaN is 0. out may be exactly x.
// Choice: views off 16-byte boundaries take element accesses, a counter a thread: packs would
//   straddle counters. ptxas puts bf16's loads behind the first Philox rounds to save registers,
//   barriers or not; other warps have to cover their latency.
// Levers left unused: shifting misaligned packs as vector_add does.
#include <cstdint>

#include "common/pack.cuh"
#include "common/philox.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

constexpr int kDefaultThreads = 256;
constexpr int kDefaultVectors = 2;

struct Rule {
  uint2 key;
  uint32_t threshold;  // keep from here on
  float scale;
};

__device__ __forceinline__ float apply(float v, uint32_t word, const Rule& rule) {
  return word >= rule.threshold ? v * rule.scale : 0.0f;
}

template <typename T>
__device__ __forceinline__ uint4 apply_pack(const uint4& raw, int64_t pack_index,
                                            const Rule& rule) {
  constexpr int kCounters = kPackSize<T> / kPhiloxWords;
  float v[kPackSize<T>];
  unpack<T>(raw, v);
#pragma unroll
  for (int c = 0; c < kCounters; ++c) {
    const uint4 words = philox_at(pack_index * kCounters + c, rule.key);
    float* four = v + c * kPhiloxWords;
    four[0] = apply(four[0], words.x, rule);
    four[1] = apply(four[1], words.y, rule);
    four[2] = apply(four[2], words.z, rule);
    four[3] = apply(four[3], words.w, rule);
  }
  return pack<T>(v);
}

// Up to four elements from 4 * group on, one by one.
template <typename T>
__device__ __forceinline__ void apply_group(const T* x, T* out, int64_t n, int64_t group,
                                            const Rule& rule) {
  const uint4 words = philox_at(group, rule.key);
  const uint32_t word[kPhiloxWords] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < kPhiloxWords; ++i) {
    const int64_t at = group * kPhiloxWords + i;
    if (at < n) out[at] = from_float<T>(apply(to_float(x[at]), word[i], rule));
  }
}

template <typename T, int kVectors>
__global__ void dropout_kernel(const T* x, T* out, int64_t n, Rule rule) {
  const uint4* x_packs = reinterpret_cast<const uint4*>(x);
  uint4* out_packs = reinterpret_cast<uint4*>(out);
  const int64_t n_packs = n / kPackSize<T>;
  const int64_t tile = static_cast<int64_t>(blockDim.x) * kVectors;
  const int64_t first = blockIdx.x * tile + threadIdx.x;
  if ((blockIdx.x + 1) * tile <= n_packs) {
    uint4 raw[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) raw[i] = load_pack(x_packs + first + i * blockDim.x);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int64_t p = first + i * blockDim.x;
      store_pack(out_packs + p, apply_pack<T>(raw[i], p, rule));
    }
  } else {
    for (int64_t p = first; p < n_packs; p += blockDim.x) {
      store_pack(out_packs + p, apply_pack<T>(load_pack(x_packs + p), p, rule));
    }
    // The tail is shorter than a pack: at most two counters, for the first threads of the last
    // block.
    const int64_t group = n_packs * (kPackSize<T> / kPhiloxWords) + threadIdx.x;
    if (blockIdx.x == gridDim.x - 1 && group * kPhiloxWords < n) {
      apply_group(x, out, n, group, rule);
    }
  }
}

template <typename T>
__global__ void dropout_element_kernel(const T* x, T* out, int64_t n, Rule rule) {
  const int64_t group = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (group * kPhiloxWords < n) apply_group(x, out, n, group, rule);
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % kPackBytes == 0; }

template <typename T, int kVectors>
cudaError_t launch(const T* x, T* out, int64_t n, const Rule& rule, int threads,
                   cudaStream_t stream) {
  const bool packed = aligned(x) && aligned(out);
  // One tile more than whole ones, even for nothing but a tail or nothing at all: it has the tail.
  const int64_t units = packed ? n / kPackSize<T> : (n - 1) / kPhiloxWords;
  const int64_t tile = packed ? static_cast<int64_t>(threads) * kVectors : threads;
  const unsigned n_blocks = static_cast<unsigned>(units / tile + 1);
  auto* kernel = packed ? dropout_kernel<T, kVectors> : dropout_element_kernel<T>;
  kernel<<<n_blocks, threads, 0, stream>>>(x, out, n, rule);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_vectors(const void* x, void* out, int64_t n, const Rule& rule, int threads,
                           int vectors, cudaStream_t stream) {
  const T* from = static_cast<const T*>(x);
  T* to = static_cast<T*>(out);
  switch (vectors) {
    case 1: return launch<T, 1>(from, to, n, rule, threads, stream);
    case 2: return launch<T, 2>(from, to, n, rule, threads, stream);
    case 4: return launch<T, 4>(from, to, n, rule, threads, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t dropout(const void* x, void* out, int64_t n, double p, uint64_t seed, DType dtype,
                    int threads, int vectors, cudaStream_t stream) {
  if (threads == 0) threads = kDefaultThreads;
  if (vectors == 0) vectors = kDefaultVectors;
  if (threads != 128 && threads != 256 && threads != 512) return cudaErrorInvalidValue;
  if (!(p >= 0.0 && p < 1.0)) return cudaErrorInvalidValue;
  if (n == 0) return cudaSuccess;
  const Rule rule = {{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
                     static_cast<uint32_t>(p * 4294967296.0),
                     static_cast<float>(1.0 / (1.0 - p))};
  switch (dtype) {
    case DType::kF32: return launch_vectors<float>(x, out, n, rule, threads, vectors, stream);
    case DType::kBF16:
      return launch_vectors<__nv_bfloat16>(x, out, n, rule, threads, vectors, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace cuda_vs_triton
