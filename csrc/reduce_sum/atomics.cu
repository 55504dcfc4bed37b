// reduce_sum, a first form: a thread adds up 64 elements, and its atomicAdd does the rest.
//
// Scalar loads of neighbouring elements by neighbouring threads, any alignment. All threads meet at
// one address, one after the other. The total is float64: in float32 the roundings of millions of
// additions to one number would show. Their order, and so the last bit, is left to chance.
#include <cstdint>

#include "common/last_block.cuh"
#include "common/pack.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

constexpr int kThreads = 256;
constexpr int kElements = 64;  // a thread

template <typename T>
__global__ void reduce_sum_atomics_kernel(const T* x, float* out, int64_t n, double* total,
                                          unsigned* counter) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kElements + threadIdx.x;
  float sum = 0.0f;
  for (int i = 0; i < kElements; ++i) {
    const int64_t at = first + i * kThreads;
    if (at < n) sum += to_float(x[at]);
  }
  atomicAdd(total, static_cast<double>(sum));
  if (is_last_block(counter, gridDim.x) && threadIdx.x == 0) *out = static_cast<float>(*total);
}

template <typename T>
cudaError_t launch(const void* x, void* out, int64_t n, Scratch scratch, cudaStream_t stream) {
  auto* total = reinterpret_cast<double*>(scratch.partials);
  if (cudaError_t error = cudaMemsetAsync(total, 0, sizeof(double), stream); error != cudaSuccess) {
    return error;
  }
  const int64_t tile = kThreads * kElements;
  const int64_t n_blocks = n == 0 ? 1 : (n + tile - 1) / tile;
  reduce_sum_atomics_kernel<<<static_cast<unsigned>(n_blocks), kThreads, 0, stream>>>(
      static_cast<const T*>(x), static_cast<float*>(out), n, total, scratch.counters);
  return cudaGetLastError();
}

}  // namespace

cudaError_t reduce_sum_atomics(const void* x, void* out, int64_t n, DType dtype, Scratch scratch,
                               cudaStream_t stream) {
  switch (dtype) {
    case DType::kF32: return launch<float>(x, out, n, scratch, stream);
    case DType::kBF16: return launch<__nv_bfloat16>(x, out, n, scratch, stream);
    case DType::kF16: return launch<__half>(x, out, n, scratch, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace cuda_vs_triton
