"""vector_add: out[i] = x[i] + y[i], for f32 and bf16.

Pointers: x_ptr, y_ptr, out_ptr, each [n_elements], stride 1. A program owns BLOCK_SIZE consecutive
elements. Bytes: two reads and one write of 4 (f32) or 2 (bf16) bytes an element for one addition:
memory bound. bf16 adds in fp32 and rounds once, as torch does. Offsets are 64-bit, so any length
works.

The choice that is not obvious: the full tile has its own branch without a mask. A mask `offsets <
n_elements` is one value over a 16-byte group only when n_elements is a multiple of that group, so
one masked path would make every load of every program scalar as soon as n % 16 != 0.

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

from ._checks import device_guard, ranges_overlap, require_shape_of_x, require_tensors

DTYPES = (torch.float32, torch.bfloat16)
LAYOUTS = {"x": "[N]", "y": "[N]", "out": "[N]"}


@triton.jit
def vector_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n_elements,
    SHIFT: tl.constexpr,  # elements between the 16-byte boundary and the first element
    BLOCK_SIZE: tl.constexpr,
):
    if SHIFT > 0:
        x_ptr = tl.multiple_of(x_ptr - SHIFT, 16)  # multiple_of counts bytes for a pointer
        y_ptr = tl.multiple_of(y_ptr - SHIFT, 16)
        out_ptr = tl.multiple_of(out_ptr - SHIFT, 16)
    pid = tl.program_id(axis=0)
    block_start = pid.to(tl.int64) * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    end = tl.cast(n_elements, tl.int64) + SHIFT
    if (block_start >= SHIFT) & (block_start + BLOCK_SIZE <= end):
        x = tl.load(x_ptr + offsets).to(tl.float32)
        y = tl.load(y_ptr + offsets).to(tl.float32)
        tl.store(out_ptr + offsets, (x + y).to(out_ptr.dtype.element_ty))
    else:
        mask = (offsets >= SHIFT) & (offsets < end)
        x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
        y = tl.load(y_ptr + offsets, mask=mask).to(tl.float32)
        tl.store(out_ptr + offsets, (x + y).to(out_ptr.dtype.element_ty), mask=mask)


def shared_shift(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> int:
    """Elements that all three start past a 16-byte boundary; 0 when they differ or are aligned."""
    past = x.data_ptr() % 16
    if past == 0 or y.data_ptr() % 16 != past or out.data_ptr() % 16 != past:
        return 0
    return past // x.element_size()


def check(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    """Refuse what the kernel would get wrong."""
    require_tensors("vector_add", DTYPES, LAYOUTS, (x, y, out))
    require_shape_of_x("vector_add", x, y=y, out=out)
    for name, tensor in (("x", x), ("y", y), ("out", out)):
        if tensor.numel() > 1 and tensor.stride(0) != 1:
            raise ValueError(
                f"vector_add: {name} has stride {tensor.stride(0)}, wanted 1; "
                f"pass {name}.contiguous()"
            )
    for name, tensor in (("x", x), ("y", y)):
        if tensor.data_ptr() != out.data_ptr() and ranges_overlap(tensor, out):
            raise ValueError(
                f"vector_add: out overlaps {name} in part, wanted the same memory or none shared; "
                "pass a fresh out"
            )


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
    check(x, y, out)
    n_elements = x.numel()
    if n_elements == 0:
        return
    # 32 bytes an input and thread: two 16-byte loads of x and of y in flight.
    num_warps = num_warps or 4
    BLOCK_SIZE = BLOCK_SIZE or num_warps * 32 * (32 // x.element_size())
    SHIFT = shared_shift(x, y, out)
    grid = ((SHIFT + n_elements + BLOCK_SIZE - 1) // BLOCK_SIZE,)  # triton.cdiv takes 1.6 us
    with device_guard(x):
        vector_add_kernel[grid](
            x, y, out, n_elements, SHIFT=SHIFT, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps
        )
