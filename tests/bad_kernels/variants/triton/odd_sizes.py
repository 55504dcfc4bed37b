"""Works on pairs; of an odd size's last element it adds only half."""

import triton
import triton.language as tl

from harness.spec import Case
from tests.bad_kernels.caught import Caught

CAUGHT = Caught(
    "wrong only for odd sizes",
    by="check",
    reason="error above the allowance",
    needs_gpu=False,
    case=Case({"N": 1023}),
    passes=Case({"N": 4096}),
)


@triton.jit
def odd_sizes_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    in_pair = offsets < n_elements // 2 * 2
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=in_pair, other=0.0)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def vector_add(x, y, out):
    grid = (triton.cdiv(x.numel(), 1024),)
    odd_sizes_kernel[grid](x, y, out, x.numel(), BLOCK_SIZE=1024)
