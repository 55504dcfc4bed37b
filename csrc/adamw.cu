// AdamW, one step: m_out = m + (1 - beta1) (g - m), v_out = v + (1 - beta2) (g^2 - v),
// out = p - (lr * weight_decay * p + step_size * m_out / (sqrt(v_out) * inv_bias2 + eps)); f32.
//
// Ownership: a block owns one tile of threads * vectors packs of 16 bytes.
// Bytes per element: 28, four streams read and three written, for about 15 flops: bound by DRAM.
// Limits: none on n, alignment or length. out, m_out and v_out may be exactly p, m and v (or any
//   input), not overlap one in part nor each other. Division and square root are IEEE's.
// Choice: the decay is subtracted with the update rather than multiplied in, since 1 - lr *
//   weight_decay rounded to f32 shrinks or grows every weight alike. Streams that start equally far
//   past 16-byte boundaries keep packs behind a scalar head; others take element accesses.
// Levers left unused: one launch over a list of tensors; states of 8 or 16 bits.
#include <cmath>
#include <cstdint>

#include "common/pack.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

constexpr int kDefaultThreads = 256;
constexpr int kDefaultVectors = 1;  // 64 B of loads a thread, 128 KB an SM at full occupancy
constexpr int kSize = kPackSize<float>;

struct Streams {
  const float *p, *g, *m, *v;
  float *out, *m_out, *v_out;
};

struct Factors {
  float one_minus_beta1, one_minus_beta2, decay, step_size, inv_bias2, eps;
};

__device__ __forceinline__ void update(float& p, float g, float& m, float& v, const Factors& f) {
  m += f.one_minus_beta1 * (g - m);
  v += f.one_minus_beta2 * (g * g - v);
  p -= f.decay * p + f.step_size * m / (sqrtf(v) * f.inv_bias2 + f.eps);
}

struct Packs {
  uint4 p, g, m, v;
};

__device__ __forceinline__ Packs load_packs(const Streams& s, int64_t at) {
  const auto load = [at](const float* x) {
    return load_pack(reinterpret_cast<const uint4*>(x) + at);
  };
  return {load(s.p), load(s.g), load(s.m), load(s.v)};
}

__device__ __forceinline__ void update_packs(const Streams& s, int64_t at, const Packs& raw,
                                             const Factors& f) {
  float p[kSize], g[kSize], m[kSize], v[kSize];
  unpack<float>(raw.p, p);
  unpack<float>(raw.g, g);
  unpack<float>(raw.m, m);
  unpack<float>(raw.v, v);
#pragma unroll
  for (int i = 0; i < kSize; ++i) update(p[i], g[i], m[i], v[i], f);
  store_pack(reinterpret_cast<uint4*>(s.out) + at, pack<float>(p));
  store_pack(reinterpret_cast<uint4*>(s.m_out) + at, pack<float>(m));
  store_pack(reinterpret_cast<uint4*>(s.v_out) + at, pack<float>(v));
}

__device__ __forceinline__ void update_element(const Streams& s, int64_t i, const Factors& f) {
  float p = s.p[i], m = s.m[i], v = s.v[i];
  update(p, s.g[i], m, v, f);
  s.out[i] = p;
  s.m_out[i] = m;
  s.v_out[i] = v;
}

// n elements = n_head scalars up to the common 16-byte boundary, n_packs packs, a scalar tail.
template <int kVectors>
__global__ void adamw_kernel(Streams streams, int64_t n, int64_t n_head, int64_t n_packs,
                             Factors factors) {
  const Streams body = {streams.p + n_head,    streams.g + n_head,   streams.m + n_head,
                        streams.v + n_head,    streams.out + n_head, streams.m_out + n_head,
                        streams.v_out + n_head};
  const int64_t tile = static_cast<int64_t>(blockDim.x) * kVectors;
  const int64_t first = blockIdx.x * tile + threadIdx.x;
  if ((blockIdx.x + 1) * tile <= n_packs) {
    Packs raw[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) raw[i] = load_packs(body, first + i * blockDim.x);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      update_packs(body, first + i * blockDim.x, raw[i], factors);
    }
  } else {
    for (int64_t at = first; at < n_packs; at += blockDim.x) {
      update_packs(body, at, load_packs(body, at), factors);
    }
  }
  // Head and tail are shorter than a pack each; the first threads of the first block take them.
  if (blockIdx.x == 0) {
    const int64_t tail = n_head + n_packs * kSize;
    if (threadIdx.x < n_head) update_element(streams, threadIdx.x, factors);
    if (threadIdx.x < n - tail) update_element(streams, tail + threadIdx.x, factors);
  }
}

__global__ void adamw_element_kernel(Streams streams, int64_t n, Factors factors) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) update_element(streams, i, factors);
}

// Elements to the next 16-byte boundary when it is the same for all streams, else -1.
int64_t common_head(const Streams& s) {
  const uintptr_t past = reinterpret_cast<uintptr_t>(s.p) % kPackBytes;
  for (const float* x : {s.g, s.m, s.v, const_cast<const float*>(s.out),
                         const_cast<const float*>(s.m_out), const_cast<const float*>(s.v_out)}) {
    if (reinterpret_cast<uintptr_t>(x) % kPackBytes != past) return -1;
  }
  return static_cast<int64_t>((kPackBytes - past) % kPackBytes / sizeof(float));
}

template <int kVectors>
cudaError_t launch(const Streams& streams, int64_t n, const Factors& factors, int threads,
                   cudaStream_t stream) {
  const int64_t to_boundary = common_head(streams);
  if (to_boundary < 0) {
    const int64_t n_blocks = (n + threads - 1) / threads;
    adamw_element_kernel<<<static_cast<unsigned>(n_blocks), threads, 0, stream>>>(streams, n,
                                                                                  factors);
    return cudaGetLastError();
  }
  const int64_t n_head = to_boundary < n ? to_boundary : n;
  const int64_t n_packs = (n - n_head) / kSize;
  const int64_t tile = static_cast<int64_t>(threads) * kVectors;
  const int64_t n_blocks = n_packs == 0 ? 1 : (n_packs + tile - 1) / tile;
  adamw_kernel<kVectors><<<static_cast<unsigned>(n_blocks), threads, 0, stream>>>(
      streams, n, n_head, n_packs, factors);
  return cudaGetLastError();
}

// Everything that depends on the step alone, in double, rounded once.
Factors factors_of(const AdamW& rule) {
  const double bias1 = 1.0 - std::pow(rule.beta1, static_cast<double>(rule.step));
  const double bias2 = 1.0 - std::pow(rule.beta2, static_cast<double>(rule.step));
  return {static_cast<float>(1.0 - rule.beta1),
          static_cast<float>(1.0 - rule.beta2),
          static_cast<float>(rule.lr * rule.weight_decay),
          static_cast<float>(rule.lr / bias1),
          static_cast<float>(1.0 / std::sqrt(bias2)),
          static_cast<float>(rule.eps)};
}

}  // namespace

cudaError_t adamw(const float* p, const float* g, const float* m, const float* v, float* out,
                  float* m_out, float* v_out, int64_t n, const AdamW& rule, int threads,
                  int vectors, cudaStream_t stream) {
  if (threads == 0) threads = kDefaultThreads;
  if (vectors == 0) vectors = kDefaultVectors;
  if (threads != 128 && threads != 256 && threads != 512) return cudaErrorInvalidValue;
  if (rule.step < 1) return cudaErrorInvalidValue;
  if (n == 0) return cudaSuccess;
  const Streams streams = {p, g, m, v, out, m_out, v_out};
  const Factors factors = factors_of(rule);
  switch (vectors) {
    case 1: return launch<1>(streams, n, factors, threads, stream);
    case 2: return launch<2>(streams, n, factors, threads, stream);
    case 4: return launch<4>(streams, n, factors, threads, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace cuda_vs_triton
