#include "bindings/checks.h"
#include "bindings/families.h"
#include "bindings/launch.h"
#include "bindings/scratch.h"

namespace cuda_vs_triton::bindings {

namespace {

// What the norms ask of their tensors: rows like x's, parameters with one element a column, outputs
// that are exactly an input of rows or share nothing.
void check_norm(const char* op, Args inputs, Args parameters, Args outputs) {
  const Arg& x = inputs.front();
  for (const Args& rows : {inputs, outputs}) {
    for (const Arg& a : rows) check_same_shape(op, a, x);
  }
  for (const Arg& a : parameters) check_one_a_column(op, a, x);
  for (const Args& rows : {inputs, outputs}) {
    for (const Arg& a : rows) check_rows(op, a);
  }
  for (const Arg& a : parameters) check_adjacent(op, a);
  for (const Arg& out : outputs) {
    for (const Arg& a : inputs) check_rows_exact_or_apart(op, out, a);
    for (const Arg& a : parameters) check_no_overlap(op, out, a);
  }
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
  check_common(op, args, kAllFloats);
  check_norm(op, args[0], args[1], args[2]);
  Launch launch(x);
  check_launch(op,
               cvt::rms_norm(x.data_ptr(), w.data_ptr(), out.data_ptr(), x.size(0), x.size(1),
                             x.stride(0), out.stride(0), static_cast<float>(eps), dtype_of(x), form,
                             threads_per_row, blocks_per_row, rows_per_thread, launch.stream),
               {{"form", form},
                {"threads_per_row", threads_per_row},
                {"blocks_per_row", blocks_per_row},
                {"rows_per_thread", rows_per_thread}},
               kRmsConfigs);
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
  check_common(op, args, kAllFloats);
  check_norm(op, {args[0], args[1]}, args[2], {args[3], args[4]});
  check_rows_apart(op, args[4], args[3]);
  Launch launch(x);
  check_launch(
      op,
      cvt::add_rms_norm(x.data_ptr(), r.data_ptr(), w.data_ptr(), out.data_ptr(), h.data_ptr(),
                        x.size(0), x.size(1), x.stride(0), r.stride(0), out.stride(0), h.stride(0),
                        static_cast<float>(eps), dtype_of(x), form, threads_per_row, blocks_per_row,
                        rows_per_thread, launch.stream),
      {{"form", form},
       {"threads_per_row", threads_per_row},
       {"blocks_per_row", blocks_per_row},
       {"rows_per_thread", rows_per_thread}},
      kRmsConfigs);
}

void layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& out, double eps,
                int threads_per_row, int form, int blocks_per_row) {
  constexpr auto op = "layer_norm";
  const Arg args[] = {{"x", x, "[rows, cols]", 2},
                      {"w", w, "[cols]", 1},
                      {"b", b, "[cols]", 1},
                      {"out", out, "[rows, cols]", 2}};
  check_common(op, args, kAllFloats);
  check_norm(op, args[0], {args[1], args[2]}, args[3]);
  Launch launch(x);
  check_launch(
      op,
      cvt::layer_norm(x.data_ptr(), w.data_ptr(), b.data_ptr(), out.data_ptr(), x.size(0),
                      x.size(1), x.stride(0), out.stride(0), static_cast<float>(eps), dtype_of(x),
                      threads_per_row, form, blocks_per_row, launch.stream),
      {{"threads_per_row", threads_per_row}, {"form", form}, {"blocks_per_row", blocks_per_row}},
      "form=1 with threads_per_row of 8 to 512 (powers of two, 16-byte packs of a row <= 4 "
      "of them, 8 of 512), form=2 with blocks_per_row of 1, 2, 4, 8, 16 and 256 or 512 "
      "threads in each (on sm_90 where there are several), form=3 without threads");
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
  check_common(op, args, kAllFloats);
  for (const Arg* a : {&args[1], &args[5]}) check_same_shape(op, *a, args[0]);
  for (const Arg* a : {&args[2], &args[6], &args[7]}) check_one_a_column(op, *a, args[0]);
  for (const Arg* a : {&args[3], &args[4]}) check_one_a_row(op, *a, args[0]);
  for (const Arg& a : args) check_contiguous(op, a);
  for (int i = kInputs; i < kTensors; ++i) {
    for (int j = 0; j < i; ++j) check_no_overlap(op, args[i], args[j]);
  }
  Launch launch(x);
  const Tensor scratch = float_scratch(x, launch, cvt::layer_norm_backward_scratch(x.size(1)));
  check_launch(
      op,
      cvt::layer_norm_backward(dy.data_ptr(), x.data_ptr(), w.data_ptr(), floats(mean),
                               floats(rstd), out.data_ptr(), dw.data_ptr(), db.data_ptr(),
                               x.size(0), x.size(1), dtype_of(x), floats(scratch), threads_per_row,
                               form, blocks_per_row, blocks_per_sm, launch.stream),
      {{"threads_per_row", threads_per_row},
       {"form", form},
       {"blocks_per_row", blocks_per_row},
       {"blocks_per_sm", blocks_per_sm}},
      "form=1 with threads_per_row of 32, 128, 256, 512 (16-byte packs of a row <= 4 of "
      "them) or blocks_per_row of 2, 4, 8 and 256 or 512 threads in each on sm_90, form=2 "
      "without any");
}

}  // namespace

void bind_norms(py::module_& m) {
  using py::arg;
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
}

}  // namespace cuda_vs_triton::bindings
