// Host-side facts about the current device that a launcher needs on every call, asked for once.
#pragma once

#include <cuda_runtime.h>

#include <atomic>

namespace cuda_vs_triton {

constexpr int kMaxDevices = 64;  // more than any host has; beyond it the answers are not cached

struct DeviceFacts {
  int n_sms;
  int shared_bytes;  // dynamic shared memory a block may opt in to
  int major;         // of the compute capability: 9 and newer have clusters
};

inline cudaError_t device_facts(DeviceFacts* facts) {
  static std::atomic<int> n_sms[kMaxDevices];
  static std::atomic<int> shared_bytes[kMaxDevices];
  static std::atomic<int> major[kMaxDevices];
  int device = 0;
  if (cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const bool cached = device < kMaxDevices;
  if (cached && shared_bytes[device].load(std::memory_order_acquire) != 0) {
    *facts = {n_sms[device].load(), shared_bytes[device].load(), major[device].load()};
    return cudaSuccess;
  }
  cudaError_t error = cudaDeviceGetAttribute(&facts->n_sms, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&facts->major, cudaDevAttrComputeCapabilityMajor, device);
  if (error != cudaSuccess) return error;
  error =
      cudaDeviceGetAttribute(&facts->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error == cudaSuccess && cached) {
    n_sms[device].store(facts->n_sms);
    major[device].store(facts->major);
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

// Whether kKernel, whose body is compiled for some architectures alone and has static shared
// memory, has that body on the current device. A question that failed is asked again.
template <auto* kKernel>
bool has_code() {
  static std::atomic<int> known[kMaxDevices];  // 0 unknown, 1 no, 2 yes
  int device = 0;
  cudaFuncAttributes attributes = {};
  if (cudaGetDevice(&device) == cudaSuccess && device < kMaxDevices && known[device].load() != 0) {
    return known[device].load() == 2;
  }
  if (cudaFuncGetAttributes(&attributes, kKernel) != cudaSuccess) {
    cudaGetLastError();  // the answer is no for now; do not leave the error behind
    return false;
  }
  const bool has = attributes.sharedSizeBytes > 0;
  if (device < kMaxDevices) known[device].store(has ? 2 : 1);
  return has;
}

// Blocks of kKernel that the current device can hold at a time; asked for once a device, so a
// kernel has one block size and one amount of shared memory, which allow_shared_memory has allowed.
template <auto* kKernel>
cudaError_t resident_blocks(int threads, size_t shared_bytes, int* n_blocks) {
  static std::atomic<int> known[kMaxDevices];
  int device = 0;
  if (cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  if (device < kMaxDevices && (*n_blocks = known[device].load()) != 0) return cudaSuccess;
  DeviceFacts facts;
  if (cudaError_t error = device_facts(&facts); error != cudaSuccess) return error;
  int per_sm = 0;
  const cudaError_t error =
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, kKernel, threads, shared_bytes);
  if (error != cudaSuccess) return error;
  *n_blocks = facts.n_sms * (per_sm > 1 ? per_sm : 1);
  if (device < kMaxDevices) known[device].store(*n_blocks);
  return cudaSuccess;
}

}  // namespace cuda_vs_triton
