"""axpby: out[i] = a * x[i] + b * y[i], for f32 and bf16.

Pointers: x_ptr, y_ptr, out_ptr, each [n_elements], stride 1. A program owns BLOCK_SIZE consecutive
elements. Bytes: two reads and one write of 4 (f32) or 2 (bf16) bytes an element for three
operations: memory bound. bf16 is computed in fp32 and rounded once. Offsets are 64-bit, so any
length works.

The choice that is not obvious: as in vector_add, the full tile has its own branch without a mask,
and views that all start the same few elements past a 16-byte boundary are stepped back to it by
SHIFT: _stream.py.

What the language cannot do: 16-byte accesses on pointers that differ in alignment. Cache hints and
a grid-stride loop are left unused.
"""

import torch
import triton
import triton.language as tl

from ._stream import check_vectors, launch_stream, step_back, stream_tile


@triton.jit
def weighted_sum(x_ptrs, y_ptrs, out_ptrs, a, b, mask):
    x = tl.load(x_ptrs, mask=mask).to(tl.float32)
    y = tl.load(y_ptrs, mask=mask).to(tl.float32)
    tl.store(out_ptrs, (a * x + b * y).to(out_ptrs.dtype.element_ty), mask=mask)


@triton.jit
def axpby_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n_elements,
    a,
    b,
    SHIFT: tl.constexpr,  # elements between the 16-byte boundary and the first element
    BLOCK_SIZE: tl.constexpr,
):
    offsets, mask, full = stream_tile(n_elements, SHIFT, BLOCK_SIZE)
    x_ptrs = step_back(x_ptr, SHIFT) + offsets
    y_ptrs = step_back(y_ptr, SHIFT) + offsets
    out_ptrs = step_back(out_ptr, SHIFT) + offsets
    if full:
        weighted_sum(x_ptrs, y_ptrs, out_ptrs, a, b, None)
    else:
        weighted_sum(x_ptrs, y_ptrs, out_ptrs, a, b, mask)


def axpby(
    x: torch.Tensor,
    y: torch.Tensor,
    out: torch.Tensor,
    *,
    a: float = 2.0,
    b: float = -0.5,
    BLOCK_SIZE: int | None = None,
    num_warps: int | None = None,
) -> None:
    """Write a * x + b * y into out, on x's device and its current stream.

    x, y, out: [N], contiguous, one dtype (f32 or bf16); out may be x or y itself.
    BLOCK_SIZE is a power of two. Raises TypeError or ValueError for anything else.
    """
    check_vectors("axpby", x, y, out)
    launch_stream(axpby_kernel, (x, y, out), a, b, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps)
