// loss[row] = log(sum(exp(x[row, :]))) - x[row, target[row]]; x f32, bf16, f16; loss f32.
//
// Ownership: threads_per_row threads own one row: a warp of a block of eight, or a whole block. A
//   block walks over rows gridDim apart; blocks_per_sm says how many there are.
// Bytes: sizeof(T) an element, 12 a row; about 5 flops and one exp2 an element: bound by DRAM.
// Any alignment keeps 16-byte loads; up to 7 elements at each end of a row go one by one.
// NaN or +Inf in a row, or a row of -Inf only, gives NaN as torch does; a target outside 0 to
//   n_cols - 1 gives NaN and reads nothing.
// Choice: four packs a thread are always on their way: the next batch is asked for while this one's
//   exps are taken, the next row's first one too, so that merging a row costs no bandwidth. One
//   barrier a row. Levers left unused: bulk copies (TMA) in place of registers.
#include <cstdint>

#include "common/exp_sum.cuh"
#include "common/launch.cuh"
#include "common/merge.cuh"
#include "common/pack.cuh"
#include "common/peeled_row.cuh"
#include "common/reduce.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

constexpr int kBatch = 4;            // packs a thread has on their way
constexpr int kWarpRowBlock = 256;   // threads of a block whose warps own a row each
constexpr int kThreadsPerSm = 1024;  // as a limit on registers, 64 a thread
constexpr int kBlocksInTurn = 4;     // of those that an SM can hold: the last ones even out SMs

struct Args {
  const void* x;
  const int64_t* target;
  float* loss;
  int64_t n_rows, n_cols, x_stride;
};

__host__ __device__ constexpr int block_threads(int threads_per_row) {
  return threads_per_row == kWarpSize ? kWarpRowBlock : threads_per_row;
}

// The packs of a row that a thread has yet to ask for: every kThreads-th of `left`.
struct Ahead {
  const uint4* packs;
  int left;
};

template <typename T>
__device__ __forceinline__ Ahead packs_of(const PeeledRow<T>& row, int lane) {
  return {row.packs() + lane, row.n_packs - lane};
}

// The pack i * kThreads ahead, or one that adds nothing.
template <typename T, int kThreads>
__device__ __forceinline__ uint4 pack_ahead(const Ahead& ahead, int i) {
  uint4 raw = nothing_pack<T>();
  if (i * kThreads < ahead.left) raw = load_pack(ahead.packs + i * kThreads);
  return raw;
}

template <typename T, int kThreads>
__global__ void __launch_bounds__(block_threads(kThreads), kThreadsPerSm / block_threads(kThreads))
    cross_entropy_kernel(Args args) {
  constexpr int kRows = block_threads(kThreads) / kThreads;
  constexpr int kWarps = kThreads / kWarpSize;
  constexpr int kStep = kBatch * kThreads;  // packs between two batches of a thread
  __shared__ ExpSum of_warps[2][kWarps];    // rows take turns, so that one barrier a row is enough

  const T* x = static_cast<const T*>(args.x);
  const int lane = threadIdx.x % kThreads;
  const int64_t n_groups = static_cast<int64_t>(gridDim.x) * kRows;
  int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kThreads;
  if (row >= args.n_rows) return;  // whole warps of a block without barriers

  int64_t target = args.target[row];
  Ahead ahead = packs_of(PeeledRow<T>(x + row * args.x_stride, args.n_cols), lane);
  uint4 raw[kBatch];
#pragma unroll
  for (int i = 0; i < kBatch; ++i) raw[i] = pack_ahead<T, kThreads>(ahead, i);

  for (int turn = 0;; turn ^= 1) {
    const PeeledRow<T> peeled(x + row * args.x_stride, args.n_cols);
    // Both are on their way until the row's end.
    float logit = NAN;
    if (lane == 0 && target >= 0 && target < args.n_cols) logit = to_float(peeled.elements[target]);
    const float edge = peeled.edge_or_nothing(lane);

    ExpSum mine = {-INFINITY, 0.0f};
    int left = peeled.n_packs;
    do {
      const float max = fmaxf(mine.max, max_of_packs<T>(raw));
      const float offset = finite_offset(max);
      mine = {max, mine.sum * exp_minus(mine.max, offset)};
      ahead = {ahead.packs + kStep, ahead.left - kStep};
      if (left <= kStep) {  // the next batch is another row's
        row += n_groups;
        ahead.left = 0;
        if (row < args.n_rows) {
          target = args.target[row];
          ahead = packs_of(PeeledRow<T>(x + row * args.x_stride, args.n_cols), lane);
        }
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        float v[kPackSize<T>];
        unpack<T>(raw[i], v);
        raw[i] = pack_ahead<T, kThreads>(ahead, i);
#pragma unroll
        for (int j = 0; j < kPackSize<T>; ++j) mine.sum += exp_minus(v[j], offset);
      }
      left -= kStep;
    } while (left > 0);

    mine = MergeExpSums()(mine, {edge, exp_minus(edge, finite_offset(edge))});
    mine = merge_lanes<kWarpSize>(mine, MergeExpSums());
    if constexpr (kWarps > 1) mine = merge_warps<kWarps>(mine, of_warps[turn], MergeExpSums());
    if (lane == 0) args.loss[row - n_groups] = mine.max - logit + logf(mine.sum);
    if (row >= args.n_rows) return;
  }
}

template <typename T, int kThreads>
cudaError_t launch(const Args& args, int blocks_per_sm, cudaStream_t stream) {
  constexpr int kBlock = block_threads(kThreads);
  constexpr int kRows = kBlock / kThreads;
  DeviceFacts facts;
  if (cudaError_t error = device_facts(&facts); error != cudaSuccess) return error;
  if (blocks_per_sm == 0) blocks_per_sm = kBlocksInTurn * (kThreadsPerSm / kBlock);
  const int64_t most = int64_t(facts.n_sms) * blocks_per_sm;
  const int64_t n_blocks = (args.n_rows + kRows - 1) / kRows;
  const unsigned grid = static_cast<unsigned>(n_blocks < most ? n_blocks : most);
  cross_entropy_kernel<T, kThreads><<<grid, kBlock, 0, stream>>>(args);
  return cudaGetLastError();
}

template <typename T>
cudaError_t dispatch(const Args& args, int threads, int blocks_per_sm, cudaStream_t stream) {
  const int64_t row_bytes = args.n_cols * int64_t(sizeof(T));
  if (row_bytes > kMaxRowBytes) return cudaErrorInvalidValue;
  if (threads == 0) {
    threads = row_bytes <= 8 * 1024 ? 32 : row_bytes <= 32 * 1024 ? 128 : 256;
  }
  switch (threads) {
    case 32: return launch<T, 32>(args, blocks_per_sm, stream);
    case 128: return launch<T, 128>(args, blocks_per_sm, stream);
    case 256: return launch<T, 256>(args, blocks_per_sm, stream);
    case 512: return launch<T, 512>(args, blocks_per_sm, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t cross_entropy(const void* x, const int64_t* target, float* loss, int64_t n_rows,
                          int64_t n_cols, int64_t x_stride, DType dtype, int threads_per_row,
                          int blocks_per_sm, cudaStream_t stream) {
  if (n_rows == 0) return cudaSuccess;
  if (blocks_per_sm < 0) return cudaErrorInvalidValue;
  const Args args = {x, target, loss, n_rows, n_cols, x_stride};
  switch (dtype) {
    case DType::kF32: return dispatch<float>(args, threads_per_row, blocks_per_sm, stream);
    case DType::kBF16: return dispatch<__nv_bfloat16>(args, threads_per_row, blocks_per_sm, stream);
    case DType::kF16: return dispatch<__half>(args, threads_per_row, blocks_per_sm, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace cuda_vs_triton
