// Python module harness._cuda. The only file that knows torch and pybind11: argument checks, device
// guard, current stream, one short block an op. Everything else lives behind kernels.h.
//
// Refusals: TypeError for a dtype, ValueError for everything else about an argument, RuntimeError
// when the launch failed. Each says what was wrong, the value got, the value wanted, what to do;
// the Triton launchers use the same words. Dimensions and strides count in elements.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/utils/pybind.h>

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
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
  std::optional<at::ScalarType> dtype = std::nullopt;  // where it is not the first argument's
};
using Args = std::initializer_list<Arg>;

// What Python prints for an attribute of a tensor; only called on the way to a refusal.
string text(const Tensor& t, const char* attribute) {
  py::object value = py::cast(t).attr(attribute);
  // torch.Size is a tuple already, so that py::tuple would leave it as it is.
  if (string(attribute) == "shape") value = py::module_::import("builtins").attr("tuple")(value);
  return py::str(value);
}

string dtype_text(at::ScalarType dtype) { return py::str(py::cast(dtype)); }

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
    if (a.tensor.scalar_type() != a.dtype.value_or(x.tensor.scalar_type())) {
      const string wanted = a.dtype ? dtype_text(*a.dtype) : text(x.tensor, "dtype");
      throw py::type_error(start(op, a.name) + "has dtype " + text(a.tensor, "dtype") +
                           ", wanted " + wanted + (a.dtype ? "" : string(" like ") + x.name) +
                           "; pass " + a.name + ".to(" + wanted + ")");
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

void check_adjacent(const char* op, const Arg& a) {
  if (a.tensor.numel() > 1 && a.tensor.stride(0) != 1) {
    throw py::value_error(start(op, a.name) + "has stride " + to_string(a.tensor.stride(0)) +
                          ", wanted 1; pass " + a.name + ".contiguous()");
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

void refuse_partial_overlap(const char* op, const char* name, const char* out = "out") {
  throw py::value_error(start(op, out) + "overlaps " + name +
                        " in part, wanted the same memory or none shared; pass a fresh " + out);
}

void check_no_overlap(const char* op, const Arg& out, const Arg& a) {
  if (spans_meet(out.tensor, a.tensor)) {
    throw py::value_error(start(op, out.name) + "overlaps " + a.name +
                          ", wanted no shared memory; pass a fresh " + out.name);
  }
}

cvt::DType dtype_of(const Tensor& t) {
  switch (t.scalar_type()) {
    case at::ScalarType::Float: return cvt::DType::kF32;
    case at::ScalarType::BFloat16: return cvt::DType::kBF16;
    case at::ScalarType::Char: return cvt::DType::kI8;
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

// What vector_add and axpby ask of their vectors.
void check_two_vectors(const char* op, const Tensor& x, const Tensor& y, const Tensor& out) {
  const Arg args[] = {{"x", x, "[N]", 1}, {"y", y, "[N]", 1}, {"out", out, "[N]", 1}};
  check_common(op, {args[0], args[1], args[2]}, {at::kFloat, at::kBFloat16},
               "torch.float32, torch.bfloat16", "torch.float32");
  check_same_shape(op, args[1], args[0]);
  check_same_shape(op, args[2], args[0]);
  for (const Arg& a : args) check_adjacent(op, a);
  for (const Arg* a : {&args[0], &args[1]}) {
    if (out.data_ptr() != a->tensor.data_ptr() && spans_meet(out, a->tensor)) {
      refuse_partial_overlap(op, a->name);
    }
  }
}

string stream_config(int threads, int vectors) {
  return "threads=" + to_string(threads) + ", vectors=" + to_string(vectors);
}

void vector_add(const Tensor& x, const Tensor& y, const Tensor& out, int threads, int vectors) {
  constexpr auto op = "vector_add";
  check_two_vectors(op, x, y, out);
  Launch launch(x);
  check_launch(op,
               cvt::vector_add(x.data_ptr(), y.data_ptr(), out.data_ptr(), x.numel(), dtype_of(x),
                               threads, vectors, launch.stream),
               stream_config(threads, vectors),
               "threads of 64, 128, 256, 512 and vectors of 1, 2, 4, 8");
}

void axpby(const Tensor& x, const Tensor& y, const Tensor& out, double a, double b, int threads,
           int vectors) {
  constexpr auto op = "axpby";
  check_two_vectors(op, x, y, out);
  Launch launch(x);
  check_launch(
      op,
      cvt::axpby(x.data_ptr(), y.data_ptr(), out.data_ptr(), x.numel(), static_cast<float>(a),
                 static_cast<float>(b), dtype_of(x), threads, vectors, launch.stream),
      stream_config(threads, vectors), "threads of 64, 128, 256, 512 and vectors of 1, 2, 4, 8");
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

constexpr auto kSwigluConfigs = "threads of 64, 128, 256, 512 and vectors of 1, 2, 4";

void swiglu(const Tensor& gate, const Tensor& up, const Tensor& out, int threads, int vectors) {
  constexpr auto op = "swiglu";
  const Arg args[] = {{"gate", gate, "[rows, cols]", 2},
                      {"up", up, "[rows, cols]", 2},
                      {"out", out, "[rows, cols]", 2}};
  check_common(op, {args[0], args[1], args[2]}, {at::kFloat, at::kBFloat16, at::kHalf},
               "torch.float32, torch.bfloat16, torch.float16", "torch.float32");
  for (const Arg& a : args) check_same_shape(op, a, args[0]);
  for (const Arg& a : args) check_rows(op, a);
  if (rows_overlap_in_part(gate, out)) refuse_partial_overlap(op, "gate");
  if (rows_overlap_in_part(up, out)) refuse_partial_overlap(op, "up");
  Launch launch(gate);
  check_launch(op,
               cvt::swiglu(gate.data_ptr(), up.data_ptr(), out.data_ptr(), gate.size(0),
                           gate.size(1), gate.stride(0), up.stride(0), out.stride(0),
                           dtype_of(gate), threads, vectors, launch.stream),
               stream_config(threads, vectors), kSwigluConfigs);
}

void swiglu_backward(const Tensor& dout, const Tensor& gate, const Tensor& up, const Tensor& out,
                     const Tensor& dup, int threads, int vectors) {
  constexpr auto op = "swiglu_backward";
  const Arg inputs[] = {{"dout", dout, "[rows, cols]", 2},
                        {"gate", gate, "[rows, cols]", 2},
                        {"up", up, "[rows, cols]", 2}};
  const Arg outputs[] = {{"out", out, "[rows, cols]", 2}, {"dup", dup, "[rows, cols]", 2}};
  check_common(op, {inputs[0], inputs[1], inputs[2], outputs[0], outputs[1]},
               {at::kFloat, at::kBFloat16, at::kHalf},
               "torch.float32, torch.bfloat16, torch.float16", "torch.float32");
  for (const Arg& a : inputs) check_same_shape(op, a, inputs[0]);
  for (const Arg& a : outputs) check_same_shape(op, a, inputs[0]);
  for (const Arg& a : inputs) check_rows(op, a);
  for (const Arg& a : outputs) check_rows(op, a);
  for (const Arg& written : outputs) {
    for (const Arg& a : inputs) {
      if (rows_overlap_in_part(a.tensor, written.tensor)) {
        refuse_partial_overlap(op, a.name, written.name);
      }
    }
  }
  if (out.data_ptr() == dup.data_ptr() || rows_overlap_in_part(out, dup)) {
    check_no_overlap(op, outputs[1], outputs[0]);
  }
  Launch launch(dout);
  check_launch(op,
               cvt::swiglu_backward(dout.data_ptr(), gate.data_ptr(), up.data_ptr(), out.data_ptr(),
                                    dup.data_ptr(), dout.size(0), dout.size(1), dout.stride(0),
                                    gate.stride(0), up.stride(0), out.stride(0), dup.stride(0),
                                    dtype_of(dout), threads, vectors, launch.stream),
               stream_config(threads, vectors), kSwigluConfigs);
}

void check_softmax(const char* op, const Tensor& x, const Tensor& out) {
  const Arg args[] = {{"x", x, "[rows, cols]", 2}, {"out", out, "[rows, cols]", 2}};
  check_common(op, {args[0], args[1]}, {at::kFloat, at::kBFloat16, at::kHalf},
               "torch.float32, torch.bfloat16, torch.float16", "torch.float32");
  check_same_shape(op, args[1], args[0]);
  for (const Arg& a : args) check_rows(op, a);
  if (rows_overlap_in_part(x, out)) refuse_partial_overlap(op, "x");
}

void softmax(const Tensor& x, const Tensor& out, int threads_per_row, int form,
             int blocks_per_row) {
  constexpr auto op = "softmax";
  check_softmax(op, x, out);
  Launch launch(x);
  check_launch(
      op,
      cvt::softmax(x.data_ptr(), out.data_ptr(), x.size(0), x.size(1), x.stride(0), out.stride(0),
                   dtype_of(x), threads_per_row, form, blocks_per_row, launch.stream),
      "threads_per_row=" + to_string(threads_per_row) + ", form=" + to_string(form) +
          ", blocks_per_row=" + to_string(blocks_per_row),
      "form=1 with threads_per_row of 8 to 1024 (powers of two, cols <= 32 of them a "
      "thread), form=2 with 128 to 1024, form=3 with 256 to 1024, form=4 or 5 with "
      "blocks_per_row of 2, 4, 8, 16 and 256 or 512 threads in each on sm_90");
}

void softmax_naive(const Tensor& x, const Tensor& out) {
  constexpr auto op = "softmax_naive";
  check_softmax(op, x, out);
  Launch launch(x);
  check_launch(op, cvt::softmax_naive(x.data_ptr(), out.data_ptr(), x.size(0), x.size(1),
                                      x.stride(0), out.stride(0), dtype_of(x), launch.stream));
}

void softmax_online(const Tensor& x, const Tensor& out) {
  constexpr auto op = "softmax_online";
  check_softmax(op, x, out);
  Launch launch(x);
  check_launch(op, cvt::softmax_online(x.data_ptr(), out.data_ptr(), x.size(0), x.size(1),
                                       x.stride(0), out.stride(0), dtype_of(x), launch.stream));
}

void check_one_a_column(const char* op, const Arg& a, const Arg& x) {
  if (a.tensor.size(0) != x.tensor.size(1)) {
    throw py::value_error(start(op, a.name) + "has shape " + text(a.tensor, "shape") +
                          ", wanted (" + to_string(x.tensor.size(1)) + ",) like " + x.name +
                          "'s columns; pass " + a.name + " as " + a.shape_word);
  }
}

// What the norms ask of their tensors: rows like x's, parameters with one element a column, outputs
// that are exactly an input of rows or share nothing.
void check_norm(const char* op, Args inputs, Args parameters, Args outputs) {
  const Arg& x = *inputs.begin();
  for (const Args& rows : {inputs, outputs}) {
    for (const Arg& a : rows) check_same_shape(op, a, x);
  }
  for (const Arg& a : parameters) check_one_a_column(op, a, x);
  for (const Args& rows : {inputs, outputs}) {
    for (const Arg& a : rows) check_rows(op, a);
  }
  for (const Arg& a : parameters) check_adjacent(op, a);
  for (const Arg& out : outputs) {
    for (const Arg& a : inputs) {
      if (rows_overlap_in_part(a.tensor, out.tensor)) refuse_partial_overlap(op, a.name, out.name);
    }
    for (const Arg& a : parameters) check_no_overlap(op, out, a);
  }
}

string rms_config(int form, int threads_per_row, int blocks_per_row, int rows_per_thread) {
  return "form=" + to_string(form) + ", threads_per_row=" + to_string(threads_per_row) +
         ", blocks_per_row=" + to_string(blocks_per_row) +
         ", rows_per_thread=" + to_string(rows_per_thread);
}

constexpr auto kRmsConfigs =
    "form=1 with threads_per_row of 8 to 512 (powers of two, 16-byte packs of a row <= 8 of them a "
    "thread, 4 up to 32 threads), form=2 with blocks_per_row of 1 and, on sm_90, 2, 4, 8, 16 and "
    "256 or 512 threads in each, or 1024 in one, form=3 without threads; rows_per_thread of 2 or 4 "
    "where a thread has one pack, 2 where it has two";

void rms_norm(const Tensor& x, const Tensor& w, const Tensor& out, double eps, int form,
              int threads_per_row, int blocks_per_row, int rows_per_thread) {
  constexpr auto op = "rms_norm";
  const Arg args[] = {
      {"x", x, "[rows, cols]", 2}, {"w", w, "[cols]", 1}, {"out", out, "[rows, cols]", 2}};
  check_common(op, {args[0], args[1], args[2]}, {at::kFloat, at::kBFloat16, at::kHalf},
               "torch.float32, torch.bfloat16, torch.float16", "torch.float32");
  check_norm(op, {args[0]}, {args[1]}, {args[2]});
  Launch launch(x);
  check_launch(op,
               cvt::rms_norm(x.data_ptr(), w.data_ptr(), out.data_ptr(), x.size(0), x.size(1),
                             x.stride(0), out.stride(0), static_cast<float>(eps), dtype_of(x), form,
                             threads_per_row, blocks_per_row, rows_per_thread, launch.stream),
               rms_config(form, threads_per_row, blocks_per_row, rows_per_thread), kRmsConfigs);
}

void add_rms_norm(const Tensor& x, const Tensor& r, const Tensor& w, const Tensor& out,
                  const Tensor& h, double eps, int form, int threads_per_row, int blocks_per_row,
                  int rows_per_thread) {
  constexpr auto op = "add_rms_norm";
  const Arg args[] = {{"x", x, "[rows, cols]", 2},
                      {"r", r, "[rows, cols]", 2},
                      {"w", w, "[cols]", 1},
                      {"out", out, "[rows, cols]", 2},
                      {"h", h, "[rows, cols]", 2}};
  check_common(op, {args[0], args[1], args[2], args[3], args[4]},
               {at::kFloat, at::kBFloat16, at::kHalf},
               "torch.float32, torch.bfloat16, torch.float16", "torch.float32");
  check_norm(op, {args[0], args[1]}, {args[2]}, {args[3], args[4]});
  if (out.data_ptr() == h.data_ptr() || rows_overlap_in_part(out, h)) {
    check_no_overlap(op, args[4], args[3]);
  }
  Launch launch(x);
  check_launch(
      op,
      cvt::add_rms_norm(x.data_ptr(), r.data_ptr(), w.data_ptr(), out.data_ptr(), h.data_ptr(),
                        x.size(0), x.size(1), x.stride(0), r.stride(0), out.stride(0), h.stride(0),
                        static_cast<float>(eps), dtype_of(x), form, threads_per_row, blocks_per_row,
                        rows_per_thread, launch.stream),
      rms_config(form, threads_per_row, blocks_per_row, rows_per_thread), kRmsConfigs);
}

void layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& out, double eps,
                int threads_per_row, int form, int blocks_per_row) {
  constexpr auto op = "layer_norm";
  const Arg args[] = {{"x", x, "[rows, cols]", 2},
                      {"w", w, "[cols]", 1},
                      {"b", b, "[cols]", 1},
                      {"out", out, "[rows, cols]", 2}};
  check_common(op, {args[0], args[1], args[2], args[3]}, {at::kFloat, at::kBFloat16, at::kHalf},
               "torch.float32, torch.bfloat16, torch.float16", "torch.float32");
  check_norm(op, {args[0]}, {args[1], args[2]}, {args[3]});
  Launch launch(x);
  check_launch(
      op,
      cvt::layer_norm(x.data_ptr(), w.data_ptr(), b.data_ptr(), out.data_ptr(), x.size(0),
                      x.size(1), x.stride(0), out.stride(0), static_cast<float>(eps), dtype_of(x),
                      threads_per_row, form, blocks_per_row, launch.stream),
      "threads_per_row=" + to_string(threads_per_row) + ", form=" + to_string(form) +
          ", blocks_per_row=" + to_string(blocks_per_row),
      "form=1 with threads_per_row of 8 to 512 (powers of two, 16-byte packs of a row <= 4 "
      "of them, 8 of 512), form=2 with blocks_per_row of 1, 2, 4, 8, 16 and 256 or 512 "
      "threads in each (on sm_90 where there are several), form=3 without threads");
}

// Floats for a launch on x's device and `launch`'s stream that need no values: kept, and larger
// where a launch asks for more. A captured launch has memory of its own, which belongs to the
// graph.
Tensor float_scratch(const Tensor& x, const Launch& launch, int64_t n_floats) {
  const auto allocate = [&] { return at::empty({n_floats}, x.options().dtype(at::kFloat)); };
  if (c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None) {
    return allocate();
  }
  // Never destroyed: at exit the driver may be gone before it. The GIL guards it.
  static auto* kept = new std::map<std::pair<int, cudaStream_t>, Tensor>;
  Tensor& mine = (*kept)[{x.device().index(), launch.stream}];
  if (!mine.defined() || mine.numel() < n_floats) mine = allocate();
  return mine;
}

void layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& w, const Tensor& mean,
                         const Tensor& rstd, const Tensor& out, const Tensor& dw, const Tensor& db,
                         int threads_per_row, int form, int blocks_per_row, int blocks_per_sm) {
  constexpr auto op = "layer_norm_backward";
  constexpr int kInputs = 5, kTensors = 8;
  const Arg args[] = {{"dy", dy, "[rows, cols]", 2},
                      {"x", x, "[rows, cols]", 2},
                      {"w", w, "[cols]", 1},
                      {"mean", mean, "[rows]", 1, at::kFloat},
                      {"rstd", rstd, "[rows]", 1, at::kFloat},
                      {"out", out, "[rows, cols]", 2},
                      {"dw", dw, "[cols]", 1},
                      {"db", db, "[cols]", 1}};
  check_common(op, {args[0], args[1], args[2], args[3], args[4], args[5], args[6], args[7]},
               {at::kFloat, at::kBFloat16, at::kHalf},
               "torch.float32, torch.bfloat16, torch.float16", "torch.float32");
  for (const Arg* a : {&args[1], &args[5]}) check_same_shape(op, *a, args[0]);
  for (const Arg* a : {&args[2], &args[6], &args[7]}) check_one_a_column(op, *a, args[0]);
  for (const Arg* a : {&args[3], &args[4]}) {
    if (a->tensor.size(0) != dy.size(0)) {
      throw py::value_error(start(op, a->name) + "has shape " + text(a->tensor, "shape") +
                            ", wanted (" + to_string(dy.size(0)) + ",) like dy's rows; pass " +
                            a->name + " as " + a->shape_word);
    }
  }
  for (const Arg& a : args) check_contiguous(op, a);
  for (int i = kInputs; i < kTensors; ++i) {
    for (int j = 0; j < i; ++j) check_no_overlap(op, args[i], args[j]);
  }
  Launch launch(x);
  const Tensor scratch = float_scratch(x, launch, cvt::layer_norm_backward_scratch(x.size(1)));
  const auto floats = [](const Tensor& t) { return static_cast<float*>(t.data_ptr()); };
  check_launch(
      op,
      cvt::layer_norm_backward(dy.data_ptr(), x.data_ptr(), w.data_ptr(), floats(mean),
                               floats(rstd), out.data_ptr(), dw.data_ptr(), db.data_ptr(),
                               x.size(0), x.size(1), dtype_of(x), floats(scratch), threads_per_row,
                               form, blocks_per_row, blocks_per_sm, launch.stream),
      "threads_per_row=" + to_string(threads_per_row) + ", form=" + to_string(form) +
          ", blocks_per_row=" + to_string(blocks_per_row) +
          ", blocks_per_sm=" + to_string(blocks_per_sm),
      "form=1 with threads_per_row of 32, 128, 256, 512 (16-byte packs of a row <= 4 of "
      "them) or blocks_per_row of 2, 4, 8 and 256 or 512 threads in each on sm_90, form=2 "
      "without any");
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
  for (const Arg* a : {&args[0], &args[1], &args[2]}) check_no_overlap(op, args[3], *a);
  Launch launch(x);
  check_launch(
      op,
      cvt::matmul_bias_relu(x.data_ptr(), w.data_ptr(), b.data_ptr(), out.data_ptr(), m, n, k,
                            dtype_of(x), block_m, block_n, block_k, stages, launch.stream),
      "block_m=" + to_string(block_m) + ", block_n=" + to_string(block_n) +
          ", block_k=" + to_string(block_k) + ", stages=" + to_string(stages),
      "a row of the table in csrc/matmul_bias_relu.cu that fits this GPU's shared memory");
}

void dropout(const Tensor& x, const Tensor& out, double p, int64_t seed, int threads, int vectors) {
  constexpr auto op = "dropout";
  const Arg args[] = {{"x", x, "[N]", 1}, {"out", out, "[N]", 1}};
  check_common(op, {args[0], args[1]}, {at::kFloat, at::kBFloat16}, "torch.float32, torch.bfloat16",
               "torch.float32");
  check_same_shape(op, args[1], args[0]);
  for (const Arg& a : args) check_adjacent(op, a);
  if (x.data_ptr() != out.data_ptr() && spans_meet(x, out)) refuse_partial_overlap(op, "x");
  if (!(p >= 0.0 && p < 1.0)) {
    throw py::value_error(start(op, "p") + "is " + string(py::str(py::float_(p))) +
                          ", wanted 0 <= p < 1; pass a probability");
  }
  Launch launch(x);
  check_launch(op,
               cvt::dropout(x.data_ptr(), out.data_ptr(), x.numel(), p, static_cast<uint64_t>(seed),
                            dtype_of(x), threads, vectors, launch.stream),
               "threads=" + to_string(threads) + ", vectors=" + to_string(vectors),
               "threads of 128, 256, 512 and vectors of 1, 2, 4");
}

void adamw(const Tensor& p, const Tensor& g, const Tensor& m, const Tensor& v, const Tensor& out,
           const Tensor& m_out, const Tensor& v_out, double lr, double beta1, double beta2,
           double eps, double weight_decay, int64_t step, int threads, int vectors) {
  constexpr auto op = "adamw";
  constexpr int kInputs = 4, kTensors = 7;
  const Arg args[] = {{"p", p, "[N]", 1},        {"g", g, "[N]", 1},     {"m", m, "[N]", 1},
                      {"v", v, "[N]", 1},        {"out", out, "[N]", 1}, {"m_out", m_out, "[N]", 1},
                      {"v_out", v_out, "[N]", 1}};
  check_common(op, {args[0], args[1], args[2], args[3], args[4], args[5], args[6]}, {at::kFloat},
               "torch.float32", "torch.float32");
  for (const Arg& a : args) check_same_shape(op, a, args[0]);
  for (const Arg& a : args) check_adjacent(op, a);
  for (int i = kInputs; i < kTensors; ++i) {
    const Tensor& written = args[i].tensor;
    for (int j = 0; j < kInputs; ++j) {
      const Tensor& read = args[j].tensor;
      if (written.data_ptr() != read.data_ptr() && spans_meet(written, read)) {
        refuse_partial_overlap(op, args[j].name, args[i].name);
      }
    }
    for (int j = kInputs; j < i; ++j) check_no_overlap(op, args[i], args[j]);
  }
  if (step < 1) {
    throw py::value_error(start(op, "step") + "is " + to_string(step) +
                          ", wanted 1 or more; count steps from 1");
  }
  const auto data = [](const Tensor& t) { return static_cast<float*>(t.data_ptr()); };
  Launch launch(p);
  check_launch(
      op,
      cvt::adamw(data(p), data(g), data(m), data(v), data(out), data(m_out), data(v_out), p.numel(),
                 {lr, beta1, beta2, eps, weight_decay, step}, threads, vectors, launch.stream),
      "threads=" + to_string(threads) + ", vectors=" + to_string(vectors),
      "threads of 128, 256, 512 and vectors of 1, 2, 4");
}

// x, out and scale of the two: kinds first, then memory; between them an op checks x's columns.
void check_quant_kinds(const char* op, const Arg& x, const Arg& out, const Arg& scale) {
  check_common(op, {x, out, scale}, {at::kBFloat16, at::kHalf}, "torch.bfloat16, torch.float16",
               "torch.bfloat16");
  check_same_shape(op, out, x);
}

void check_quant_memory(const char* op, const Arg& x, const Arg& out, const Arg& scale,
                        const std::vector<int64_t>& scale_shape) {
  if (scale.tensor.sizes() != at::IntArrayRef(scale_shape)) {
    const string wanted = py::str(py::tuple(py::cast(scale_shape)));
    throw py::value_error(start(op, scale.name) + "has shape " + text(scale.tensor, "shape") +
                          ", wanted " + wanted + "; pass scale as " + scale.shape_word);
  }
  for (const Arg* a : {&x, &out, &scale}) check_contiguous(op, *a);
  check_no_overlap(op, out, x);
  check_no_overlap(op, scale, x);
  check_no_overlap(op, scale, out);
}

void quant_fp8_token(const Tensor& x, const Tensor& out, const Tensor& scale, int threads_per_row) {
  constexpr auto op = "quant_fp8_token";
  const Arg args[] = {{"x", x, "[rows, cols]", 2},
                      {"out", out, "[rows, cols]", 2, at::kFloat8_e4m3fn},
                      {"scale", scale, "[rows]", 1, at::kFloat}};
  check_quant_kinds(op, args[0], args[1], args[2]);
  if (x.size(1) == 0) {
    throw py::value_error(start(op, "x") +
                          "has 0 columns, wanted 1 or more; pass rows with elements");
  }
  check_quant_memory(op, args[0], args[1], args[2], {x.size(0)});
  Launch launch(x);
  check_launch(
      op,
      cvt::quant_fp8_token(x.data_ptr(), out.data_ptr(), static_cast<float*>(scale.data_ptr()),
                           x.size(0), x.size(1), dtype_of(x), threads_per_row, launch.stream),
      "threads_per_row=" + to_string(threads_per_row),
      "threads_per_row of 32 to 512 (powers of two, cols <= 64 of them a thread)");
}

void quant_fp8_group(const Tensor& x, const Tensor& out, const Tensor& scale, int threads,
                     int groups) {
  constexpr auto op = "quant_fp8_group";
  constexpr int kGroupSize = 128;
  const Arg args[] = {{"x", x, "[rows, cols]", 2},
                      {"out", out, "[rows, cols]", 2, at::kFloat8_e4m3fn},
                      {"scale", scale, "[rows, cols / 128]", 2, at::kFloat}};
  check_quant_kinds(op, args[0], args[1], args[2]);
  if (x.size(1) % kGroupSize != 0) {
    throw py::value_error(start(op, "x") + "has " + to_string(x.size(1)) +
                          " columns, wanted a multiple of 128; pass x padded to whole groups");
  }
  check_quant_memory(op, args[0], args[1], args[2], {x.size(0), x.size(1) / kGroupSize});
  Launch launch(x);
  check_launch(
      op,
      cvt::quant_fp8_group(x.data_ptr(), out.data_ptr(), static_cast<float*>(scale.data_ptr()),
                           x.size(0), x.size(1), dtype_of(x), threads, groups, launch.stream),
      "threads=" + to_string(threads) + ", groups=" + to_string(groups),
      "threads of 128, 256, 512 and groups of 1, 2, 4");
}

// Memory for a launch on x's device and `launch`'s stream whose blocks merge through it. It is
// zeroed once and left zeroed by the kernels, which follow each other on a stream. A graph may be
// replayed beside others: a captured launch has memory and a zero fill of its own, which belong to
// the graph.
class ScratchMemory {
 public:
  ScratchMemory(const Tensor& x, const Launch& launch) {
    if (c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None) {
      memory_ = allocate(x);
      return;
    }
    // Never destroyed: at exit the driver may be gone before it. The GIL guards it.
    static auto* kept = new std::map<std::pair<int, cudaStream_t>, Tensor>;
    Tensor& mine = (*kept)[{x.device().index(), launch.stream}];
    if (!mine.defined()) mine = allocate(x);
    memory_ = mine;
  }

  cvt::Scratch get() const {
    auto* words = static_cast<unsigned*>(memory_.data_ptr());
    return {words, reinterpret_cast<float*>(words + cvt::kScratchCounters)};
  }

 private:
  static Tensor allocate(const Tensor& x) {
    const int64_t n_words = cvt::kScratchCounters + cvt::kScratchPartials;
    Tensor memory = at::empty({n_words}, x.options().dtype(at::kInt));
    memory.narrow(0, 0, cvt::kScratchCounters).zero_();
    return memory;
  }

  Tensor memory_;
};

// x: [N], out: [1] in float32, apart from each other.
void check_full_sum(const char* op, const Arg& x, const Arg& out) {
  check_common(op, {x, out}, {at::kFloat, at::kBFloat16, at::kHalf},
               "torch.float32, torch.bfloat16, torch.float16", "torch.float32");
  if (out.tensor.size(0) != 1) {
    throw py::value_error(start(op, "out") + "has shape " + text(out.tensor, "shape") +
                          ", wanted (1,); pass out as [1]");
  }
  check_adjacent(op, x);
  check_no_overlap(op, out, x);
}

template <auto* kLaunch>
void full_sum(const char* op, const Tensor& x, const Tensor& out, int threads, int vectors,
              int blocks_per_sm) {
  check_full_sum(op, {"x", x, "[N]", 1}, {"out", out, "[1]", 1, at::kFloat});
  Launch launch(x);
  const ScratchMemory memory(x, launch);
  check_launch(op,
               kLaunch(x.data_ptr(), out.data_ptr(), x.numel(), dtype_of(x), memory.get(), threads,
                       vectors, blocks_per_sm, launch.stream),
               "threads=" + to_string(threads) + ", vectors=" + to_string(vectors) +
                   ", blocks_per_sm=" + to_string(blocks_per_sm),
               "threads of 256, 512, vectors of 4, 8 and blocks_per_sm of 1 to 32");
}

void reduce_sum(const Tensor& x, const Tensor& out, int threads, int vectors, int blocks_per_sm) {
  full_sum<cvt::reduce_sum>("reduce_sum", x, out, threads, vectors, blocks_per_sm);
}

void squared_norm(const Tensor& x, const Tensor& out, int threads, int vectors, int blocks_per_sm) {
  full_sum<cvt::squared_norm>("squared_norm", x, out, threads, vectors, blocks_per_sm);
}

// The rungs below reduce_sum.
template <auto* kLaunch>
void full_sum_rung(const char* op, const Tensor& x, const Tensor& out) {
  check_full_sum(op, {"x", x, "[N]", 1}, {"out", out, "[1]", 1, at::kFloat});
  Launch launch(x);
  const ScratchMemory memory(x, launch);
  check_launch(op, kLaunch(x.data_ptr(), out.data_ptr(), x.numel(), dtype_of(x), memory.get(),
                           launch.stream));
}

void reduce_sum_atomics(const Tensor& x, const Tensor& out) {
  full_sum_rung<cvt::reduce_sum_atomics>("reduce_sum_atomics", x, out);
}

void reduce_sum_tree(const Tensor& x, const Tensor& out) {
  full_sum_rung<cvt::reduce_sum_tree>("reduce_sum_tree", x, out);
}

template <auto* kLaunch>
void cub_sum(const char* op, const Tensor& x, const Tensor& out) {
  check_full_sum(op, {"x", x, "[N]", 1}, {"out", out, "[1]", 1, at::kFloat});
  Launch launch(x);
  const auto call = [&](void* scratch, size_t* bytes) {
    check_launch(op, kLaunch(scratch, bytes, x.data_ptr(), out.data_ptr(), x.numel(), dtype_of(x),
                             launch.stream));
  };
  size_t bytes = 0;
  call(nullptr, &bytes);
  const Tensor scratch = at::empty({static_cast<int64_t>(bytes)}, x.options().dtype(at::kByte));
  call(scratch.data_ptr(), &bytes);
}

void cub_reduce_sum(const Tensor& x, const Tensor& out) {
  cub_sum<cvt::cub_reduce_sum>("cub_reduce_sum", x, out);
}

void cub_squared_norm(const Tensor& x, const Tensor& out) {
  cub_sum<cvt::cub_squared_norm>("cub_squared_norm", x, out);
}

void column_sum(const Tensor& x, const Tensor& out, int vectors, int blocks_per_sm) {
  constexpr auto op = "column_sum";
  const Arg args[] = {{"x", x, "[M, N]", 2}, {"out", out, "[N]", 1, at::kFloat}};
  check_common(op, {args[0], args[1]}, {at::kFloat, at::kBFloat16, at::kHalf},
               "torch.float32, torch.bfloat16, torch.float16", "torch.float32");
  if (out.size(0) != x.size(1)) {
    throw py::value_error(start(op, "out") + "has shape " + text(out, "shape") + ", wanted (" +
                          to_string(x.size(1)) + ",) like x's columns; pass out as [N]");
  }
  check_rows(op, args[0]);
  check_adjacent(op, args[1]);
  check_no_overlap(op, args[1], args[0]);
  Launch launch(x);
  const ScratchMemory memory(x, launch);
  check_launch(op,
               cvt::column_sum(x.data_ptr(), out.data_ptr(), x.size(0), x.size(1), x.stride(0),
                               dtype_of(x), memory.get(), vectors, blocks_per_sm, launch.stream),
               "vectors=" + to_string(vectors) + ", blocks_per_sm=" + to_string(blocks_per_sm),
               "vectors of 4, 8 and blocks_per_sm of 1 to 16");
}

void check_transpose(const char* op, const Tensor& x, const Tensor& out,
                     std::initializer_list<at::ScalarType> dtypes, const char* dtype_list) {
  const Arg args[] = {{"x", x, "[M, N]", 2}, {"out", out, "[N, M]", 2}};
  check_common(op, {args[0], args[1]}, dtypes, dtype_list, "torch.float32");
  if (out.size(0) != x.size(1) || out.size(1) != x.size(0)) {
    throw py::value_error(start(op, "out") + "has shape " + text(out, "shape") + ", wanted (" +
                          to_string(x.size(1)) + ", " + to_string(x.size(0)) +
                          "); pass out as [N, M]");
  }
  for (const Arg& a : args) check_contiguous(op, a);
  check_no_overlap(op, args[1], args[0]);
}

void transpose(const Tensor& x, const Tensor& out, int row_packs, int col_packs, int group) {
  constexpr auto op = "transpose";
  check_transpose(op, x, out, {at::kFloat, at::kBFloat16, at::kChar},
                  "torch.float32, torch.bfloat16, torch.int8");
  Launch launch(x);
  check_launch(op,
               cvt::transpose(x.data_ptr(), out.data_ptr(), x.size(0), x.size(1), dtype_of(x),
                              row_packs, col_packs, group, launch.stream),
               "row_packs=" + to_string(row_packs) + ", col_packs=" + to_string(col_packs) +
                   ", group=" + to_string(group),
               "row_packs x col_packs of 8x8, 16x8, 16x16, 32x8 and a group of 1 or more");
}

using Rung = cudaError_t (*)(const void*, void*, int64_t, int64_t, cudaStream_t);

template <Rung kLaunch>
void transpose_rung(const char* op, const Tensor& x, const Tensor& out) {
  check_transpose(op, x, out, {at::kFloat}, "torch.float32");
  Launch launch(x);
  check_launch(op, kLaunch(x.data_ptr(), out.data_ptr(), x.size(0), x.size(1), launch.stream));
}

void transpose_naive(const Tensor& x, const Tensor& out) {
  transpose_rung<cvt::transpose_naive>("transpose_naive", x, out);
}

void transpose_tiled(const Tensor& x, const Tensor& out) {
  transpose_rung<cvt::transpose_tiled>("transpose_tiled", x, out);
}

void transpose_padded(const Tensor& x, const Tensor& out) {
  transpose_rung<cvt::transpose_padded>("transpose_padded", x, out);
}

void rope(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& out, int heads,
          int threads) {
  constexpr auto op = "rope";
  const Arg args[] = {{"x", x, "[T, H, D]", 3},
                      {"cos", cos, "[T, D / 2]", 2},
                      {"sin", sin, "[T, D / 2]", 2},
                      {"out", out, "[T, H, D]", 3}};
  check_common(op, {args[0], args[1], args[2], args[3]}, {at::kFloat, at::kBFloat16},
               "torch.float32, torch.bfloat16", "torch.float32");
  const int64_t n_tokens = x.size(0), n_heads = x.size(1), head_dim = x.size(2);
  if (head_dim % 2 != 0) {
    throw py::value_error(start(op, "x") + "has " + to_string(head_dim) +
                          " columns, wanted an even number; pass x as [T, H, D]");
  }
  for (const Arg* a : {&args[1], &args[2]}) {
    if (a->tensor.size(0) != n_tokens || a->tensor.size(1) != head_dim / 2) {
      throw py::value_error(start(op, a->name) + "has shape " + text(a->tensor, "shape") +
                            ", wanted (" + to_string(n_tokens) + ", " + to_string(head_dim / 2) +
                            "); pass " + a->name + " as [T, D / 2]");
    }
  }
  check_same_shape(op, args[3], args[0]);
  for (const Arg& a : args) check_contiguous(op, a);
  if (out.data_ptr() != x.data_ptr() && spans_meet(out, x)) refuse_partial_overlap(op, "x");
  for (const Arg* a : {&args[1], &args[2]}) check_no_overlap(op, args[3], *a);
  Launch launch(x);
  check_launch(op,
               cvt::rope(x.data_ptr(), cos.data_ptr(), sin.data_ptr(), out.data_ptr(), n_tokens,
                         n_heads, head_dim, dtype_of(x), heads, threads, launch.stream),
               "heads=" + to_string(heads) + ", threads=" + to_string(threads),
               "heads of 1, 2, 4, 8, threads of 128, 256, 512 and H * D below 2^31");
}

// What both cross entropies ask of the logits and of what has one number a row.
void check_cross_entropy(const char* op, const Arg& x, const Arg& target, const Arg& loss) {
  check_rows(op, x);
  for (const Arg* a : {&target, &loss}) {
    if (a->tensor.size(0) != x.tensor.size(0)) {
      throw py::value_error(start(op, a->name) + "has shape " + text(a->tensor, "shape") +
                            ", wanted (" + to_string(x.tensor.size(0)) + ",) like x's rows; pass " +
                            a->name + " as " + a->shape_word);
    }
    check_adjacent(op, *a);
  }
  check_no_overlap(op, loss, x);
  check_no_overlap(op, loss, target);
}

void cross_entropy(const Tensor& x, const Tensor& target, const Tensor& out, int threads_per_row,
                   int blocks_per_sm) {
  constexpr auto op = "cross_entropy";
  const Arg args[] = {{"x", x, "[rows, cols]", 2},
                      {"target", target, "[rows]", 1, at::kLong},
                      {"out", out, "[rows]", 1, at::kFloat}};
  check_common(op, {args[0], args[1], args[2]}, {at::kFloat, at::kBFloat16, at::kHalf},
               "torch.float32, torch.bfloat16, torch.float16", "torch.float32");
  check_cross_entropy(op, args[0], args[1], args[2]);
  Launch launch(x);
  check_launch(
      op,
      cvt::cross_entropy(x.data_ptr(), static_cast<const int64_t*>(target.data_ptr()),
                         static_cast<float*>(out.data_ptr()), x.size(0), x.size(1), x.stride(0),
                         dtype_of(x), threads_per_row, blocks_per_sm, launch.stream),
      "threads_per_row=" + to_string(threads_per_row) +
          ", blocks_per_sm=" + to_string(blocks_per_sm),
      "threads_per_row of 32, 128, 256, 512 and blocks_per_sm of 1 or more");
}

void cross_entropy_dlogits(const Tensor& x, const Tensor& target, const Tensor& out,
                           const Tensor& loss, int threads_per_row, int form, int blocks_per_row) {
  constexpr auto op = "cross_entropy_dlogits";
  const Arg args[] = {{"x", x, "[rows, cols]", 2},
                      {"target", target, "[rows]", 1, at::kLong},
                      {"out", out, "[rows, cols]", 2},
                      {"loss", loss, "[rows]", 1, at::kFloat}};
  check_common(op, {args[0], args[1], args[2], args[3]}, {at::kFloat, at::kBFloat16, at::kHalf},
               "torch.float32, torch.bfloat16, torch.float16", "torch.float32");
  check_same_shape(op, args[2], args[0]);
  check_cross_entropy(op, args[0], args[1], args[3]);
  check_rows(op, args[2]);
  if (rows_overlap_in_part(x, out)) refuse_partial_overlap(op, "x");
  check_no_overlap(op, args[2], args[1]);
  check_no_overlap(op, args[3], args[2]);
  Launch launch(x);
  check_launch(
      op,
      cvt::cross_entropy_dlogits(x.data_ptr(), static_cast<const int64_t*>(target.data_ptr()),
                                 out.data_ptr(), static_cast<float*>(loss.data_ptr()), x.size(0),
                                 x.size(1), x.stride(0), out.stride(0), dtype_of(x),
                                 threads_per_row, form, blocks_per_row, launch.stream),
      "threads_per_row=" + to_string(threads_per_row) + ", form=" + to_string(form) +
          ", blocks_per_row=" + to_string(blocks_per_row),
      "form=1 with threads_per_row of 32 to 512 (powers of two, 64 bytes of a row a "
      "thread at most), form=2 with blocks_per_row of 1, 2, 4, 8, 16 (above 1 on sm_90) and 256 or "
      "512 threads in each, form=3 with 512 or 1024, the first two where x and out are aligned "
      "alike");
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
  m.def("axpby", &axpby, arg("x"), arg("y"), arg("out"), arg("a") = 2.0, arg("b") = -0.5,
        arg("threads") = 0, arg("vectors") = 0, "out = a * x + b * y");
  m.def("swiglu", &swiglu, arg("gate"), arg("up"), arg("out"), arg("threads") = 0,
        arg("vectors") = 0, "out = silu(gate) * up");
  m.def("swiglu_backward", &swiglu_backward, arg("dout"), arg("gate"), arg("up"), arg("out"),
        arg("dup"), arg("threads") = 0, arg("vectors") = 0,
        "out, dup = the gradients of swiglu's gate and up");
  m.def("softmax", &softmax, arg("x"), arg("out"), arg("threads_per_row") = 0, arg("form") = 0,
        arg("blocks_per_row") = 0,
        "out = softmax(x) over the last dimension; form: 1 registers, 2 shared, 3 looped, 4 and 5 "
        "as 1 and 2 over a cluster");
  m.def("softmax_naive", &softmax_naive, arg("x"), arg("out"), "softmax in three passes");
  m.def("softmax_online", &softmax_online, arg("x"), arg("out"), "softmax in two passes");
  m.def("rms_norm", &rms_norm, arg("x"), arg("w"), arg("out"), arg("eps") = 1e-6, arg("form") = 0,
        arg("threads_per_row") = 0, arg("blocks_per_row") = 0, arg("rows_per_thread") = 0,
        "out = x * rsqrt(mean(x^2) + eps) * w; form: 1 registers, 2 staged, 3 looped");
  m.def("add_rms_norm", &add_rms_norm, arg("x"), arg("r"), arg("w"), arg("out"), arg("h"),
        arg("eps") = 1e-6, arg("form") = 0, arg("threads_per_row") = 0, arg("blocks_per_row") = 0,
        arg("rows_per_thread") = 0, "h = x + r, out = rms_norm(h) before h is rounded");
  m.def("layer_norm", &layer_norm, arg("x"), arg("w"), arg("b"), arg("out"), arg("eps") = 1e-5,
        arg("threads_per_row") = 0, arg("form") = 0, arg("blocks_per_row") = 0,
        "out = (x - mean) / root of the variance * w + b; form: 1 registers, 2 resident, 3 looped");
  m.def("layer_norm_backward", &layer_norm_backward, arg("dy"), arg("x"), arg("w"), arg("mean"),
        arg("rstd"), arg("out"), arg("dw"), arg("db"), arg("threads_per_row") = 0, arg("form") = 0,
        arg("blocks_per_row") = 0, arg("blocks_per_sm") = 0,
        "out, dw, db = gradients of layer_norm's x, w, b; form: 1 staged, 2 looped");
  m.def("matmul_bias_relu", &matmul_bias_relu, arg("x"), arg("w"), arg("b"), arg("out"),
        arg("block_m") = 0, arg("block_n") = 0, arg("block_k") = 0, arg("stages") = 0,
        "out = relu(x @ w + b)");
  m.def("quant_fp8_token", &quant_fp8_token, arg("x"), arg("out"), arg("scale"),
        arg("threads_per_row") = 0, "out = e4m3(x / scale), one scale = amax / 448 a row");
  m.def("quant_fp8_group", &quant_fp8_group, arg("x"), arg("out"), arg("scale"), arg("threads") = 0,
        arg("groups") = 0,
        "out = e4m3(x / scale), one scale = amax / 448 for 128 elements of a row");
  m.def("dropout", &dropout, arg("x"), arg("out"), arg("p") = 0.1, arg("seed") = 0,
        arg("threads") = 0, arg("vectors") = 0, "out = x / (1 - p) where Philox keeps it, else 0");
  m.def("adamw", &adamw, arg("p"), arg("g"), arg("m"), arg("v"), arg("out"), arg("m_out"),
        arg("v_out"), arg("lr") = 1e-3, arg("beta1") = 0.9, arg("beta2") = 0.999, arg("eps") = 1e-8,
        arg("weight_decay") = 0.01, arg("step") = 10, arg("threads") = 0, arg("vectors") = 0,
        "out, m_out, v_out = one AdamW step of p, m, v along g");
  m.def("reduce_sum", &reduce_sum, arg("x"), arg("out"), arg("threads") = 0, arg("vectors") = 0,
        arg("blocks_per_sm") = 0, "out = sum of x, in float32");
  m.def("reduce_sum_atomics", &reduce_sum_atomics, arg("x"), arg("out"),
        "out = sum of x, by an atomicAdd of every thread");
  m.def("reduce_sum_tree", &reduce_sum_tree, arg("x"), arg("out"),
        "out = sum of x, by a shared-memory tree and an atomicAdd of every block");
  m.def("squared_norm", &squared_norm, arg("x"), arg("out"), arg("threads") = 0, arg("vectors") = 0,
        arg("blocks_per_sm") = 0, "out = sum of x * x, in float32");
  m.def("column_sum", &column_sum, arg("x"), arg("out"), arg("vectors") = 0,
        arg("blocks_per_sm") = 0, "out = sums over the rows of x, in float32");
  m.def("cub_reduce_sum", &cub_reduce_sum, arg("x"), arg("out"), "out = sum of x, by CUB");
  m.def("cub_squared_norm", &cub_squared_norm, arg("x"), arg("out"), "out = sum of x * x, by CUB");
  m.def("transpose", &transpose, arg("x"), arg("out"), arg("row_packs") = 0, arg("col_packs") = 0,
        arg("group") = 0, "out = x.T");
  m.def("transpose_naive", &transpose_naive, arg("x"), arg("out"), "x.T, scattered writes");
  m.def("transpose_tiled", &transpose_tiled, arg("x"), arg("out"), "x.T, with bank conflicts");
  m.def("transpose_padded", &transpose_padded, arg("x"), arg("out"), "x.T, a padded tile");
  m.def("rope", &rope, arg("x"), arg("cos"), arg("sin"), arg("out"), arg("heads") = 0,
        arg("threads") = 0, "out = x, the halves of each head turned by cos and sin");
  m.def("cross_entropy", &cross_entropy, arg("x"), arg("target"), arg("out"),
        arg("threads_per_row") = 0, arg("blocks_per_sm") = 0,
        "out = logsumexp(x) - x[target] over the last dimension");
  m.def("cross_entropy_dlogits", &cross_entropy_dlogits, arg("x"), arg("target"), arg("out"),
        arg("loss"), arg("threads_per_row") = 0, arg("form") = 0, arg("blocks_per_row") = 0,
        "out = softmax(x) - onehot(target), and loss; form: 1 registers, 2 shared, 3 looped");

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
