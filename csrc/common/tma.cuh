// The copy engine (TMA, sm_90): one thread moves a whole box of a tensor map, and nobody computes
// an address. Loads announce their bytes on a Barrier; stores are counted in groups of the thread.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "common/mbarrier.cuh"

namespace cuda_vs_triton {

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(reinterpret_cast<uint64_t>(&map)) : "memory");
}

// Box whose first element is (row, col) into shared memory at `smem`.
__device__ __forceinline__ void load_box(uint32_t smem, const CUtensorMap& map, int row, int col,
                                         const Barrier& landed) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];\n" ::"r"(smem),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(col), "r"(row), "r"(landed.address())
      : "memory");
}

// The same box into every block of the cluster whose bit is set in `blocks`, at the same place of
// its shared memory and on the same barrier of its own: one read of L2 serves them all.
__device__ __forceinline__ void load_box_multicast(uint32_t smem, const CUtensorMap& map, int row,
                                                   int col, const Barrier& landed,
                                                   uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;\n" ::"r"(smem),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(col), "r"(row), "r"(landed.address()), "h"(blocks)
      : "memory");
}

// Shared memory to the box at (row, col). What ordinary stores wrote there must have been fenced
// (fence_async_proxy) by each writer, before a barrier with this thread.
__device__ __forceinline__ void store_box(const CUtensorMap& map, int row, int col, uint32_t smem) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];\n" ::"l"(
          reinterpret_cast<uint64_t>(&map)),
      "r"(col), "r"(row), "r"(smem)
      : "memory");
  asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}

// Returns when at most kPending of this thread's newest stores still read shared memory.
template <int kPending>
__device__ __forceinline__ void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(kPending) : "memory");
}

// Orders this thread's ordinary shared-memory accesses before later ones of the copy engine and the
// tensor cores, which reach shared memory by another path.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

}  // namespace cuda_vs_triton
