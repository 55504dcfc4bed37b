// out = gate * sigmoid(gate) * up, elementwise; bf16, f32, f16, fp32 inside, rounded once.
//
// Ownership: a block owns one tile of threads * vectors packs of 16 bytes, of one long row where
//   all rows lie back to back (one row of 14336 is 28 blocks), else of one row or of a few.
// Bytes per element: 3 * sizeof(T), about 6 flops, an exp2 and a reciprocal: bound by DRAM.
// Limits: none on alignment or row strides, so gate and up may be column halves of one tensor.
//   out may be exactly gate or up. A sigmoid under 2^-126 (gate < -87.3) counts as 0; a gate of
//   -Inf gives NaN, as in torch.
// Choice: exp2 and reciprocal as single instructions, no division. One pack of gate and of up a
//   thread; rows whose streams differ in alignment keep 16-byte accesses: common/stream.cuh.
// Levers left unused: bulk copies (cp.async.bulk) through shared memory.
#include "common/sigmoid.cuh"
#include "common/stream.cuh"

namespace cuda_vs_triton {
namespace {

struct SiluMul {
  static constexpr int kInputs = 2, kOutputs = 1, kMostVectors = 4;
  __device__ __forceinline__ void operator()(const float (&in)[2], float (&out)[1]) const {
    const float gate = in[0], up = in[1];
    out[0] = gate * sigmoid(gate) * up;
  }
};

template <typename T, int kVectors, bool kShifted>
__global__ void swiglu_kernel(Streams<T, SiluMul> streams, Split split, SiluMul op) {
  stream_row<kVectors, kShifted>(streams, split, op);
}

template <typename T, int kVectors, bool kShifted>
__global__ void swiglu_rows_kernel(Streams<T, SiluMul> streams, Rows<SiluMul> rows, SiluMul op) {
  stream_rows<kVectors, kShifted>(streams, rows, op);
}

template <typename T>
cudaError_t launch(const void* gate, const void* up, void* out, const Rows<SiluMul>& rows,
                   StreamConfig config, cudaStream_t stream) {
  const Streams<T, SiluMul> streams = {{static_cast<const T*>(gate), static_cast<const T*>(up)},
                                       {static_cast<T*>(out)}};
  const auto flat_of = [](auto vectors, auto shifted) {
    return swiglu_kernel<T, vectors(), shifted()>;
  };
  const auto rows_of = [](auto vectors, auto shifted) {
    return swiglu_rows_kernel<T, vectors(), shifted()>;
  };
  return launch_stream_rows(flat_of, rows_of, streams, rows, SiluMul{}, config, stream);
}

}  // namespace

cudaError_t swiglu(const void* gate, const void* up, void* out, int64_t n_rows, int64_t n_cols,
                   int64_t gate_stride, int64_t up_stride, int64_t out_stride, DType dtype,
                   int threads, int vectors, cudaStream_t stream) {
  const Rows<SiluMul> rows = {n_rows, n_cols, {gate_stride, up_stride}, {out_stride}};
  const auto as = [&](auto element) {
    return launch<decltype(element)>(gate, up, out, rows, {threads, vectors}, stream);
  };
  switch (dtype) {
    case DType::kF32: return as(float{});
    case DType::kBF16: return as(__nv_bfloat16{});
    case DType::kF16: return as(__half{});
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace cuda_vs_triton
