// out[row, :] = x[row, :] * rsqrt(mean(x[row, :]^2) + eps) * w; f32, bf16, f16, fp32 inside.
//
// Ownership: threads_per_row threads own rows_per_thread rows at a time; short rows share a block,
//   wide rows have one, or are shared by the blocks_per_row blocks of a cluster (sm_90).
// Bytes per element: 2 * sizeof(T) for 4 flops: bound by DRAM. w comes from L1 or L2.
// Forms: registers (rows to 64 KB), staged (in shared memory by cp.async, to about 200 KB, over a
//   cluster 3 MB), looped (any width, reads x twice). A tensor with an unaligned row takes element
//   accesses: registers or looped.
// A row whose squares overflow float32 becomes 0, NaN where x is infinite. out may be exactly x.
// Choice: a thread holds 16-byte packs of x as they came and unpacks them twice, which leaves
//   registers for more of them in flight, several rows of them where rows are short.
// Levers left unused: blocks that stay and keep w for many rows.
#include "common/rms.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

template <typename T, int kThreadsPerRow, int kAccesses, int kRows, bool kPacked>
__global__ void __launch_bounds__(rms_block(kThreadsPerRow)) rms_norm_kernel(RmsArgs args) {
  rms_registers<T, kThreadsPerRow, kAccesses, kRows, kPacked, false>(args);
}

template <typename T, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads) rms_norm_staged_kernel(RmsArgs args) {
  rms_staged<T, kThreads, kBlocks, false>(args);
}

template <typename T, bool kPacked>
__global__ void __launch_bounds__(kRmsLoopedBlock) rms_norm_looped_kernel(RmsArgs args) {
  rms_looped<T, kPacked, false>(args);
}

struct RmsNorm {
  static constexpr bool kAdd = false;
  template <typename T, int kThreadsPerRow, int kAccesses, int kRows, bool kPacked>
  static constexpr auto* registers = rms_norm_kernel<T, kThreadsPerRow, kAccesses, kRows, kPacked>;
  template <typename T, int kThreads, int kBlocks>
  static constexpr auto* staged = rms_norm_staged_kernel<T, kThreads, kBlocks>;
  template <typename T, bool kPacked>
  static constexpr auto* looped = rms_norm_looped_kernel<T, kPacked>;
};

}  // namespace

cudaError_t rms_norm(const void* x, const void* w, void* out, int64_t n_rows, int64_t n_cols,
                     int64_t x_stride, int64_t out_stride, float eps, DType dtype, int form,
                     int threads_per_row, int blocks_per_row, int rows_per_thread,
                     cudaStream_t stream) {
  const RmsArgs args = {x,      nullptr,  w, out,        nullptr, n_rows,
                        n_cols, x_stride, 0, out_stride, 0,       1.0f / static_cast<float>(n_cols),
                        eps};
  return launch_rms<RmsNorm>(args, dtype, {form, threads_per_row, blocks_per_row, rows_per_thread},
                             stream);
}

}  // namespace cuda_vs_triton
