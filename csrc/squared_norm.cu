// out[0] = sum of all x * x; f32, bf16, f16, squared and summed in float32.
//
// Ownership, limits and levers: those of reduce_sum.cu, with which it shares common/full_sum.cuh.
// Bytes per element: sizeof(T) read, one fused multiply-add: bound by DRAM.
// NaN travels; an infinity, or a square beyond float32, gives +Inf.
// Choice: the square costs nothing, since it fuses with the first addition within a pack.
#include "common/full_sum.cuh"

namespace cuda_vs_triton {
namespace {

struct Square {
  static __device__ __forceinline__ float of(float v) { return v * v; }
};

template <typename T, int kThreads, int kVectors>
__global__ void __launch_bounds__(kThreads, sum_threads_an_sm(kVectors) / kThreads)
    squared_norm_kernel(const T* x, float* out, int64_t n, int64_t n_head, int64_t n_packs,
                        Scratch scratch) {
  full_sum<Square, T, kThreads, kVectors>(x, out, n, n_head, n_packs, scratch);
}

struct SquaredNorm {
  template <typename T, int kThreads, int kVectors>
  static FullSumKernel<T>* kernel() {
    return squared_norm_kernel<T, kThreads, kVectors>;
  }
};

}  // namespace

cudaError_t squared_norm(const void* x, void* out, int64_t n, DType dtype, Scratch scratch,
                         int threads, int vectors, int blocks_per_sm, cudaStream_t stream) {
  return launch_full_sum_of<SquaredNorm>(x, out, n, dtype, scratch, threads, vectors, blocks_per_sm,
                                         stream);
}

}  // namespace cuda_vs_triton
