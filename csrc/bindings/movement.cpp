#include "bindings/checks.h"
#include "bindings/families.h"
#include "bindings/launch.h"

namespace cuda_vs_triton::bindings {

namespace {

void check_transpose(const char* op, const Tensor& x, const Tensor& out, Dtypes dtypes) {
  const Arg args[] = {{"x", x, "[M, N]", 2}, {"out", out, "[N, M]", 2}};
  check_common(op, args, dtypes);
  check_shape(op, args[1], {x.size(1), x.size(0)});
  for (const Arg& a : args) check_contiguous(op, a);
  check_no_overlap(op, args[1], args[0]);
}

void transpose(const Tensor& x, const Tensor& out, int row_packs, int col_packs, int group) {
  constexpr auto op = "transpose";
  check_transpose(op, x, out, {at::kFloat, at::kBFloat16, at::kChar});
  Launch launch(x);
  check_launch(op,
               cvt::transpose(x.data_ptr(), out.data_ptr(), x.size(0), x.size(1), dtype_of(x),
                              row_packs, col_packs, group, launch.stream),
               {{"row_packs", row_packs}, {"col_packs", col_packs}, {"group", group}},
               "row_packs x col_packs of 8x8, 16x8, 16x16, 32x8 and a group of 1 or more");
}

using Rung = cudaError_t (*)(const void*, void*, int64_t, int64_t, cudaStream_t);

template <Rung kLaunch>
void transpose_rung(const char* op, const Tensor& x, const Tensor& out) {
  check_transpose(op, x, out, {at::kFloat});
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
  check_common(op, args, {at::kFloat, at::kBFloat16});
  const int64_t n_tokens = x.size(0), n_heads = x.size(1), head_dim = x.size(2);
  if (head_dim % 2 != 0) {
    throw py::value_error(start(op, "x") + "has " + to_string(head_dim) +
                          " columns, wanted an even number; pass x as [T, H, D]");
  }
  for (const Arg* a : {&args[1], &args[2]}) check_shape(op, *a, {n_tokens, head_dim / 2});
  check_same_shape(op, args[3], args[0]);
  for (const Arg& a : args) check_contiguous(op, a);
  check_exact_or_apart(op, args[3], args[0]);
  for (const Arg* a : {&args[1], &args[2]}) check_no_overlap(op, args[3], *a);
  Launch launch(x);
  check_launch(op,
               cvt::rope(x.data_ptr(), cos.data_ptr(), sin.data_ptr(), out.data_ptr(), n_tokens,
                         n_heads, head_dim, dtype_of(x), heads, threads, launch.stream),
               {{"heads", heads}, {"threads", threads}},
               "heads of 1, 2, 4, 8, threads of 128, 256, 512 and H * D below 2^31");
}

}  // namespace

void bind_movement(py::module_& m) {
  using py::arg;
  m.def("transpose", &transpose, arg("x"), arg("out"), arg("row_packs") = 0, arg("col_packs") = 0,
        arg("group") = 0, "out = x.T");
  m.def("transpose_naive", &transpose_naive, arg("x"), arg("out"), "x.T, scattered writes");
  m.def("transpose_tiled", &transpose_tiled, arg("x"), arg("out"), "x.T, with bank conflicts");
  m.def("transpose_padded", &transpose_padded, arg("x"), arg("out"), "x.T, a padded tile");
  m.def("rope", &rope, arg("x"), arg("cos"), arg("sin"), arg("out"), arg("heads") = 0,
        arg("threads") = 0, "out = x, the halves of each head turned by cos and sin");
}

}  // namespace cuda_vs_triton::bindings
