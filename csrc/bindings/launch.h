// From checked tensors to a launch: its device, stream, dtype, and what becomes of its error.
#pragma once

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <initializer_list>
#include <stdexcept>
#include <utility>

#include "bindings/checks.h"
#include "kernels.h"

namespace cuda_vs_triton::bindings {

namespace cvt = cuda_vs_triton;  // bindings are named like the launchers that they call

// Makes x's device current and finds the stream torch would use there.
struct Launch {
  explicit Launch(const Tensor& x)
      : guard(x.device()), stream(c10::cuda::getCurrentCUDAStream(x.device().index()).stream()) {}
  c10::cuda::CUDAGuard guard;
  cudaStream_t stream;
};

inline cvt::DType dtype_of(const Tensor& t) {
  switch (t.scalar_type()) {
    case at::ScalarType::Float: return cvt::DType::kF32;
    case at::ScalarType::BFloat16: return cvt::DType::kBF16;
    case at::ScalarType::Char: return cvt::DType::kI8;
    default: return cvt::DType::kF16;  // check_common has refused all others
  }
}

inline float* floats(const Tensor& t) { return static_cast<float*>(t.data_ptr()); }

// RuntimeError when a launch failed.
inline void check_launch(const char* op, cudaError_t error) {
  if (error != cudaSuccess) {
    throw std::runtime_error(string(op) + ": launch failed: " + cudaGetErrorString(error));
  }
}

// The configuration that a launch was asked for, by the names of its arguments.
using Config = std::initializer_list<std::pair<const char*, int>>;

// For ops with a configuration: an unknown one is the caller's mistake, not a failed launch.
inline void check_launch(const char* op, cudaError_t error, Config config, const char* wanted) {
  if (error == cudaErrorInvalidValue) {
    string got;
    for (const auto& [name, value] : config) {
      got += (got.empty() ? "" : ", ") + string(name) + "=" + to_string(value);
    }
    throw py::value_error(string(op) + ": " + got +
                          " is not a configuration for this shape, wanted " + wanted +
                          "; pass 0 for the default");
  }
  check_launch(op, error);
}

}  // namespace cuda_vs_triton::bindings
