"""Elementwise kernels over streams: a program's tile, refusals, the choice of a configuration.

A kernel asks for its tile and hands pointers and mask to a function of its own that loads, computes
and stores. A vector, or rows that lie back to back, are one long stream: the full tile has its own
branch without a mask, since `offsets < n_elements` is one value over a 16-byte group only when
n_elements is a multiple of that group, and one masked path would make every load of every program
scalar as soon as n % 16 != 0. Streams that all start the same few elements past a 16-byte boundary
are stepped back to it by SHIFT. Strided rows are tiles of ROWS x BLOCK_N, whose columns and strides
VEC states to be multiples of a 16-byte group where they are.
"""

import math

import torch
import triton
import triton.language as tl

from ._checks import device_guard, ranges_overlap, require_shape_of_x, require_tensors
from ._scratch import multiprocessors

VECTOR_DTYPES = (torch.float32, torch.bfloat16)
VECTORS = {"x": "[N]", "y": "[N]", "out": "[N]"}


@triton.jit
def step_back(ptr, SHIFT: tl.constexpr):
    """The 16-byte boundary SHIFT elements before ptr; ptr itself where SHIFT is 0."""
    if SHIFT > 0:
        ptr = tl.multiple_of(ptr - SHIFT, 16)  # multiple_of counts bytes for a pointer
    return ptr


@triton.jit
def stream_tile(n_elements, SHIFT: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    """(offsets from the boundary of this program's tile, mask, whether it is full)."""
    block_start = tl.program_id(axis=0).to(tl.int64) * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    end = tl.cast(n_elements, tl.int64) + SHIFT
    mask = (offsets >= SHIFT) & (offsets < end)
    return offsets, mask, (block_start >= SHIFT) & (block_start + BLOCK_SIZE <= end)


@triton.jit
def rows_tile(
    n_rows, n_cols, n_tiles, ROWS: tl.constexpr, BLOCK_N: tl.constexpr, VEC: tl.constexpr
):
    """(rows, columns, mask) of this program's tile; n_tiles of them lie side by side."""
    pid = tl.program_id(axis=0)
    rows = (pid // n_tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = (pid % n_tiles).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    return rows, cols, (rows < n_rows) & (cols < n_cols // VEC * VEC)


def check_vectors(op: str, x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    """Refuse what the kernels of x, y and out would get wrong."""
    require_tensors(op, VECTOR_DTYPES, VECTORS, (x, y, out))
    require_shape_of_x(op, x, y=y, out=out)
    for name, tensor in (("x", x), ("y", y), ("out", out)):
        if tensor.numel() > 1 and tensor.stride(0) != 1:
            raise ValueError(
                f"{op}: {name} has stride {tensor.stride(0)}, wanted 1; pass {name}.contiguous()"
            )
    for name, tensor in (("x", x), ("y", y)):
        if tensor.data_ptr() != out.data_ptr() and ranges_overlap(tensor, out):
            raise ValueError(
                f"{op}: out overlaps {name} in part, wanted the same memory or none shared; "
                "pass a fresh out"
            )


def shared_shift(tensors: tuple[torch.Tensor, ...]) -> int:
    """Elements that all start past a 16-byte boundary; 0 when they differ or are aligned."""
    past = tensors[0].data_ptr() % 16
    if past == 0 or any(tensor.data_ptr() % 16 != past for tensor in tensors[1:]):
        return 0
    return past // tensors[0].element_size()


def choose(x: torch.Tensor, BLOCK_SIZE: int | None, num_warps: int | None) -> tuple[int, int]:
    """(BLOCK_SIZE, num_warps) where they are None: one 16-byte load of each input a thread, and
    smaller programs for a launch too small to give one to every multiprocessor."""
    if num_warps is None:
        num_warps = 4
        n_lanes = x.numel() * x.element_size() // 16
        if BLOCK_SIZE is None and n_lanes < num_warps * 32 * multiprocessors(x.device):
            num_warps = 2
    return BLOCK_SIZE or num_warps * 32 * (16 // x.element_size()), num_warps


def launch_stream(
    kernel: triton.JITFunction,
    tensors: tuple[torch.Tensor, ...],
    *scalars: float,
    BLOCK_SIZE: int | None,
    num_warps: int | None,
) -> None:
    """Launch `kernel` on tensors that are one long stream each, on the first one's current
    stream."""
    x = tensors[0]
    n_elements = x.numel()
    if n_elements == 0:
        return
    BLOCK_SIZE, num_warps = choose(x, BLOCK_SIZE, num_warps)
    SHIFT = shared_shift(tensors)
    grid = ((SHIFT + n_elements + BLOCK_SIZE - 1) // BLOCK_SIZE,)  # triton.cdiv takes 1.6 us
    with device_guard(x):
        kernel[grid](
            *tensors, n_elements, *scalars, SHIFT=SHIFT, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps
        )


def launch_rows(
    flat_kernel: triton.JITFunction,
    rows_kernel: triton.JITFunction,
    tensors: tuple[torch.Tensor, ...],
    BLOCK_SIZE: int | None,
    num_warps: int | None,
) -> None:
    """Launch the kernel of one long stream where the rows of all tensors lie back to back, else
    that of strided rows."""
    x = tensors[0]
    n_rows, n_cols = x.shape
    if n_rows <= 1 or all(tensor.stride(0) == n_cols for tensor in tensors):
        launch_stream(flat_kernel, tensors, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps)
        return
    if x.numel() == 0:
        return
    BLOCK_SIZE, num_warps = choose(x, BLOCK_SIZE, num_warps)
    BLOCK_N = min(BLOCK_SIZE, 1 << (n_cols - 1).bit_length())
    ROWS = BLOCK_SIZE // BLOCK_N
    n_tiles = (n_cols + BLOCK_N - 1) // BLOCK_N
    strides = [tensor.stride(0) for tensor in tensors]
    with device_guard(x):
        rows_kernel[((n_rows + ROWS - 1) // ROWS * n_tiles,)](
            *tensors,
            *strides,
            n_rows,
            n_cols,
            n_tiles,
            ROWS=ROWS,
            BLOCK_N=BLOCK_N,
            VEC=math.gcd(n_cols, *strides, 16 // x.element_size()),
            WHOLE=n_rows % ROWS == 0 and n_cols % BLOCK_N == 0,
            num_warps=num_warps,
        )
