"""Two programs add their operand to the same elements without an atomic: one sum is lost."""

import triton
import triton.language as tl

from tests.bad_kernels.caught import Caught

CAUGHT = Caught("race between programs", by="check", reason="error above the allowance")


@triton.jit
def race_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(0)
    offsets = pid // 2 * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    operand_ptr = x_ptr if pid % 2 == 0 else y_ptr
    operand = tl.load(operand_ptr + offsets, mask=mask)
    so_far = tl.load(out_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, so_far + operand, mask=mask)


def vector_add(x, y, out):
    out.zero_()
    grid = (2 * triton.cdiv(x.numel(), 128),)
    race_kernel[grid](x, y, out, x.numel(), BLOCK_SIZE=128)
