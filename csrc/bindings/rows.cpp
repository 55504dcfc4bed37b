#include "bindings/checks.h"
#include "bindings/families.h"
#include "bindings/launch.h"

namespace cuda_vs_triton::bindings {

namespace {

void check_softmax(const char* op, const Tensor& x, const Tensor& out) {
  const Arg args[] = {{"x", x, "[rows, cols]", 2}, {"out", out, "[rows, cols]", 2}};
  check_common(op, args, kAllFloats);
  check_same_shape(op, args[1], args[0]);
  for (const Arg& a : args) check_rows(op, a);
  check_rows_exact_or_apart(op, args[1], args[0]);
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
      {{"threads_per_row", threads_per_row}, {"form", form}, {"blocks_per_row", blocks_per_row}},
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

// What swiglu and its gradient ask: all alike, each output exactly an input or apart from it.
void check_gated(const char* op, Args args, size_t n_inputs) {
  const Args inputs = args.slice(0, n_inputs), outputs = args.slice(n_inputs);
  check_common(op, args, kAllFloats);
  for (const Arg& a : args) check_same_shape(op, a, args.front());
  for (const Arg& a : args) check_rows(op, a);
  for (const Arg& out : outputs) {
    for (const Arg& a : inputs) check_rows_exact_or_apart(op, out, a);
  }
}

constexpr auto kGatedConfigs = "threads of 64, 128, 256, 512 and vectors of 1, 2, 4";

void swiglu(const Tensor& gate, const Tensor& up, const Tensor& out, int threads, int vectors) {
  constexpr auto op = "swiglu";
  const Arg args[] = {{"gate", gate, "[rows, cols]", 2},
                      {"up", up, "[rows, cols]", 2},
                      {"out", out, "[rows, cols]", 2}};
  check_gated(op, args, 2);
  Launch launch(gate);
  check_launch(op,
               cvt::swiglu(gate.data_ptr(), up.data_ptr(), out.data_ptr(), gate.size(0),
                           gate.size(1), gate.stride(0), up.stride(0), out.stride(0),
                           dtype_of(gate), threads, vectors, launch.stream),
               {{"threads", threads}, {"vectors", vectors}}, kGatedConfigs);
}

void swiglu_backward(const Tensor& dout, const Tensor& gate, const Tensor& up, const Tensor& out,
                     const Tensor& dup, int threads, int vectors) {
  constexpr auto op = "swiglu_backward";
  const Arg args[] = {{"dout", dout, "[rows, cols]", 2},
                      {"gate", gate, "[rows, cols]", 2},
                      {"up", up, "[rows, cols]", 2},
                      {"out", out, "[rows, cols]", 2},
                      {"dup", dup, "[rows, cols]", 2}};
  check_gated(op, args, 3);
  check_rows_apart(op, args[4], args[3]);
  Launch launch(dout);
  check_launch(op,
               cvt::swiglu_backward(dout.data_ptr(), gate.data_ptr(), up.data_ptr(), out.data_ptr(),
                                    dup.data_ptr(), dout.size(0), dout.size(1), dout.stride(0),
                                    gate.stride(0), up.stride(0), out.stride(0), dup.stride(0),
                                    dtype_of(dout), threads, vectors, launch.stream),
               {{"threads", threads}, {"vectors", vectors}}, kGatedConfigs);
}

}  // namespace

void bind_rows(py::module_& m) {
  using py::arg;
  m.def("softmax", &softmax, arg("x"), arg("out"), arg("threads_per_row") = 0, arg("form") = 0,
        arg("blocks_per_row") = 0,
        "out = softmax(x) over the last dimension; form: 1 registers, 2 shared, 3 looped, 4 and 5 "
        "as 1 and 2 over a cluster");
  m.def("softmax_naive", &softmax_naive, arg("x"), arg("out"), "softmax in three passes");
  m.def("softmax_online", &softmax_online, arg("x"), arg("out"), "softmax in two passes");
  m.def("swiglu", &swiglu, arg("gate"), arg("up"), arg("out"), arg("threads") = 0,
        arg("vectors") = 0, "out = silu(gate) * up");
  m.def("swiglu_backward", &swiglu_backward, arg("dout"), arg("gate"), arg("up"), arg("out"),
        arg("dup"), arg("threads") = 0, arg("vectors") = 0,
        "out, dup = the gradients of swiglu's gate and up");
}

}  // namespace cuda_vs_triton::bindings
