// h = x + r; out[row, :] = (x + r)[row, :] * rsqrt(mean((x + r)^2) + eps) * w; f32, bf16, f16.
//
// Ownership, forms and limits are those of rms_norm.cu, which shares the code: common/rms.cuh.
// Bytes per element: 4 * sizeof(T) for 5 flops: bound by DRAM. w comes from L1 or L2.
// The norm is taken of the float32 sum, h is that sum rounded, as in FlashInfer and quack; torch,
//   vLLM and Liger round first. out and h may each be exactly x or r, not each other.
// Choice: a thread holds its float32 sums until the row's norm is known and stores h before that,
//   so that writing is under way while the row is reduced. 16-byte packs; all loads come first.
//   The staged form keeps x and r in shared memory and adds them twice.
// Levers left unused: blocks that stay and keep w for many rows.
#include "common/rms.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

template <typename T, int kThreadsPerRow, int kAccesses, int kRows, bool kPacked>
__global__ void __launch_bounds__(rms_block(kThreadsPerRow)) add_rms_norm_kernel(RmsArgs args) {
  rms_registers<T, kThreadsPerRow, kAccesses, kRows, kPacked, true>(args);
}

template <typename T, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads) add_rms_norm_staged_kernel(RmsArgs args) {
  rms_staged<T, kThreads, kBlocks, true>(args);
}

template <typename T, bool kPacked>
__global__ void __launch_bounds__(kRmsLoopedBlock) add_rms_norm_looped_kernel(RmsArgs args) {
  rms_looped<T, kPacked, true>(args);
}

struct AddRmsNorm {
  static constexpr bool kAdd = true;
  template <typename T, int kThreadsPerRow, int kAccesses, int kRows, bool kPacked>
  static constexpr auto* registers =
      add_rms_norm_kernel<T, kThreadsPerRow, kAccesses, kRows, kPacked>;
  template <typename T, int kThreads, int kBlocks>
  static constexpr auto* staged = add_rms_norm_staged_kernel<T, kThreads, kBlocks>;
  template <typename T, bool kPacked>
  static constexpr auto* looped = add_rms_norm_looped_kernel<T, kPacked>;
};

}  // namespace

cudaError_t add_rms_norm(const void* x, const void* r, const void* w, void* out, void* h,
                         int64_t n_rows, int64_t n_cols, int64_t x_stride, int64_t r_stride,
                         int64_t out_stride, int64_t h_stride, float eps, DType dtype, int form,
                         int threads_per_row, int blocks_per_row, int rows_per_thread,
                         cudaStream_t stream) {
  const RmsArgs args = {x,        r,          w,        out,
                        h,        n_rows,     n_cols,   x_stride,
                        r_stride, out_stride, h_stride, 1.0f / static_cast<float>(n_cols),
                        eps};
  return launch_rms<AddRmsNorm>(args, dtype,
                                {form, threads_per_row, blocks_per_row, rows_per_thread}, stream);
}

}  // namespace cuda_vs_triton
