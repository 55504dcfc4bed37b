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

  // 64 x kCols elements whose first is out[row, col]. make_block(j, block) gives what a thread
  // holds of columns 16 * j to 16 * j + 15, as wgmma lays out its sums: two words of two rounded
  // elements for each eight columns. It runs between the stores, and its registers are few.
  template <int kCols, typename MakeBlock>
  __device__ __forceinline__ void store(int row, int col, const MakeBlock& make_block) {
#pragma unroll
    for (int box = 0; box < kCols / kBoxCols; ++box) {
      if (is_issuer()) wait_stores_read<kOutBuffers - 1>();
      sync_warpgroup(barrier_);  // this buffer's last box has been read
      const uint32_t buffer = smem_ + next_ * kBoxBytes + lane_offset_;
#pragma unroll
      for (int i = 0; i < kBoxCols / 16; ++i) {
        uint32_t block[4];
        make_block(box * kBoxCols / 16 + i, block);
        // Two chunks further: bits of the chunk number that the swizzle mixes, so exclusive or.
        store_matrix_x4(buffer ^ (2 * i * kPackBytes), block);
      }
      fence_async_proxy();
      sync_warpgroup(barrier_);  // the box is complete
      if (is_issuer()) store_box(map_, row, col + box * kBoxCols, smem_ + next_ * kBoxBytes);
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
