// Thread-block clusters (sm_90): blocks on neighbouring multiprocessors that run at the same time
// and reach each other's shared memory and barriers.
#pragma once

#include <cstdint>

namespace cuda_vs_triton {

// All threads of all blocks of the cluster; shared-memory writes before it are seen after it.
__device__ __forceinline__ void sync_cluster() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;\n" ::
          : "memory");
}

}  // namespace cuda_vs_triton
