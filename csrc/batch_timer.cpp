// See batch_timer.h.
#include "batch_timer.h"

#include <algorithm>
#include <chrono>

#include "kernels.h"

namespace cuda_vs_triton {
namespace {

using HostClock = std::chrono::steady_clock;

double us_between(HostClock::time_point start, HostClock::time_point stop) {
  return std::chrono::duration<double, std::micro>(stop - start).count();
}

// Has the device passed the event? "Not ready" is an answer here, so it must not stay behind as the
// last error, where the next launch's check would find it.
bool passed(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) cudaGetLastError();
  return status != cudaErrorNotReady;
}

}  // namespace

BatchTimer::~BatchTimer() {
  for (const Pair& pair : events_) {
    cudaEventDestroy(pair.start);
    cudaEventDestroy(pair.stop);
  }
}

cudaError_t BatchTimer::enqueue(const std::function<void()>& launch, const Batch& batch,
                                cudaStream_t stream, Enqueued* result) {
  if (cudaError_t error = grow(batch.n_samples); error != cudaSuccess) return error;
  *result = {true, 0.0, 0.0};
  cudaError_t error = cudaMemsetAsync(stamps_, 0, 4 * n_sms_ * sizeof(int64_t), stream);
  if (error == cudaSuccess) error = stamp(stamps_, n_sms_, stream);
  for (int i = 0; i < batch.n_samples && error == cudaSuccess; ++i) {
    if (error = hold_back(batch, i, stream); error != cudaSuccess) break;
    const HostClock::time_point begin = HostClock::now();
    error = queue(launch, events_[i], batch.flush, stream);
    result->ahead &= !passed(events_[i].start);
    const double host_us = us_between(begin, HostClock::now());
    if (i == 0) {
      result->first_us = host_us;
    } else {
      result->each_us += host_us / (batch.n_samples - 1);
    }
  }
  if (error == cudaSuccess) error = stamp(stamps_ + 2 * n_sms_, n_sms_, stream);
  return error;
}

// Before sample i: a spin that the host gets ahead in, or a wait until the queue is short again.
cudaError_t BatchTimer::hold_back(const Batch& batch, int i, cudaStream_t stream) {
  const bool paced = batch.per_spin == 0;
  if (paced ? i >= 2 : i > 0 && i % batch.per_spin == 0) {
    const cudaEvent_t last = events_[paced ? i - 2 : i - 1].stop;
    while (!passed(last)) {
    }
  }
  const bool spins = paced ? i == 0 : i % batch.per_spin == 0;
  return spins && batch.spin_ns > 0 ? spin(batch.spin_ns, stream) : cudaSuccess;
}

cudaError_t BatchTimer::queue(const std::function<void()>& launch, const Pair& pair, Flush flush,
                              cudaStream_t stream) {
  cudaError_t error = this->flush(flush, stream);
  // Makes every interval begin alike. Directly behind the flush, which fills the card, a start
  // event is stamped early by an amount that depends on the kernel that follows.
  if (error == cudaSuccess) error = empty(stream);
  if (error == cudaSuccess) error = cudaEventRecord(pair.start, stream);
  if (error != cudaSuccess) return error;
  launch();
  return cudaEventRecord(pair.stop, stream);
}

cudaError_t BatchTimer::flush(Flush mode, cudaStream_t stream) {
  switch (mode) {
    case Flush::kNone: return cudaSuccess;
    case Flush::kWrite: return cudaMemsetAsync(flush_buffer_, 0, flush_bytes_ / 2, stream);
    case Flush::kClean: return flush_l2(flush_buffer_, flush_bytes_, stream);
  }
  return cudaErrorInvalidValue;
}

cudaError_t BatchTimer::samples_us(int n_samples, std::vector<float>* out) const {
  out->assign(n_samples, 0.0f);
  for (int i = 0; i < n_samples; ++i) {
    float ms = 0.0f;
    const cudaError_t error = cudaEventElapsedTime(&ms, events_[i].start, events_[i].stop);
    if (error != cudaSuccess) return error;
    (*out)[i] = 1e3f * ms;
  }
  return cudaSuccess;
}

cudaError_t BatchTimer::sm_mhz(double* mhz) const {
  std::vector<int64_t> stamps(4 * n_sms_);
  const cudaError_t error =
      cudaMemcpy(stamps.data(), stamps_, stamps.size() * sizeof(int64_t), cudaMemcpyDeviceToHost);
  if (error != cudaSuccess) return error;
  std::vector<double> clocks;
  for (int64_t sm = 0; sm < n_sms_; ++sm) {
    const int64_t* before = &stamps[2 * sm];
    const int64_t* behind = &stamps[2 * (n_sms_ + sm)];
    if (before[1] == 0 || behind[1] <= before[1]) continue;
    clocks.push_back(1e3 * (behind[0] - before[0]) / (behind[1] - before[1]));
  }
  *mhz = 0.0;
  if (clocks.empty()) return cudaSuccess;
  const auto middle = clocks.begin() + clocks.size() / 2;
  std::nth_element(clocks.begin(), middle, clocks.end());
  *mhz = *middle;
  return cudaSuccess;
}

cudaError_t BatchTimer::grow(int n_samples) {
  while (static_cast<int>(events_.size()) < n_samples) {
    Pair pair = {};
    if (cudaError_t error = cudaEventCreate(&pair.start); error != cudaSuccess) return error;
    if (cudaError_t error = cudaEventCreate(&pair.stop); error != cudaSuccess) {
      cudaEventDestroy(pair.start);
      return error;
    }
    events_.push_back(pair);
  }
  return cudaSuccess;
}

}  // namespace cuda_vs_triton
