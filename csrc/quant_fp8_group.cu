// out = e4m3(x * 448 / amax), scale = amax / 448 for every 128 elements of a row; bf16, f16.
//
// Ownership: 8 lanes own a group, two packs of 16 bytes each; a block owns threads / 8 * groups
//   groups. Rows do not matter: cols is a multiple of 128 and x contiguous.
// Bytes per element: 3 and 4 / 128 of scale, about 5 flops: bound by DRAM.
// Limits: any alignment; views off 16-byte boundaries take element accesses, a warp a group. NaN
//   makes its group NaN; an amax under 2^-33 counts as that, so zeros get a finite scale.
// Choice: lane l has packs l and l + 8, so that loads fill whole lines; one exchange between
//   neighbours then gives every lane 16 adjacent bytes to store. Two halvings of the lanes that
//   16 lanes of one pack would need are one.
// Levers left unused: bulk copies (cp.async.bulk) through shared memory.
#include <cstdint>

#include "common/fp8.cuh"
#include "common/merge.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

constexpr int kGroupSize = 128;
constexpr int kLanes = 8;  // of a group
constexpr int kDefaultThreads = 256;
constexpr int kDefaultGroups = 2;  // 64 B of loads a thread
constexpr int kElementThreads = 256;

template <typename T, int kGroups>
__global__ void quant_fp8_group_kernel(const T* x, uint8_t* out, float* scale, int64_t n_groups) {
  constexpr int kPacks = kGroupSize / kPackSize<T>;
  const int stride = blockDim.x / kLanes;  // groups that a block takes at once
  const int lane = threadIdx.x % kLanes;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kGroups * stride + threadIdx.x / kLanes;
  const uint4* packs = reinterpret_cast<const uint4*>(x);

  uint4 raw[kGroups][2];
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int64_t group = first + i * stride;
    raw[i][0] = raw[i][1] = make_uint4(0, 0, 0, 0);  // lanes past the end stay for the shuffles
    if (group < n_groups) {
      raw[i][0] = load_pack(packs + group * kPacks + lane);
      raw[i][1] = load_pack(packs + group * kPacks + lane + kLanes);
    }
  }
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
    const int64_t group = first + i * stride;
    const LargerBits larger;
    uint32_t amax = larger(amax_bits<T>(raw[i][0]), amax_bits<T>(raw[i][1]));
    amax = merge_lanes<kLanes>(larger(amax, kSmallestAmaxBits), larger);
    const float factor = factor_of(amax);
    const uint4 bytes =
        exchange_halves(e4m3_pack<T>(raw[i][0], factor), e4m3_pack<T>(raw[i][1], factor));
    if (group < n_groups) {
      // In units of 8 bytes: even lanes hold packs lane and lane + 1, odd ones those 8 further.
      const int place = lane % 2 == 0 ? lane : lane - 1 + kLanes;
      store_pack(reinterpret_cast<uint4*>(out + group * kGroupSize + place * 8), bytes);
      if (lane == 0) scale[group] = scale_of(amax);
    }
  }
}

template <typename T>
__global__ void quant_fp8_group_element_kernel(const T* x, uint8_t* out, float* scale,
                                               int64_t n_groups) {
  constexpr int kElements = kGroupSize / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  const int64_t group =
      static_cast<int64_t>(blockIdx.x) * (blockDim.x / kWarpSize) + threadIdx.x / kWarpSize;
  if (group >= n_groups) return;  // whole warps
  const LargerBits larger;
  uint32_t amax = kSmallestAmaxBits;
  float v[kElements];
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    v[i] = to_float(x[group * kGroupSize + lane + i * kWarpSize]);
    amax = larger(amax, abs_bits(v[i]));
  }
  amax = merge_lanes<kWarpSize>(amax, larger);
  const float factor = factor_of(amax);
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    out[group * kGroupSize + lane + i * kWarpSize] = e4m3(v[i] * factor);
  }
  if (lane == 0) scale[group] = scale_of(amax);
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % kPackBytes == 0; }

template <typename T>
cudaError_t launch(const void* x, void* out, float* scale, int64_t n_groups, int threads,
                   int groups, cudaStream_t stream) {
  void (*kernel)(const T*, uint8_t*, float*, int64_t) = nullptr;
  switch (groups) {
    case 1: kernel = quant_fp8_group_kernel<T, 1>; break;
    case 2: kernel = quant_fp8_group_kernel<T, 2>; break;
    case 4: kernel = quant_fp8_group_kernel<T, 4>; break;
    default: return cudaErrorInvalidValue;
  }
  int64_t per_block = static_cast<int64_t>(threads) / kLanes * groups;
  if (!aligned(x) || !aligned(out)) {
    kernel = quant_fp8_group_element_kernel<T>;
    threads = kElementThreads;
    per_block = kElementThreads / kWarpSize;
  }
  const int64_t n_blocks = (n_groups + per_block - 1) / per_block;
  kernel<<<static_cast<unsigned>(n_blocks), threads, 0, stream>>>(
      static_cast<const T*>(x), static_cast<uint8_t*>(out), scale, n_groups);
  return cudaGetLastError();
}

}  // namespace

cudaError_t quant_fp8_group(const void* x, void* out, float* scale, int64_t n_rows, int64_t n_cols,
                            DType dtype, int threads, int groups, cudaStream_t stream) {
  if (threads == 0) threads = kDefaultThreads;
  if (groups == 0) groups = kDefaultGroups;
  if (threads != 128 && threads != 256 && threads != 512) return cudaErrorInvalidValue;
  if (n_cols % kGroupSize != 0) return cudaErrorInvalidValue;
  const int64_t n_groups = n_rows * (n_cols / kGroupSize);
  if (n_groups == 0) return cudaSuccess;
  switch (dtype) {
    case DType::kBF16:
      return launch<__nv_bfloat16>(x, out, scale, n_groups, threads, groups, stream);
    case DType::kF16: return launch<__half>(x, out, scale, n_groups, threads, groups, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace cuda_vs_triton
