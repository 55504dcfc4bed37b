#include <ATen/ops/empty.h>

#include "bindings/checks.h"
#include "bindings/families.h"
#include "bindings/launch.h"
#include "bindings/scratch.h"

namespace cuda_vs_triton::bindings {

namespace {

// x: [N], out: [1] in float32, apart from each other.
void check_full_sum(const char* op, const Tensor& x, const Tensor& out) {
  const Arg args[] = {{"x", x, "[N]", 1}, {"out", out, "[1]", 1, at::kFloat}};
  check_common(op, args, kAllFloats);
  check_shape(op, args[1], {1});
  check_adjacent(op, args[0]);
  check_no_overlap(op, args[1], args[0]);
}

template <auto* kLaunch>
void full_sum(const char* op, const Tensor& x, const Tensor& out, int threads, int vectors,
              int blocks_per_sm) {
  check_full_sum(op, x, out);
  Launch launch(x);
  const ScratchMemory memory(x, launch);
  check_launch(op,
               kLaunch(x.data_ptr(), out.data_ptr(), x.numel(), dtype_of(x), memory.get(), threads,
                       vectors, blocks_per_sm, launch.stream),
               {{"threads", threads}, {"vectors", vectors}, {"blocks_per_sm", blocks_per_sm}},
               "threads of 256, 512, vectors of 4, 8 and blocks_per_sm of 1 to 32");
}

void reduce_sum(const Tensor& x, const Tensor& out, int threads, int vectors, int blocks_per_sm) {
  full_sum<cvt::reduce_sum>("reduce_sum", x, out, threads, vectors, blocks_per_sm);
}

void squared_norm(const Tensor& x, const Tensor& out, int threads, int vectors, int blocks_per_sm) {
  full_sum<cvt::squared_norm>("squared_norm", x, out, threads, vectors, blocks_per_sm);
}

// The rungs below reduce_sum.
template <auto* kLaunch>
void full_sum_rung(const char* op, const Tensor& x, const Tensor& out) {
  check_full_sum(op, x, out);
  Launch launch(x);
  const ScratchMemory memory(x, launch);
  check_launch(op, kLaunch(x.data_ptr(), out.data_ptr(), x.numel(), dtype_of(x), memory.get(),
                           launch.stream));
}

void reduce_sum_atomics(const Tensor& x, const Tensor& out) {
  full_sum_rung<cvt::reduce_sum_atomics>("reduce_sum_atomics", x, out);
}

void reduce_sum_tree(const Tensor& x, const Tensor& out) {
  full_sum_rung<cvt::reduce_sum_tree>("reduce_sum_tree", x, out);
}

template <auto* kLaunch>
void cub_sum(const char* op, const Tensor& x, const Tensor& out) {
  check_full_sum(op, x, out);
  Launch launch(x);
  const auto call = [&](void* scratch, size_t* bytes) {
    check_launch(op, kLaunch(scratch, bytes, x.data_ptr(), out.data_ptr(), x.numel(), dtype_of(x),
                             launch.stream));
  };
  size_t bytes = 0;
  call(nullptr, &bytes);
  const Tensor scratch = at::empty({static_cast<int64_t>(bytes)}, x.options().dtype(at::kByte));
  call(scratch.data_ptr(), &bytes);
}

void cub_reduce_sum(const Tensor& x, const Tensor& out) {
  cub_sum<cvt::cub_reduce_sum>("cub_reduce_sum", x, out);
}

void cub_squared_norm(const Tensor& x, const Tensor& out) {
  cub_sum<cvt::cub_squared_norm>("cub_squared_norm", x, out);
}

void column_sum(const Tensor& x, const Tensor& out, int vectors, int blocks_per_sm) {
  constexpr auto op = "column_sum";
  const Arg args[] = {{"x", x, "[M, N]", 2}, {"out", out, "[N]", 1, at::kFloat}};
  check_common(op, args, kAllFloats);
  check_one_a_column(op, args[1], args[0]);
  check_rows(op, args[0]);
  check_adjacent(op, args[1]);
  check_no_overlap(op, args[1], args[0]);
  Launch launch(x);
  const ScratchMemory memory(x, launch);
  check_launch(op,
               cvt::column_sum(x.data_ptr(), out.data_ptr(), x.size(0), x.size(1), x.stride(0),
                               dtype_of(x), memory.get(), vectors, blocks_per_sm, launch.stream),
               {{"vectors", vectors}, {"blocks_per_sm", blocks_per_sm}},
               "vectors of 4, 8 and blocks_per_sm of 1 to 16");
}

}  // namespace

void bind_sums(py::module_& m) {
  using py::arg;
  m.def("reduce_sum", &reduce_sum, arg("x"), arg("out"), arg("threads") = 0, arg("vectors") = 0,
        arg("blocks_per_sm") = 0, "out = sum of x, in float32");
  m.def("reduce_sum_atomics", &reduce_sum_atomics, arg("x"), arg("out"),
        "out = sum of x, by an atomicAdd of every thread");
  m.def("reduce_sum_tree", &reduce_sum_tree, arg("x"), arg("out"),
        "out = sum of x, by a shared-memory tree and an atomicAdd of every block");
  m.def("squared_norm", &squared_norm, arg("x"), arg("out"), arg("threads") = 0, arg("vectors") = 0,
        arg("blocks_per_sm") = 0, "out = sum of x * x, in float32");
  m.def("column_sum", &column_sum, arg("x"), arg("out"), arg("vectors") = 0,
        arg("blocks_per_sm") = 0, "out = sums over the rows of x, in float32");
  m.def("cub_reduce_sum", &cub_reduce_sum, arg("x"), arg("out"), "out = sum of x, by CUB");
  m.def("cub_squared_norm", &cub_squared_norm, arg("x"), arg("out"), "out = sum of x * x, by CUB");
}

}  // namespace cuda_vs_triton::bindings
