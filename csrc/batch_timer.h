// Queues a batch of launches, each between two events, at the least host cost a launch. The loop is
// here and not in Python because every microsecond of it is paid twice: by the host that must stay
// ahead of the device, and by the spin that holds the device back meanwhile.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace cuda_vs_triton {

// What brings L2 into a known state before each sample.
enum class Flush { kNone, kWrite, kClean };

struct Enqueued {
  bool ahead;        // each stop event was queued before the device had reached its start event
  double first_us;   // host time up to the end of the first sample
  double others_us;  // host time of all further samples
};

class BatchTimer {
 public:
  // stamps: {SM clock, global timer} of n_sms SMs, once before the samples and once behind them.
  BatchTimer(void* flush_buffer, int64_t flush_bytes, int64_t* stamps, int64_t n_sms)
      : flush_buffer_(flush_buffer), flush_bytes_(flush_bytes), stamps_(stamps), n_sms_(n_sms) {}
  ~BatchTimer();
  BatchTimer(const BatchTimer&) = delete;
  BatchTimer& operator=(const BatchTimer&) = delete;

  // Waits for nothing, unless `launch` does.
  cudaError_t enqueue(const std::function<void()>& launch, int n_samples, Flush flush,
                      cudaStream_t stream, Enqueued* result);

  cudaError_t flush(Flush mode, cudaStream_t stream);

  // Microseconds of each of the batch's samples, after the stream has been synchronised.
  cudaError_t samples_us(int n_samples, std::vector<float>* out) const;

  // Microseconds from the first start event to the last stop event.
  cudaError_t device_us(int n_samples, float* out) const;

 private:
  struct Pair {
    cudaEvent_t start, stop;
  };
  cudaError_t grow(int n_samples);

  void* flush_buffer_;
  int64_t flush_bytes_;
  int64_t* stamps_;
  int64_t n_sms_;
  std::vector<Pair> events_;
};

}  // namespace cuda_vs_triton
