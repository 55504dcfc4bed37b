// Rotary embedding, half-split (NeoX): with (a, b) = (x[t, h, i], x[t, h, i + D/2]), i < D/2,
//   out[t, h, i] = a * cos[t, i] - b * sin[t, i], out[t, h, i + D/2] = b * cos[t, i] + a * sin[t,
//   i];
// f32 and bf16, fp32 inside, rounded once.
//
// Ownership: a thread owns one pack of 16 bytes of cos and of sin, and the pairs of packs that they
//   turn in kHeads heads of one token. Neighbouring threads have neighbouring packs, then heads.
// Bytes per element: 2 * sizeof(T), 3 flops; cos and sin add 1 / H to the read. Bound by DRAM.
// Limits: D is even, H * D below 2^31. Packs need D / 2 of whole packs and 16-byte boundaries;
//   else the same kernel moves elements. out may be exactly x: a pair is read before it is written.
// Choice: all loads of a thread are issued before its first product (kHeads * 32 bytes in flight),
//   and cos and sin are read once for kHeads heads.
#include <cstdint>

#include "common/pack.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

constexpr int kDefaultThreads = 256;
constexpr int kMaxThreads = 512;

struct Shape {
  int64_t n_tokens;
  int n_heads;
  int half;              // accesses in half a head
  int lanes;             // threads that share a token's heads: n_heads / kHeads, rounded up
  int tokens_per_block;  // 1 where a token takes several blocks
  int blocks_per_token;  // of tokens_per_block tokens
};

// An access: a pack of elements or, in the unaligned form, one element.
template <typename T, bool kPacked>
struct Access {
  static constexpr int kSize = kPacked ? kPackSize<T> : 1;
  using Raw = std::conditional_t<kPacked, uint4, T>;

  static __device__ __forceinline__ void to_floats(const Raw& raw, float (&v)[kSize]) {
    if constexpr (kPacked) {
      unpack<T>(raw, v);
    } else {
      v[0] = to_float(raw);
    }
  }
  static __device__ __forceinline__ Raw from_floats(const float (&v)[kSize]) {
    if constexpr (kPacked) {
      return pack<T>(v);
    } else {
      return from_float<T>(v[0]);
    }
  }
};

template <typename T, int kHeads, bool kPacked>
__global__ void __launch_bounds__(kMaxThreads)
    rope_kernel(const void* x, const void* cos, const void* sin, void* out, Shape shape) {
  using A = Access<T, kPacked>;
  using Raw = typename A::Raw;
  const int per_token = shape.lanes * shape.half;
  const int block = blockIdx.x / shape.blocks_per_token;
  const int item = blockIdx.x % shape.blocks_per_token * blockDim.x + threadIdx.x;
  const int64_t token = static_cast<int64_t>(block) * shape.tokens_per_block + item / per_token;
  if (item >= per_token * shape.tokens_per_block || token >= shape.n_tokens) return;
  const int first_head = item % per_token / shape.half;
  const int p = item % shape.half;  // per_token is a multiple of half

  const int64_t first = (token * shape.n_heads + first_head) * 2 * shape.half + p;
  const int64_t step = static_cast<int64_t>(shape.lanes) * 2 * shape.half;
  const Raw* source = static_cast<const Raw*>(x) + first;
  Raw* target = static_cast<Raw*>(out) + first;

  Raw lower[kHeads], upper[kHeads];
#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    if (first_head + i * shape.lanes < shape.n_heads) {
      lower[i] = source[i * step];
      upper[i] = source[i * step + shape.half];
    }
  }
  float c[A::kSize], s[A::kSize];
  A::to_floats(static_cast<const Raw*>(cos)[token * shape.half + p], c);
  A::to_floats(static_cast<const Raw*>(sin)[token * shape.half + p], s);

#pragma unroll
  for (int i = 0; i < kHeads; ++i) {
    if (first_head + i * shape.lanes < shape.n_heads) {
      float a[A::kSize], b[A::kSize];
      A::to_floats(lower[i], a);
      A::to_floats(upper[i], b);
#pragma unroll
      for (int j = 0; j < A::kSize; ++j) {
        const float turned = a[j] * c[j] - b[j] * s[j];
        b[j] = b[j] * c[j] + a[j] * s[j];
        a[j] = turned;
      }
      target[i * step] = A::from_floats(a);
      target[i * step + shape.half] = A::from_floats(b);
    }
  }
}

template <typename T, int kHeads, bool kPacked>
cudaError_t launch(const void* x, const void* cos, const void* sin, void* out, int64_t n_tokens,
                   int64_t n_heads, int64_t head_dim, int threads, cudaStream_t stream) {
  const int64_t half = head_dim / 2 / Access<T, kPacked>::kSize;
  const int64_t lanes = (n_heads + kHeads - 1) / kHeads;
  const int64_t per_token = lanes * half;
  const int64_t tokens_per_block = per_token < threads ? threads / per_token : 1;
  const int64_t blocks_per_token = (tokens_per_block * per_token + threads - 1) / threads;
  const int64_t n_blocks = (n_tokens + tokens_per_block - 1) / tokens_per_block * blocks_per_token;
  const Shape shape = {n_tokens,
                       static_cast<int>(n_heads),
                       static_cast<int>(half),
                       static_cast<int>(lanes),
                       static_cast<int>(tokens_per_block),
                       static_cast<int>(blocks_per_token)};
  rope_kernel<T, kHeads, kPacked>
      <<<static_cast<unsigned>(n_blocks), threads, 0, stream>>>(x, cos, sin, out, shape);
  return cudaGetLastError();
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % kPackBytes == 0; }

template <typename T, int kHeads>
cudaError_t launch_heads(const void* x, const void* cos, const void* sin, void* out,
                         int64_t n_tokens, int64_t n_heads, int64_t head_dim, int threads,
                         cudaStream_t stream) {
  const bool packed = head_dim / 2 % kPackSize<T> == 0 && aligned(x) && aligned(cos) &&
                      aligned(sin) && aligned(out);
  const auto run = packed ? launch<T, kHeads, true> : launch<T, kHeads, false>;
  return run(x, cos, sin, out, n_tokens, n_heads, head_dim, threads, stream);
}

template <typename T>
cudaError_t launch_type(const void* x, const void* cos, const void* sin, void* out,
                        int64_t n_tokens, int64_t n_heads, int64_t head_dim, int heads, int threads,
                        cudaStream_t stream) {
  const auto run = [&](auto launcher) {
    return launcher(x, cos, sin, out, n_tokens, n_heads, head_dim, threads, stream);
  };
  switch (heads) {
    case 1: return run(launch_heads<T, 1>);
    case 2: return run(launch_heads<T, 2>);
    case 4: return run(launch_heads<T, 4>);
    case 8: return run(launch_heads<T, 8>);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t rope(const void* x, const void* cos, const void* sin, void* out, int64_t n_tokens,
                 int64_t n_heads, int64_t head_dim, DType dtype, int heads, int threads,
                 cudaStream_t stream) {
  if (heads == 0) heads = n_heads >= 4 ? 4 : n_heads >= 2 ? 2 : 1;
  if (threads == 0) threads = kDefaultThreads;
  if (threads != 128 && threads != 256 && threads != 512) return cudaErrorInvalidValue;
  if (heads != 1 && heads != 2 && heads != 4 && heads != 8) return cudaErrorInvalidValue;
  if (head_dim % 2 != 0 || n_heads * head_dim > INT32_MAX) return cudaErrorInvalidValue;
  if (n_tokens == 0 || n_heads == 0 || head_dim == 0) return cudaSuccess;
  const auto run = [&](auto launcher) {
    return launcher(x, cos, sin, out, n_tokens, n_heads, head_dim, heads, threads, stream);
  };
  switch (dtype) {
    case DType::kF32: return run(launch_type<float>);
    case DType::kBF16: return run(launch_type<__nv_bfloat16>);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace cuda_vs_triton
