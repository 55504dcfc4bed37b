// out[m, n] = relu(sum_k x[m, k] * w[k, n] + b[n]); bf16 and f16, row-major, fp32 accumulators.
//
// Ownership: a block owns one tile of out at a time; bias and relu act on its sums in registers,
//   which saves the two round trips over M x N that separate kernels make.
// Bytes: 2 * (M K + K N + N + M N); flops 2 M N K: bound by the tensor cores for K >= 512 or so.
// Limits: any M, N, K including 0 (K = 0 gives relu(b)); odd rows and pointers as in matmul.cu.
// NaN passes relu, -0 becomes +0; bias and relu in fp32, one rounding.
// Choice: matmul's two forms with another epilogue, common/matmul.cuh.
#include "common/matmul.cuh"

namespace cuda_vs_triton {

cudaError_t matmul_bias_relu(const void* x, const void* w, const void* b, void* out, int64_t m,
                             int64_t n, int64_t k, DType dtype, int block_m, int block_n,
                             int stages, int cluster, int blocks, cudaStream_t stream) {
  return matmul<BiasRelu>({x, w, b, out, m, n, k, false, false}, dtype,
                          {block_m, block_n, stages, cluster, blocks}, stream);
}

}  // namespace cuda_vs_triton
