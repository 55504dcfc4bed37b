// softmax, second rung: maximum and sum in one pass, so that the row is read twice.
//
// Ownership: a block of 256 threads owns one row; neighbouring threads read neighbouring elements.
// Bytes per element: 3 * sizeof(T) asked for; the second read mostly hits L2 or L1.
// Choice: each thread keeps a running maximum and the sum of exps relative to it, rescaled whenever
//   the maximum grows (the online softmax); pairs merge as in the headline kernel.
// Levers left unused: 16-byte accesses, rows kept on chip.
#include "common/exp_sum.cuh"
#include "common/merge.cuh"
#include "common/pack.cuh"
#include "common/reduce.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarpSize;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    softmax_online_kernel(const T* x, T* out, int64_t n_cols, int64_t x_stride,
                          int64_t out_stride) {
  __shared__ ExpSum of_warps[kWarps];
  x += blockIdx.x * x_stride;
  out += blockIdx.x * out_stride;

  ExpSum mine = {-INFINITY, 0.0f};
  for (int64_t c = threadIdx.x; c < n_cols; c += kThreads) {
    const float v = to_float(x[c]);
    const float max = fmaxf(mine.max, v);
    const float offset = finite_offset(max);
    mine = {max, mine.sum * exp_minus(mine.max, offset) + exp_minus(v, offset)};
  }
  mine = merge_lanes<kWarpSize>(mine, MergeExpSums());
  const ExpSum row = merge_warps<kWarps>(mine, of_warps, MergeExpSums());
  const float offset = finite_offset(row.max);

  for (int64_t c = threadIdx.x; c < n_cols; c += kThreads) {
    out[c] = from_float<T>(exp_minus(to_float(x[c]), offset) / row.sum);
  }
}

template <typename T>
cudaError_t launch(const void* x, void* out, int64_t n_rows, int64_t n_cols, int64_t x_stride,
                   int64_t out_stride, cudaStream_t stream) {
  softmax_online_kernel<T><<<static_cast<unsigned>(n_rows), kThreads, 0, stream>>>(
      static_cast<const T*>(x), static_cast<T*>(out), n_cols, x_stride, out_stride);
  return cudaGetLastError();
}

}  // namespace

cudaError_t softmax_online(const void* x, void* out, int64_t n_rows, int64_t n_cols,
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
