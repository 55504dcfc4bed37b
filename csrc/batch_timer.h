// Times a batch of launches, each between two events, at the least host cost a launch. The loop is
// here and not in Python because every microsecond of it is paid twice: by the host that must stay
// ahead of the device, and by the spin that holds the device back meanwhile.
//
// Few samples wait in the queue at a time. With more than about fifteen launches behind it, an
// interval measured 0.7 to 1.2 us too long on an H200 (docs/facts.md), so the host either paces
// itself by the device, or queues a few samples behind a spin and waits for them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace cuda_vs_triton {

// One thread an SM writes {its SM's clock, global timer in ns} to out[2 * sm], out[2 * sm + 1]; a
// slot whose SM got no block keeps what it held.
cudaError_t stamp(int64_t* out, int64_t n_slots, cudaStream_t stream);

// What brings L2 into a known state before each sample: nothing; one write of the L2's size, which
// leaves dirty lines, as most timers do; or a write and a read of twice that, which leaves clean
// ones.
enum class Flush { kNone, kWrite, kClean };

struct Batch {
  int n_samples;
  Flush flush;
  int64_t spin_ns;  // holds the device back while the host gets ahead; 0 for no spin
  int per_spin;     // samples queued behind one spin; 0 for one spin and a host paced by the device
};

struct Enqueued {
  bool ahead;       // each stop event was queued before the device had reached its start event
  double first_us;  // host time of the first sample, from behind the spin to its stop event
  double each_us;   // mean host time of the further samples, waits left out; 0 without any
};

class BatchTimer {
 public:
  // flush_buffer: twice the L2. stamps: {SM clock, global timer} of n_sms SMs, once before the
  // samples and once behind them.
  BatchTimer(void* flush_buffer, int64_t flush_bytes, int64_t* stamps, int64_t n_sms)
      : flush_buffer_(flush_buffer), flush_bytes_(flush_bytes), stamps_(stamps), n_sms_(n_sms) {}
  ~BatchTimer();
  BatchTimer(const BatchTimer&) = delete;
  BatchTimer& operator=(const BatchTimer&) = delete;

  // The last samples may still run on return.
  cudaError_t enqueue(const std::function<void()>& launch, const Batch& batch, cudaStream_t stream,
                      Enqueued* result);

  cudaError_t flush(Flush mode, cudaStream_t stream);

  // Microseconds of each of the batch's samples, after the stream has been synchronised.
  cudaError_t samples_us(int n_samples, std::vector<float>* out) const;

  // Median over SMs of the mean clock from the first stamp to the second, 0 when unknown.
  cudaError_t sm_mhz(double* mhz) const;

 private:
  struct Pair {
    cudaEvent_t start, stop;
  };
  cudaError_t grow(int n_samples);
  cudaError_t hold_back(const Batch& batch, int i, cudaStream_t stream);
  cudaError_t queue(const std::function<void()>& launch, const Pair& pair, Flush flush,
                    cudaStream_t stream);

  void* flush_buffer_;
  int64_t flush_bytes_;
  int64_t* stamps_;
  int64_t n_sms_;
  std::vector<Pair> events_;
};

}  // namespace cuda_vs_triton
