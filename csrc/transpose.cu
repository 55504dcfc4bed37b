// out[n, m] = x[m, n]; elements of 4, 2 or 1 bytes, moved bit for bit.
//
// Ownership: a block owns one tile of row_packs x col_packs squares; a thread owns one square, as
//   many elements a side as fit in 16 bytes (4, 8 or 16).
// Bytes per element: 2 * sizeof(T), no flops: bound by DRAM.
// Limits: none on extents or alignment. Sides that are whole packs, at 16-byte boundaries, take the
//   form below; all others move single elements through a padded tile, coalesced on both sides.
// Choice: a thread loads the rows of its square, transposes it in registers (renaming for 4 bytes,
//   prmt for 2 and 1) and stores packs of out in swizzled shared memory, so that every access,
//   global and shared, is 16 bytes wide. Tiles are walked in bands of `group` tile rows: what runs
//   at one time is a near-square patch, in long runs of memory on both sides.
// Levers left unused: bulk tensor copies (TMA); 16-byte accesses for odd sides.
#include <cstdint>

#include "common/launch.cuh"
#include "common/pack.cuh"
#include "kernels.h"

namespace cuda_vs_triton {
namespace {

constexpr int kDefaultGroup = 16;  // tile rows in a band
constexpr int kBankGroups = 8;     // 16-byte columns of shared memory's 128-byte rows

struct Tile {
  int64_t row, col;  // first element in x
};

// The tile of block `index` when tiles are walked band by band, down the columns of each band.
// The launcher has made group <= n_tile_rows, so that group * n_tile_cols fits 32 bits.
__device__ __forceinline__ Tile tile_of(unsigned index, unsigned n_tile_rows, unsigned n_tile_cols,
                                        unsigned group, int tile_rows, int tile_cols) {
  const unsigned first = index / (group * n_tile_cols) * group;
  const unsigned within = index % (group * n_tile_cols);
  const unsigned band = min(group, n_tile_rows - first);
  return {static_cast<int64_t>(first + within % band) * tile_rows,
          static_cast<int64_t>(within / band) * tile_cols};
}

// A square of kPackBytes / kBytes elements a side, as the words of its rows.
template <int kBytes>
using Square = uint32_t[kPackBytes / kBytes][4];

// Transposes one small square, as wide as a word: word `from` of the rows that make word `to` of
// the transposed rows.
template <int kBytes>
__device__ __forceinline__ void transpose_word(const Square<kBytes>& in, Square<kBytes>& out,
                                               int to, int from) {
  if constexpr (kBytes == 4) {
    out[from][to] = in[to][from];
  } else if constexpr (kBytes == 2) {
    const uint32_t a = in[2 * to][from], b = in[2 * to + 1][from];
    out[2 * from][to] = __byte_perm(a, b, 0x5410);
    out[2 * from + 1][to] = __byte_perm(a, b, 0x7632);
  } else {
    const uint32_t a = in[4 * to][from], b = in[4 * to + 1][from];
    const uint32_t c = in[4 * to + 2][from], d = in[4 * to + 3][from];
    const uint32_t ab_lo = __byte_perm(a, b, 0x5140), ab_hi = __byte_perm(a, b, 0x7362);
    const uint32_t cd_lo = __byte_perm(c, d, 0x5140), cd_hi = __byte_perm(c, d, 0x7362);
    out[4 * from][to] = __byte_perm(ab_lo, cd_lo, 0x5410);
    out[4 * from + 1][to] = __byte_perm(ab_lo, cd_lo, 0x7632);
    out[4 * from + 2][to] = __byte_perm(ab_hi, cd_hi, 0x5410);
    out[4 * from + 3][to] = __byte_perm(ab_hi, cd_hi, 0x7632);
  }
}

// Where pack `pack` of row `row` of the transposed tile lies in shared memory. Written by
// neighbouring lanes for neighbouring squares of one tile row (rows kSide apart, one pack), read by
// them for neighbouring packs of one row: eight lanes meet eight bank groups both times.
template <int kRowPacks, int kSide>
__device__ __forceinline__ int slot(int row, int pack) {
  return row * kRowPacks + (pack ^ (row / kSide % kBankGroups));
}

__host__ __device__ constexpr int tile_bytes(int element_bytes, int squares) {
  return squares * kPackBytes * (kPackBytes / element_bytes);
}

// Blocks an SM, as a limit on registers: 96 KB of loads in flight.
__host__ __device__ constexpr int min_blocks(int element_bytes, int squares) {
  return 96 * 1024 / tile_bytes(element_bytes, squares);
}

// x has n_row_packs * kSide rows of n_col_packs packs.
template <int kBytes, int kRowPacks, int kColPacks>
__global__ void __launch_bounds__(kRowPacks* kColPacks, min_blocks(kBytes, kRowPacks* kColPacks))
    transpose_kernel(const uint4* x, uint4* out, int64_t n_row_packs, int64_t n_col_packs,
                     unsigned n_tile_rows, unsigned n_tile_cols, unsigned group) {
  constexpr int kSide = kPackBytes / kBytes;
  extern __shared__ uint4 s_tile[];  // [kColPacks * kSide][kRowPacks], swizzled
  const Tile tile =
      tile_of(blockIdx.x, n_tile_rows, n_tile_cols, group, kRowPacks, kColPacks);  // in packs

  const int col = threadIdx.x % kColPacks;
  const int row = threadIdx.x / kColPacks;
  if (tile.row + row < n_row_packs && tile.col + col < n_col_packs) {
    const uint4* source = x + (tile.row + row) * kSide * n_col_packs + tile.col + col;
    Square<kBytes> in, transposed;
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      const uint4 raw = load_pack(source + i * n_col_packs);
      in[i][0] = raw.x, in[i][1] = raw.y, in[i][2] = raw.z, in[i][3] = raw.w;
    }
#pragma unroll
    for (int to = 0; to < 4; ++to) {
#pragma unroll
      for (int from = 0; from < 4; ++from) transpose_word<kBytes>(in, transposed, to, from);
    }
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
      const uint32_t (&w)[4] = transposed[i];
      s_tile[slot<kRowPacks, kSide>(col * kSide + i, row)] = make_uint4(w[0], w[1], w[2], w[3]);
    }
  }
  __syncthreads();  // the transposed tile is complete

  const int pack = threadIdx.x % kRowPacks;
  const int first = threadIdx.x / kRowPacks;
  const int64_t n_rows = (n_col_packs - tile.col) * kSide;  // of out, from the tile's first on
  if (tile.row + pack >= n_row_packs) return;
  uint4* target = out + tile.col * kSide * n_row_packs + tile.row + pack;
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    const int r = first + i * kColPacks;
    if (r < n_rows) store_pack(target + r * n_row_packs, s_tile[slot<kRowPacks, kSide>(r, pack)]);
  }
}

// ---- single elements: any extents and alignment
// --------------------------------------------------

constexpr int kElementTile = 64;
constexpr int kElementThreads = 256;

template <typename T>
__global__ void __launch_bounds__(kElementThreads)
    transpose_elements_kernel(const T* x, T* out, int64_t n_rows, int64_t n_cols,
                              unsigned n_tile_rows, unsigned n_tile_cols, unsigned group) {
  constexpr int kStep = kElementThreads / kElementTile;
  // One word more than a row: lanes that read down a column meet an odd number of words apart.
  __shared__ T s_tile[kElementTile][kElementTile + 4 / sizeof(T)];
  const Tile tile =
      tile_of(blockIdx.x, n_tile_rows, n_tile_cols, group, kElementTile, kElementTile);
  const int lane = threadIdx.x % kElementTile;
  const int first = threadIdx.x / kElementTile;

  T v[kElementTile / kStep];
  const T* source = x + tile.row * n_cols + tile.col + lane;
#pragma unroll
  for (int i = 0; i < kElementTile / kStep; ++i) {
    const int row = first + i * kStep;
    const bool inside = tile.row + row < n_rows && tile.col + lane < n_cols;
    v[i] = inside ? source[row * n_cols] : T{};
  }
#pragma unroll
  for (int i = 0; i < kElementTile / kStep; ++i) s_tile[first + i * kStep][lane] = v[i];
  __syncthreads();  // the tile is complete

  T* target = out + tile.col * n_rows + tile.row + lane;
#pragma unroll
  for (int i = 0; i < kElementTile / kStep; ++i) {
    const int col = first + i * kStep;
    if (tile.col + col < n_cols && tile.row + lane < n_rows) {
      target[col * n_rows] = s_tile[lane][col];
    }
  }
}

// ---- launch
// --------------------------------------------------------------------------------------

struct Grid {
  unsigned n_tile_rows, n_tile_cols, group;
  unsigned blocks() const { return n_tile_rows * n_tile_cols; }
};

Grid grid_of(int64_t n_rows, int64_t n_cols, int tile_rows, int tile_cols, int group) {
  const int64_t n_tile_rows = (n_rows + tile_rows - 1) / tile_rows;
  const int64_t n_tile_cols = (n_cols + tile_cols - 1) / tile_cols;
  return {static_cast<unsigned>(n_tile_rows), static_cast<unsigned>(n_tile_cols),
          static_cast<unsigned>(group < n_tile_rows ? group : n_tile_rows)};
}

template <int kBytes, int kRowPacks, int kColPacks>
cudaError_t launch(const void* x, void* out, int64_t n_rows, int64_t n_cols, int group,
                   cudaStream_t stream) {
  constexpr int kSide = kPackBytes / kBytes;
  constexpr auto* kKernel = transpose_kernel<kBytes, kRowPacks, kColPacks>;
  constexpr int kShared = tile_bytes(kBytes, kRowPacks * kColPacks);
  if constexpr (kShared > 48 * 1024) {
    if (cudaError_t error = allow_shared_memory<kKernel>(kShared); error != cudaSuccess) {
      return error;
    }
  }
  const Grid grid = grid_of(n_rows / kSide, n_cols / kSide, kRowPacks, kColPacks, group);
  kKernel<<<grid.blocks(), kRowPacks * kColPacks, kShared, stream>>>(
      static_cast<const uint4*>(x), static_cast<uint4*>(out), n_rows / kSide, n_cols / kSide,
      grid.n_tile_rows, grid.n_tile_cols, grid.group);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_elements(const void* x, void* out, int64_t n_rows, int64_t n_cols, int group,
                            cudaStream_t stream) {
  const Grid grid = grid_of(n_rows, n_cols, kElementTile, kElementTile, group);
  transpose_elements_kernel<T><<<grid.blocks(), kElementThreads, 0, stream>>>(
      static_cast<const T*>(x), static_cast<T*>(out), n_rows, n_cols, grid.n_tile_rows,
      grid.n_tile_cols, grid.group);
  return cudaGetLastError();
}

bool whole_packs(const void* p, int64_t row_bytes) {
  return reinterpret_cast<uintptr_t>(p) % kPackBytes == 0 && row_bytes % kPackBytes == 0;
}

// T is any type of the elements' size. Tiles of 0 x 0 packs: the default.
template <typename T>
cudaError_t launch_tile(const void* x, void* out, int64_t n_rows, int64_t n_cols, int row_packs,
                        int col_packs, int group, cudaStream_t stream) {
  constexpr int kBytes = sizeof(T);
  struct Form {
    int row_packs, col_packs;
    decltype(&launch<kBytes, 8, 8>) launch;
  };
  constexpr Form kForms[] = {{8, 8, launch<kBytes, 8, 8>},
                             {16, 8, launch<kBytes, 16, 8>},
                             {16, 16, launch<kBytes, 16, 16>},
                             {32, 8, launch<kBytes, 32, 8>}};
  if (row_packs == 0 && col_packs == 0) {
    row_packs = 16;
    col_packs = kBytes == 1 ? 8 : 16;  // at 64 registers of data a thread, smaller blocks
  }
  const Form* chosen = nullptr;
  for (const Form& form : kForms) {
    if (form.row_packs == row_packs && form.col_packs == col_packs) chosen = &form;
  }
  if (chosen == nullptr) return cudaErrorInvalidValue;
  if (n_rows == 0 || n_cols == 0) return cudaSuccess;
  if (whole_packs(x, n_cols * kBytes) && whole_packs(out, n_rows * kBytes)) {
    return chosen->launch(x, out, n_rows, n_cols, group, stream);
  }
  return launch_elements<T>(x, out, n_rows, n_cols, group, stream);
}

}  // namespace

cudaError_t transpose(const void* x, void* out, int64_t n_rows, int64_t n_cols, DType dtype,
                      int row_packs, int col_packs, int group, cudaStream_t stream) {
  if (group == 0) group = kDefaultGroup;
  if (group < 0) return cudaErrorInvalidValue;
  switch (dtype) {
    case DType::kF32:
      return launch_tile<uint32_t>(x, out, n_rows, n_cols, row_packs, col_packs, group, stream);
    case DType::kBF16:
      return launch_tile<uint16_t>(x, out, n_rows, n_cols, row_packs, col_packs, group, stream);
    case DType::kI8:
      return launch_tile<uint8_t>(x, out, n_rows, n_cols, row_packs, col_packs, group, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace cuda_vs_triton
