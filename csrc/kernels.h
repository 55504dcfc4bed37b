// Every launcher of the CUDA side: the table of contents. No torch here, only the CUDA runtime.
//
// Conventions: raw device pointers of the calling thread's current device, extents and strides in
// elements as int64_t, configuration integers where 0 means "choose", work queued on `stream`.
// Returns cudaGetLastError() after the launch; cudaErrorInvalidValue for an unknown configuration.
// Zero output elements: cudaSuccess without a launch. Nothing here synchronises or allocates.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace cuda_vs_triton {

enum class DType { kF32, kBF16, kF16, kI8 };

// Global memory of a launch whose blocks leave partial results for the last of them to merge.
// `counters` are zero before the launch and again after it; one launch at a time may use them.
struct Scratch {
  unsigned* counters;  // kScratchCounters
  float* partials;     // kScratchPartials, 16-byte aligned
};
constexpr int64_t kScratchCounters = 4096;
constexpr int64_t kScratchPartials = 1 << 19;

// ---- ops -------------------------------------------------------------------------------------

// out[i] = x[i] + y[i] for i < n; f32 and bf16; any alignment; out may be exactly x or y.
cudaError_t vector_add(const void* x, const void* y, void* out, int64_t n, DType dtype, int threads,
                       int vectors, cudaStream_t stream);

// out[i] = a * x[i] + b * y[i]; otherwise as vector_add.
cudaError_t axpby(const void* x, const void* y, void* out, int64_t n, float a, float b, DType dtype,
                  int threads, int vectors, cudaStream_t stream);

// out[row, :] = silu(gate[row, :]) * up[row, :]; f32, bf16, f16; any alignment and row strides; out
// may be exactly gate or up.
cudaError_t swiglu(const void* gate, const void* up, void* out, int64_t n_rows, int64_t n_cols,
                   int64_t gate_stride, int64_t up_stride, int64_t out_stride, DType dtype,
                   int threads, int vectors, cudaStream_t stream);

// The gradients of swiglu's gate and up from that of its out; each may be exactly an input.
cudaError_t swiglu_backward(const void* dout, const void* gate, const void* up, void* dgate,
                            void* dup, int64_t n_rows, int64_t n_cols, int64_t dout_stride,
                            int64_t gate_stride, int64_t up_stride, int64_t dgate_stride,
                            int64_t dup_stride, DType dtype, int threads, int vectors,
                            cudaStream_t stream);

// out[row, :] = softmax(x[row, :]); f32, bf16, f16; rows x_stride and out_stride elements apart.
// form: 1 row in registers, 2 row in shared memory, 3 looped with a second read, 4 and 5 as 1 and 2
// with the row shared by a cluster of blocks_per_row blocks (sm_90).
cudaError_t softmax(const void* x, void* out, int64_t n_rows, int64_t n_cols, int64_t x_stride,
                    int64_t out_stride, DType dtype, int threads_per_row, int form,
                    int blocks_per_row, cudaStream_t stream);

// The first rung below softmax: separate passes for maximum, sum and write.
cudaError_t softmax_naive(const void* x, void* out, int64_t n_rows, int64_t n_cols,
                          int64_t x_stride, int64_t out_stride, DType dtype, cudaStream_t stream);
// The second rung: one pass for maximum and sum, one to write.
cudaError_t softmax_online(const void* x, void* out, int64_t n_rows, int64_t n_cols,
                           int64_t x_stride, int64_t out_stride, DType dtype, cudaStream_t stream);

// out[row, :] = x[row, :] * rsqrt(mean(x[row, :]^2) + eps) * w; f32, bf16, f16; row strides as in
// softmax; out may be exactly x. form: 1 rows in registers, of threads_per_row threads with
// rows_per_thread rows each; 2 a row staged in the shared memory of blocks_per_row blocks, a
// cluster where more than one (sm_90); 3 looped.
cudaError_t rms_norm(const void* x, const void* w, void* out, int64_t n_rows, int64_t n_cols,
                     int64_t x_stride, int64_t out_stride, float eps, DType dtype, int form,
                     int threads_per_row, int blocks_per_row, int rows_per_thread,
                     cudaStream_t stream);

// h = x + r, rounded when stored; out = rms_norm of the sum before that. Otherwise as rms_norm;
// out and h may each be exactly x or r.
cudaError_t add_rms_norm(const void* x, const void* r, const void* w, void* out, void* h,
                         int64_t n_rows, int64_t n_cols, int64_t x_stride, int64_t r_stride,
                         int64_t out_stride, int64_t h_stride, float eps, DType dtype, int form,
                         int threads_per_row, int blocks_per_row, int rows_per_thread,
                         cudaStream_t stream);

// out[row, :] = (x[row, :] - mean) * rsqrt(variance + eps) * w + b; f32, bf16, f16; rows as in
// softmax; out may be exactly x. form: 1 a row in the registers of threads_per_row threads, 2 the
// same in blocks that stay, with the row shared by a cluster of blocks_per_row blocks (sm_90) where
// that is more than 1, 3 looped with a second read.
cudaError_t layer_norm(const void* x, const void* w, const void* b, void* out, int64_t n_rows,
                       int64_t n_cols, int64_t x_stride, int64_t out_stride, float eps, DType dtype,
                       int threads_per_row, int form, int blocks_per_row, cudaStream_t stream);

// Its backward pass: dx, dw and db of dy, from the rows' mean and rstd; all contiguous, dw and db
// in the tensors' dtype. scratch: layer_norm_backward_scratch(n_cols) floats at a 16-byte address.
// form: 1 rows staged in shared memory, of threads_per_row threads, shared by a cluster of
// blocks_per_row blocks (sm_90) where that is more than 1; 2 looped.
cudaError_t layer_norm_backward(const void* dy, const void* x, const void* w, const float* mean,
                                const float* rstd, void* dx, void* dw, void* db, int64_t n_rows,
                                int64_t n_cols, DType dtype, float* scratch, int threads_per_row,
                                int form, int blocks_per_row, int blocks_per_sm,
                                cudaStream_t stream);
int64_t layer_norm_backward_scratch(int64_t n_cols);

// out[m, n] = x[m, :] @ w[:, n]; bf16 and f16; row-major, or memory holds x as [k, m], w as [n, k].
// cluster and blocks speak of the wgmma form (sm_90) alone, here and in the two below.
cudaError_t matmul(const void* x, const void* w, void* out, int64_t m, int64_t n, int64_t k,
                   bool x_transposed, bool w_transposed, DType dtype, int block_m, int block_n,
                   int stages, int cluster, int blocks, cudaStream_t stream);

// out[m, n] = relu(x[m, :] @ w[:, n] + b[n]); bf16 and f16; all row-major contiguous.
cudaError_t matmul_bias_relu(const void* x, const void* w, const void* b, void* out, int64_t m,
                             int64_t n, int64_t k, DType dtype, int block_m, int block_n,
                             int stages, int cluster, int blocks, cudaStream_t stream);

// out[m, n] = gelu(x[m, :] @ w[:, n] + b[n]), gelu by tanh; otherwise as matmul_bias_relu.
cudaError_t matmul_bias_gelu(const void* x, const void* w, const void* b, void* out, int64_t m,
                             int64_t n, int64_t k, DType dtype, int block_m, int block_n,
                             int stages, int cluster, int blocks, cudaStream_t stream);

// Rungs below matmul, out[m, n] = x[m, :] @ w[:, n] in bf16; x_transposed says that x is the view
// of a row-major [k, m] matrix, so w. The lowest: one thread an output, warps down a column of out.
cudaError_t matmul_naive(const void* x, const void* w, void* out, int64_t m, int64_t n, int64_t k,
                         bool x_transposed, bool w_transposed, cudaStream_t stream);

// Warps along a row of out.
cudaError_t matmul_coalesced(const void* x, const void* w, void* out, int64_t m, int64_t n,
                             int64_t k, bool x_transposed, bool w_transposed, cudaStream_t stream);

// Tiles of 32 x 32 in shared memory.
cudaError_t matmul_shared_tile(const void* x, const void* w, void* out, int64_t m, int64_t n,
                               int64_t k, bool x_transposed, bool w_transposed,
                               cudaStream_t stream);

// Tiles of 128 x 128, 8 x 8 outputs a thread.
cudaError_t matmul_register_tile(const void* x, const void* w, void* out, int64_t m, int64_t n,
                                 int64_t k, bool x_transposed, bool w_transposed,
                                 cudaStream_t stream);

// Tensor cores by mma.sync, fed by cp.async.
cudaError_t matmul_mma(const void* x, const void* w, void* out, int64_t m, int64_t n, int64_t k,
                       bool x_transposed, bool w_transposed, cudaStream_t stream);

// Tensor cores by wgmma, fed by TMA, in turns (sm_90a; here and above, what TMA cannot describe
// and other GPUs take matmul_mma).
cudaError_t matmul_tma_wgmma(const void* x, const void* w, void* out, int64_t m, int64_t n,
                             int64_t k, bool x_transposed, bool w_transposed, cudaStream_t stream);

// A producer warp ahead of the multiplying warpgroup, in a ring of stages.
cudaError_t matmul_ring(const void* x, const void* w, void* out, int64_t m, int64_t n, int64_t k,
                        bool x_transposed, bool w_transposed, cudaStream_t stream);

// Tiles of 128 x 256 of two multiplying warpgroups.
cudaError_t matmul_wide(const void* x, const void* w, void* out, int64_t m, int64_t n, int64_t k,
                        bool x_transposed, bool w_transposed, cudaStream_t stream);

// Blocks that stay, and take tiles in bands.
cudaError_t matmul_persistent(const void* x, const void* w, void* out, int64_t m, int64_t n,
                              int64_t k, bool x_transposed, bool w_transposed, cudaStream_t stream);

// Clusters of two blocks that share their tiles of w.
cudaError_t matmul_multicast(const void* x, const void* w, void* out, int64_t m, int64_t n,
                             int64_t k, bool x_transposed, bool w_transposed, cudaStream_t stream);

// out[i] = x[i] / (1 - p) where word i % 4 of Philox counter i / 4 under key `seed` is at least
// floor(p * 2^32), else 0; f32 and bf16; any alignment; out may be exactly x.
cudaError_t dropout(const void* x, void* out, int64_t n, double p, uint64_t seed, DType dtype,
                    int threads, int vectors, cudaStream_t stream);

// One AdamW step with bias correction of `step`, counted from 1.
struct AdamW {
  double lr, beta1, beta2, eps, weight_decay;
  int64_t step;
};

// New weights, first and second moments of n f32 elements; any alignment; each output may be
// exactly an input.
cudaError_t adamw(const float* p, const float* g, const float* m, const float* v, float* out,
                  float* m_out, float* v_out, int64_t n, const AdamW& rule, int threads,
                  int vectors, cudaStream_t stream);

// out = e4m3(x * 448 / amax) and scale = amax / 448 of each row: scale is [n_rows]. bf16 and f16,
// contiguous, any alignment; an amax under 2^-33 counts as that.
cudaError_t quant_fp8_token(const void* x, void* out, float* scale, int64_t n_rows, int64_t n_cols,
                            DType dtype, int threads_per_row, cudaStream_t stream);

// The same for each 128 elements of a row: scale is [n_rows, n_cols / 128]; n_cols a multiple of
// it.
cudaError_t quant_fp8_group(const void* x, void* out, float* scale, int64_t n_rows, int64_t n_cols,
                            DType dtype, int threads, int groups, cudaStream_t stream);
// out[0] = sum of x[i] for i < n; f32, bf16, f16; out float32; any alignment.
cudaError_t reduce_sum(const void* x, void* out, int64_t n, DType dtype, Scratch scratch,
                       int threads, int vectors, int blocks_per_sm, cudaStream_t stream);

// The same by an atomicAdd of every thread: the lowest rung of reduce_sum's ladder.
cudaError_t reduce_sum_atomics(const void* x, void* out, int64_t n, DType dtype, Scratch scratch,
                               cudaStream_t stream);

// The same by a shared-memory tree and an atomicAdd of every block: the rung above.
cudaError_t reduce_sum_tree(const void* x, void* out, int64_t n, DType dtype, Scratch scratch,
                            cudaStream_t stream);

// out[0] = sum of x[i] * x[i] for i < n; f32, bf16, f16; out float32; any alignment.
cudaError_t squared_norm(const void* x, void* out, int64_t n, DType dtype, Scratch scratch,
                         int threads, int vectors, int blocks_per_sm, cudaStream_t stream);

// out[col] = sum over rows of x[row, col]; f32, bf16, f16; out float32; rows x_stride elements
// apart.
cudaError_t column_sum(const void* x, void* out, int64_t n_rows, int64_t n_cols, int64_t x_stride,
                       DType dtype, Scratch scratch, int vectors, int blocks_per_sm,
                       cudaStream_t stream);

// out[n, m] = x[m, n]; x is n_rows x n_cols; f32, bf16, i8; any alignment; both row-major
// contiguous. A tile is row_packs x col_packs packs of 16 bytes, walked in bands of `group` tile
// rows.
cudaError_t transpose(const void* x, void* out, int64_t n_rows, int64_t n_cols, DType dtype,
                      int row_packs, int col_packs, int group, cudaStream_t stream);

// Rungs below transpose, f32 alone: one element a thread.
cudaError_t transpose_naive(const void* x, void* out, int64_t n_rows, int64_t n_cols,
                            cudaStream_t stream);

// A tile of 32 x 32 in shared memory.
cudaError_t transpose_tiled(const void* x, void* out, int64_t n_rows, int64_t n_cols,
                            cudaStream_t stream);

// The same tile with rows of 33.
cudaError_t transpose_padded(const void* x, void* out, int64_t n_rows, int64_t n_cols,
                             cudaStream_t stream);

// out = the half-split rotary embedding of x, which is n_tokens x n_heads x head_dim; cos and sin
// are n_tokens x head_dim / 2; f32 and bf16; any alignment; out may be exactly x. A thread turns
// `heads` heads of a token.
cudaError_t rope(const void* x, const void* cos, const void* sin, void* out, int64_t n_tokens,
                 int64_t n_heads, int64_t head_dim, DType dtype, int heads, int threads,
                 cudaStream_t stream);

// ---- NVIDIA's libraries (library.cu)
// -------------------------------------------------------------

// reduce_sum by CUB. Without scratch it only sets scratch_bytes, and nothing is launched.
cudaError_t cub_reduce_sum(void* scratch, size_t* scratch_bytes, const void* x, void* out,
                           int64_t n, DType dtype, cudaStream_t stream);

// squared_norm by CUB, in the same two calls.
cudaError_t cub_squared_norm(void* scratch, size_t* scratch_bytes, const void* x, void* out,
                             int64_t n, DType dtype, cudaStream_t stream);

// loss[row] = logsumexp(x[row, :]) - x[row, target[row]] in f32; x f32, bf16, f16, rows x_stride
// elements apart, any alignment. blocks_per_sm: blocks a multiprocessor that walk over the rows.
cudaError_t cross_entropy(const void* x, const int64_t* target, float* loss, int64_t n_rows,
                          int64_t n_cols, int64_t x_stride, DType dtype, int threads_per_row,
                          int blocks_per_sm, cudaStream_t stream);

// dlogits[row, :] = softmax(x[row, :]), 1 less at target[row], and loss as in cross_entropy. form:
// 1 row in registers, 2 row in shared memory, of blocks_per_row blocks of a cluster (sm_90) when
// that is above 1, 3 looped with a second read.
cudaError_t cross_entropy_dlogits(const void* x, const int64_t* target, void* dlogits, float* loss,
                                  int64_t n_rows, int64_t n_cols, int64_t x_stride,
                                  int64_t dlogits_stride, DType dtype, int threads_per_row,
                                  int form, int blocks_per_row, cudaStream_t stream);

// ---- tools of the timing harness (timing.cu) ---------------------------------------------------

// Occupies the stream for ns nanoseconds of the global timer with one thread.
cudaError_t spin(int64_t ns, cudaStream_t stream);

// Launches a kernel that does nothing: the launch floor.
cudaError_t empty(cudaStream_t stream);

// Writes all of buffer, then reads it back, so that the lines left in L2 are clean.
cudaError_t flush_l2(void* buffer, int64_t bytes, cudaStream_t stream);

// Number of launch shapes of the roof kernels; `shape` below runs from 0 to this minus 1.
int roof_shapes();

// dst = src. Pointers and bytes must be multiples of 16; so for the other roofs.
cudaError_t roof_copy(void* dst, const void* src, int64_t bytes, int shape, cudaStream_t stream);

// Reads src; sink (4 bytes) keeps the compiler from dropping the loads and is in practice not
// written.
cudaError_t roof_read(const void* src, int64_t bytes, void* sink, int shape, cudaStream_t stream);

// Fills dst with a constant.
cudaError_t roof_write(void* dst, int64_t bytes, int shape, cudaStream_t stream);

// dst = a + b in f32: two reads and one write of bytes_each.
cudaError_t roof_add(void* dst, const void* a, const void* b, int64_t bytes_each, int shape,
                     cudaStream_t stream);

// Turns persisting L2 lines of the current device back to normal.
cudaError_t reset_persisting_l2();

}  // namespace cuda_vs_triton
