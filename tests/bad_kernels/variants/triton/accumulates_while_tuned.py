"""Adds into scratch that it zeroes only afterwards; a tuner calls it many times in between."""

import torch
import triton
import triton.language as tl

from tests.bad_kernels.caught import Caught

CAUGHT = Caught("accumulates in place while tuned", by="check", reason="error above the allowance")


_scratch: list[torch.Tensor] = []


@triton.autotune([triton.Config({"BLOCK_SIZE": size}) for size in (512, 1024)], key=["n_elements"])
@triton.jit
def accumulates_kernel(x_ptr, y_ptr, sum_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.atomic_add(sum_ptr + offsets, x + y, mask=mask)


def vector_add(x, y, out):
    n_elements = x.numel()
    if not _scratch or _scratch[0].shape != out.shape:
        _scratch[:] = [torch.zeros_like(out)]
    accumulates_kernel[lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)](
        x, y, _scratch[0], n_elements
    )
    out.copy_(_scratch[0])
    _scratch[0].zero_()
