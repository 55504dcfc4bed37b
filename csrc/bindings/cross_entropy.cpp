#include "bindings/checks.h"
#include "bindings/families.h"
#include "bindings/launch.h"

namespace cuda_vs_triton::bindings {

namespace {

// What both ask of the logits and of what has one number a row.
void check_cross_entropy(const char* op, const Arg& x, const Arg& target, const Arg& loss) {
  check_rows(op, x);
  for (const Arg* a : {&target, &loss}) {
    check_one_a_row(op, *a, x);
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
  check_common(op, args, kAllFloats);
  check_cross_entropy(op, args[0], args[1], args[2]);
  Launch launch(x);
  check_launch(op,
               cvt::cross_entropy(x.data_ptr(), static_cast<const int64_t*>(target.data_ptr()),
                                  floats(out), x.size(0), x.size(1), x.stride(0), dtype_of(x),
                                  threads_per_row, blocks_per_sm, launch.stream),
               {{"threads_per_row", threads_per_row}, {"blocks_per_sm", blocks_per_sm}},
               "threads_per_row of 32, 128, 256, 512 and blocks_per_sm of 1 or more");
}

void cross_entropy_dlogits(const Tensor& x, const Tensor& target, const Tensor& out,
                           const Tensor& loss, int threads_per_row, int form, int blocks_per_row) {
  constexpr auto op = "cross_entropy_dlogits";
  const Arg args[] = {{"x", x, "[rows, cols]", 2},
                      {"target", target, "[rows]", 1, at::kLong},
                      {"out", out, "[rows, cols]", 2},
                      {"loss", loss, "[rows]", 1, at::kFloat}};
  check_common(op, args, kAllFloats);
  check_same_shape(op, args[2], args[0]);
  check_cross_entropy(op, args[0], args[1], args[3]);
  check_rows(op, args[2]);
  check_rows_exact_or_apart(op, args[2], args[0]);
  check_no_overlap(op, args[2], args[1]);
  check_no_overlap(op, args[3], args[2]);
  Launch launch(x);
  check_launch(
      op,
      cvt::cross_entropy_dlogits(x.data_ptr(), static_cast<const int64_t*>(target.data_ptr()),
                                 out.data_ptr(), floats(loss), x.size(0), x.size(1), x.stride(0),
                                 out.stride(0), dtype_of(x), threads_per_row, form, blocks_per_row,
                                 launch.stream),
      {{"threads_per_row", threads_per_row}, {"form", form}, {"blocks_per_row", blocks_per_row}},
      "form=1 with threads_per_row of 32 to 512 (powers of two, 64 bytes of a row a "
      "thread at most), form=2 with blocks_per_row of 1, 2, 4, 8, 16 (above 1 on sm_90) and 256 or "
      "512 threads in each, form=3 with 512 or 1024, the first two where x and out are aligned "
      "alike");
}

}  // namespace

void bind_cross_entropy(py::module_& m) {
  using py::arg;
  m.def("cross_entropy", &cross_entropy, arg("x"), arg("target"), arg("out"),
        arg("threads_per_row") = 0, arg("blocks_per_sm") = 0,
        "out = logsumexp(x) - x[target] over the last dimension");
  m.def("cross_entropy_dlogits", &cross_entropy_dlogits, arg("x"), arg("target"), arg("out"),
        arg("loss"), arg("threads_per_row") = 0, arg("form") = 0, arg("blocks_per_row") = 0,
        "out = softmax(x) - onehot(target), and loss; form: 1 registers, 2 shared, 3 looped");
}

}  // namespace cuda_vs_triton::bindings
