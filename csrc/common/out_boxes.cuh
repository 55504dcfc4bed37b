// How a warpgroup's fp32 sums reach global memory on Hopper: rounded, through shared memory in
// boxes of 64 x 64, and out by the copy engine, which clips what lies outside the matrix.
//
// Two buffers a warpgroup: one is filled while the copy engine still reads the other.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "common/pack.cuh"
#include "common/tensor_map.cuh"
#include "common/tma.cuh"
#include "common/warpgroup.cuh"
#include "common/wgmma.cuh"

namespace cuda_vs_triton {

constexpr int kOutBoxBytes = kWgmmaM * kSwizzleBytes;
constexpr int kOutBuffers = 2;

// Four 8x8 16-bit matrices; lanes 0-7, 8-15, 16-23, 24-31 give the row addresses of each.
__device__ __forceinline__ void store_matrix_x4(uint32_t smem, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(smem),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// One warpgroup's way out. `smem` is the first of its kOutBuffers boxes; `barrier` its named
// barrier.
class OutBoxes {
 public:
  __device__ __forceinline__ OutBoxes(const CUtensorMap& map, uint32_t smem, int barrier)
      : map_(map), smem_(smem), barrier_(barrier) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int row = warp * 16 + lane % 16;  // stmatrix takes 16 rows by two chunks, rows first
    lane_offset_ = row * kSwizzleBytes + ((lane / 16) ^ (row % 8)) * kPackBytes;
  }

  // 64 x 2 * kSums sums whose first is out[row, col], as words of two rounded elements: words
  // 2 * j and 2 * j + 1 are what a thread holds of columns 8 * j to 8 * j + 7.
  template <int kSums>
  __device__ __forceinline__ void store(const uint32_t (&words)[kSums / 2], int row, int col) {
    constexpr int kBoxWords = kBoxCols / 4;
#pragma unroll
    for (int box = 0; box < kSums / 2 / kBoxWords; ++box) {
      if (is_issuer()) wait_stores_read<kOutBuffers - 1>();
      sync_warpgroup(barrier_);  // this buffer's last box has been read
      const uint32_t buffer = smem_ + next_ * kOutBoxBytes + lane_offset_;
#pragma unroll
      for (int i = 0; i < kBoxWords; i += 4) {
        const int first = box * kBoxWords + i;
        const uint32_t block[4] = {words[first], words[first + 1], words[first + 2],
                                   words[first + 3]};
        // Two chunks further: bits of the chunk number that the swizzle mixes, so exclusive or.
        store_matrix_x4(buffer ^ (i / 2 * kPackBytes), block);
      }
      fence_async_proxy();
      sync_warpgroup(barrier_);  // the box is complete
      if (is_issuer()) store_box(map_, row, col + box * kBoxCols, smem_ + next_ * kOutBoxBytes);
      next_ = (next_ + 1) % kOutBuffers;
    }
  }

  // Shared memory must outlive the copy engine's reads of it.
  __device__ __forceinline__ void finish() const {
    if (is_issuer()) wait_stores_read<0>();
  }

 private:
  __device__ __forceinline__ static bool is_issuer() {
    return threadIdx.x % kWarpgroupThreads == 0;
  }

  const CUtensorMap& map_;
  uint32_t smem_, lane_offset_;
  int barrier_;
  int next_ = 0;
};

}  // namespace cuda_vs_triton
