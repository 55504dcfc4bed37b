// Thread-block clusters (sm_90): blocks on neighbouring multiprocessors that run at the same time
// and reach each other's shared memory and barriers.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

#include "common/launch.cuh"

namespace cuda_vs_triton {

// All threads of all blocks of the cluster; shared-memory writes before it are seen after it. A
// warp whose lanes took different branches is brought together first, as .aligned asks.
__device__ __forceinline__ void sync_cluster() {
  __syncwarp();
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;\n" ::
          : "memory");
}

inline cudaLaunchConfig_t cluster_config(int64_t n_blocks, int threads, size_t shared_bytes,
                                         int blocks, cudaLaunchAttribute* cluster) {
  cluster->id = cudaLaunchAttributeClusterDimension;
  cluster->val.clusterDim.x = static_cast<unsigned>(blocks);
  cluster->val.clusterDim.y = 1;
  cluster->val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(n_blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.attrs = cluster;
  config.numAttrs = 1;
  return config;
}

// More than 8 blocks is what Hopper calls non-portable and allows all the same.
template <auto* kKernel>
cudaError_t allow_cluster(int blocks) {
  if (blocks <= 8) return cudaSuccess;
  return cudaFuncSetAttribute(kKernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
}

// Launches kKernel with a cluster of `blocks` along x. cudaErrorInvalidValue where the GPU has no
// clusters.
template <auto* kKernel, typename... Args>
cudaError_t launch_clusters(int64_t n_blocks, int threads, size_t shared_bytes, int blocks,
                            cudaStream_t stream, Args... args) {
  if (n_blocks > INT32_MAX) return cudaErrorInvalidValue;  // of a grid along x
  if (cudaError_t error = allow_cluster<kKernel>(blocks); error != cudaSuccess) return error;
  cudaLaunchAttribute cluster;
  cudaLaunchConfig_t config = cluster_config(n_blocks, threads, shared_bytes, blocks, &cluster);
  config.stream = stream;
  const cudaError_t error = cudaLaunchKernelEx(&config, kKernel, args...);
  if (error != cudaSuccess) cudaGetLastError();  // reported by value; do not leave it behind
  return error;
}

// Clusters of kKernel that the current device can hold at a time, otherwise as resident_blocks.
template <auto* kKernel>
cudaError_t resident_clusters(int threads, size_t shared_bytes, int blocks, int* n_clusters) {
  static std::atomic<int> known[kMaxDevices];
  int device = 0;
  if (cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  if (device < kMaxDevices && (*n_clusters = known[device].load()) != 0) return cudaSuccess;
  if (cudaError_t error = allow_cluster<kKernel>(blocks); error != cudaSuccess) return error;
  cudaLaunchAttribute cluster;
  const cudaLaunchConfig_t config = cluster_config(blocks, threads, shared_bytes, blocks, &cluster);
  const cudaError_t error = cudaOccupancyMaxActiveClusters(n_clusters, kKernel, &config);
  if (error != cudaSuccess) return error;
  if (*n_clusters == 0) return cudaErrorInvalidValue;
  if (device < kMaxDevices) known[device].store(*n_clusters);
  return cudaSuccess;
}

}  // namespace cuda_vs_triton
