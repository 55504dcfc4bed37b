"""What both cross entropies share: checks, and rows at any address with 16-byte accesses.

Triton knows a pointer's alignment from its value at launch, not row by row. `peel` finds in a row
of any start the elements that lie between 16-byte boundaries, its body; `body_start` states that
the body begins at one. What lies before and behind, the edges, is fewer than 2 * PACK elements.
"""

import torch
import triton
import triton.language as tl

from ._checks import (
    ranges_overlap,
    require_extents_below,
    require_rows,
    require_tensors,
)

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
OWN_DTYPES = {"target": torch.int64}
MAX_EXTENT = 1 << 30  # row and column numbers are 32 bits and run up to a tile past the end
LOG2E = tl.constexpr(1.4426950408889634)  # exp(a) = exp2(a * LOG2E); exp2 is one instruction


@triton.jit
def finite(maximum):
    """A maximum to subtract: only -Inf seen so far, taken from itself, would make NaN."""
    return tl.where(maximum == -float("inf"), 0.0, maximum)


@triton.jit
def peel(start, n_cols, PACK: tl.constexpr):
    """(edges before the body, elements of the body) of a row that begins at element `start`."""
    head = tl.minimum((PACK - start % PACK) % PACK, n_cols).to(tl.int32)
    return head, (n_cols - head) // PACK * PACK


@triton.jit
def body_start(start, PACK: tl.constexpr):
    """The first 16-byte boundary from element `start` on, provably a multiple of PACK."""
    return (start + PACK - 1) // PACK * PACK


@triton.jit
def edge_columns(head, n_body, PACK: tl.constexpr):
    edges = tl.arange(0, 2 * PACK)
    return tl.where(edges < head, edges, edges + n_body)


@triton.jit
def aligned(ptr, SHIFT: tl.constexpr):
    """The 16-byte boundary SHIFT elements before the first one."""
    if SHIFT > 0:
        ptr = tl.multiple_of(ptr - SHIFT, 16)  # multiple_of counts bytes for a pointer
    return ptr


@triton.jit
def is_class(target, n_cols):
    return (target >= 0) & (target < n_cols)


@triton.jit
def target_logit(x_row_ptr, target, n_cols):
    """x[target], NaN without a read where the target is no class."""
    inside = is_class(target, n_cols)
    return tl.load(x_row_ptr + target, mask=inside, other=float("nan")).to(tl.float32)


def pack_size(x: torch.Tensor) -> int:
    return 16 // x.element_size()


def shift_of(x: torch.Tensor) -> int:
    """Elements that x begins past a 16-byte boundary."""
    return x.data_ptr() % 16 // x.element_size()


def row_stride(x: torch.Tensor) -> int:
    """torch may report any stride for a dimension of one row."""
    return x.shape[1] if x.shape[0] == 1 else x.stride(0)


def check_rows_and_numbers(
    op: str, x: torch.Tensor, target: torch.Tensor, loss: torch.Tensor, loss_name: str
) -> None:
    """Refuse logits that are no rows, and targets or losses that are not one for each."""
    require_rows(op, x=x)
    n_rows, n_cols = x.shape
    for name, tensor in (("target", target), (loss_name, loss)):
        if tensor.shape[0] != n_rows:
            raise ValueError(
                f"{op}: {name} has shape {tuple(tensor.shape)}, wanted ({n_rows},) like x's rows; "
                f"pass {name} as [rows]"
            )
        if tensor.numel() > 1 and tensor.stride(0) != 1:
            raise ValueError(
                f"{op}: {name} has stride {tensor.stride(0)}, wanted 1; pass {name}.contiguous()"
            )
    require_apart(op, loss_name, loss, x=x, target=target)
    require_extents_below(op, MAX_EXTENT, rows=n_rows, cols=n_cols)


def require_apart(op: str, name: str, out: torch.Tensor, /, **others: torch.Tensor) -> None:
    for other, tensor in others.items():
        if ranges_overlap(out, tensor):
            raise ValueError(
                f"{op}: {name} overlaps {other}, wanted no shared memory; pass a fresh {name}"
            )


def check_kinds(op: str, layouts: dict[str, str], loss_name: str, *tensors: torch.Tensor) -> None:
    own = OWN_DTYPES | {loss_name: torch.float32}
    require_tensors(op, DTYPES, layouts, tensors, own)
