"""relu_rows: out[row, col] = max(x[row, col], 0), NaN kept; the neighbour that is right."""

import triton
import triton.language as tl


@triton.jit
def relu_rows_kernel(x_ptr, out_ptr, n_cols, stride_xm, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs_n = tl.arange(0, BLOCK_N)
    mask = offs_n < n_cols
    x = tl.load(x_ptr + row * stride_xm + offs_n, mask=mask)
    tl.store(out_ptr + row * n_cols + offs_n, tl.where(x < 0.0, 0.0, x), mask=mask)


def relu_rows(x, out):
    rows, cols = x.shape
    block = triton.next_power_of_2(cols)
    relu_rows_kernel[(rows,)](x, out, cols, x.stride(0), BLOCK_N=block)
