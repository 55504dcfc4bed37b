// out[row, :] = e4m3(x[row, :] * 448 / amax), scale[row] = amax / 448; bf16, f16.
//
// Ownership: threads_per_row threads own one row; short rows share a block.
// Bytes per element: 3 and 4 / cols of scale, about 5 flops: bound by DRAM.
// Forms: registers (rows to 32 K; packs of 16 bytes stay as they came, half the registers of
//   floats), looped (any width, reads x twice; by elements where cols % 16 or a view off a 16-byte
//   boundary leaves no packs).
// Limits: x contiguous. NaN makes its row NaN; an amax under 2^-33 counts as that.
// Choice: threads read alternating packs, for whole lines, and exchange 8 bytes with a neighbour,
//   so that every lane stores 16. One barrier a row.
// Levers left unused: clusters with distributed shared memory for rows over 32 K.
#include <cstdint>

#include "common/fp8.cuh"
#include "common/merge.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

constexpr int kMinBlock = 128;  // threads a block at least: short rows are grouped
constexpr int kMaxPacks = 8;    // a thread keeps: 32 registers
constexpr int kMinThreads = 32, kMaxThreads = 512;
constexpr int kLoopedThreads = 512;
constexpr int kSize = 8;  // elements of a pack

struct Args {
  const void* x;
  uint8_t* out;
  float* scale;
  int64_t n_rows, n_cols;
};

// ---- registers: one read, one write -----------------------------------------------------------

__host__ __device__ constexpr int block_threads(int threads_per_row) {
  return threads_per_row < kMinBlock ? kMinBlock : threads_per_row;
}

template <typename T, int kThreadsPerRow, int kPacks>
__global__ void __launch_bounds__(block_threads(kThreadsPerRow)) quant_fp8_token_kernel(Args args) {
  constexpr int kBlock = block_threads(kThreadsPerRow);
  constexpr int kWarpsPerRow = kThreadsPerRow / kWarpSize;
  const int64_t row =
      static_cast<int64_t>(blockIdx.x) * (kBlock / kThreadsPerRow) + threadIdx.x / kThreadsPerRow;
  const int lane = threadIdx.x % kThreadsPerRow;
  // Threads of rows past the end stay for the shuffles and the barrier, with no packs of their own.
  const int n_packs = row < args.n_rows ? static_cast<int>(args.n_cols / kSize) : 0;
  const uint4* x =
      reinterpret_cast<const uint4*>(static_cast<const T*>(args.x) + row * args.n_cols);
  uint8_t* out = args.out + row * args.n_cols;

  uint4 raw[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int p = lane + i * kThreadsPerRow;
    raw[i] = make_uint4(0, 0, 0, 0);
    if (p < n_packs) raw[i] = load_pack(x + p);
  }
  const LargerBits larger;
  uint32_t amax = kSmallestAmaxBits;
#pragma unroll
  for (int i = 0; i < kPacks; ++i) amax = larger(amax, amax_bits<T>(raw[i]));
  amax = merge_lanes<kWarpSize>(amax, larger);
  if constexpr (kWarpsPerRow > 1) {
    __shared__ uint32_t slots[kBlock / kWarpSize];
    amax = merge_warps<kWarpsPerRow>(amax, slots, larger);
  }
  const float factor = factor_of(amax);

#pragma unroll
  for (int i = 0; i < kPacks; i += 2) {
    const uint4 bytes =
        exchange_halves(e4m3_pack<T>(raw[i], factor), e4m3_pack<T>(raw[i + 1], factor));
    // Even lanes hold packs p and p + 1, odd ones the two that lie kThreadsPerRow further; n_packs
    // is even, so both exist or neither does.
    const int p = lane % 2 == 0 ? lane + i * kThreadsPerRow : lane - 1 + (i + 1) * kThreadsPerRow;
    if (p < n_packs) store_pack(reinterpret_cast<uint4*>(out + p * kSize), bytes);
  }
  if (lane == 0 && row < args.n_rows) args.scale[row] = scale_of(amax);
}

// ---- looped: any width; the second read can hit L2 ---------------------------------------------

template <typename T, bool kPacked>
__global__ void __launch_bounds__(kLoopedThreads) quant_fp8_token_looped_kernel(Args args) {
  __shared__ uint32_t slots[kLoopedThreads / kWarpSize];
  const int64_t row = blockIdx.x;
  const int64_t n_accesses = args.n_cols / (kPacked ? kSize : 1);
  const T* x = static_cast<const T*>(args.x) + row * args.n_cols;
  const uint4* packs = reinterpret_cast<const uint4*>(x);
  uint8_t* out = args.out + row * args.n_cols;

  const LargerBits larger;
  uint32_t amax = kSmallestAmaxBits;
#pragma unroll 4
  for (int64_t p = threadIdx.x; p < n_accesses; p += kLoopedThreads) {
    if constexpr (kPacked) {
      amax = larger(amax, amax_bits<T>(load_pack(packs + p)));
    } else {
      amax = larger(amax, abs_bits(to_float(x[p])));
    }
  }
  amax = merge_lanes<kWarpSize>(amax, larger);
  amax = merge_warps<kLoopedThreads / kWarpSize>(amax, slots, larger);
  const float factor = factor_of(amax);
#pragma unroll 4
  for (int64_t p = threadIdx.x; p < n_accesses; p += kLoopedThreads) {
    if constexpr (kPacked) {
      reinterpret_cast<uint2*>(out)[p] = e4m3_pack<T>(load_pack(packs + p), factor);
    } else {
      out[p] = e4m3(to_float(x[p]) * factor);
    }
  }
  if (threadIdx.x == 0) args.scale[row] = scale_of(amax);
}

// ---- launchers ---------------------------------------------------------------------------------

template <typename T, int kThreadsPerRow, int kPacks>
cudaError_t launch_registers(const Args& args, cudaStream_t stream) {
  constexpr int kBlock = block_threads(kThreadsPerRow);
  constexpr int kRows = kBlock / kThreadsPerRow;
  const int64_t n_blocks = (args.n_rows + kRows - 1) / kRows;
  quant_fp8_token_kernel<T, kThreadsPerRow, kPacks>
      <<<static_cast<unsigned>(n_blocks), kBlock, 0, stream>>>(args);
  return cudaGetLastError();
}

// The fewest packs a thread that cover the row, an even number.
template <typename T, int kThreadsPerRow>
cudaError_t launch_packs(const Args& args, cudaStream_t stream) {
  const int64_t n_packs = args.n_cols / kSize;
  if (n_packs <= kThreadsPerRow * 2) return launch_registers<T, kThreadsPerRow, 2>(args, stream);
  if (n_packs <= kThreadsPerRow * 4) return launch_registers<T, kThreadsPerRow, 4>(args, stream);
  if (n_packs <= kThreadsPerRow * 8) return launch_registers<T, kThreadsPerRow, 8>(args, stream);
  return cudaErrorInvalidValue;
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % kPackBytes == 0; }

// Four packs a thread.
int choose_threads(int64_t n_cols) {
  int threads = kMinThreads;
  while (threads < kMaxThreads && n_cols > int64_t{threads} * 4 * kSize) threads *= 2;
  return threads;
}

template <typename T>
cudaError_t launch(const Args& args, int threads_per_row, cudaStream_t stream) {
  const bool packed = aligned(args.x) && aligned(args.out) && args.n_cols % (2 * kSize) == 0;
  if (!packed || args.n_cols > int64_t{kMaxThreads} * kMaxPacks * kSize) {
    auto* kernel =
        packed ? quant_fp8_token_looped_kernel<T, true> : quant_fp8_token_looped_kernel<T, false>;
    kernel<<<static_cast<unsigned>(args.n_rows), kLoopedThreads, 0, stream>>>(args);
    return cudaGetLastError();
  }
  switch (threads_per_row != 0 ? threads_per_row : choose_threads(args.n_cols)) {
    case 32: return launch_packs<T, 32>(args, stream);
    case 64: return launch_packs<T, 64>(args, stream);
    case 128: return launch_packs<T, 128>(args, stream);
    case 256: return launch_packs<T, 256>(args, stream);
    case 512: return launch_packs<T, 512>(args, stream);
    default: return cudaErrorInvalidValue;
  }
}

bool known(int threads_per_row) {
  for (int threads = kMinThreads; threads <= kMaxThreads; threads *= 2) {
    if (threads == threads_per_row) return true;
  }
  return threads_per_row == 0;
}

}  // namespace

cudaError_t quant_fp8_token(const void* x, void* out, float* scale, int64_t n_rows, int64_t n_cols,
                            DType dtype, int threads_per_row, cudaStream_t stream) {
  if (!known(threads_per_row)) return cudaErrorInvalidValue;
  if (n_rows == 0) return cudaSuccess;
  if (n_cols == 0) return cudaErrorInvalidValue;  // nothing has no largest magnitude
  const Args args = {x, static_cast<uint8_t*>(out), scale, n_rows, n_cols};
  switch (dtype) {
    case DType::kBF16: return launch<__nv_bfloat16>(args, threads_per_row, stream);
    case DType::kF16: return launch<__half>(args, threads_per_row, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace cuda_vs_triton
