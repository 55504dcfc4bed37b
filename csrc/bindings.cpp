// Python module harness._cuda: what it was built with, and the families of bindings/. That folder
// and this file alone know torch or pybind11; everything else lives behind kernels.h.
#include <pybind11/pybind11.h>

#include "bindings/families.h"

#if __has_include("cvt_build_info.h")
#include "cvt_build_info.h"  // written by setup.py
#else
#define CVT_TORCH "unknown"
#define CVT_CUDA "unknown"
#define CVT_NVCC "unknown"
#define CVT_FLAGS "unknown"
#define CVT_ARCH_LIST "unknown"
#define CVT_HOST_COMPILER "unknown"
#define CVT_PTXAS "unknown"
#endif

namespace {

namespace py = pybind11;

py::dict build_info() {
  py::dict info;
  info["torch"] = CVT_TORCH;
  info["cuda"] = CVT_CUDA;
  info["nvcc"] = CVT_NVCC;
  info["flags"] = CVT_FLAGS;
  info["arch_list"] = CVT_ARCH_LIST;
  info["host_compiler"] = CVT_HOST_COMPILER;
  info["ptxas"] = CVT_PTXAS;
  return info;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "CUDA side of the pairs and the device tools of the timing harness";
  m.def("build_info", &build_info, "what this module was built with");
  namespace bindings = cuda_vs_triton::bindings;
  bindings::bind_cross_entropy(m);
  bindings::bind_movement(m);
  bindings::bind_norms(m);
  bindings::bind_product(m);
  bindings::bind_product_ladder(m);
  bindings::bind_quant(m);
  bindings::bind_rows(m);
  bindings::bind_streams(m);
  bindings::bind_sums(m);
  bindings::bind_timing(m);
}
