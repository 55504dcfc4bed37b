#include <c10/cuda/CUDAStream.h>

#include <optional>
#include <vector>

#include "batch_timer.h"
#include "bindings/checks.h"
#include "bindings/families.h"
#include "bindings/launch.h"

namespace cuda_vs_triton::bindings {

namespace {

// The tools take plain memory: CUDA, contiguous, a multiple of 16 bytes.
int64_t check_memory(const char* op, const char* name, const Tensor& t) {
  check_on_cuda(op, name, t);
  check_contiguous(op, {name, t, "", t.dim()});
  const int64_t bytes = t.numel() * static_cast<int64_t>(t.element_size());
  if (bytes % 16 != 0 || reinterpret_cast<uintptr_t>(t.data_ptr()) % 16 != 0) {
    throw py::value_error(start(op, name) + "has " + to_string(bytes) +
                          " bytes, wanted a multiple of 16 at a 16-byte address; pass whole packs");
  }
  return bytes;
}

int64_t check_memories(const char* op, Args args) {
  const Arg& first = args.front();
  const int64_t bytes = check_memory(op, first.name, first.tensor);
  for (const Arg& a : args) {
    const int64_t other = check_memory(op, a.name, a.tensor);
    if (other != bytes || a.tensor.device() != first.tensor.device()) {
      throw py::value_error(start(op, a.name) + "has " + to_string(other) + " bytes on " +
                            text(a.tensor, "device") + ", wanted " + to_string(bytes) + " on " +
                            text(first.tensor, "device") + " like " + first.name +
                            "; pass tensors of one size");
    }
  }
  return bytes;
}

void check_shape_index(const char* op, int shape) {
  if (shape < 0 || shape >= cvt::roof_shapes()) {
    throw py::value_error(string(op) + ": shape is " + to_string(shape) + ", wanted 0 to " +
                          to_string(cvt::roof_shapes() - 1) + "; see roof_shapes()");
  }
}

cudaStream_t current_stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

void spin(int64_t ns) { check_launch("spin", cvt::spin(ns, current_stream())); }

void empty() { check_launch("empty", cvt::empty(current_stream())); }

void flush_l2(const Tensor& buffer) {
  const int64_t bytes = check_memory("flush_l2", "buffer", buffer);
  Launch launch(buffer);
  check_launch("flush_l2", cvt::flush_l2(buffer.data_ptr(), bytes, launch.stream));
}

// Owns what the timer points to.
class PyBatchTimer {
 public:
  PyBatchTimer(const Tensor& flush_buffer, const Tensor& stamps)
      : flush_buffer_(flush_buffer),
        stamps_(stamps),
        timer_(flush_buffer.data_ptr(), check_memory("BatchTimer", "flush_buffer", flush_buffer),
               static_cast<int64_t*>(stamps.data_ptr()), check_stamps(stamps)) {}

  // (host stayed ahead, host us of the first sample, mean host us of the others)
  py::tuple enqueue(const py::function& launch, int n_samples, const string& flush, int64_t spin_ns,
                    int per_spin) {
    if (n_samples < 1 || spin_ns < 0 || per_spin < 0) {
      throw py::value_error("BatchTimer.enqueue: n_samples, spin_ns, per_spin are " +
                            to_string(n_samples) + ", " + to_string(spin_ns) + ", " +
                            to_string(per_spin) + ", wanted 1 or more, 0 or more, 0 or more");
    }
    Launch at(flush_buffer_);
    cvt::Enqueued done;
    const cvt::Batch batch = {n_samples, parse_flush(flush), spin_ns, per_spin};
    check_launch("BatchTimer.enqueue",
                 timer_.enqueue([&launch] { launch(); }, batch, at.stream, &done));
    n_samples_ = n_samples;
    return py::make_tuple(done.ahead, done.first_us, done.each_us);
  }

  void flush(const string& mode) {
    Launch at(flush_buffer_);
    check_launch("BatchTimer.flush", timer_.flush(parse_flush(mode), at.stream));
  }

  std::vector<float> samples_us() const {
    std::vector<float> times;
    check_launch("BatchTimer.samples_us", timer_.samples_us(n_samples_, &times));
    return times;
  }

  std::optional<double> sm_mhz() const {
    double mhz = 0.0;
    check_launch("BatchTimer.sm_mhz", timer_.sm_mhz(&mhz));
    return mhz > 0.0 ? std::optional<double>(mhz) : std::nullopt;
  }

 private:
  // The number of SMs that they have room for.
  static int64_t check_stamps(const Tensor& stamps) {
    check_memory("BatchTimer", "stamps", stamps);
    if (stamps.scalar_type() != at::kLong || stamps.dim() != 3 || stamps.size(0) != 2 ||
        stamps.size(1) == 0 || stamps.size(2) != 2) {
      throw py::value_error("BatchTimer: stamps has shape " + text(stamps, "shape") +
                            " and dtype " + text(stamps, "dtype") +
                            ", wanted (2, SMs, 2) and torch.int64; pass torch.zeros((2, n_sms, "
                            "2), dtype=torch.int64, device=\"cuda\")");
    }
    return stamps.size(1);
  }

  static cvt::Flush parse_flush(const string& name) {
    if (name == "clean") return cvt::Flush::kClean;
    if (name == "write") return cvt::Flush::kWrite;
    if (name == "none") return cvt::Flush::kNone;
    throw py::value_error("BatchTimer: flush is \"" + name + "\", wanted clean, write or none");
  }

  Tensor flush_buffer_, stamps_;
  cvt::BatchTimer timer_;
  int n_samples_ = 0;
};

void roof_copy(const Tensor& dst, const Tensor& src, int shape) {
  const int64_t bytes = check_memories("roof_copy", {{"dst", dst, "", 1}, {"src", src, "", 1}});
  check_shape_index("roof_copy", shape);
  Launch launch(dst);
  check_launch("roof_copy",
               cvt::roof_copy(dst.data_ptr(), src.data_ptr(), bytes, shape, launch.stream));
}

void roof_read(const Tensor& src, const Tensor& sink, int shape) {
  const int64_t bytes = check_memory("roof_read", "src", src);
  if (sink.device() != src.device() || sink.numel() * sink.element_size() < 4) {
    throw py::value_error("roof_read: sink has " + to_string(sink.numel() * sink.element_size()) +
                          " bytes on " + text(sink, "device") + ", wanted at least 4 on " +
                          text(src, "device") + " like src; pass a one-element int32 tensor");
  }
  check_shape_index("roof_read", shape);
  Launch launch(src);
  check_launch("roof_read",
               cvt::roof_read(src.data_ptr(), bytes, sink.data_ptr(), shape, launch.stream));
}

void roof_write(const Tensor& dst, int shape) {
  const int64_t bytes = check_memory("roof_write", "dst", dst);
  check_shape_index("roof_write", shape);
  Launch launch(dst);
  check_launch("roof_write", cvt::roof_write(dst.data_ptr(), bytes, shape, launch.stream));
}

void roof_add(const Tensor& dst, const Tensor& a, const Tensor& b, int shape) {
  const int64_t bytes =
      check_memories("roof_add", {{"dst", dst, "", 1}, {"a", a, "", 1}, {"b", b, "", 1}});
  check_shape_index("roof_add", shape);
  Launch launch(dst);
  check_launch("roof_add", cvt::roof_add(dst.data_ptr(), a.data_ptr(), b.data_ptr(), bytes, shape,
                                         launch.stream));
}

void reset_persisting_l2() { check_launch("reset_persisting_l2", cvt::reset_persisting_l2()); }

}  // namespace

void bind_timing(py::module_& m) {
  using py::arg;
  m.def("spin", &spin, arg("ns"), "keeps the current stream busy for ns nanoseconds");
  m.def("empty", &empty, "launches a kernel that does nothing");
  m.def("flush_l2", &flush_l2, arg("buffer"), "writes the buffer and reads it back");
  py::class_<PyBatchTimer>(m, "BatchTimer", "queues launches, each between two events")
      .def(py::init<const Tensor&, const Tensor&>(), arg("flush_buffer"), arg("stamps"))
      .def("enqueue", &PyBatchTimer::enqueue, arg("launch"), arg("n_samples"), arg("flush"),
           arg("spin_ns"), arg("per_spin"),
           "(host stayed ahead, host us of the first sample, mean host us of the others)")
      .def("flush", &PyBatchTimer::flush, arg("mode"), "what precedes each sample, once")
      .def("samples_us", &PyBatchTimer::samples_us, "times of the last batch, synchronised")
      .def("sm_mhz", &PyBatchTimer::sm_mhz, "mean SM clock over that batch, None when unknown");
  m.def("roof_shapes", &cvt::roof_shapes, "number of launch shapes of the roof kernels");
  m.def("roof_copy", &roof_copy, arg("dst"), arg("src"), arg("shape"), "dst = src");
  m.def("roof_read", &roof_read, arg("src"), arg("sink"), arg("shape"), "reads src");
  m.def("roof_write", &roof_write, arg("dst"), arg("shape"), "fills dst");
  m.def("roof_add", &roof_add, arg("dst"), arg("a"), arg("b"), arg("shape"), "dst = a + b in f32");
  m.def("reset_persisting_l2", &reset_persisting_l2, "turns persisting L2 lines back to normal");
}

}  // namespace cuda_vs_triton::bindings
