// See batch_timer.h.
#include <chrono>

#include "batch_timer.h"
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

cudaError_t BatchTimer::enqueue(const std::function<void()>& launch, int n_samples, Flush flush,
                                cudaStream_t stream, Enqueued* result) {
  if (cudaError_t error = grow(n_samples); error != cudaSuccess) return error;
  *result = {true, 0.0, 0.0};
  const HostClock::time_point begin = HostClock::now();
  HostClock::time_point first_end = begin;
  const size_t stamp_bytes = 4 * n_sms_ * sizeof(int64_t);
  cudaError_t error = cudaMemsetAsync(stamps_, 0, stamp_bytes, stream);
  if (error == cudaSuccess) error = stamp(stamps_, n_sms_, stream);
  for (int i = 0; i < n_samples && error == cudaSuccess; ++i) {
    const Pair& pair = events_[i];
    error = this->flush(flush, stream);
    // Makes every interval begin alike. Directly behind the flush, which fills the card, a start
    // event is stamped early by an amount that depends on the kernel that follows.
    if (error == cudaSuccess) error = empty(stream);
    if (error == cudaSuccess) error = cudaEventRecord(pair.start, stream);
    if (error != cudaSuccess) break;
    launch();
    error = cudaEventRecord(pair.stop, stream);
    result->ahead &= !passed(pair.start);
    if (i == 0) first_end = HostClock::now();
  }
  result->first_us = us_between(begin, first_end);
  result->others_us = us_between(first_end, HostClock::now());
  if (error == cudaSuccess) error = stamp(stamps_ + 2 * n_sms_, n_sms_, stream);
  return error;
}

cudaError_t BatchTimer::flush(Flush mode, cudaStream_t stream) {
  if (mode == Flush::kNone) return cudaSuccess;
  return flush_l2(flush_buffer_, flush_bytes_, mode == Flush::kClean, stream);
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

cudaError_t BatchTimer::device_us(int n_samples, float* out) const {
  const cudaError_t error =
      cudaEventElapsedTime(out, events_.front().start, events_[n_samples - 1].stop);
  *out *= 1e3f;
  return error;
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
