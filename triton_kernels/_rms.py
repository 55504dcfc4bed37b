"""What rms_norm and add_rms_norm share: the root mean square; and with layer_norm: refusals and the
choice of a form."""

import dataclasses
import math

import torch
import triton
import triton.language as tl

from ._checks import (
    ranges_overlap,
    require_extents_below,
    require_rows,
    require_same_shape,
    require_tensors,
    rows_overlap_in_part,
)
from ._row_exchange import can_wait, registers

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ROWS, WEIGHTS = "[rows, cols]", "[cols]"
MAX_EXTENT = 1 << 30  # row and column numbers are 32 bits and run up to a tile past the end
# One program holds a row of 64 KiB in registers: with its weights, 64 bytes of each a thread.
MAX_ONE_READ_BYTES = 65536
MAX_SHARED_ROW_COLS = 1 << 18
PIECE_BYTES = 32768  # of x, a step of the looped form


@triton.jit
def inverse_rms(square_sum, inverse_cols, eps):
    """1 / sqrt(mean + eps) of a sum of squares; 0 where that overflowed."""
    return tl.rsqrt(square_sum * inverse_cols + eps)


def check(
    op: str,
    inputs: dict[str, torch.Tensor],
    parameters: dict[str, torch.Tensor],
    outputs: dict[str, torch.Tensor],
) -> None:
    """Refuse what the kernels would get wrong. Inputs and outputs have rows, x is the first;
    parameters have one element a column."""
    layouts = (
        dict.fromkeys(inputs, ROWS)
        | dict.fromkeys(parameters, WEIGHTS)
        | dict.fromkeys(outputs, ROWS)
    )
    tensors = (*inputs.values(), *parameters.values(), *outputs.values())
    require_tensors(op, DTYPES, layouts, tensors)
    rows = inputs | outputs
    require_same_shape(op, **rows)
    n_rows, n_cols = inputs["x"].shape
    for name, tensor in parameters.items():
        if tensor.shape[0] != n_cols:
            raise ValueError(
                f"{op}: {name} has shape {tuple(tensor.shape)}, wanted ({n_cols},) like x's "
                f"columns; pass {name} as {WEIGHTS}"
            )
    require_extents_below(op, MAX_EXTENT, rows=n_rows, cols=n_cols)
    require_rows(op, **rows)
    for name, tensor in parameters.items():
        if n_cols > 1 and tensor.stride(0) != 1:
            raise ValueError(
                f"{op}: {name} has stride {tensor.stride(0)}, wanted 1; pass {name}.contiguous()"
            )
    for out, written in outputs.items():
        for name, tensor in inputs.items():
            if rows_overlap_in_part(tensor, written):
                raise ValueError(
                    f"{op}: {out} overlaps {name} in part, wanted the same memory or none "
                    f"shared; pass a fresh {out}"
                )
        for name, tensor in parameters.items():
            if ranges_overlap(written, tensor):
                refuse_overlap(op, out, name)


def refuse_overlap(op: str, out: str, name: str) -> None:
    raise ValueError(f"{op}: {out} overlaps {name}, wanted no shared memory; pass a fresh {out}")


@dataclasses.dataclass(frozen=True)
class Plan:
    """A form and its meta-parameters: programs that stay where `resident`, the looped form where
    `block` is less than a row, else one read."""

    block: int
    resident: int
    rows: int
    num_warps: int
    strides: tuple[int, ...]
    vec: int  # a power of two, at most 16 bytes, that divides columns and strides
    holds_w: bool  # shared rows: registers have room for the weights of a part


def plan(
    inputs: tuple[torch.Tensor, ...],
    outputs: tuple[torch.Tensor, ...],
    parts: dict[int, tuple[int, int]],
    *,
    rows: int | None,
    block: int | None,
    resident: int | None,
    num_warps: int | None,
    one_read_bytes: int = MAX_ONE_READ_BYTES,
    thread_bytes: int | None = None,
    alone_stays: bool = False,
) -> Plan:
    """The configuration of a launch, what the caller left open filled in.

    Inputs and outputs have rows; x is the first. A row of up to `one_read_bytes` has one program;
    a wider one is shared: `parts` are the columns of a program's part and the programs on a
    multiprocessor, by bytes an element. These have 8 warps, or a thread for each `thread_bytes`.
    `alone_stays`: programs that stay may have a row each, and then wait for nobody.
    """
    x = inputs[0]
    n_rows, n_cols = x.shape
    item = x.element_size()
    # torch may report any stride for a dimension of one row
    strides = tuple(t.stride(0) if n_rows > 1 else n_cols for t in (*inputs, *outputs))
    vec = math.gcd(n_cols, *strides, 16 // item)
    if block is None:
        width = 1 << (n_cols - 1).bit_length()  # triton.next_power_of_2 takes 1.6 us of host time
        if width * item <= one_read_bytes:
            block = width
        elif vec * item == 16 and n_cols <= MAX_SHARED_ROW_COLS and can_wait(x):
            block, fitting = parts[item]
            resident = resident or fitting
        else:
            block = PIECE_BYTES // item
    if resident and (can_wait(x) or (alone_stays and block >= n_cols)):
        if thread_bytes:
            num_warps = num_warps or max(1, min(32, block * item // (32 * thread_bytes)))
        num_warps = num_warps or 8
        # Of a column: its sum and weight in float32; the next rows are in shared memory.
        held = 2 * block / (32 * num_warps)
        holds_w = registers(num_warps, resident) >= 1.25 * held + 12
        return Plan(block, resident, 1, num_warps, strides, vec, holds_w)
    if block >= n_cols and rows is None:
        rows = max(1, 2048 // block)
    # 16 elements a thread: two 16-byte loads of x in flight for bf16
    rows = rows or 1
    num_warps = num_warps or max(1, min(32, rows * block // 512))
    return Plan(block, 0, rows, num_warps, strides, vec, False)
