#include "bindings/checks.h"
#include "bindings/families.h"
#include "bindings/launch.h"

namespace cuda_vs_triton::bindings {

namespace {

// x, out and scale of the two: kinds first, then memory; between them an op checks x's columns.
void check_quant_kinds(const char* op, Args args) {
  check_common(op, args, {at::kBFloat16, at::kHalf});
  check_same_shape(op, args[1], args[0]);
}

void check_quant_memory(const char* op, Args args, at::IntArrayRef scale_shape) {
  const Arg &x = args[0], &out = args[1], &scale = args[2];
  check_shape(op, scale, scale_shape);
  for (const Arg& a : args) check_contiguous(op, a);
  check_no_overlap(op, out, x);
  check_no_overlap(op, scale, x);
  check_no_overlap(op, scale, out);
}

void quant_fp8_token(const Tensor& x, const Tensor& out, const Tensor& scale, int threads_per_row) {
  constexpr auto op = "quant_fp8_token";
  const Arg args[] = {{"x", x, "[rows, cols]", 2},
                      {"out", out, "[rows, cols]", 2, at::kFloat8_e4m3fn},
                      {"scale", scale, "[rows]", 1, at::kFloat}};
  check_quant_kinds(op, args);
  if (x.size(1) == 0) {
    throw py::value_error(start(op, "x") +
                          "has 0 columns, wanted 1 or more; pass rows with elements");
  }
  check_quant_memory(op, args, {x.size(0)});
  Launch launch(x);
  check_launch(op,
               cvt::quant_fp8_token(x.data_ptr(), out.data_ptr(), floats(scale), x.size(0),
                                    x.size(1), dtype_of(x), threads_per_row, launch.stream),
               {{"threads_per_row", threads_per_row}},
               "threads_per_row of 32 to 512 (powers of two, cols <= 64 of them a thread)");
}

void quant_fp8_group(const Tensor& x, const Tensor& out, const Tensor& scale, int threads,
                     int groups) {
  constexpr auto op = "quant_fp8_group";
  constexpr int kGroupSize = 128;
  const Arg args[] = {{"x", x, "[rows, cols]", 2},
                      {"out", out, "[rows, cols]", 2, at::kFloat8_e4m3fn},
                      {"scale", scale, "[rows, cols / 128]", 2, at::kFloat}};
  check_quant_kinds(op, args);
  if (x.size(1) % kGroupSize != 0) {
    throw py::value_error(start(op, "x") + "has " + to_string(x.size(1)) +
                          " columns, wanted a multiple of 128; pass x padded to whole groups");
  }
  check_quant_memory(op, args, {x.size(0), x.size(1) / kGroupSize});
  Launch launch(x);
  check_launch(op,
               cvt::quant_fp8_group(x.data_ptr(), out.data_ptr(), floats(scale), x.size(0),
                                    x.size(1), dtype_of(x), threads, groups, launch.stream),
               {{"threads", threads}, {"groups", groups}},
               "threads of 128, 256, 512 and groups of 1, 2, 4");
}

}  // namespace

void bind_quant(py::module_& m) {
  using py::arg;
  m.def("quant_fp8_token", &quant_fp8_token, arg("x"), arg("out"), arg("scale"),
        arg("threads_per_row") = 0, "out = e4m3(x / scale), one scale = amax / 448 a row");
  m.def("quant_fp8_group", &quant_fp8_group, arg("x"), arg("out"), arg("scale"), arg("threads") = 0,
        arg("groups") = 0,
        "out = e4m3(x / scale), one scale = amax / 448 for 128 elements of a row");
}

}  // namespace cuda_vs_triton::bindings
