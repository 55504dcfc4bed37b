// Gradients of swiglu, s = sigmoid(gate): out = dgate = dout * up * s * (1 + gate * (1 - s)),
// dup = dout * gate * s; bf16, f32, f16, fp32 inside, rounded once.
//
// Ownership: a block owns one tile of threads * vectors packs of 16 bytes, of one long row where
//   all rows lie back to back, else of one row or of a few.
// Bytes per element: 5 * sizeof(T), three streams read and two written, for about 10 flops, an exp2
//   and a reciprocal: bound by DRAM. s is computed again, not read.
// Limits: none on alignment or row strides; inputs and gradients may be column halves of one tensor
//   each. An output may be exactly an input. A gate of Inf or -Inf gives a dgate of NaN, as in
//   torch; an s under 2^-126 counts as 0.
// Choice: up is multiplied by the slope, at most 1.1, before dout, so that only a gradient that
//   overflows is infinite. Streams that differ in alignment keep 16-byte accesses
//   (common/stream.cuh), but for a dup that differs from dgate: it is stored by elements.
// Levers left unused: bulk copies (cp.async.bulk) through shared memory.
#include "common/sigmoid.cuh"
#include "common/stream.cuh"

namespace cuda_vs_triton {
namespace {

struct Gradients {
  static constexpr int kInputs = 3, kOutputs = 2, kMostVectors = 4;
  __device__ __forceinline__ void operator()(const float (&in)[3], float (&out)[2]) const {
    const float dout = in[0], gate = in[1], up = in[2];
    const float s = sigmoid(gate);
    const float slope = s * fmaf(gate, 1.0f - s, 1.0f);
    out[0] = dout * (up * slope);
    out[1] = dout * (gate * s);
  }
};

template <typename T, int kVectors, bool kShifted>
__global__ void swiglu_backward_kernel(Streams<T, Gradients> streams, Split split, Gradients op) {
  stream_row<kVectors, kShifted>(streams, split, op);
}

template <typename T, int kVectors, bool kShifted>
__global__ void swiglu_backward_rows_kernel(Streams<T, Gradients> streams, Rows<Gradients> rows,
                                            Gradients op) {
  stream_rows<kVectors, kShifted>(streams, rows, op);
}

template <typename T>
cudaError_t launch(const void* dout, const void* gate, const void* up, void* dgate, void* dup,
                   const Rows<Gradients>& rows, StreamConfig config, cudaStream_t stream) {
  const Streams<T, Gradients> streams = {
      {static_cast<const T*>(dout), static_cast<const T*>(gate), static_cast<const T*>(up)},
      {static_cast<T*>(dgate), static_cast<T*>(dup)}};
  const auto flat_of = [](auto vectors, auto shifted) {
    return swiglu_backward_kernel<T, vectors(), shifted()>;
  };
  const auto rows_of = [](auto vectors, auto shifted) {
    return swiglu_backward_rows_kernel<T, vectors(), shifted()>;
  };
  return launch_stream_rows(flat_of, rows_of, streams, rows, Gradients{}, config, stream);
}

}  // namespace

cudaError_t swiglu_backward(const void* dout, const void* gate, const void* up, void* dgate,
                            void* dup, int64_t n_rows, int64_t n_cols, int64_t dout_stride,
                            int64_t gate_stride, int64_t up_stride, int64_t dgate_stride,
                            int64_t dup_stride, DType dtype, int threads, int vectors,
                            cudaStream_t stream) {
  const Rows<Gradients> rows = {
      n_rows, n_cols, {dout_stride, gate_stride, up_stride}, {dgate_stride, dup_stride}};
  const auto as = [&](auto element) {
    return launch<decltype(element)>(dout, gate, up, dgate, dup, rows, {threads, vectors}, stream);
  };
  switch (dtype) {
    case DType::kF32: return as(float{});
    case DType::kBF16: return as(__nv_bfloat16{});
    case DType::kF16: return as(__half{});
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace cuda_vs_triton
