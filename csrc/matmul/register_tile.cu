// matmul, fourth rung: a thread owns 8 x 8 outputs, so that 16 loaded values make 64 products.
//
// Ownership: a block of 256 threads owns 128 x 128 outputs. A thread's are four pieces of 4 x 4,
//   64 rows or columns apart: then 16 threads of a row read 16 neighbouring packs of w.
// Bytes: 4 K / 128 from global memory for each output, 16 at a time; 1 byte from shared memory for
//   every product. The bound is the fp32 units: a product is one instruction of one thread.
// Levers left unused: the tensor cores; copies that run while the block multiplies.
#include "common/matmul_rungs.cuh"
#include "common/pack.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

using rungs::bf16;
using rungs::Operand;

constexpr int kTile = 128, kDepth = 16, kThreads = 256;
constexpr int kPack = kPackSize<bf16>;
constexpr int kSums = 8;  // on a side
constexpr int kPad = 4;   // floats: rows stay whole packs
static_assert(kTile * kDepth == kThreads * kPack, "a thread loads a pack of each tile");

// Eight elements side by side; one load where they are 16 aligned bytes inside the matrix.
__device__ __forceinline__ void load_pack_of(const Operand& a, int64_t row, int64_t col,
                                             float (&v)[kPack]) {
  const bf16* from = a.data + row * a.row_stride + col * a.col_stride;
  if (a.col_stride == 1 && a.has(row, col + kPack - 1) &&
      reinterpret_cast<uintptr_t>(from) % kPackBytes == 0) {
    unpack<bf16>(load_pack(reinterpret_cast<const uint4*>(from)), v);
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) v[i] = a.at_or_zero(row, col + i);
  }
}

// A thread's 8 of a row of kTile: two packs of 4 floats, half a tile apart.
__device__ __forceinline__ void load_sides(const float* row, int first, float (&v)[kSums]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float4 pack = *reinterpret_cast<const float4*>(row + first + half * kTile / 2);
    v[4 * half] = pack.x;
    v[4 * half + 1] = pack.y;
    v[4 * half + 2] = pack.z;
    v[4 * half + 3] = pack.w;
  }
}

__global__ void __launch_bounds__(kThreads)
    matmul_register_tile_kernel(const Operand x, const Operand w, bf16* out, int64_t n_col_tiles) {
  __shared__ __align__(16) float s_x[kDepth][kTile + kPad];  // turned: its k are rows, as of w
  __shared__ __align__(16) float s_w[kDepth][kTile + kPad];
  const int64_t row0 = blockIdx.x / n_col_tiles * kTile;
  const int64_t col0 = blockIdx.x % n_col_tiles * kTile;
  const int x_row = threadIdx.x / (kDepth / kPack), x_k = threadIdx.x % (kDepth / kPack) * kPack;
  const int w_k = threadIdx.x / (kTile / kPack), w_col = threadIdx.x % (kTile / kPack) * kPack;
  const int first_row = threadIdx.x / 16 * 4, first_col = threadIdx.x % 16 * 4;

  float sums[kSums][kSums] = {};
  for (int64_t first_k = 0; first_k < x.n_cols; first_k += kDepth) {
    float v[kPack];
    load_pack_of(x, row0 + x_row, first_k + x_k, v);
#pragma unroll
    for (int i = 0; i < kPack; ++i) s_x[x_k + i][x_row] = v[i];
    load_pack_of(w, first_k + w_k, col0 + w_col, v);
#pragma unroll
    for (int i = 0; i < kPack; ++i) s_w[w_k][w_col + i] = v[i];
    __syncthreads();  // both tiles are complete
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      float of_x[kSums], of_w[kSums];
      load_sides(s_x[k], first_row, of_x);
      load_sides(s_w[k], first_col, of_w);
#pragma unroll
      for (int i = 0; i < kSums; ++i) {
#pragma unroll
        for (int j = 0; j < kSums; ++j) sums[i][j] += of_x[i] * of_w[j];
      }
    }
    __syncthreads();  // and used up
  }

#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const int64_t row = row0 + first_row + i % 4 + i / 4 * (kTile / 2);
#pragma unroll
    for (int j = 0; j < kSums; ++j) {
      const int64_t col = col0 + first_col + j % 4 + j / 4 * (kTile / 2);
      if (row < x.n_rows && col < w.n_cols) {
        out[row * w.n_cols + col] = __float2bfloat16_rn(sums[i][j]);
      }
    }
  }
}

}  // namespace

cudaError_t matmul_register_tile(const void* x, const void* w, void* out, int64_t m, int64_t n,
                                 int64_t k, bool x_transposed, bool w_transposed,
                                 cudaStream_t stream) {
  if (m == 0 || n == 0) return cudaSuccess;
  const MatmulProblem p = {x, w, nullptr, out, m, n, k, x_transposed, w_transposed};
  matmul_register_tile_kernel<<<rungs::n_blocks(p, kTile, kTile), kThreads, 0, stream>>>(
      rungs::x_of(p), rungs::w_of(p), static_cast<bf16*>(out), (n + kTile - 1) / kTile);
  return cudaGetLastError();
}

}  // namespace cuda_vs_triton
