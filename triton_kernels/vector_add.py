"""vector_add: out[i] = x[i] + y[i], for f32 and bf16.

Pointers: x_ptr, y_ptr, out_ptr, each [n_elements], stride 1. A program owns BLOCK_SIZE consecutive
elements. Bytes: two reads and one write of 4 (f32) or 2 (bf16) bytes an element for one addition:
memory bound. bf16 adds in fp32 and rounds once, as torch does. Offsets are 64-bit, so any length
works.

The choice that is not obvious: the full tile has its own branch without a mask (_stream.py says
why).

Triton compiles one kernel for pointers at 16-byte boundaries and another for those that are not.
Views that all start the same few elements past a boundary (x[1:], y[1:], out[1:]) are stepped back
to it by SHIFT and keep 16-byte accesses. When they differ, each misaligned pointer costs 4 (f32) or
8 (bf16) times the load or store instructions; the bytes moved stay the same.

What the language cannot do: load 16 aligned bytes and shift them across lanes, which would serve
pointers that differ in alignment. Cache hints and a grid-stride loop are left unused.
"""

import torch
import triton
import triton.language as tl

from ._stream import check_vectors, launch_stream, step_back, stream_tile


@triton.jit
def add(x_ptrs, y_ptrs, out_ptrs, mask):
    x = tl.load(x_ptrs, mask=mask).to(tl.float32)
    y = tl.load(y_ptrs, mask=mask).to(tl.float32)
    tl.store(out_ptrs, (x + y).to(out_ptrs.dtype.element_ty), mask=mask)


@triton.jit
def vector_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n_elements,
    SHIFT: tl.constexpr,  # elements between the 16-byte boundary and the first element
    BLOCK_SIZE: tl.constexpr,
):
    offsets, mask, full = stream_tile(n_elements, SHIFT, BLOCK_SIZE)
    x_ptrs = step_back(x_ptr, SHIFT) + offsets
    y_ptrs = step_back(y_ptr, SHIFT) + offsets
    out_ptrs = step_back(out_ptr, SHIFT) + offsets
    if full:
        add(x_ptrs, y_ptrs, out_ptrs, None)
    else:
        add(x_ptrs, y_ptrs, out_ptrs, mask)


def vector_add(
    x: torch.Tensor,
    y: torch.Tensor,
    out: torch.Tensor,
    *,
    BLOCK_SIZE: int | None = None,
    num_warps: int | None = None,
) -> None:
    """Write x + y into out, on x's device and its current stream.

    x, y, out: [N], contiguous, one dtype (f32 or bf16); out may be x or y itself.
    BLOCK_SIZE is a power of two. Raises TypeError or ValueError for anything else.
    """
    check_vectors("vector_add", x, y, out)
    launch_stream(vector_add_kernel, (x, y, out), BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps)
