// Elementwise ops: kInputs streams in, kOutputs streams out, 16 bytes an access at any alignment.
//
// A row of n elements is a scalar head up to the first output's 16-byte boundary, packs, and a
// scalar tail. A block owns one tile of blockDim.x * kVectors packs of it; block (0, y, z) also has
// the head and the tail. A vector, or rows that lie back to back, are one long row.
// When the streams differ in alignment (kShifted), the first output decides the packs: each input
// pack is cut out of two aligned neighbours, the second of which comes from L1, and a further
// output off its boundary is stored by elements.
// An Op has kInputs, kOutputs, kMostVectors and operator()(in, out) on the float32 values of one
// position. An output may be exactly an input: a position's values are read before it is written.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "common/launch.cuh"
#include "common/pack.cuh"
#include "kernels.h"

namespace cuda_vs_triton {

// One pack a thread and stream was the fastest of 1, 2, 4 and 8 in a large add on an H200: 2048
// threads an SM have 64 KB of loads in flight. With 4, ptxas adds the first packs before it loads
// the last.
constexpr int kStreamThreads = 256;
constexpr int kStreamVectors = 1;
constexpr int kFewestStreamThreads = 64;
constexpr int kFewestLanes = 16;  // threads along a row: a tail is 15 elements at most

template <typename T, typename Op>
struct Streams {
  const T* in[Op::kInputs];
  T* out[Op::kOutputs];
};

struct Split {
  int64_t n, n_head, n_packs;
};

template <typename Op>
struct Rows {
  int64_t n_rows, n_cols;
  int64_t in_stride[Op::kInputs], out_stride[Op::kOutputs];  // in elements
};

struct StreamConfig {
  int threads, vectors;  // 0: choose
};

template <typename T>
__host__ __device__ __forceinline__ int misalignment(const T* p) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(p) % kPackBytes);
}

// Of a row whose first output starts at `out`. The upper neighbour of a shifted last pack could end
// behind its tensor, so the tail takes that pack.
template <typename T>
__host__ __device__ __forceinline__ Split split_row(const T* out, int64_t n, bool shifted) {
  const int to_boundary = (kPackBytes - misalignment(out)) % kPackBytes / int(sizeof(T));
  const int64_t n_head = to_boundary < n ? to_boundary : n;
  const int64_t whole_packs = (n - n_head) / kPackSize<T>;
  return {n, n_head, shifted && whole_packs > 0 ? whole_packs - 1 : whole_packs};
}

// Bytes [shift, shift + 16) of the 32 bytes (lo, hi). `shift` is the same for all threads of a row.
__device__ __forceinline__ uint4 cut(const uint4& lo, const uint4& hi, int shift) {
  uint32_t w[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
  if (shift & 8) {
#pragma unroll
    for (int i = 0; i < 6; ++i) w[i] = w[i + 2];
  }
  if (shift & 4) {
#pragma unroll
    for (int i = 0; i < 5; ++i) w[i] = w[i + 1];
  }
  const int bits = (shift & 3) * 8;
  return make_uint4(__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
                    __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits));
}

// A row behind its head. Shifted inputs are held from the aligned address at or below their first
// pack on, `shift` bytes before it. That may lie before the tensor, but not before its allocation,
// which starts at a pack boundary. Both neighbours go through L1, where the neighbouring lane finds
// the half it shares.
template <typename T, typename Op, bool kShifted>
struct Body {
  const uint4* in[Op::kInputs];
  int shift[Op::kInputs];
  uint4* out[Op::kOutputs];  // a further output may lie off its boundary

  __device__ __forceinline__ Body(const Streams<T, Op>& row, int64_t n_head) {
#pragma unroll
    for (int i = 0; i < Op::kInputs; ++i) {
      // Moved as a char pointer: through an integer the compiler forgets that this is global
      // memory.
      const char* first = reinterpret_cast<const char*>(row.in[i] + n_head);
      shift[i] = kShifted ? misalignment(first) : 0;
      in[i] = reinterpret_cast<const uint4*>(first - shift[i]);
    }
#pragma unroll
    for (int i = 0; i < Op::kOutputs; ++i) out[i] = reinterpret_cast<uint4*>(row.out[i] + n_head);
  }

  __device__ __forceinline__ void load(int64_t p, uint4 (&raw)[Op::kInputs]) const {
#pragma unroll
    for (int i = 0; i < Op::kInputs; ++i) {
      raw[i] = load_pack(in[i] + p);
      if constexpr (kShifted) {
        // Not `shift != 0 ? load : raw`: the second load would wait for the first.
        raw[i] = cut(raw[i], load_pack(in[i] + p + (shift[i] != 0)), shift[i]);
      }
    }
  }

  __device__ __forceinline__ void apply(int64_t p, const uint4 (&raw)[Op::kInputs],
                                        const Op& op) const {
    float v[Op::kInputs][kPackSize<T>], result[Op::kOutputs][kPackSize<T>];
#pragma unroll
    for (int i = 0; i < Op::kInputs; ++i) unpack<T>(raw[i], v[i]);
#pragma unroll
    for (int j = 0; j < kPackSize<T>; ++j) {
      float of_inputs[Op::kInputs], of_outputs[Op::kOutputs];
#pragma unroll
      for (int i = 0; i < Op::kInputs; ++i) of_inputs[i] = v[i][j];
      op(of_inputs, of_outputs);
#pragma unroll
      for (int i = 0; i < Op::kOutputs; ++i) result[i][j] = of_outputs[i];
    }
#pragma unroll
    for (int i = 0; i < Op::kOutputs; ++i) store(out[i] + p, result[i], i);
  }

 private:
  static __device__ __forceinline__ void store(uint4* at, const float (&v)[kPackSize<T>],
                                               int output) {
    if (!kShifted || output == 0 || misalignment(at) == 0) {
      store_pack(at, pack<T>(v));
    } else {
#pragma unroll
      for (int j = 0; j < kPackSize<T>; ++j) reinterpret_cast<T*>(at)[j] = from_float<T>(v[j]);
    }
  }
};

template <typename T, typename Op>
__device__ __forceinline__ void apply_element(const Streams<T, Op>& row, int64_t at, const Op& op) {
  float v[Op::kInputs], result[Op::kOutputs];
#pragma unroll
  for (int i = 0; i < Op::kInputs; ++i) v[i] = to_float(row.in[i][at]);
  op(v, result);
#pragma unroll
  for (int i = 0; i < Op::kOutputs; ++i) row.out[i][at] = from_float<T>(result[i]);
}

// The whole kernel of a row: this block's tile.
template <int kVectors, bool kShifted, typename T, typename Op>
__device__ __forceinline__ void stream_row(const Streams<T, Op>& row, const Split& split,
                                           const Op& op) {
  // The head is shorter than a pack and the tail than two. They come first, or the row's pointers
  // would take registers until the end.
  if (blockIdx.x == 0) {
    const int64_t tail = split.n_head + split.n_packs * kPackSize<T>;
    if (threadIdx.x < split.n_head) apply_element(row, threadIdx.x, op);
    if (threadIdx.x < split.n - tail) apply_element(row, tail + threadIdx.x, op);
  }
  const Body<T, Op, kShifted> body(row, split.n_head);
  const int64_t tile = static_cast<int64_t>(blockDim.x) * kVectors;
  const int64_t first = blockIdx.x * tile + threadIdx.x;
  if ((blockIdx.x + 1) * tile <= split.n_packs) {
    uint4 raw[kVectors][Op::kInputs];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) body.load(first + i * blockDim.x, raw[i]);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) body.apply(first + i * blockDim.x, raw[i], op);
  } else {
    for (int64_t p = first; p < split.n_packs; p += blockDim.x) {
      uint4 raw[Op::kInputs];
      body.load(p, raw);
      body.apply(p, raw, op);
    }
  }
}

// The whole kernel of rows that are strided: threadIdx.y and blockIdx.y, z choose the row.
template <int kVectors, bool kShifted, typename T, typename Op>
__device__ __forceinline__ void stream_rows(Streams<T, Op> streams, const Rows<Op>& rows,
                                            const Op& op) {
  const int64_t group = static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  const int64_t row = group * blockDim.y + threadIdx.y;
  if (row >= rows.n_rows) return;
#pragma unroll
  for (int i = 0; i < Op::kInputs; ++i) streams.in[i] += row * rows.in_stride[i];
#pragma unroll
  for (int i = 0; i < Op::kOutputs; ++i) streams.out[i] += row * rows.out_stride[i];
  stream_row<kVectors, kShifted>(streams, split_row(streams.out[0], rows.n_cols, kShifted), op);
}

// ---- host --------------------------------------------------------------------------------------

// Calls launch(kernel) with kernel_of(vectors, shifted), whose arguments are integral constants.
template <typename Op, typename KernelOf, typename Launch>
cudaError_t with_stream_kernel(const KernelOf& kernel_of, int vectors, bool shifted,
                               const Launch& launch) {
  const auto with = [&](auto constant) {
    return shifted ? launch(kernel_of(constant, std::true_type{}))
                   : launch(kernel_of(constant, std::false_type{}));
  };
  switch (vectors) {
    case 1: return with(std::integral_constant<int, 1>{});
    case 2: return with(std::integral_constant<int, 2>{});
    case 4: return with(std::integral_constant<int, 4>{});
    case 8:
      if constexpr (Op::kMostVectors >= 8) return with(std::integral_constant<int, 8>{});
      return cudaErrorInvalidValue;
    default: return cudaErrorInvalidValue;
  }
}

// Fills in what is 0 for a launch over n_packs packs of each stream; a small one is spread over
// more SMs by smaller blocks.
inline cudaError_t choose(StreamConfig* config, int64_t n_packs) {
  if (config->vectors == 0) config->vectors = kStreamVectors;
  if (config->threads == 0) {
    DeviceFacts facts;
    if (cudaError_t error = device_facts(&facts); error != cudaSuccess) return error;
    config->threads = kStreamThreads;
    const int64_t packs_a_thread = int64_t{facts.n_sms} * config->vectors;  // with one block an SM
    while (config->threads > kFewestStreamThreads && n_packs < config->threads * packs_a_thread) {
      config->threads /= 2;
    }
  }
  switch (config->threads) {
    case 64:
    case 128:
    case 256:
    case 512: return cudaSuccess;
    default: return cudaErrorInvalidValue;
  }
}

// Do all streams lie equally far past a 16-byte boundary?
template <typename T, typename Op>
bool aligned_alike(const Streams<T, Op>& streams) {
  bool alike = true;
  for (const T* in : streams.in) alike &= misalignment(in) == misalignment(streams.out[0]);
  for (const T* out : streams.out) alike &= misalignment(out) == misalignment(streams.out[0]);
  return alike;
}

// kernel_of(vectors, shifted) is the op's kernel that calls stream_row.
template <typename KernelOf, typename T, typename Op>
cudaError_t launch_stream(const KernelOf& kernel_of, const Streams<T, Op>& streams, int64_t n,
                          const Op& op, StreamConfig config, cudaStream_t stream) {
  const bool shifted = !aligned_alike(streams);
  const Split split = split_row<T>(streams.out[0], n, shifted);
  if (cudaError_t error = choose(&config, split.n_packs); error != cudaSuccess) return error;
  if (n == 0) return cudaSuccess;
  const int64_t tile = static_cast<int64_t>(config.threads) * config.vectors;
  const int64_t n_blocks = split.n_packs == 0 ? 1 : (split.n_packs + tile - 1) / tile;
  return with_stream_kernel<Op>(kernel_of, config.vectors, shifted, [&](auto* kernel) {
    kernel<<<static_cast<unsigned>(n_blocks), config.threads, 0, stream>>>(streams, split, op);
    return cudaGetLastError();
  });
}

// Do the rows of every stream lie back to back?
template <typename Op>
bool is_one_row(const Rows<Op>& rows) {
  bool one = true;
  for (int64_t stride : rows.in_stride) one &= stride == rows.n_cols;
  for (int64_t stride : rows.out_stride) one &= stride == rows.n_cols;
  return one || rows.n_rows <= 1;
}

// Are the rows of every stream as far past 16-byte boundaries as the first output's?
template <typename T, typename Op>
bool rows_aligned_alike(const Streams<T, Op>& streams, const Rows<Op>& rows) {
  const auto strided_alike = [&](int64_t stride) {
    return (stride - rows.out_stride[0]) * int64_t{sizeof(T)} % kPackBytes == 0;
  };
  bool alike = aligned_alike(streams);
  for (int64_t stride : rows.in_stride) alike &= strided_alike(stride);
  for (int64_t stride : rows.out_stride) alike &= strided_alike(stride);
  return alike;
}

// Threads along a row: the most of which a sixteenth at most would have no pack.
inline int lanes_of_row(int64_t n_packs, int threads) {
  int lanes = threads;
  while (lanes > kFewestLanes && (n_packs + lanes - 1) / lanes * lanes * 16 > n_packs * 17) {
    lanes /= 2;
  }
  return lanes;
}

// flat_of(vectors, shifted) is the op's kernel that calls stream_row, rows_of(vectors, shifted) the
// one that calls stream_rows.
template <typename FlatOf, typename RowsOf, typename T, typename Op>
cudaError_t launch_stream_rows(const FlatOf& flat_of, const RowsOf& rows_of,
                               const Streams<T, Op>& streams, const Rows<Op>& rows, const Op& op,
                               StreamConfig config, cudaStream_t stream) {
  if (is_one_row(rows)) {
    return launch_stream(flat_of, streams, rows.n_rows * rows.n_cols, op, config, stream);
  }
  constexpr int64_t kMostInY = 65535;
  const int64_t most_packs = rows.n_cols < kPackSize<T> ? 1 : rows.n_cols / kPackSize<T>;
  if (cudaError_t error = choose(&config, rows.n_rows * most_packs); error != cudaSuccess) {
    return error;
  }
  if (rows.n_rows == 0 || rows.n_cols == 0) return cudaSuccess;
  const int lanes = lanes_of_row(most_packs, config.threads);
  const dim3 block(lanes, config.threads / lanes);
  const int64_t tile = static_cast<int64_t>(lanes) * config.vectors;
  const int64_t n_tiles = (most_packs + tile - 1) / tile;
  const int64_t n_groups = (rows.n_rows + block.y - 1) / block.y;
  const int64_t depth = (n_groups + kMostInY - 1) / kMostInY;
  const dim3 grid(static_cast<unsigned>(n_tiles),
                  static_cast<unsigned>((n_groups + depth - 1) / depth),
                  static_cast<unsigned>(depth));
  const bool shifted = !rows_aligned_alike(streams, rows);
  return with_stream_kernel<Op>(rows_of, config.vectors, shifted, [&](auto* kernel) {
    kernel<<<grid, block, 0, stream>>>(streams, rows, op);
    return cudaGetLastError();
  });
}

}  // namespace cuda_vs_triton
