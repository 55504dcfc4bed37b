// out = a * x + b * y, elementwise; f32, bf16 (computed in fp32, rounded once).
//
// Ownership: a block owns one tile of threads * vectors packs of 16 bytes; block count = tiles.
// Bytes per element: 3 * sizeof(T) for three flops: bound by DRAM at every size worth timing.
// Limits: none on n, alignment or length. out may be exactly x or y, not overlap them in part.
// Choice: b * y is rounded, then one fused multiply-add rounds the rest. A scalar head and tail
//   surround 16-byte packs whatever the alignment of the three streams: common/stream.cuh.
// Levers left unused: bulk copies (cp.async.bulk) through shared memory.
#include "common/stream.cuh"

namespace cuda_vs_triton {
namespace {

struct WeightedSum {
  static constexpr int kInputs = 2, kOutputs = 1, kMostVectors = 8;
  float a, b;
  __device__ __forceinline__ void operator()(const float (&in)[2], float (&out)[1]) const {
    out[0] = fmaf(a, in[0], b * in[1]);
  }
};

template <typename T, int kVectors, bool kShifted>
__global__ void axpby_kernel(Streams<T, WeightedSum> streams, Split split, WeightedSum sum) {
  stream_row<kVectors, kShifted>(streams, split, sum);
}

template <typename T>
cudaError_t launch(const void* x, const void* y, void* out, int64_t n, const WeightedSum& sum,
                   StreamConfig config, cudaStream_t stream) {
  const Streams<T, WeightedSum> streams = {{static_cast<const T*>(x), static_cast<const T*>(y)},
                                           {static_cast<T*>(out)}};
  const auto kernel_of = [](auto vectors, auto shifted) {
    return axpby_kernel<T, vectors(), shifted()>;
  };
  return launch_stream(kernel_of, streams, n, sum, config, stream);
}

}  // namespace

cudaError_t axpby(const void* x, const void* y, void* out, int64_t n, float a, float b, DType dtype,
                  int threads, int vectors, cudaStream_t stream) {
  const WeightedSum sum = {a, b};
  switch (dtype) {
    case DType::kF32: return launch<float>(x, y, out, n, sum, {threads, vectors}, stream);
    case DType::kBF16: return launch<__nv_bfloat16>(x, y, out, n, sum, {threads, vectors}, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace cuda_vs_triton
