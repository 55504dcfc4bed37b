"""Loads the right neighbour with weight zero, also behind the last element: NaN shows it."""

import triton
import triton.language as tl

from harness.spec import Case
from tests.bad_kernels.caught import Caught

CAUGHT = Caught(
    "reads past the end",
    by="guard",
    reason="NaN where the reference has none",
    needs_gpu=False,
    case=Case({"N": 1023}),
)


@triton.jit
def reads_past_end_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    neighbour = tl.load(x_ptr + offsets + 1, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y + 0.0 * neighbour, mask=mask)


def vector_add(x, y, out):
    grid = (triton.cdiv(x.numel(), 1024),)
    reads_past_end_kernel[grid](x, y, out, x.numel(), BLOCK_SIZE=1024)
