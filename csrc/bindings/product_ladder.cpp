// The rungs below matmul: bf16 alone, x and w row-major or transposed views.
#include "bindings/checks.h"
#include "bindings/families.h"
#include "bindings/launch.h"

namespace cuda_vs_triton::bindings {

namespace {

using Rung = cudaError_t (*)(const void*, const void*, void*, int64_t, int64_t, int64_t, bool, bool,
                             cudaStream_t);

void run_rung(const char* op, Rung rung, const Tensor& x, const Tensor& w, const Tensor& out) {
  const Arg args[] = {{"x", x, "[M, K]", 2}, {"w", w, "[K, N]", 2}, {"out", out, "[M, N]", 2}};
  check_common(op, args, {at::kBFloat16});
  const int64_t m = x.size(0), k = x.size(1), n = w.size(1);
  if (w.size(0) != k) {
    throw py::value_error(start(op, "w") + "has shape " + text(w, "shape") + ", wanted " +
                          to_string(k) + " rows like x's columns; pass w as [K, N]");
  }
  check_shape(op, args[2], {m, n});
  const bool x_transposed = is_transposed(op, args[0]), w_transposed = is_transposed(op, args[1]);
  check_contiguous(op, args[2]);
  for (int i = 0; i < 2; ++i) check_no_overlap(op, args[2], args[i]);
  Launch launch(x);
  check_launch(op, rung(x.data_ptr(), w.data_ptr(), out.data_ptr(), m, n, k, x_transposed,
                        w_transposed, launch.stream));
}

template <Rung kRung>
auto rung(const char* op) {
  return
      [op](const Tensor& x, const Tensor& w, const Tensor& out) { run_rung(op, kRung, x, w, out); };
}

}  // namespace

void bind_product_ladder(py::module_& m) {
  const py::arg x("x"), w("w"), out("out");
  m.def("matmul_naive", rung<cvt::matmul_naive>("matmul_naive"), x, w, out,
        "x @ w, a thread an output, warps down a column");
  m.def("matmul_coalesced", rung<cvt::matmul_coalesced>("matmul_coalesced"), x, w, out,
        "x @ w, warps along a row");
  m.def("matmul_shared_tile", rung<cvt::matmul_shared_tile>("matmul_shared_tile"), x, w, out,
        "x @ w, tiles in shared memory");
  m.def("matmul_register_tile", rung<cvt::matmul_register_tile>("matmul_register_tile"), x, w, out,
        "x @ w, 8 x 8 outputs a thread");
  m.def("matmul_mma", rung<cvt::matmul_mma>("matmul_mma"), x, w, out,
        "x @ w, mma.sync and cp.async");
  m.def("matmul_tma_wgmma", rung<cvt::matmul_tma_wgmma>("matmul_tma_wgmma"), x, w, out,
        "x @ w, wgmma and TMA in turns");
  m.def("matmul_ring", rung<cvt::matmul_ring>("matmul_ring"), x, w, out,
        "x @ w, a producer warp and a ring of stages");
  m.def("matmul_wide", rung<cvt::matmul_wide>("matmul_wide"), x, w, out,
        "x @ w, tiles of 128 x 256");
  m.def("matmul_persistent", rung<cvt::matmul_persistent>("matmul_persistent"), x, w, out,
        "x @ w, blocks that stay");
  m.def("matmul_multicast", rung<cvt::matmul_multicast>("matmul_multicast"), x, w, out,
        "x @ w, clusters that share w");
}

}  // namespace cuda_vs_triton::bindings
