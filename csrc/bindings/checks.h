// What the bindings ask of their arguments before they launch anything. triton_kernels/_checks.py
// asks the same, in this order and in these words.
//
// Refusals: TypeError for a dtype, ValueError for everything else about an argument. Each says what
// was wrong, the value got, the value wanted, what to do. Dimensions and strides count in elements.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <optional>
#include <string>

namespace cuda_vs_triton::bindings {

namespace py = pybind11;
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
using Args = at::ArrayRef<Arg>;
using Dtypes = at::ArrayRef<at::ScalarType>;

inline constexpr at::ScalarType kAllFloats[] = {at::kFloat, at::kBFloat16, at::kHalf};

// ---- for texts of an op's own ------------------------------------------------------------------

// What Python prints for an attribute of a tensor; only called on the way to a refusal.
string text(const Tensor& t, const char* attribute);
// "op: name "
string start(const char* op, const char* name);

// ---- kinds and shapes --------------------------------------------------------------------------

void check_on_cuda(const char* op, const char* name, const Tensor& t);
// What comes first for all ops: device, same device, dtype, dimensions. `dtypes`: the first
// argument's, the one to advise first.
void check_common(const char* op, Args args, Dtypes dtypes);
void check_shape(const char* op, const Arg& a, at::IntArrayRef shape);
void check_same_shape(const char* op, const Arg& a, const Arg& x);
// `a` has one element for each column, or each row, of the matrix x.
void check_one_a_column(const char* op, const Arg& a, const Arg& x);
void check_one_a_row(const char* op, const Arg& a, const Arg& x);

// ---- strides -----------------------------------------------------------------------------------

void check_contiguous(const char* op, const Arg& a);
// Whether a matrix is the transposed view of a contiguous one; refused where it is neither.
bool is_transposed(const char* op, const Arg& a);
// For a vector.
void check_adjacent(const char* op, const Arg& a);
// For a matrix: columns are adjacent, rows may be strided but do not overlap.
void check_rows(const char* op, const Arg& a);

// ---- shared memory -----------------------------------------------------------------------------

void check_no_overlap(const char* op, const Arg& out, const Arg& a);
// `out` is exactly `a`, in place, or apart from it.
void check_exact_or_apart(const char* op, const Arg& out, const Arg& a);
// The same for matrices that check_rows has passed. Side-by-side column views of one matrix
// interleave without sharing: they are apart.
void check_rows_exact_or_apart(const char* op, const Arg& out, const Arg& a);
// For two outputs, which may interleave like that but not be one.
void check_rows_apart(const char* op, const Arg& out, const Arg& other);

}  // namespace cuda_vs_triton::bindings
