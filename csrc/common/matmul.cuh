// Which form of the matrix product takes a problem: wgmma on the GPUs that have it, where TMA can
// read the operands; mma.sync everywhere else. Each form knows its own configurations.
#pragma once

#include "common/matmul_mma.cuh"
#include "common/matmul_wgmma.cuh"
#include "kernels.h"

namespace cuda_vs_triton {

template <typename T, typename Epilogue>
cudaError_t matmul(const MatmulProblem& problem, const MatmulConfig& config, cudaStream_t stream) {
  if (problem.m == 0 || problem.n == 0) return cudaSuccess;
  if (tma_takes(problem) && wgmma_available<T, Epilogue>()) {
    return matmul_wgmma<T, Epilogue>(problem, config, stream);
  }
  return matmul_mma<T, Epilogue>(problem, config, stream);
}

template <typename Epilogue>
cudaError_t matmul(const MatmulProblem& problem, DType dtype, const MatmulConfig& config,
                   cudaStream_t stream) {
  switch (dtype) {
    case DType::kBF16: return matmul<__nv_bfloat16, Epilogue>(problem, config, stream);
    case DType::kF16: return matmul<__half, Epilogue>(problem, config, stream);
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace cuda_vs_triton
