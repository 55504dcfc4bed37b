// Merging what threads know of a row: over lanes, then warps of a block, then blocks of a cluster.
//
// A Value is a trivially copyable struct or scalar of 4-byte words; `merge(a, b)` is associative
// and commutative. Every thread gets the row's result, and the order of merging is fixed, so
// results repeat bit for bit.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

#include "common/cluster.cuh"
#include "common/launch.cuh"
#include "common/reduce.cuh"

namespace cuda_vs_triton {

template <typename Value>
__device__ __forceinline__ Value shuffle_xor(Value v, int offset) {
  static_assert(sizeof(Value) % 4 == 0, "a Value is made of 4-byte words");
  constexpr int kWords = sizeof(Value) / 4;
  uint32_t words[kWords];
  memcpy(words, &v, sizeof(Value));
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = __shfl_xor_sync(kFullMask, words[i], offset);
  memcpy(&v, words, sizeof(Value));
  return v;
}

// Over aligned groups of kLanes lanes of a warp.
template <int kLanes, typename Value, typename Merge>
__device__ __forceinline__ Value merge_lanes(Value mine, Merge merge) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    mine = merge(mine, shuffle_xor(mine, offset));
  }
  return mine;
}

// Over kWarps neighbouring warps, whose lanes agree already. `slots` in shared memory has one entry
// a warp of the block; reusing it needs a barrier first, since there is none after the read.
template <int kWarps, typename Value, typename Merge>
__device__ __forceinline__ Value merge_warps(Value mine, Value* slots, Merge merge) {
  const int warp = threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  if (lane == 0) slots[warp] = mine;
  __syncthreads();  // the entries of all warps are written
  return merge_lanes<kWarps>(slots[warp / kWarps * kWarps + lane % kWarps], merge);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

__device__ __forceinline__ unsigned block_of_cluster() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The two halves of a barrier over all threads of a cluster; what was written before the arrival
// is seen after the wait.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Over the kBlocks blocks of a cluster, whose threads agree already. `slots` is shared memory with
// kBlocks entries at the same place in every block. The caller has called cluster_arrive() at the
// start of the kernel: nobody may write to a block that has not begun. After the second barrier a
// block touches its own memory only, so it may end before the others. A caller that merges again
// calls cluster_arrive() after each merge but the last: nobody may write what is still being read.
template <int kBlocks, typename Value, typename Merge>
__device__ __forceinline__ Value merge_cluster(Value mine, Value* slots, Merge merge) {
  constexpr int kWords = sizeof(Value) / 4;
  uint32_t words[kWords];
  memcpy(words, &mine, sizeof(Value));
  cluster_wait();  // all blocks have begun
  if (threadIdx.x < kBlocks) {
    const uint32_t here =
        static_cast<uint32_t>(__cvta_generic_to_shared(slots + block_of_cluster()));
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(threadIdx.x));
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(there + 4 * i), "r"(words[i])
                   : "memory");
    }
  }
  cluster_arrive();
  cluster_wait();  // the entries of all blocks have arrived in mine
  return merge_lanes<kBlocks>(slots[threadIdx.x % kBlocks], merge);
}

#endif

}  // namespace cuda_vs_triton
