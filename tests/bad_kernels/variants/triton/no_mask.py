"""Stores whole blocks without a mask, into the guard bytes behind the output."""

import triton
import triton.language as tl

from harness.spec import Case
from tests.bad_kernels.caught import Caught

CAUGHT = Caught(
    "writes into the guard",
    by="guard",
    reason="guard bytes behind the output",
    needs_gpu=False,
    case=Case({"N": 1023}),
    passes=Case({"N": 4096}),
)


@triton.jit
def no_mask_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + offsets, mask=offsets < n_elements)
    y = tl.load(y_ptr + offsets, mask=offsets < n_elements)
    tl.store(out_ptr + offsets, x + y)


def vector_add(x, y, out):
    grid = (triton.cdiv(x.numel(), 1024),)
    no_mask_kernel[grid](x, y, out, x.numel(), BLOCK_SIZE=1024)
