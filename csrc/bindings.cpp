// Python module harness._cuda. The only file that knows torch and pybind11: argument checks, device
// guard, current stream, one short block an op. Everything else lives behind kernels.h.
//
// Refusals: TypeError for a dtype, ValueError for everything else about an argument, RuntimeError
// when the launch failed. Each says what was wrong, the value got, the value wanted, what to do;
// the Triton launchers use the same words. Dimensions and strides count in elements.
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/utils/pybind.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "batch_timer.h"
#include "kernels.h"

#if __has_include("cvt_build_info.h")
#include "cvt_build_info.h"  // written by setup.py
#else
#define CVT_TORCH "unknown"
#define CVT_CUDA "unknown"
#define CVT_NVCC "unknown"
#define CVT_FLAGS "unknown"
#define CVT_ARCH_LIST "unknown"
#define CVT_HOST_COMPILER "unknown"
#define CVT_PTXAS "unknown"
#endif

namespace {

namespace py = pybind11;
namespace cvt = cuda_vs_triton;
using at::Tensor;
using std::string;
using std::to_string;

struct Arg {
  const char* name;
  const Tensor& tensor;
  const char* shape_word;  // "[M, K]": how the argument is meant to look
  int64_t n_dims;
};
using Args = std::initializer_list<Arg>;

// What Python prints for an attribute of a tensor; only called on the way to a refusal.
string text(const Tensor& t, const char* attribute) {
  py::object value = py::cast(t).attr(attribute);
  // torch.Size is a tuple already, so that py::tuple would leave it as it is.
  if (string(attribute) == "shape") value = py::module_::import("builtins").attr("tuple")(value);
  return py::str(value);
}

string strides_text(const Tensor& t) { return py::str(py::cast(t).attr("stride")()); }

string start(const char* op, const char* name) { return string(op) + ": " + name + " "; }

// Steps 1 to 4, the same for all ops: device, same device, dtype, dimensions.
void check_common(const char* op, Args args, std::initializer_list<at::ScalarType> dtypes,
                  const char* dtype_list, const char* first_dtype) {
  const Arg& x = *args.begin();
  for (const Arg& a : args) {
    if (!a.tensor.is_cuda()) {
      throw py::value_error(start(op, a.name) + "is on " + text(a.tensor, "device") +
                            ", wanted a CUDA device; pass " + a.name + ".cuda()");
    }
  }
  for (const Arg& a : args) {
    if (a.tensor.device() != x.tensor.device()) {
      throw py::value_error(start(op, a.name) + "is on " + text(a.tensor, "device") + ", wanted " +
                            text(x.tensor, "device") + " like " + x.name + "; pass " + a.name +
                            ".to(" + x.name + ".device)");
    }
  }
  bool known = false;
  for (at::ScalarType dtype : dtypes) known = known || x.tensor.scalar_type() == dtype;
  if (!known) {
    throw py::type_error(start(op, x.name) + "has dtype " + text(x.tensor, "dtype") +
                         ", wanted one of " + dtype_list + "; pass " + x.name + ".to(" +
                         first_dtype + ")");
  }
  for (const Arg& a : args) {
    if (a.tensor.scalar_type() != x.tensor.scalar_type()) {
      throw py::type_error(start(op, a.name) + "has dtype " + text(a.tensor, "dtype") +
                           ", wanted " + text(x.tensor, "dtype") + " like " + x.name + "; pass " +
                           a.name + ".to(" + text(x.tensor, "dtype") + ")");
    }
  }
  for (const Arg& a : args) {
    if (a.tensor.dim() != a.n_dims) {
      throw py::value_error(start(op, a.name) + "has " + to_string(a.tensor.dim()) +
                            " dimensions, wanted " + to_string(a.n_dims) + "; pass " + a.name +
                            " as " + a.shape_word);
    }
  }
}

void check_same_shape(const char* op, const Arg& a, const Arg& x) {
  if (a.tensor.sizes() != x.tensor.sizes()) {
    throw py::value_error(start(op, a.name) + "has shape " + text(a.tensor, "shape") + ", wanted " +
                          text(x.tensor, "shape") + " like " + x.name +
                          "; pass tensors of one shape");
  }
}

void check_contiguous(const char* op, const Arg& a) {
  if (!a.tensor.is_contiguous()) {
    throw py::value_error(start(op, a.name) + "is not contiguous (strides " +
                          strides_text(a.tensor) + "), wanted row-major contiguous; pass " +
                          a.name + ".contiguous()");
  }
}

// Bytes from the first to the last element; rows may be strided, columns are adjacent.
struct Span {
  int64_t begin, end;
};

Span span(const Tensor& t) {
  const int64_t begin = reinterpret_cast<int64_t>(t.data_ptr());
  if (t.numel() == 0) return {begin, begin};
  int64_t last = 0;
  for (int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
  return {begin, begin + (last + 1) * static_cast<int64_t>(t.element_size())};
}

bool spans_meet(const Tensor& a, const Tensor& b) {
  const Span s = span(a), t = span(b);
  return s.begin < t.end && t.begin < s.end;
}

void refuse_partial_overlap(const char* op, const char* name) {
  throw py::value_error(start(op, "out") + "overlaps " + name +
                        " in part, wanted the same memory or none shared; pass a fresh out");
}

cvt::DType dtype_of(const Tensor& t) {
  switch (t.scalar_type()) {
    case at::ScalarType::Float: return cvt::DType::kF32;
    case at::ScalarType::BFloat16: return cvt::DType::kBF16;
    default: return cvt::DType::kF16;  // check_common has refused all others
  }
}

void check_launch(const char* op, cudaError_t error) {
  if (error != cudaSuccess) {
    throw std::runtime_error(string(op) + ": launch failed: " + cudaGetErrorString(error));
  }
}

// For ops with a configuration: an unknown one is the caller's mistake, not a failed launch.
void check_launch(const char* op, cudaError_t error, const string& config, const char* wanted) {
  if (error == cudaErrorInvalidValue) {
    throw py::value_error(string(op) + ": " + config + " is not a configuration for this shape, " +
                          "wanted " + wanted + "; pass 0 for the default");
  }
  check_launch(op, error);
}

// Makes x's device current and finds the stream torch would use there.
struct Launch {
  explicit Launch(const Tensor& x)
      : guard(x.device()), stream(c10::cuda::getCurrentCUDAStream(x.device().index()).stream()) {}
  c10::cuda::CUDAGuard guard;
  cudaStream_t stream;
};

cudaStream_t current_stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

// ---- ops ---------------------------------------------------------------------------------------

void vector_add(const Tensor& x, const Tensor& y, const Tensor& out, int threads, int vectors) {
  constexpr auto op = "vector_add";
  const Arg args[] = {{"x", x, "[N]", 1}, {"y", y, "[N]", 1}, {"out", out, "[N]", 1}};
  check_common(op, {args[0], args[1], args[2]}, {at::kFloat, at::kBFloat16},
               "torch.float32, torch.bfloat16", "torch.float32");
  check_same_shape(op, args[1], args[0]);
  check_same_shape(op, args[2], args[0]);
  for (const Arg& a : args) {
    if (a.tensor.numel() > 1 && a.tensor.stride(0) != 1) {
      throw py::value_error(start(op, a.name) + "has stride " + to_string(a.tensor.stride(0)) +
                            ", wanted 1; pass " + a.name + ".contiguous()");
    }
  }
  for (const Arg* a : {&args[0], &args[1]}) {
    if (out.data_ptr() != a->tensor.data_ptr() && spans_meet(out, a->tensor)) {
      refuse_partial_overlap(op, a->name);
    }
  }
  Launch launch(x);
  check_launch(op,
               cvt::vector_add(x.data_ptr(), y.data_ptr(), out.data_ptr(), x.numel(), dtype_of(x),
                               threads, vectors, launch.stream),
               "threads=" + to_string(threads) + ", vectors=" + to_string(vectors),
               "threads of 128, 256, 512 and vectors of 1, 2, 4, 8");
}

void check_rows(const char* op, const Arg& a) {
  const int64_t n_rows = a.tensor.size(0), n_cols = a.tensor.size(1);
  if (n_cols > 1 && a.tensor.stride(1) != 1) {
    throw py::value_error(start(op, a.name) + "has last-dimension stride " +
                          to_string(a.tensor.stride(1)) + ", wanted 1; pass " + a.name +
                          ".contiguous()");
  }
  if (n_rows > 1 && a.tensor.stride(0) < n_cols) {
    throw py::value_error(start(op, a.name) + "has row stride " + to_string(a.tensor.stride(0)) +
                          ", wanted at least " + to_string(n_cols) + "; pass " + a.name +
                          ".contiguous()");
  }
}

// True when rows of x and out share bytes without being the same rows. Side-by-side column views of
// one matrix interleave without sharing.
bool rows_overlap_in_part(const Tensor& x, const Tensor& out) {
  const bool one_row = x.size(0) <= 1;
  const bool same_stride = one_row || x.stride(0) == out.stride(0);
  if (!spans_meet(x, out) || (x.data_ptr() == out.data_ptr() && same_stride)) return false;
  if (one_row || !same_stride) return true;
  const int64_t stride = x.stride(0) * static_cast<int64_t>(x.element_size());
  const int64_t width = x.size(1) * static_cast<int64_t>(x.element_size());
  int64_t distance = (span(out).begin - span(x).begin) % stride;
  if (distance < 0) distance += stride;
  return distance < width || distance > stride - width;
}

void softmax(const Tensor& x, const Tensor& out, int threads_per_row, int form) {
  constexpr auto op = "softmax";
  const Arg args[] = {{"x", x, "[rows, cols]", 2}, {"out", out, "[rows, cols]", 2}};
  check_common(op, {args[0], args[1]}, {at::kFloat, at::kBFloat16, at::kHalf},
               "torch.float32, torch.bfloat16, torch.float16", "torch.float32");
  check_same_shape(op, args[1], args[0]);
  for (const Arg& a : args) check_rows(op, a);
  if (rows_overlap_in_part(x, out)) refuse_partial_overlap(op, "x");
  Launch launch(x);
  check_launch(op,
               cvt::softmax(x.data_ptr(), out.data_ptr(), x.size(0), x.size(1), x.stride(0),
                            out.stride(0), dtype_of(x), threads_per_row, form, launch.stream),
               "threads_per_row=" + to_string(threads_per_row) + ", form=" + to_string(form),
               "form=1 with threads_per_row of 8 to 1024 (powers of two, cols <= 32 of them a "
               "thread), form=2 with 128 to 1024, form=3 with 256 to 1024");
}

void matmul_bias_relu(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& out,
                      int block_m, int block_n, int block_k, int stages) {
  constexpr auto op = "matmul_bias_relu";
  const Arg args[] = {
      {"x", x, "[M, K]", 2}, {"w", w, "[K, N]", 2}, {"b", b, "[N]", 1}, {"out", out, "[M, N]", 2}};
  check_common(op, {args[0], args[1], args[2], args[3]}, {at::kBFloat16, at::kHalf},
               "torch.bfloat16, torch.float16", "torch.bfloat16");
  const int64_t m = x.size(0), k = x.size(1), n = w.size(1);
  if (w.size(0) != k) {
    throw py::value_error(start(op, "w") + "has shape " + text(w, "shape") + ", wanted " +
                          to_string(k) + " rows like x's columns; pass w as [K, N]");
  }
  if (b.size(0) != n) {
    throw py::value_error(start(op, "b") + "has shape " + text(b, "shape") + ", wanted (" +
                          to_string(n) + ",) like w's columns; pass b as [N]");
  }
  if (out.size(0) != m || out.size(1) != n) {
    throw py::value_error(start(op, "out") + "has shape " + text(out, "shape") + ", wanted (" +
                          to_string(m) + ", " + to_string(n) + "); pass out as [M, N]");
  }
  for (const Arg& a : args) check_contiguous(op, a);
  for (const Arg* a : {&args[0], &args[1], &args[2]}) {
    if (spans_meet(out, a->tensor)) {
      throw py::value_error(start(op, "out") + "overlaps " + a->name +
                            ", wanted no shared memory; pass a fresh out");
    }
  }
  Launch launch(x);
  check_launch(
      op,
      cvt::matmul_bias_relu(x.data_ptr(), w.data_ptr(), b.data_ptr(), out.data_ptr(), m, n, k,
                            dtype_of(x), block_m, block_n, block_k, stages, launch.stream),
      "block_m=" + to_string(block_m) + ", block_n=" + to_string(block_n) +
          ", block_k=" + to_string(block_k) + ", stages=" + to_string(stages),
      "a row of the table in csrc/matmul_bias_relu.cu that fits this GPU's shared memory");
}

// ---- timing tools ------------------------------------------------------------------------------

// The tools take plain memory: CUDA, contiguous, a multiple of 16 bytes.
int64_t check_memory(const char* op, const char* name, const Tensor& t) {
  if (!t.is_cuda()) {
    throw py::value_error(start(op, name) + "is on " + text(t, "device") +
                          ", wanted a CUDA device; pass " + name + ".cuda()");
  }
  check_contiguous(op, {name, t, "", t.dim()});
  const int64_t bytes = t.numel() * static_cast<int64_t>(t.element_size());
  if (bytes % 16 != 0 || reinterpret_cast<uintptr_t>(t.data_ptr()) % 16 != 0) {
    throw py::value_error(start(op, name) + "has " + to_string(bytes) +
                          " bytes, wanted a multiple of 16 at a 16-byte address; pass whole packs");
  }
  return bytes;
}

int64_t check_memories(const char* op, std::initializer_list<Arg> args) {
  const Arg& first = *args.begin();
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

py::dict build_info() {
  py::dict info;
  info["torch"] = CVT_TORCH;
  info["cuda"] = CVT_CUDA;
  info["nvcc"] = CVT_NVCC;
  info["flags"] = CVT_FLAGS;
  info["arch_list"] = CVT_ARCH_LIST;
  info["host_compiler"] = CVT_HOST_COMPILER;
  info["ptxas"] = CVT_PTXAS;
  return info;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "CUDA side of the pairs and the device tools of the timing harness";
  using py::arg;
  m.def("vector_add", &vector_add, arg("x"), arg("y"), arg("out"), arg("threads") = 0,
        arg("vectors") = 0, "out = x + y");
  m.def("softmax", &softmax, arg("x"), arg("out"), arg("threads_per_row") = 0, arg("form") = 0,
        "out = softmax(x) over the last dimension; form: 1 registers, 2 shared, 3 looped");
  m.def("matmul_bias_relu", &matmul_bias_relu, arg("x"), arg("w"), arg("b"), arg("out"),
        arg("block_m") = 0, arg("block_n") = 0, arg("block_k") = 0, arg("stages") = 0,
        "out = relu(x @ w + b)");

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
  m.def("build_info", &build_info, "what this module was built with");
}
