// NVIDIA's own reductions (CUB) as launchers, for the rows named `library`: two launches of theirs.
#include <cub/device/device_reduce.cuh>
#include <cuda/std/functional>

#include "common/pack.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

struct Value {
  template <typename T>
  __device__ __forceinline__ float operator()(T v) const {
    return to_float(v);
  }
};

struct Square {
  template <typename T>
  __device__ __forceinline__ float operator()(T v) const {
    return to_float(v) * to_float(v);
  }
};

template <typename Term>
cudaError_t cub_sum(void* scratch, size_t* scratch_bytes, const void* x, void* out, int64_t n,
                    DType dtype, cudaStream_t stream) {
  const auto run = [&](auto of_type) {
    return cub::DeviceReduce::TransformReduce(
        scratch, *scratch_bytes, static_cast<const decltype(of_type)*>(x), static_cast<float*>(out),
        n, cuda::std::plus<float>{}, Term{}, 0.0f, stream);
  };
  switch (dtype) {
    case DType::kF32: return run(float{});
    case DType::kBF16: return run(__nv_bfloat16{});
    case DType::kF16: return run(__half{});
  }
  return cudaErrorInvalidValue;
}

}  // namespace

cudaError_t cub_reduce_sum(void* scratch, size_t* scratch_bytes, const void* x, void* out,
                           int64_t n, DType dtype, cudaStream_t stream) {
  return cub_sum<Value>(scratch, scratch_bytes, x, out, n, dtype, stream);
}

cudaError_t cub_squared_norm(void* scratch, size_t* scratch_bytes, const void* x, void* out,
                             int64_t n, DType dtype, cudaStream_t stream) {
  return cub_sum<Square>(scratch, scratch_bytes, x, out, n, dtype, stream);
}

}  // namespace cuda_vs_triton
