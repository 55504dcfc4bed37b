// CUDA kernels that are wrong on purpose, one for each way that a harness must notice.
//
// Launchers are plain C, so that one small library serves a worker (through ctypes) and a program
// of its own under compute-sanitizer. Each vector launcher claims out = x + y for n floats; what
// its kernel does instead is said above it.

#include <cuda_runtime.h>

#include <cassert>
#include <cstdint>

namespace {

constexpr int kThreads = 256;

int blocks_for(int64_t n) { return static_cast<int>((n + kThreads - 1) / kThreads); }

__device__ int64_t element() { return blockIdx.x * int64_t{kThreads} + threadIdx.x; }

// The one that is right: what the sanitizers must find no fault with.
__global__ void right_kernel(const float* x, const float* y, float* out, int64_t n) {
  const int64_t i = element();
  if (i < n) out[i] = x[i] + y[i];
}

// Every eighth block returns before it has written anything.
__global__ void unwritten_part_kernel(const float* x, const float* y, float* out, int64_t n) {
  if (blockIdx.x % 8 == 7) return;
  const int64_t i = element();
  if (i < n) out[i] = x[i] + y[i];
}

// Whole groups of four only; the last n % 4 elements belong to nobody.
__global__ void skips_tail_kernel(const float* x, const float* y, float* out, int64_t n) {
  const int64_t first = 4 * element();
  if (first + 4 > n) return;
  for (int64_t i = first; i < first + 4; ++i) out[i] = x[i] + y[i];
}

// `<=` where `<` was meant.
__global__ void writes_past_end_kernel(const float* x, const float* y, float* out, int64_t n) {
  const int64_t i = element();
  if (i <= n) out[i] = i < n ? x[i] + y[i] : 0.0f;
}

// A stencil's habit: the right neighbour is read with weight zero, also beyond the last element.
__global__ void reads_past_end_kernel(const float* x, const float* y, float* out, int64_t n) {
  const int64_t i = element();
  if (i < n) out[i] = x[i] + y[i] + 0.0f * x[i + 1];
}

// Reads beyond the last element as well, and then does not use what it has read.
__global__ void reads_past_end_unseen_kernel(const volatile float* x, const float* y, float* out,
                                             int64_t n) {
  const int64_t i = element();
  if (i > n) return;
  const float value = x[i];
  if (i < n) out[i] = value + y[i];
}

// 16-byte accesses whatever the address.
__global__ void misaligned_load_kernel(const float* x, const float* y, float* out, int64_t n) {
  const int64_t first = 4 * element();
  if (first + 4 <= n) {
    const float4 a = *reinterpret_cast<const float4*>(x + first);
    const float4 b = *reinterpret_cast<const float4*>(y + first);
    *reinterpret_cast<float4*>(out + first) =
        make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
  } else {
    for (int64_t i = first; i < n; ++i) out[i] = x[i] + y[i];
  }
}

// A store to an address that nobody owns.
__global__ void illegal_access_kernel(const float* x, const float* y, float* out, int64_t n) {
  const int64_t i = element();
  if (i < n) out[i] = x[i] + y[i];
  if (i == 0) *reinterpret_cast<volatile float*>(uintptr_t{64}) = 1.0f;
}

// An assertion that does not hold.
__global__ void device_assert_kernel(const float* x, const float* y, float* out, int64_t n) {
  const int64_t i = element();
  assert(n < 0);
  if (i < n) out[i] = x[i] + y[i];
}

// Far beyond any patience, yet not endless: should killing the process not end it, the GPU is
// free again within the minute.
__global__ void hangs_kernel(const float* x, const float* y, float* out, int64_t n) {
  constexpr uint64_t kNanoseconds = 45'000'000'000;
  uint64_t start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < kNanoseconds);
  const int64_t i = element();
  if (i < n) out[i] = x[i] + y[i];
}

// Each element is computed in one warp and stored by another, with nothing between: right as long
// as the first warp happens to be ahead.
__global__ void missing_barrier_kernel(const float* x, const float* y, float* out, int64_t n) {
  __shared__ float tile[kThreads];
  const int other = threadIdx.x ^ 32;
  const int64_t base = blockIdx.x * int64_t{kThreads};
  if (base + other < n) tile[other] = x[base + other] + y[base + other];
  if (base + threadIdx.x < n) out[base + threadIdx.x] = tile[threadIdx.x];
}

// relu of rows; the offset of a row is kept in 32 bits. Unsigned, so that it wraps by definition
// and what it then points at is known; a signed one ends before the tensor, mostly in a fault.
__global__ void int32_offsets_kernel(const uint16_t* x, uint16_t* out, uint32_t n_cols,
                                     uint32_t x_stride) {
  const uint32_t row = blockIdx.x;
  for (uint32_t col = threadIdx.x; col < n_cols; col += kThreads) {
    const uint16_t bits = x[row * x_stride + col];
    const bool is_nan = (bits & 0x7fff) > 0x7f80;
    out[row * n_cols + col] = (bits & 0x8000) && !is_nan ? 0 : bits;
  }
}

}  // namespace

#define VECTOR_LAUNCHER(name, per_thread)                                                         \
  extern "C" int name(const float* x, const float* y, float* out, int64_t n, void* stream) {      \
    const int64_t threads = (n + (per_thread)) / (per_thread); /* one more than there is to do */ \
    name##_kernel<<<blocks_for(threads), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(       \
        x, y, out, n);                                                                            \
    return cudaGetLastError();                                                                    \
  }

VECTOR_LAUNCHER(right, 1)
VECTOR_LAUNCHER(unwritten_part, 1)
VECTOR_LAUNCHER(skips_tail, 4)
VECTOR_LAUNCHER(writes_past_end, 1)
VECTOR_LAUNCHER(reads_past_end, 1)
VECTOR_LAUNCHER(reads_past_end_unseen, 1)
VECTOR_LAUNCHER(misaligned_load, 4)
VECTOR_LAUNCHER(illegal_access, 1)
VECTOR_LAUNCHER(device_assert, 1)
VECTOR_LAUNCHER(hangs, 1)
VECTOR_LAUNCHER(missing_barrier, 1)

// The work goes to a stream of its own, which the caller's neither waits for nor is waited for by.
extern "C" int side_stream(const float* x, const float* y, float* out, int64_t n, void*) {
  static cudaStream_t rogue = nullptr;
  if (rogue == nullptr) {
    const cudaError_t error = cudaStreamCreateWithFlags(&rogue, cudaStreamNonBlocking);
    if (error != cudaSuccess) return error;
  }
  return right(x, y, out, n, rogue);
}

extern "C" int int32_offsets(const void* x, void* out, int64_t n_rows, int64_t n_cols,
                             int64_t x_stride, void* stream) {
  int32_offsets_kernel<<<static_cast<int>(n_rows), kThreads, 0,
                         static_cast<cudaStream_t>(stream)>>>(
      static_cast<const uint16_t*>(x), static_cast<uint16_t*>(out), static_cast<uint32_t>(n_cols),
      static_cast<uint32_t>(x_stride));
  return cudaGetLastError();
}
