// The families of ops, a file each: ops that ask the same of their arguments. A family's function
// gives the module m a Python function for each of its ops.
#pragma once

#include <pybind11/pybind11.h>

namespace cuda_vs_triton::bindings {

void bind_cross_entropy(pybind11::module_& m);
// What only moves or turns elements.
void bind_movement(pybind11::module_& m);
void bind_norms(pybind11::module_& m);
void bind_product(pybind11::module_& m);
void bind_product_ladder(pybind11::module_& m);
void bind_quant(pybind11::module_& m);
// Rows in, rows of the same shape out, without parameters.
void bind_rows(pybind11::module_& m);
// Vectors in, vectors of the same length out.
void bind_streams(pybind11::module_& m);
void bind_sums(pybind11::module_& m);
// No ops: the tools of the timing harness.
void bind_timing(pybind11::module_& m);

}  // namespace cuda_vs_triton::bindings
