// reduce_sum, a second form: the threads of a block add in a tree, so a block needs one atomicAdd.
//
// Shared memory holds a sum a thread; in every step the lower half adds the upper half to its own.
// Loads are as in atomics.cu: scalar, any alignment, few bytes in flight. The total is float64, and
// the order of the blocks, and so the last bit, is left to chance.
#include <cstdint>

#include "common/last_block.cuh"
#include "common/pack.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

constexpr int kThreads = 256;
constexpr int kElements = 64;  // a thread

template <typename T>
__global__ void reduce_sum_tree_kernel(const T* x, float* out, int64_t n, double* total,
                                       unsigned* counter) {
  __shared__ float sums[kThreads];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kElements + threadIdx.x;
  float sum = 0.0f;
  for (int i = 0; i < kElements; ++i) {
    const int64_t at = first + i * kThreads;
    if (at < n) sum += to_float(x[at]);
  }
  sums[threadIdx.x] = sum;
  for (int width = kThreads / 2; width > 0; width /= 2) {
    __syncthreads();  // the sums of the step before are written
    if (threadIdx.x < width) sums[threadIdx.x] += sums[threadIdx.x + width];
  }
  if (threadIdx.x == 0) atomicAdd(total, static_cast<double>(sums[0]));
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
  reduce_sum_tree_kernel<<<static_cast<unsigned>(n_blocks), kThreads, 0, stream>>>(
      static_cast<const T*>(x), static_cast<float*>(out), n, total, scratch.counters);
  return cudaGetLastError();
}

}  // namespace

cudaError_t reduce_sum_tree(const void* x, void* out, int64_t n, DType dtype, Scratch scratch,
                            cudaStream_t stream) {
  switch (dtype) {
    case DType::kF32: return launch<float>(x, out, n, scratch, stream);
    case DType::kBF16: return launch<__nv_bfloat16>(x, out, n, scratch, stream);
    case DType::kF16: return launch<__half>(x, out, n, scratch, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace cuda_vs_triton
