// out = x + y, elementwise; f32, bf16 (added in fp32, rounded once). -0 and subnormals are kept.
//
// Ownership: a block owns one tile of threads * vectors packs of 16 bytes; block count = tiles.
// Bytes per element: 3 * sizeof(T), one flop: bound by DRAM at every size worth timing.
// Limits: none on n, alignment or length. out may be exactly x or y, not overlap them in part.
// Choice: one pack of x and of y a thread, 64 KB of loads in flight on a full SM. When x, y and out
//   share their misalignment, a scalar head and tail surround aligned packs; when they differ, out
//   decides the packs and each input pack is cut out of two aligned neighbours (the second comes
//   from L1), which keeps 16-byte accesses on all three streams: common/stream.cuh.
// Levers left unused: bulk copies (cp.async.bulk) through shared memory.
#include "common/stream.cuh"

namespace cuda_vs_triton {
namespace {

struct Add {
  static constexpr int kInputs = 2, kOutputs = 1, kMostVectors = 8;
  __device__ __forceinline__ void operator()(const float (&in)[2], float (&out)[1]) const {
    out[0] = in[0] + in[1];
  }
};

template <typename T, int kVectors, bool kShifted>
__global__ void vector_add_kernel(Streams<T, Add> streams, Split split, Add add) {
  stream_row<kVectors, kShifted>(streams, split, add);
}

template <typename T>
cudaError_t launch(const void* x, const void* y, void* out, int64_t n, StreamConfig config,
                   cudaStream_t stream) {
  const Streams<T, Add> streams = {{static_cast<const T*>(x), static_cast<const T*>(y)},
                                   {static_cast<T*>(out)}};
  const auto kernel_of = [](auto vectors, auto shifted) {
    return vector_add_kernel<T, vectors(), shifted()>;
  };
  return launch_stream(kernel_of, streams, n, Add{}, config, stream);
}

}  // namespace

cudaError_t vector_add(const void* x, const void* y, void* out, int64_t n, DType dtype, int threads,
                       int vectors, cudaStream_t stream) {
  switch (dtype) {
    case DType::kF32: return launch<float>(x, y, out, n, {threads, vectors}, stream);
    case DType::kBF16: return launch<__nv_bfloat16>(x, y, out, n, {threads, vectors}, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace cuda_vs_triton
