// softmax, first rung: the formula as three loops over the row, which is read three times.
//
// Ownership: a block of 256 threads owns one row; neighbouring threads read neighbouring elements.
// Bytes per element: 4 * sizeof(T) asked for; the second and third read mostly hit L2 or L1.
// Levers left unused: one pass for maximum and sum, 16-byte accesses, rows kept on chip.
#include "common/exp_sum.cuh"
#include "common/merge.cuh"
#include "common/pack.cuh"
#include "common/reduce.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;

struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    softmax_naive_kernel(const T* x, T* out, int64_t n_cols, int64_t x_stride, int64_t out_stride) {
  __shared__ float maxima[kWarps], sums[kWarps];
  x += blockIdx.x * x_stride;
  out += blockIdx.x * out_stride;

  float max = -INFINITY;
  for (int64_t c = threadIdx.x; c < n_cols; c += kThreads) max = fmaxf(max, to_float(x[c]));
  max = merge_warps<kWarps>(lanes_max<kWarpSize>(max), maxima, Max());
  const float offset = finite_offset(max);

  float sum = 0.0f;
  for (int64_t c = threadIdx.x; c < n_cols; c += kThreads) sum += exp_minus(to_float(x[c]), offset);
  sum = merge_warps<kWarps>(lanes_sum<kWarpSize>(sum), sums, Sum());

  for (int64_t c = threadIdx.x; c < n_cols; c += kThreads) {
    out[c] = from_float<T>(exp_minus(to_float(x[c]), offset) / sum);
  }
}

template <typename T>
cudaError_t launch(const void* x, void* out, int64_t n_rows, int64_t n_cols, int64_t x_stride,
                   int64_t out_stride, cudaStream_t stream) {
  softmax_naive_kernel<T><<<static_cast<unsigned>(n_rows), kThreads, 0, stream>>>(
      static_cast<const T*>(x), static_cast<T*>(out), n_cols, x_stride, out_stride);
  return cudaGetLastError();
}

}  // namespace

cudaError_t softmax_naive(const void* x, void* out, int64_t n_rows, int64_t n_cols,
                          int64_t x_stride, int64_t out_stride, DType dtype, cudaStream_t stream) {
  if (n_rows == 0 || n_cols == 0) return cudaSuccess;
  const auto run = [&](auto launcher) {
    return launcher(x, out, n_rows, n_cols, x_stride, out_stride, stream);
  };
  switch (dtype) {
    case DType::kF32: return run(launch<float>);
    case DType::kBF16: return run(launch<__nv_bfloat16>);
    case DType::kF16: return run(launch<__half>);
  }
  return cudaErrorInvalidValue;
}

}  // namespace cuda_vs_triton
