// Device tools of the timing harness: hide launches (spin), know the floor (empty), make L2 cold
// and clean (flush_l2), read the clocks (stamp), and measure this card's roofs by streaming
// kernels.
//
// Roofs: a block owns tiles of threads * vectors packs of 16 bytes, one tile or several a block by
// launch shape; the harness takes the best shape. Accesses are plain, like those of the ops.
#include <cstdint>

#include "batch_timer.h"
#include "common/launch.cuh"
#include "common/pack.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

__device__ __forceinline__ int64_t global_timer_ns() {
  int64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
  return ns;
}

__global__ void spin_kernel(int64_t ns) {
  const int64_t start = global_timer_ns();
  while (global_timer_ns() - start < ns) {
  }
}

__global__ void empty_kernel() {}

// Cycle counters differ between SMs, and nobody promises where a block lands: one block an SM, each
// writing the slot of the SM that it ran on, lets two stamps be compared SM by SM.
__global__ void stamp_kernel(int64_t* out, unsigned n_slots) {
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (sm >= n_slots) return;
  out[2 * sm] = clock64();
  out[2 * sm + 1] = global_timer_ns();
}

// ---- flush -------------------------------------------------------------------------------------

constexpr int kFlushThreads = 512;
constexpr int kFlushBlocksPerSm = 4;  // 2048 threads: a full SM
constexpr uint32_t kFlushWord = 0x5a5a5a5a;

// Plain stores and loads: evict-first lines would leave the lines of others in place.
__global__ void flush_write_kernel(uint4* buffer, int64_t n_packs) {
  const uint4 value = make_uint4(kFlushWord, kFlushWord, kFlushWord, kFlushWord);
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n_packs; i += step) {
    buffer[i] = value;
  }
}

// Reading more than L2 holds writes back every dirty line and leaves clean ones. The store never
// happens: all words are equal, so their exclusive or over a pack is 0; the compiler cannot know.
__global__ void flush_read_kernel(uint4* buffer, int64_t n_packs) {
  uint32_t mix = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
#pragma unroll 4
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n_packs; i += step) {
    const uint4 v = __ldcg(buffer + i);  // past L1: the line must come from L2 or DRAM
    mix |= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (mix != 0) buffer[0] = make_uint4(mix, mix, mix, mix);
}

// ---- roofs -------------------------------------------------------------------------------------

// Each roof is a loop body: load() fetches what one pack needs, finish() consumes it.
struct CopyRoof {
  uint4* dst;
  const uint4* src;
  using Loaded = uint4;
  __device__ __forceinline__ Loaded load(int64_t i) const { return load_pack(src + i); }
  __device__ __forceinline__ void finish(int64_t i, const Loaded& v, uint32_t&) const {
    store_pack(dst + i, v);
  }
  __device__ __forceinline__ void end(uint32_t) const {}
};

struct ReadRoof {
  const uint4* src;
  uint32_t* sink;
  using Loaded = uint4;
  __device__ __forceinline__ Loaded load(int64_t i) const { return load_pack(src + i); }
  __device__ __forceinline__ void finish(int64_t, const Loaded& v, uint32_t& mix) const {
    mix += v.x ^ v.y ^ v.z ^ v.w;
  }
  // One value in 2^32: keeps the loads alive at the price of a compare.
  __device__ __forceinline__ void end(uint32_t mix) const {
    if (mix == 0x9e3779b9u) *sink = mix;
  }
};

struct WriteRoof {
  uint4* dst;
  struct Loaded {};
  __device__ __forceinline__ Loaded load(int64_t) const { return {}; }
  __device__ __forceinline__ void finish(int64_t i, const Loaded&, uint32_t&) const {
    store_pack(dst + i, make_uint4(1, 2, 3, 4));
  }
  __device__ __forceinline__ void end(uint32_t) const {}
};

struct AddRoof {
  uint4* dst;
  const uint4 *a, *b;
  struct Loaded {
    uint4 a, b;
  };
  __device__ __forceinline__ Loaded load(int64_t i) const {
    return {load_pack(a + i), load_pack(b + i)};
  }
  __device__ __forceinline__ void finish(int64_t i, const Loaded& v, uint32_t&) const {
    float x[4], y[4];
    unpack<float>(v.a, x);
    unpack<float>(v.b, y);
#pragma unroll
    for (int j = 0; j < 4; ++j) x[j] += y[j];
    store_pack(dst + i, pack<float>(x));
  }
  __device__ __forceinline__ void end(uint32_t) const {}
};

template <int kVectors, typename Roof>
__global__ void roof_kernel(Roof roof, int64_t n_packs) {
  const int64_t tile = static_cast<int64_t>(blockDim.x) * kVectors;
  uint32_t mix = 0;
  int64_t start = blockIdx.x * tile;
  for (; start + tile <= n_packs; start += gridDim.x * tile) {
    typename Roof::Loaded loaded[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) loaded[i] = roof.load(start + threadIdx.x + i * blockDim.x);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      roof.finish(start + threadIdx.x + i * blockDim.x, loaded[i], mix);
    }
  }
  for (int64_t i = start + threadIdx.x; i < n_packs && i < start + tile; i += blockDim.x) {
    roof.finish(i, roof.load(i), mix);
  }
  roof.end(mix);
}

struct Shape {
  int threads, vectors;
  int blocks_per_sm;  // 0: one tile a block; else that many blocks an SM stride over the tiles
};
constexpr Shape kRoofShapes[] = {{128, 8, 0}, {256, 4, 0}, {256, 8, 0}, {512, 2, 0},
                                 {512, 4, 0}, {256, 4, 8}, {512, 4, 4}, {1024, 4, 2}};
constexpr int kRoofShapeCount = sizeof(kRoofShapes) / sizeof(kRoofShapes[0]);

template <typename Roof>
cudaError_t launch_roof(const Roof& roof, int64_t bytes, int shape_index, cudaStream_t stream) {
  if (shape_index < 0 || shape_index >= kRoofShapeCount || bytes % kPackBytes != 0) {
    return cudaErrorInvalidValue;
  }
  if (bytes == 0) return cudaSuccess;
  const Shape shape = kRoofShapes[shape_index];
  const int64_t n_packs = bytes / kPackBytes;
  const int64_t tile = static_cast<int64_t>(shape.threads) * shape.vectors;
  int64_t n_blocks = (n_packs + tile - 1) / tile;
  if (shape.blocks_per_sm != 0) {
    DeviceFacts facts;
    if (cudaError_t error = device_facts(&facts); error != cudaSuccess) return error;
    const int64_t resident = static_cast<int64_t>(facts.n_sms) * shape.blocks_per_sm;
    if (resident < n_blocks) n_blocks = resident;
  }
  const unsigned grid = static_cast<unsigned>(n_blocks);
  switch (shape.vectors) {
    case 2: roof_kernel<2><<<grid, shape.threads, 0, stream>>>(roof, n_packs); break;
    case 4: roof_kernel<4><<<grid, shape.threads, 0, stream>>>(roof, n_packs); break;
    case 8: roof_kernel<8><<<grid, shape.threads, 0, stream>>>(roof, n_packs); break;
    default: return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

bool misaligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % kPackBytes != 0; }

}  // namespace

cudaError_t spin(int64_t ns, cudaStream_t stream) {
  spin_kernel<<<1, 1, 0, stream>>>(ns);
  return cudaGetLastError();
}

cudaError_t empty(cudaStream_t stream) {
  empty_kernel<<<1, 1, 0, stream>>>();
  return cudaGetLastError();
}

cudaError_t stamp(int64_t* out, int64_t n_slots, cudaStream_t stream) {
  if (n_slots <= 0) return cudaErrorInvalidValue;
  const unsigned slots = static_cast<unsigned>(n_slots);
  stamp_kernel<<<slots, 1, 0, stream>>>(out, slots);
  return cudaGetLastError();
}

cudaError_t flush_l2(void* buffer, int64_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (misaligned(buffer) || bytes % kPackBytes != 0) return cudaErrorInvalidValue;
  DeviceFacts facts;
  if (cudaError_t error = device_facts(&facts); error != cudaSuccess) return error;
  const unsigned grid = facts.n_sms * kFlushBlocksPerSm;
  auto* packs = static_cast<uint4*>(buffer);
  flush_write_kernel<<<grid, kFlushThreads, 0, stream>>>(packs, bytes / kPackBytes);
  flush_read_kernel<<<grid, kFlushThreads, 0, stream>>>(packs, bytes / kPackBytes);
  return cudaGetLastError();
}

int roof_shapes() { return kRoofShapeCount; }

cudaError_t roof_copy(void* dst, const void* src, int64_t bytes, int shape, cudaStream_t stream) {
  if (misaligned(dst) || misaligned(src)) return cudaErrorInvalidValue;
  const CopyRoof roof = {static_cast<uint4*>(dst), static_cast<const uint4*>(src)};
  return launch_roof(roof, bytes, shape, stream);
}

cudaError_t roof_read(const void* src, int64_t bytes, void* sink, int shape, cudaStream_t stream) {
  if (misaligned(src)) return cudaErrorInvalidValue;
  const ReadRoof roof = {static_cast<const uint4*>(src), static_cast<uint32_t*>(sink)};
  return launch_roof(roof, bytes, shape, stream);
}

cudaError_t roof_write(void* dst, int64_t bytes, int shape, cudaStream_t stream) {
  if (misaligned(dst)) return cudaErrorInvalidValue;
  return launch_roof(WriteRoof{static_cast<uint4*>(dst)}, bytes, shape, stream);
}

cudaError_t roof_add(void* dst, const void* a, const void* b, int64_t bytes_each, int shape,
                     cudaStream_t stream) {
  if (misaligned(dst) || misaligned(a) || misaligned(b)) return cudaErrorInvalidValue;
  const AddRoof roof = {static_cast<uint4*>(dst), static_cast<const uint4*>(a),
                        static_cast<const uint4*>(b)};
  return launch_roof(roof, bytes_each, shape, stream);
}

cudaError_t reset_persisting_l2() { return cudaCtxResetPersistingL2Cache(); }

}  // namespace cuda_vs_triton
