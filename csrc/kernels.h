// Every launcher of the CUDA side: the table of contents. No torch here, only the CUDA runtime.
//
// Conventions: raw device pointers of the calling thread's current device, extents and strides in
// elements as int64_t, configuration integers where 0 means "choose", work queued on `stream`.
// Returns cudaGetLastError() after the launch; cudaErrorInvalidValue for an unknown configuration.
// Zero output elements: cudaSuccess without a launch. Nothing here synchronises or allocates.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace cuda_vs_triton {

enum class DType { kF32, kBF16, kF16 };

// ---- ops -------------------------------------------------------------------------------------

// out[i] = x[i] + y[i] for i < n; f32 and bf16; any alignment; out may be exactly x or y.
cudaError_t vector_add(const void* x, const void* y, void* out, int64_t n, DType dtype, int threads,
                       int vectors, cudaStream_t stream);

// out[row, :] = softmax(x[row, :]); f32, bf16, f16; rows x_stride and out_stride elements apart.
// form: 1 row in registers, 2 row in shared memory, 3 looped with a second read.
cudaError_t softmax(const void* x, void* out, int64_t n_rows, int64_t n_cols, int64_t x_stride,
                    int64_t out_stride, DType dtype, int threads_per_row, int form,
                    cudaStream_t stream);

// out[m, n] = relu(x[m, :] @ w[:, n] + b[n]); bf16 and f16; all row-major contiguous.
cudaError_t matmul_bias_relu(const void* x, const void* w, const void* b, void* out, int64_t m,
                             int64_t n, int64_t k, DType dtype, int block_m, int block_n,
                             int block_k, int stages, cudaStream_t stream);

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
