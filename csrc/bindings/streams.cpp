#include "bindings/checks.h"
#include "bindings/families.h"
#include "bindings/launch.h"

namespace cuda_vs_triton::bindings {

namespace {

// What vector_add and axpby ask of their vectors.
void check_two_vectors(const char* op, const Tensor& x, const Tensor& y, const Tensor& out) {
  const Arg args[] = {{"x", x, "[N]", 1}, {"y", y, "[N]", 1}, {"out", out, "[N]", 1}};
  check_common(op, args, {at::kFloat, at::kBFloat16});
  for (const Arg& a : args) check_same_shape(op, a, args[0]);
  for (const Arg& a : args) check_adjacent(op, a);
  for (const Arg* a : {&args[0], &args[1]}) check_exact_or_apart(op, args[2], *a);
}

constexpr auto kTwoVectorsConfigs = "threads of 64, 128, 256, 512 and vectors of 1, 2, 4, 8";

void vector_add(const Tensor& x, const Tensor& y, const Tensor& out, int threads, int vectors) {
  constexpr auto op = "vector_add";
  check_two_vectors(op, x, y, out);
  Launch launch(x);
  check_launch(op,
               cvt::vector_add(x.data_ptr(), y.data_ptr(), out.data_ptr(), x.numel(), dtype_of(x),
                               threads, vectors, launch.stream),
               {{"threads", threads}, {"vectors", vectors}}, kTwoVectorsConfigs);
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
      {{"threads", threads}, {"vectors", vectors}}, kTwoVectorsConfigs);
}

constexpr auto kConfigs = "threads of 128, 256, 512 and vectors of 1, 2, 4";

void dropout(const Tensor& x, const Tensor& out, double p, int64_t seed, int threads, int vectors) {
  constexpr auto op = "dropout";
  const Arg args[] = {{"x", x, "[N]", 1}, {"out", out, "[N]", 1}};
  check_common(op, args, {at::kFloat, at::kBFloat16});
  check_same_shape(op, args[1], args[0]);
  for (const Arg& a : args) check_adjacent(op, a);
  check_exact_or_apart(op, args[1], args[0]);
  if (!(p >= 0.0 && p < 1.0)) {
    throw py::value_error(start(op, "p") + "is " + string(py::str(py::float_(p))) +
                          ", wanted 0 <= p < 1; pass a probability");
  }
  Launch launch(x);
  check_launch(op,
               cvt::dropout(x.data_ptr(), out.data_ptr(), x.numel(), p, static_cast<uint64_t>(seed),
                            dtype_of(x), threads, vectors, launch.stream),
               {{"threads", threads}, {"vectors", vectors}}, kConfigs);
}

void adamw(const Tensor& p, const Tensor& g, const Tensor& m, const Tensor& v, const Tensor& out,
           const Tensor& m_out, const Tensor& v_out, double lr, double beta1, double beta2,
           double eps, double weight_decay, int64_t step, int threads, int vectors) {
  constexpr auto op = "adamw";
  constexpr int kInputs = 4, kTensors = 7;
  const Arg args[] = {{"p", p, "[N]", 1},        {"g", g, "[N]", 1},     {"m", m, "[N]", 1},
                      {"v", v, "[N]", 1},        {"out", out, "[N]", 1}, {"m_out", m_out, "[N]", 1},
                      {"v_out", v_out, "[N]", 1}};
  check_common(op, args, {at::kFloat});
  for (const Arg& a : args) check_same_shape(op, a, args[0]);
  for (const Arg& a : args) check_adjacent(op, a);
  for (int i = kInputs; i < kTensors; ++i) {
    for (int j = 0; j < kInputs; ++j) check_exact_or_apart(op, args[i], args[j]);
    for (int j = kInputs; j < i; ++j) check_no_overlap(op, args[i], args[j]);
  }
  if (step < 1) {
    throw py::value_error(start(op, "step") + "is " + to_string(step) +
                          ", wanted 1 or more; count steps from 1");
  }
  Launch launch(p);
  check_launch(op,
               cvt::adamw(floats(p), floats(g), floats(m), floats(v), floats(out), floats(m_out),
                          floats(v_out), p.numel(), {lr, beta1, beta2, eps, weight_decay, step},
                          threads, vectors, launch.stream),
               {{"threads", threads}, {"vectors", vectors}}, kConfigs);
}

}  // namespace

void bind_streams(py::module_& m) {
  using py::arg;
  m.def("vector_add", &vector_add, arg("x"), arg("y"), arg("out"), arg("threads") = 0,
        arg("vectors") = 0, "out = x + y");
  m.def("axpby", &axpby, arg("x"), arg("y"), arg("out"), arg("a") = 2.0, arg("b") = -0.5,
        arg("threads") = 0, arg("vectors") = 0, "out = a * x + b * y");
  m.def("dropout", &dropout, arg("x"), arg("out"), arg("p") = 0.1, arg("seed") = 0,
        arg("threads") = 0, arg("vectors") = 0, "out = x / (1 - p) where Philox keeps it, else 0");
  m.def("adamw", &adamw, arg("p"), arg("g"), arg("m"), arg("v"), arg("out"), arg("m_out"),
        arg("v_out"), arg("lr") = 1e-3, arg("beta1") = 0.9, arg("beta2") = 0.999, arg("eps") = 1e-8,
        arg("weight_decay") = 0.01, arg("step") = 10, arg("threads") = 0, arg("vectors") = 0,
        "out, m_out, v_out = one AdamW step of p, m, v along g");
}

}  // namespace cuda_vs_triton::bindings
