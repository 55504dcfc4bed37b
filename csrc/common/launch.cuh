// Host-side facts about the current device that a launcher needs on every call, asked for once.
#pragma once

#include <cuda_runtime.h>

#include <atomic>

namespace cuda_vs_triton {

constexpr int kMaxDevices = 64;  // more than any host has; beyond it the answers are not cached

struct DeviceFacts {
  int n_sms;
  int shared_bytes;  // dynamic shared memory a block may opt in to
};

inline cudaError_t device_facts(DeviceFacts* facts) {
  static std::atomic<int> n_sms[kMaxDevices];
  static std::atomic<int> shared_bytes[kMaxDevices];
  int device = 0;
  if (cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const bool cached = device < kMaxDevices;
  if (cached && shared_bytes[device].load(std::memory_order_acquire) != 0) {
    *facts = {n_sms[device].load(), shared_bytes[device].load()};
    return cudaSuccess;
  }
  cudaError_t error = cudaDeviceGetAttribute(&facts->n_sms, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  error =
      cudaDeviceGetAttribute(&facts->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error == cudaSuccess && cached) {
    n_sms[device].store(facts->n_sms);
    shared_bytes[device].store(facts->shared_bytes, std::memory_order_release);
  }
  return error;
}

// Lets kKernel use up to `bytes` of dynamic shared memory on the current device. Call it with the
// kernel's maximum: it is set once a device, then costs one atomic load.
template <auto* kKernel>
cudaError_t allow_shared_memory(int bytes) {
  static std::atomic<bool> done[kMaxDevices];
  int device = 0;
  if (cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  if (device < kMaxDevices && done[device].load(std::memory_order_acquire)) return cudaSuccess;
  const cudaError_t error =
      cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error == cudaSuccess && device < kMaxDevices) done[device].store(true);
  if (error != cudaSuccess) cudaGetLastError();  // reported by value; do not leave it behind
  return error;
}

}  // namespace cuda_vs_triton
