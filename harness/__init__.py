"""Side-by-side CUDA-vs-Triton benchmarking: check, time, compare and plot pairs of kernels."""
