// out[0] = sum of all x; f32, bf16, f16, summed and written in float32.
//
// Ownership: a grid of a few blocks an SM strides over 16-byte packs (common/full_sum.cuh); a block
//   leaves one partial, and the last block to finish adds the partials. One launch.
// Bytes per element: sizeof(T) read, one add: bound by DRAM; under about 4 MB by latency.
// Limits: none on n, alignment or length; n = 0 gives 0. NaN and infinities travel in the sum.
// Choice: 8 packs of 16 bytes a thread are in flight before the first is added, 128 KB an SM, and
//   the packs left over by the last whole round are shared out over all threads: no block ends
//   late. No float atomics: results repeat bit for bit.
// Levers left unused: for vectors under 1 MB, one cluster that merges through distributed shared
//   memory in place of the counter; bulk copies (cp.async.bulk).
#include "common/full_sum.cuh"

namespace cuda_vs_triton {
namespace {

struct Value {
  static __device__ __forceinline__ float of(float v) { return v; }
};

template <typename T, int kThreads, int kVectors>
__global__ void __launch_bounds__(kThreads, sum_threads_an_sm(kVectors) / kThreads)
    reduce_sum_kernel(const T* x, float* out, int64_t n, int64_t n_head, int64_t n_packs,
                      Scratch scratch) {
  full_sum<Value, T, kThreads, kVectors>(x, out, n, n_head, n_packs, scratch);
}

struct ReduceSum {
  template <typename T, int kThreads, int kVectors>
  static FullSumKernel<T>* kernel() {
    return reduce_sum_kernel<T, kThreads, kVectors>;
  }
};

}  // namespace

cudaError_t reduce_sum(const void* x, void* out, int64_t n, DType dtype, Scratch scratch,
                       int threads, int vectors, int blocks_per_sm, cudaStream_t stream) {
  return launch_full_sum_of<ReduceSum>(x, out, n, dtype, scratch, threads, vectors, blocks_per_sm,
                                       stream);
}

}  // namespace cuda_vs_triton
