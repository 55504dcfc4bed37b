#include "bindings/checks.h"
#include "bindings/families.h"
#include "bindings/launch.h"

namespace cuda_vs_triton::bindings {

namespace {

void matmul_bias_relu(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& out,
                      int block_m, int block_n, int block_k, int stages) {
  constexpr auto op = "matmul_bias_relu";
  const Arg args[] = {
      {"x", x, "[M, K]", 2}, {"w", w, "[K, N]", 2}, {"b", b, "[N]", 1}, {"out", out, "[M, N]", 2}};
  check_common(op, args, {at::kBFloat16, at::kHalf});
  const int64_t m = x.size(0), k = x.size(1), n = w.size(1);
  if (w.size(0) != k) {
    throw py::value_error(start(op, "w") + "has shape " + text(w, "shape") + ", wanted " +
                          to_string(k) + " rows like x's columns; pass w as [K, N]");
  }
  check_one_a_column(op, args[2], args[1]);
  check_shape(op, args[3], {m, n});
  for (const Arg& a : args) check_contiguous(op, a);
  for (const Arg* a : {&args[0], &args[1], &args[2]}) check_no_overlap(op, args[3], *a);
  Launch launch(x);
  check_launch(
      op,
      cvt::matmul_bias_relu(x.data_ptr(), w.data_ptr(), b.data_ptr(), out.data_ptr(), m, n, k,
                            dtype_of(x), block_m, block_n, block_k, stages, launch.stream),
      {{"block_m", block_m}, {"block_n", block_n}, {"block_k", block_k}, {"stages", stages}},
      "a row of the table in csrc/matmul_bias_relu.cu that fits this GPU's shared memory");
}

}  // namespace

void bind_product(py::module_& m) {
  using py::arg;
  m.def("matmul_bias_relu", &matmul_bias_relu, arg("x"), arg("w"), arg("b"), arg("out"),
        arg("block_m") = 0, arg("block_n") = 0, arg("block_k") = 0, arg("stages") = 0,
        "out = relu(x @ w + b)");
}

}  // namespace cuda_vs_triton::bindings
