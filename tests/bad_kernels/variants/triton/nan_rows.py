"""A maximum that drops NaN, as both languages' plain ones do: only rows with NaN show it."""

import triton
import triton.language as tl

from harness.spec import Case
from tests.bad_kernels.caught import Caught

CAUGHT = Caught(
    "wrong only for NaN rows",
    by="check",
    reason="NaN where the reference has none, or none where it has",
    needs_gpu=False,
    op="relu_rows",
    case=Case({"M": 5, "N": 257}, layout="nonfinite"),
    passes=Case({"M": 5, "N": 257}),
)


@triton.jit
def nan_rows_kernel(x_ptr, out_ptr, n_cols, stride_xm, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs_n = tl.arange(0, BLOCK_N)
    mask = offs_n < n_cols
    x = tl.load(x_ptr + row * stride_xm + offs_n, mask=mask)
    tl.store(out_ptr + row * n_cols + offs_n, tl.maximum(x, 0.0), mask=mask)


def relu_rows(x, out):
    rows, cols = x.shape
    block = triton.next_power_of_2(cols)
    nan_rows_kernel[(rows,)](x, out, cols, x.stride(0), BLOCK_N=block)
