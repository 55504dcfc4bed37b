// mbarrier (sm_90): a counter in shared memory on which one side arrives and the other waits.
//
// A barrier completes a phase when as many threads have arrived as init() promised and as many
// bytes have landed as expect_bytes() announced; the next phase then begins by itself. A waiter
// names the phase by its parity, which changes from 0 to 1 and back. So a ring of stages needs no
// counter that is shared: each side keeps its own stage and parity (RingPosition) and they meet at
// the barriers.
#pragma once

#include <cstdint>

namespace cuda_vs_triton {

struct Barrier {
  uint64_t state;  // opaque; in shared memory

  __device__ __forceinline__ uint32_t address() const {
    return static_cast<uint32_t>(__cvta_generic_to_shared(&state));
  }

  // By one thread, before fence_barrier_init and a barrier of all that will use it.
  __device__ __forceinline__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(address()), "r"(arrivals)
                 : "memory");
  }

  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(address()) : "memory");
  }

  // Arrives on the barrier at the same place in block `rank` of this cluster. Not with .release at
  // cluster scope: that waits for all of this thread's global accesses too, once a stage (30 % of a
  // matrix product on an H200), and the readers released here, wgmma, have ended already.
  __device__ __forceinline__ void arrive_at(uint32_t rank) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}\n" ::"r"(address()),
        "r"(rank)
        : "memory");
  }

  // Arrives, and keeps the phase open until copies have brought `bytes` more.
  __device__ __forceinline__ void arrive_expecting(uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(address()),
                 "r"(bytes)
                 : "memory");
  }

  // Returns once the phase of this parity is over. On a fresh barrier, parity 1 is over already.
  __device__ __forceinline__ void wait(uint32_t parity) const {
    while (!is_over(parity)) {
    }
  }

 private:
  // Sleeps in hardware for a while before it says no.
  __device__ __forceinline__ bool is_over(uint32_t parity) const {
    uint32_t over;
    asm volatile(
        "{\n"
        ".reg .pred over;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
        "selp.u32 %0, 1, 0, over;\n"
        "}\n"
        : "=r"(over)
        : "r"(address()), "r"(parity)
        : "memory");
    return over != 0;
  }
};

// Makes fresh barriers visible to the copy engine and to the other blocks of the cluster.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

// Where one side stands in a ring of stages.
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance(int n_stages) {
    if (++stage == n_stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace cuda_vs_triton
