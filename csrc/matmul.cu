// out[m, n] = sum_k x[m, k] * w[k, n]; bf16 and f16, fp32 accumulators, one rounding.
//
// Ownership: a block owns one tile of out at a time; x and w are read as memory has them, row-major
//   or transposed, in all four layouts: nothing is copied or transposed beforehand.
// Bytes: 2 * (M K + K N + M N); flops 2 M N K: bound by the tensor cores for K >= 512 or so.
// Limits: any M, N, K including 0. Rows in memory that are not a multiple of 8 elements, or a
//   pointer not a multiple of 16 bytes, take an element-load form: right, several times slower.
// Choice: two forms of one product, common/matmul.cuh: wgmma fed by TMA (sm_90a), else mma.sync
//   fed by cp.async, whose instruction peaks at about 65 % of wgmma's on Hopper.
#include "common/matmul.cuh"

namespace cuda_vs_triton {

cudaError_t matmul(const void* x, const void* w, void* out, int64_t m, int64_t n, int64_t k,
                   bool x_transposed, bool w_transposed, DType dtype, int block_m, int block_n,
                   int stages, int cluster, int blocks, cudaStream_t stream) {
  return matmul<NoEpilogue>({x, w, nullptr, out, m, n, k, x_transposed, w_transposed}, dtype,
                            {block_m, block_n, stages, cluster, blocks}, stream);
}

}  // namespace cuda_vs_triton
