#include "bindings/checks.h"
#include "bindings/families.h"
#include "bindings/launch.h"

namespace cuda_vs_triton::bindings {

namespace {

constexpr auto kWantedConfig =
    "a tile of block_m x block_n in {128x256, 256x128, 128x128, 128x64} with stages in 2..8 that "
    "fit and cluster 1 or 2 where wgmma runs (sm_90, pointers and rows of x, w and out of whole "
    "16 bytes), else {128x256, 128x128} with stages 3 or 4, 256x128 with 3 or 64x64 with 4, no "
    "cluster and no blocks";

void check_same_k(const char* op, const Arg& x, const Arg& w) {
  if (w.tensor.size(0) != x.tensor.size(1)) {
    throw py::value_error(start(op, "w") + "has shape " + text(w.tensor, "shape") + ", wanted " +
                          to_string(x.tensor.size(1)) + " rows like x's columns; pass w as [K, N]");
  }
}

void matmul(const Tensor& x, const Tensor& w, const Tensor& out, int block_m, int block_n,
            int stages, int cluster, int blocks) {
  constexpr auto op = "matmul";
  const Arg args[] = {{"x", x, "[M, K]", 2}, {"w", w, "[K, N]", 2}, {"out", out, "[M, N]", 2}};
  check_common(op, args, {at::kBFloat16, at::kHalf});
  check_same_k(op, args[0], args[1]);
  check_shape(op, args[2], {x.size(0), w.size(1)});
  const bool x_transposed = is_transposed(op, args[0]), w_transposed = is_transposed(op, args[1]);
  check_contiguous(op, args[2]);
  for (const Arg* a : {&args[0], &args[1]}) check_no_overlap(op, args[2], *a);
  Launch launch(x);
  check_launch(op,
               cvt::matmul(x.data_ptr(), w.data_ptr(), out.data_ptr(), x.size(0), w.size(1),
                           x.size(1), x_transposed, w_transposed, dtype_of(x), block_m, block_n,
                           stages, cluster, blocks, launch.stream),
               {{"block_m", block_m},
                {"block_n", block_n},
                {"stages", stages},
                {"cluster", cluster},
                {"blocks", blocks}},
               kWantedConfig);
}

// The fused products differ in their epilogue alone.
template <auto* kLauncher>
void fused(const char* op, const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& out,
           int block_m, int block_n, int stages, int cluster, int blocks) {
  const Arg args[] = {
      {"x", x, "[M, K]", 2}, {"w", w, "[K, N]", 2}, {"b", b, "[N]", 1}, {"out", out, "[M, N]", 2}};
  check_common(op, args, {at::kBFloat16, at::kHalf});
  check_same_k(op, args[0], args[1]);
  check_one_a_column(op, args[2], args[1]);
  check_shape(op, args[3], {x.size(0), w.size(1)});
  for (const Arg& a : args) check_contiguous(op, a);
  for (const Arg* a : {&args[0], &args[1], &args[2]}) check_no_overlap(op, args[3], *a);
  Launch launch(x);
  check_launch(
      op,
      kLauncher(x.data_ptr(), w.data_ptr(), b.data_ptr(), out.data_ptr(), x.size(0), w.size(1),
                x.size(1), dtype_of(x), block_m, block_n, stages, cluster, blocks, launch.stream),
      {{"block_m", block_m},
       {"block_n", block_n},
       {"stages", stages},
       {"cluster", cluster},
       {"blocks", blocks}},
      kWantedConfig);
}

void matmul_bias_relu(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& out,
                      int block_m, int block_n, int stages, int cluster, int blocks) {
  fused<cvt::matmul_bias_relu>("matmul_bias_relu", x, w, b, out, block_m, block_n, stages, cluster,
                               blocks);
}

void matmul_bias_gelu(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& out,
                      int block_m, int block_n, int stages, int cluster, int blocks) {
  fused<cvt::matmul_bias_gelu>("matmul_bias_gelu", x, w, b, out, block_m, block_n, stages, cluster,
                               blocks);
}

}  // namespace

void bind_product(py::module_& m) {
  using py::arg;
  m.def("matmul", &matmul, arg("x"), arg("w"), arg("out"), arg("block_m") = 0, arg("block_n") = 0,
        arg("stages") = 0, arg("cluster") = 0, arg("blocks") = 0,
        "out = x @ w; x and w row-major or transposed views");
  m.def("matmul_bias_relu", &matmul_bias_relu, arg("x"), arg("w"), arg("b"), arg("out"),
        arg("block_m") = 0, arg("block_n") = 0, arg("stages") = 0, arg("cluster") = 0,
        arg("blocks") = 0, "out = relu(x @ w + b)");
  m.def("matmul_bias_gelu", &matmul_bias_gelu, arg("x"), arg("w"), arg("b"), arg("out"),
        arg("block_m") = 0, arg("block_n") = 0, arg("stages") = 0, arg("cluster") = 0,
        arg("blocks") = 0, "out = gelu(x @ w + b), gelu by tanh");
}

}  // namespace cuda_vs_triton::bindings
