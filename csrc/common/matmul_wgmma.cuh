// Until the wgmma form is merged: never available.
#pragma once

#include <cuda_runtime_api.h>

#include "common/matmul_problem.cuh"

namespace cuda_vs_triton {

template <typename T, typename Epilogue>
bool wgmma_available() {
  return false;
}

inline bool tma_takes(const MatmulProblem&) { return false; }

template <typename T, typename Epilogue>
cudaError_t matmul_wgmma(const MatmulProblem&, const MatmulConfig&, cudaStream_t) {
  return cudaErrorInvalidValue;
}

}  // namespace cuda_vs_triton
