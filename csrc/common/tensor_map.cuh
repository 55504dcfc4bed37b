// Tensor maps (sm_90, host side): the description of a matrix in global memory that the copy engine
// (TMA) follows. A kernel takes one by value as `const __grid_constant__ CUtensorMap`.
//
// The driver encodes it. Its function is asked of the runtime, so that nothing links libcuda and
// the extension still loads where no driver is.
#pragma once

#include <cuda.h>  // types alone
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

#include "kernels.h"

namespace cuda_vs_triton {

constexpr int kSwizzleBytes = 128;           // one row of a box, and the period of its swizzle
constexpr int kBoxCols = kSwizzleBytes / 2;  // 16-bit elements in that row
constexpr int kBoxBytes = kBoxCols * kSwizzleBytes;  // of a square box
constexpr int kBoxAlignment = 1024;  // eight rows: where the swizzle pattern repeats
constexpr int64_t kMaxMapExtent = 1
                                  << 30;  // box coordinates are 32-bit, and pass the end by a tile

inline cudaError_t find_tensor_map_encoder(PFN_cuTensorMapEncodeTiled_v12000* encode) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             12000, cudaEnableDefault, &found);
#else
  const cudaError_t error =
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
  if (error != cudaSuccess) return error;
  if (found != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
  *encode = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  return cudaSuccess;
}

// A row-major [n_rows, n_cols] matrix of 16-bit elements, moved in boxes of box_rows x kBoxCols
// with the 128-byte swizzle: 16-byte chunk c of a box's row r lies at chunk c ^ (r % 8) in shared
// memory, so that reading down a column of chunks meets every bank. Elements of a box outside the
// matrix are read as zero and never written. `base` and the rows must be multiples of 16 bytes.
inline cudaError_t make_tensor_map(CUtensorMap* map, const void* base, DType dtype, int64_t n_rows,
                                   int64_t n_cols, int box_rows) {
  static std::atomic<PFN_cuTensorMapEncodeTiled_v12000> known{nullptr};
  PFN_cuTensorMapEncodeTiled_v12000 encode = known.load();
  if (encode == nullptr) {
    if (cudaError_t error = find_tensor_map_encoder(&encode); error != cudaSuccess) return error;
    known.store(encode);
  }
  const auto type =
      dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  // The contiguous extent comes first; it has no stride.
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(n_cols), static_cast<cuuint64_t>(n_rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(n_cols) * 2};
  const cuuint32_t box[] = {kBoxCols, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t element_strides[] = {1, 1};
  const CUresult result =
      encode(map, type, 2, const_cast<void*>(base), extents, strides, box, element_strides,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace cuda_vs_triton
