// Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): four random
// words a counter, the same on every machine; equal to Random123, tl.philox and torch's.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace cuda_vs_triton {

constexpr int kPhiloxWords = 4;

// 20 wide multiplications, hence 5 a word where all four are used and 20 where one is.
__device__ __forceinline__ uint4 philox(uint4 counter, uint2 key) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xd2511f53} * counter.x;
    const uint64_t b = uint64_t{0xcd9e8d57} * counter.z;
    counter =
        make_uint4(static_cast<uint32_t>(b >> 32) ^ counter.y ^ key.x, static_cast<uint32_t>(b),
                   static_cast<uint32_t>(a >> 32) ^ counter.w ^ key.y, static_cast<uint32_t>(a));
    key = make_uint2(key.x + 0x9e3779b9, key.y + 0xbb67ae85);
  }
  return counter;
}

// The words of counter `index` in the stream that `key` names.
__device__ __forceinline__ uint4 philox_at(int64_t index, uint2 key) {
  return philox(make_uint4(static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0),
                key);
}

}  // namespace cuda_vs_triton
