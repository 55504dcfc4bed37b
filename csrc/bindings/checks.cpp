#include "bindings/checks.h"

#include <algorithm>

namespace cuda_vs_triton::bindings {

namespace {

string dtype_text(at::ScalarType dtype) { return py::str(py::cast(dtype)); }

string strides_text(const Tensor& t) { return py::str(py::cast(t).attr("stride")()); }

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

// True when rows of x and out share bytes without being the same rows.
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

[[noreturn]] void refuse_partial_overlap(const char* op, const Arg& out, const Arg& a) {
  throw py::value_error(start(op, out.name) + "overlaps " + a.name +
                        " in part, wanted the same memory or none shared; pass a fresh " +
                        out.name);
}

// For an argument with an element for each of the n columns, or rows, of x.
void check_one_each(const char* op, const Arg& a, int64_t n, const Arg& x, const char* of_x) {
  if (a.tensor.size(0) != n) {
    throw py::value_error(start(op, a.name) + "has shape " + text(a.tensor, "shape") +
                          ", wanted (" + to_string(n) + ",) like " + x.name + of_x + "; pass " +
                          a.name + " as " + a.shape_word);
  }
}

}  // namespace

string text(const Tensor& t, const char* attribute) {
  py::object value = py::cast(t).attr(attribute);
  // torch.Size is a tuple already, so that py::tuple would leave it as it is.
  if (string(attribute) == "shape") value = py::module_::import("builtins").attr("tuple")(value);
  return py::str(value);
}

string start(const char* op, const char* name) { return string(op) + ": " + name + " "; }

void check_on_cuda(const char* op, const char* name, const Tensor& t) {
  if (!t.is_cuda()) {
    throw py::value_error(start(op, name) + "is on " + text(t, "device") +
                          ", wanted a CUDA device; pass " + name + ".cuda()");
  }
}

void check_common(const char* op, Args args, Dtypes dtypes) {
  const Arg& x = args.front();
  for (const Arg& a : args) check_on_cuda(op, a.name, a.tensor);
  for (const Arg& a : args) {
    if (a.tensor.device() != x.tensor.device()) {
      throw py::value_error(start(op, a.name) + "is on " + text(a.tensor, "device") + ", wanted " +
                            text(x.tensor, "device") + " like " + x.name + "; pass " + a.name +
                            ".to(" + x.name + ".device)");
    }
  }
  if (std::find(dtypes.begin(), dtypes.end(), x.tensor.scalar_type()) == dtypes.end()) {
    string list;
    for (at::ScalarType dtype : dtypes) list += (list.empty() ? "" : ", ") + dtype_text(dtype);
    throw py::type_error(start(op, x.name) + "has dtype " + text(x.tensor, "dtype") +
                         ", wanted one of " + list + "; pass " + x.name + ".to(" +
                         dtype_text(dtypes.front()) + ")");
  }
  for (const Arg& a : args) {
    const at::ScalarType wanted = a.dtype.value_or(x.tensor.scalar_type());
    if (a.tensor.scalar_type() != wanted) {
      throw py::type_error(start(op, a.name) + "has dtype " + text(a.tensor, "dtype") +
                           ", wanted " + dtype_text(wanted) +
                           (a.dtype ? "" : string(" like ") + x.name) + "; pass " + a.name +
                           ".to(" + dtype_text(wanted) + ")");
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

void check_shape(const char* op, const Arg& a, at::IntArrayRef shape) {
  if (a.tensor.sizes() != shape) {
    const string wanted = py::str(py::tuple(py::cast(shape.vec())));
    throw py::value_error(start(op, a.name) + "has shape " + text(a.tensor, "shape") + ", wanted " +
                          wanted + "; pass " + a.name + " as " + a.shape_word);
  }
}

void check_same_shape(const char* op, const Arg& a, const Arg& x) {
  if (a.tensor.sizes() != x.tensor.sizes()) {
    throw py::value_error(start(op, a.name) + "has shape " + text(a.tensor, "shape") + ", wanted " +
                          text(x.tensor, "shape") + " like " + x.name +
                          "; pass tensors of one shape");
  }
}

void check_one_a_column(const char* op, const Arg& a, const Arg& x) {
  check_one_each(op, a, x.tensor.size(1), x, "'s columns");
}

void check_one_a_row(const char* op, const Arg& a, const Arg& x) {
  check_one_each(op, a, x.tensor.size(0), x, "'s rows");
}

void check_contiguous(const char* op, const Arg& a) {
  if (!a.tensor.is_contiguous()) {
    throw py::value_error(start(op, a.name) + "is not contiguous (strides " +
                          strides_text(a.tensor) + "), wanted row-major contiguous; pass " +
                          a.name + ".contiguous()");
  }
}

bool is_transposed(const char* op, const Arg& a) {
  if (a.tensor.is_contiguous()) return false;
  if (a.tensor.t().is_contiguous()) return true;
  throw py::value_error(
      start(op, a.name) + "is neither row-major nor the transpose of a row-major matrix (strides " +
      strides_text(a.tensor) + "), wanted one of these; pass " + a.name + ".contiguous()");
}

void check_adjacent(const char* op, const Arg& a) {
  if (a.tensor.numel() > 1 && a.tensor.stride(0) != 1) {
    throw py::value_error(start(op, a.name) + "has stride " + to_string(a.tensor.stride(0)) +
                          ", wanted 1; pass " + a.name + ".contiguous()");
  }
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

void check_no_overlap(const char* op, const Arg& out, const Arg& a) {
  if (spans_meet(out.tensor, a.tensor)) {
    throw py::value_error(start(op, out.name) + "overlaps " + a.name +
                          ", wanted no shared memory; pass a fresh " + out.name);
  }
}

void check_exact_or_apart(const char* op, const Arg& out, const Arg& a) {
  if (out.tensor.data_ptr() != a.tensor.data_ptr() && spans_meet(out.tensor, a.tensor)) {
    refuse_partial_overlap(op, out, a);
  }
}

void check_rows_exact_or_apart(const char* op, const Arg& out, const Arg& a) {
  if (rows_overlap_in_part(a.tensor, out.tensor)) refuse_partial_overlap(op, out, a);
}

void check_rows_apart(const char* op, const Arg& out, const Arg& other) {
  if (out.tensor.data_ptr() == other.tensor.data_ptr() ||
      rows_overlap_in_part(other.tensor, out.tensor)) {
    check_no_overlap(op, out, other);
  }
}

}  // namespace cuda_vs_triton::bindings
