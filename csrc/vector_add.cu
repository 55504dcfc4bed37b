// out = x + y, elementwise; f32, bf16 (added in fp32, rounded once). -0 and subnormals are kept.
//
// Ownership: a block owns one tile of threads * vectors packs of 16 bytes; block count = tiles.
// Bytes per element: 3 * sizeof(T), one flop: bound by DRAM at every size worth timing.
// Limits: none on n, alignment or length. out may be exactly x or y, not overlap them in part.
// Choice: all loads of a thread are issued before its first add (vectors * 2 * 16 bytes in flight).
//   When x, y and out share their misalignment, a scalar head and tail surround aligned packs; when
//   they differ, out decides the packs and each input pack is cut out of two aligned neighbours
//   (the second comes from L1), which keeps 16-byte accesses on all three streams.
// Levers left unused: bulk copies (cp.async.bulk) through shared memory.
#include <cstdint>

#include "common/pack.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

constexpr int kDefaultThreads = 256;
constexpr int kDefaultVectors = 4;  // 128 B of loads a thread; one SM needs about 48 KB in flight

template <typename T>
__device__ __forceinline__ uint4 add_packs(const uint4& a, const uint4& b) {
  float va[kPackSize<T>], vb[kPackSize<T>];
  unpack<T>(a, va);
  unpack<T>(b, vb);
#pragma unroll
  for (int i = 0; i < kPackSize<T>; ++i) va[i] += vb[i];
  return pack<T>(va);
}

// Bytes [shift, shift + 16) of the 32 bytes (lo, hi). `shift` is the same for all threads.
__device__ __forceinline__ uint4 cut(const uint4& lo, const uint4& hi, int shift) {
  uint32_t w[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
  if (shift & 8) {
#pragma unroll
    for (int i = 0; i < 6; ++i) w[i] = w[i + 2];
  }
  if (shift & 4) {
#pragma unroll
    for (int i = 0; i < 5; ++i) w[i] = w[i + 1];
  }
  const int bits = (shift & 3) * 8;
  return make_uint4(__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
                    __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits));
}

// Pack `i` of a stream. Shifted: `base` is the aligned address at or below the stream's first pack
// and `shift` the distance. The lower neighbour may begin before the tensor, but not before its
// allocation, which starts at a pack boundary; the upper one of the last pack could end behind it,
// so the scalar tail takes that pack. They go through L1, where the neighbouring lane finds the
// half it shares.
template <bool kShifted>
__device__ __forceinline__ uint4 load_stream(const uint4* base, int64_t i, int shift) {
  if constexpr (!kShifted) {
    return load_pack(base + i);
  } else {
    const uint4 lo = load_pack(base + i);
    const uint4 hi = shift != 0 ? load_pack(base + i + 1) : lo;
    return cut(lo, hi, shift);
  }
}

template <typename T>
__device__ __forceinline__ void add_one(const T* x, const T* y, T* out, int64_t i) {
  out[i] = from_float<T>(to_float(x[i]) + to_float(y[i]));
}

// n elements = n_head scalars up to out's first 16-byte boundary, n_packs packs, a scalar tail.
template <typename T, int kVectors, bool kShifted>
__global__ void vector_add_kernel(const T* x, const T* y, T* out, int64_t n, int64_t n_head,
                                  int64_t n_packs) {
  // Moved as char pointers: through an integer the compiler forgets that this is global memory.
  const char* x_body = reinterpret_cast<const char*>(x + n_head);
  const char* y_body = reinterpret_cast<const char*>(y + n_head);
  const int x_shift = static_cast<int>(reinterpret_cast<uintptr_t>(x_body) % kPackBytes);
  const int y_shift = static_cast<int>(reinterpret_cast<uintptr_t>(y_body) % kPackBytes);
  const uint4* x_packs = reinterpret_cast<const uint4*>(x_body - x_shift);
  const uint4* y_packs = reinterpret_cast<const uint4*>(y_body - y_shift);
  uint4* out_packs = reinterpret_cast<uint4*>(out + n_head);

  const int64_t tile = static_cast<int64_t>(blockDim.x) * kVectors;
  const int64_t first = blockIdx.x * tile + threadIdx.x;
  if ((blockIdx.x + 1) * tile <= n_packs) {
    uint4 a[kVectors], b[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      a[i] = load_stream<kShifted>(x_packs, first + i * blockDim.x, x_shift);
      b[i] = load_stream<kShifted>(y_packs, first + i * blockDim.x, y_shift);
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      store_pack(out_packs + first + i * blockDim.x, add_packs<T>(a[i], b[i]));
    }
  } else {
    for (int64_t p = first; p < n_packs; p += blockDim.x) {
      const uint4 a = load_stream<kShifted>(x_packs, p, x_shift);
      const uint4 b = load_stream<kShifted>(y_packs, p, y_shift);
      store_pack(out_packs + p, add_packs<T>(a, b));
    }
  }
  // The head is shorter than a pack and the tail than two; the first threads of the first block,
  // which has more than that, take them.
  if (blockIdx.x == 0) {
    const int64_t tail = n_head + n_packs * kPackSize<T>;
    if (threadIdx.x < n_head) add_one(x, y, out, threadIdx.x);
    if (threadIdx.x < n - tail) add_one(x, y, out, tail + threadIdx.x);
  }
}

int misalignment(const void* p) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(p) % kPackBytes);
}

template <typename T, int kVectors>
cudaError_t launch(const void* x, const void* y, void* out, int64_t n, int threads,
                   cudaStream_t stream) {
  const int to_boundary = (kPackBytes - misalignment(out)) % kPackBytes / int(sizeof(T));
  const int64_t n_head = to_boundary < n ? to_boundary : n;
  const bool shifted = misalignment(x) != misalignment(out) || misalignment(y) != misalignment(out);
  const int64_t whole_packs = (n - n_head) / kPackSize<T>;
  const int64_t n_packs = shifted && whole_packs > 0 ? whole_packs - 1 : whole_packs;
  const int64_t tile = static_cast<int64_t>(threads) * kVectors;
  const int64_t n_blocks = n_packs == 0 ? 1 : (n_packs + tile - 1) / tile;
  auto* kernel =
      shifted ? vector_add_kernel<T, kVectors, true> : vector_add_kernel<T, kVectors, false>;
  kernel<<<static_cast<unsigned>(n_blocks), threads, 0, stream>>>(
      static_cast<const T*>(x), static_cast<const T*>(y), static_cast<T*>(out), n, n_head, n_packs);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_vectors(const void* x, const void* y, void* out, int64_t n, int threads,
                           int vectors, cudaStream_t stream) {
  switch (vectors) {
    case 1: return launch<T, 1>(x, y, out, n, threads, stream);
    case 2: return launch<T, 2>(x, y, out, n, threads, stream);
    case 4: return launch<T, 4>(x, y, out, n, threads, stream);
    case 8: return launch<T, 8>(x, y, out, n, threads, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t vector_add(const void* x, const void* y, void* out, int64_t n, DType dtype, int threads,
                       int vectors, cudaStream_t stream) {
  if (threads == 0) threads = kDefaultThreads;
  if (vectors == 0) vectors = kDefaultVectors;
  // 1024 is left out: at 8 vectors the shifted form needs more registers than 65536 / 1024.
  if (threads != 128 && threads != 256 && threads != 512) return cudaErrorInvalidValue;
  if (n == 0) return cudaSuccess;
  switch (dtype) {
    case DType::kF32: return launch_vectors<float>(x, y, out, n, threads, vectors, stream);
    case DType::kBF16: return launch_vectors<__nv_bfloat16>(x, y, out, n, threads, vectors, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace cuda_vs_triton
