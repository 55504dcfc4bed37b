// Memory that launches work in, kept for each device and stream: one launch follows another there.
// A graph may be replayed beside others: a captured launch has memory of its own, which belongs to
// the graph.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <map>
#include <utility>

#include "bindings/launch.h"

namespace cuda_vs_triton::bindings {

using KeptMemory = std::map<std::pair<int, cudaStream_t>, Tensor>;

// The memory of x's device and `launch`'s stream, allocated anew where it has fewer than n
// elements. The GIL guards `kept`.
template <class Allocate>
Tensor memory_for(KeptMemory& kept, const Tensor& x, const Launch& launch, int64_t n,
                  const Allocate& allocate) {
  if (c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None) {
    return allocate();
  }
  Tensor& mine = kept[{x.device().index(), launch.stream}];
  if (!mine.defined() || mine.numel() < n) mine = allocate();
  return mine;
}

// Floats that need no values.
inline Tensor float_scratch(const Tensor& x, const Launch& launch, int64_t n_floats) {
  // Never destroyed: at exit the driver may be gone before it.
  static auto* kept = new KeptMemory;
  return memory_for(*kept, x, launch, n_floats,
                    [&] { return at::empty({n_floats}, x.options().dtype(at::kFloat)); });
}

// For a launch whose blocks merge through it. Counters are zeroed once and left zeroed by the
// kernels; a graph's zero fill is captured with it.
class ScratchMemory {
 public:
  ScratchMemory(const Tensor& x, const Launch& launch) {
    static auto* kept = new KeptMemory;  // never destroyed, as above
    memory_ = memory_for(*kept, x, launch, kWords, [&] {
      Tensor memory = at::empty({kWords}, x.options().dtype(at::kInt));
      memory.narrow(0, 0, cvt::kScratchCounters).zero_();
      return memory;
    });
  }

  cvt::Scratch get() const {
    auto* words = static_cast<unsigned*>(memory_.data_ptr());
    return {words, reinterpret_cast<float*>(words + cvt::kScratchCounters)};
  }

 private:
  static constexpr int64_t kWords = cvt::kScratchCounters + cvt::kScratchPartials;

  Tensor memory_;
};

}  // namespace cuda_vs_triton::bindings
