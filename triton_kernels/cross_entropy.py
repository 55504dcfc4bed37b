"""cross_entropy: out[m] = log(sum(exp(x[m, :]))) - x[m, target[m]], for f32, bf16 and f16 logits.

Pointers: x_ptr, [n_rows, n_cols], last dimension contiguous, row stride stride_xm in elements (at
least n_cols); target_ptr, int64, and out_ptr, f32, [n_rows]. All arithmetic is fp32.

cross_entropy_kernel: a program owns ROWS whole rows as one [ROWS, BLOCK_N] tile in registers.
cross_entropy_looped_kernel: a program owns one row and walks it in pieces of four packs a lane; a
lane keeps a maximum and a sum of its own columns, so that lanes meet once a row. Bytes: one read of
an element and 12 a row, for about five operations an element: memory bound.

Limits: n_rows and n_cols below 2^30. NaN, +Inf, or nothing but -Inf in a row gives NaN, as torch
does; a target outside 0 to n_cols - 1 gives NaN and reads nothing.

The choice that is not obvious: the looped form loads the next piece into registers before it works
on the present one, and reads rows at any address by 16 bytes: up to 7 elements at each end of a row
are peeled off (_cross_entropy.py). Tiles of rows that are not whole 16-byte packs take narrower
loads.

What the language cannot do: prefetch into shared memory and mask part of a 16-byte group at once,
tiles that are not a power of two, and ask for a row's first piece while the row before is merged.
"""

import math

import torch
import triton
import triton.language as tl

from ._checks import device_guard
from ._cross_entropy import (
    LOG2E,
    aligned,
    body_start,
    check_kinds,
    check_rows_and_numbers,
    edge_columns,
    finite,
    pack_size,
    peel,
    row_stride,
    shift_of,
    target_logit,
)

LAYOUTS = {"x": "[rows, cols]", "target": "[rows]", "out": "[rows]"}
MAX_TILE_COLS = 4096
PIECE_BYTES = 16384  # of 8 warps: four 16-byte loads a thread


@triton.jit
def cross_entropy_kernel(
    x_ptr,
    target_ptr,
    out_ptr,
    stride_xm,
    n_rows,
    n_cols,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,  # a power of two that divides n_cols and stride_xm
    EVEN_N: tl.constexpr,  # n_cols == BLOCK_N
):
    n_cols = n_cols // VEC * VEC  # the same numbers, now provably multiples of VEC
    stride_xm = stride_xm // VEC * VEC
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)
    row_mask = rows < n_rows
    cols = tl.arange(0, BLOCK_N)[None, :]
    x_rows = x_ptr + rows.to(tl.int64) * stride_xm
    target = tl.load(target_ptr + rows, mask=row_mask, other=-1)
    if EVEN_N and ROWS == 1:  # nothing to mask: the grid has one program for each row
        x = tl.load(x_rows[:, None] + cols).to(tl.float32)
    else:
        mask = row_mask[:, None]
        if not EVEN_N:
            mask = mask & (cols < n_cols)
        x = tl.load(x_rows[:, None] + cols, mask=mask, other=-float("inf")).to(tl.float32)
    logit = target_logit(x_rows, target, n_cols)
    # Subtract before scaling: x * LOG2E alone could overflow. max skips NaN, the sum keeps it.
    row_max = tl.max(x, axis=1)
    row_sum = tl.sum(tl.exp2((x - row_max[:, None]) * LOG2E), axis=1)
    tl.store(out_ptr + rows, row_max - logit + tl.log(row_sum), mask=row_mask)


@triton.jit
def cross_entropy_looped_kernel(
    x_ptr,
    target_ptr,
    out_ptr,
    stride_xm,
    n_cols,
    LANES: tl.constexpr,  # threads
    PACK: tl.constexpr,  # elements in 16 bytes
    SHIFT: tl.constexpr,  # elements between a 16-byte boundary and x_ptr
    PEEL: tl.constexpr,  # rows may begin or end between 16-byte boundaries
):
    row = tl.program_id(axis=0).to(tl.int64)
    target = tl.load(target_ptr + row)
    row_ptr = x_ptr + row * stride_xm
    logit = target_logit(row_ptr, target, n_cols)
    start = row * stride_xm + SHIFT
    body_ptr = aligned(x_ptr, SHIFT) + body_start(start, PACK)
    if PEEL:
        head, n_body = peel(start, n_cols, PACK)
        edge_cols = edge_columns(head, n_body, PACK)
        edges = tl.load(row_ptr + edge_cols, mask=edge_cols < n_cols, other=-float("inf"))
    else:
        n_body = n_cols

    # Lane by lane a pack: all of it is in the body or nothing, which a mask of one value a pack
    # says. Four such tiles make a piece.
    TILE: tl.constexpr = LANES * PACK
    packs = tl.arange(0, LANES)[:, None] * PACK
    ptrs = body_ptr + packs + tl.arange(0, PACK)[None, :]
    lane_max = tl.full([LANES], -float("inf"), tl.float32)
    lane_sum = tl.zeros([LANES], tl.float32)
    ahead0, ahead1, ahead2, ahead3 = _load_piece(ptrs, packs, 0, n_body, TILE)
    for first in tl.range(0, n_body, 4 * TILE, num_stages=1):
        x0, x1 = ahead0.to(tl.float32), ahead1.to(tl.float32)
        x2, x3 = ahead2.to(tl.float32), ahead3.to(tl.float32)
        ahead0, ahead1, ahead2, ahead3 = _load_piece(ptrs, packs, first + 4 * TILE, n_body, TILE)
        largest = tl.maximum(tl.maximum(x0, x1), tl.maximum(x2, x3))
        new_max = tl.maximum(lane_max, tl.max(largest, axis=1))
        shift = finite(new_max)[:, None]
        terms = tl.exp2((x0 - shift) * LOG2E) + tl.exp2((x1 - shift) * LOG2E)
        terms += tl.exp2((x2 - shift) * LOG2E) + tl.exp2((x3 - shift) * LOG2E)
        lane_sum *= tl.exp2((lane_max - finite(new_max)) * LOG2E)
        lane_sum += tl.sum(terms, axis=1)
        lane_max = new_max

    row_max = tl.max(lane_max, axis=0)
    if PEEL:
        edge = edges.to(tl.float32)
        row_max = tl.maximum(row_max, tl.max(edge, axis=0))
    shift = finite(row_max)
    row_sum = tl.sum(lane_sum * tl.exp2((lane_max - shift) * LOG2E), axis=0)
    if PEEL:
        row_sum += tl.sum(tl.exp2((edge - shift) * LOG2E), axis=0)
    tl.store(out_ptr + row, row_max - logit + tl.log(row_sum))


@triton.jit
def _load_piece(ptrs, packs, first, n_body, TILE: tl.constexpr):
    return (
        _load_tile(ptrs, packs, first, n_body),
        _load_tile(ptrs, packs, first + TILE, n_body),
        _load_tile(ptrs, packs, first + 2 * TILE, n_body),
        _load_tile(ptrs, packs, first + 3 * TILE, n_body),
    )


@triton.jit
def _load_tile(ptrs, packs, first, n_body):
    return tl.load(ptrs + first, mask=packs + first < n_body, other=-float("inf"))


def check(x: torch.Tensor, target: torch.Tensor, out: torch.Tensor) -> None:
    """Refuse what the kernels would get wrong."""
    check_kinds("cross_entropy", LAYOUTS, "out", x, target, out)
    check_rows_and_numbers("cross_entropy", x, target, out, "out")


def cross_entropy(
    x: torch.Tensor,
    target: torch.Tensor,
    out: torch.Tensor,
    *,
    ROWS: int | None = None,
    BLOCK_N: int | None = None,
    num_warps: int | None = None,
) -> None:
    """Write the loss of each row of x into out, on x's device and its current stream.

    x: [rows, cols], f32, bf16 or f16, any row stride >= cols; target: [rows], int64; out: [rows],
    f32. ROWS and BLOCK_N are powers of two. A BLOCK_N under cols asks for the looped form, which
    has one row a program and a warp for every 2 KiB of a piece, whatever num_warps is. Raises
    TypeError or ValueError for anything else.
    """
    check(x, target, out)
    n_rows, n_cols = x.shape
    if n_rows == 0:
        return
    stride_xm, PACK, SHIFT = row_stride(x), pack_size(x), shift_of(x)
    VEC = math.gcd(n_cols, stride_xm, PACK)
    PEEL = VEC < PACK or SHIFT > 0
    if BLOCK_N is None:
        tile = n_cols <= (1024 if PEEL else MAX_TILE_COLS)
        # the next power of two; triton.next_power_of_2 takes 1.6 us of host time
        BLOCK_N = 1 << max(n_cols - 1, 0).bit_length() if tile else PIECE_BYTES // x.element_size()
    with device_guard(x):
        if BLOCK_N < n_cols:
            num_warps = max(1, BLOCK_N // (32 * 4 * PACK))
            cross_entropy_looped_kernel[(n_rows,)](
                x,
                target,
                out,
                stride_xm,
                n_cols,
                LANES=32 * num_warps,
                PACK=PACK,
                SHIFT=SHIFT,
                PEEL=PEEL,
                num_warps=num_warps,
            )
        else:
            # 2048 elements a program, then 16 a thread: two 16-byte loads in flight for bf16.
            ROWS = ROWS or max(1, 2048 // BLOCK_N)
            cross_entropy_kernel[((n_rows + ROWS - 1) // ROWS,)](
                x,
                target,
                out,
                stride_xm,
                n_rows,
                n_cols,
                ROWS=ROWS,
                BLOCK_N=BLOCK_N,
                VEC=VEC,
                EVEN_N=n_cols == BLOCK_N,
                num_warps=num_warps or max(1, min(32, ROWS * BLOCK_N // 512)),
            )
