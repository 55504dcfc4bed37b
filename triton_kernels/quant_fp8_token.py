"""quant_fp8_token: out[m, :] = e4m3(x[m, :] * 448 / amax), scale[m] = amax / 448.

Pointers: x_ptr (bf16 or f16) and out_ptr (bytes), [n_rows, n_cols], contiguous; scale_ptr, f32,
[n_rows].

quant_fp8_token_kernel: a program owns ROWS whole rows as one [ROWS, BLOCK_N] tile in registers and
reads them once. quant_fp8_token_looped_kernel: a program owns one wider row, walks it in BLOCK_N
pieces for the amax and again, back to front, to write; that second read can hit L2. Bytes: 3 an
element and 4 a row of scale for about 5 operations: memory bound. NaN makes its row NaN; an amax
under 2^-33 counts as that. Offsets are 64-bit.

The choice that is not obvious: Triton knows that an integer is a multiple of 16, or nothing; VEC
states the multiple that holds for rows of other lengths, and keeps their accesses wide.

What the language cannot do: tiles that are not a power of two (7168 columns hold 8192 lanes), keep
a row as it came, in 16 bits, across a reduction of it, and let lanes read alternating packs but
store whole ones. On a GPU before sm_89 the conversion is integer arithmetic.
"""

import math

import torch
import triton
import triton.language as tl

from ._checks import device_guard
from ._fp8 import (
    amax_of,
    bytes_of,
    check_kinds,
    check_memory,
    e4m3_bits,
    factor_of,
    has_e4m3,
    scale_of,
)

LAYOUTS = {"x": "[rows, cols]", "out": "[rows, cols]", "scale": "[rows]"}
MAX_ONE_READ_COLS = 16384
PIECE = 8192


@triton.jit
def quant_fp8_token_kernel(
    x_ptr,
    out_ptr,
    scale_ptr,
    n_rows,
    n_cols,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,  # a power of two that divides n_cols
    EVEN_N: tl.constexpr,  # n_cols == BLOCK_N
    HARDWARE: tl.constexpr,  # the GPU has the conversion
):
    n_cols = n_cols // VEC * VEC  # the same number, now provably a multiple of VEC
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK_N)[None, :]
    offsets = rows[:, None] * n_cols + cols
    row_mask = rows < n_rows
    mask = row_mask[:, None]
    if not EVEN_N:
        mask = mask & (cols < n_cols)
    if EVEN_N and ROWS == 1:  # nothing to mask: the grid has one program for each row
        x = tl.load(x_ptr + offsets).to(tl.float32)
    else:
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    amax = amax_of(x)
    out = e4m3_bits(x * factor_of(amax)[:, None], HARDWARE)
    if EVEN_N and ROWS == 1:
        tl.store(out_ptr + offsets, out)
    else:
        tl.store(out_ptr + offsets, out, mask=mask)
    tl.store(scale_ptr + rows, scale_of(amax), mask=row_mask)


@triton.jit
def quant_fp8_token_looped_kernel(
    x_ptr,
    out_ptr,
    scale_ptr,
    n_cols,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,  # a power of two that divides n_cols
    HARDWARE: tl.constexpr,  # the GPU has the conversion
    NUM_STAGES: tl.constexpr,  # pieces in flight, prefetched into shared memory
):
    n_cols = tl.cast(n_cols, tl.int64) // VEC * VEC  # now provably a multiple of VEC
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * n_cols
    out_ptr += row * n_cols
    offs_n = tl.arange(0, BLOCK_N)[None, :]
    # Magnitudes lane by lane: no exchange between lanes in the loop. As in amax_of, integers.
    most = tl.zeros([1, BLOCK_N], tl.int32)
    for start in tl.range(0, n_cols, BLOCK_N, num_stages=NUM_STAGES):
        cols = start + offs_n
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        most = tl.maximum(most, x.to(tl.float32).to(tl.int32, bitcast=True) & 0x7FFFFFFF)
    amax = amax_of(most.to(tl.float32, bitcast=True))
    factor = factor_of(amax)[:, None]
    # Back to front: the pieces read last are the likeliest to be in L2 still.
    n_pieces = tl.cdiv(n_cols, BLOCK_N)
    for piece in tl.range(0, n_pieces, num_stages=NUM_STAGES):
        cols = (n_pieces - 1 - piece) * BLOCK_N + offs_n
        mask = cols < n_cols
        x = tl.load(x_ptr + cols, mask=mask, eviction_policy="evict_first").to(tl.float32)
        tl.store(out_ptr + cols, e4m3_bits(x * factor, HARDWARE), mask=mask)
    tl.store(scale_ptr + row + tl.arange(0, 1), scale_of(amax))


def check(x: torch.Tensor, out: torch.Tensor, scale: torch.Tensor) -> None:
    """Refuse what the kernels would get wrong."""
    op = "quant_fp8_token"
    check_kinds(op, LAYOUTS, x, out, scale)
    n_rows, n_cols = x.shape
    if n_cols == 0:
        raise ValueError(f"{op}: x has 0 columns, wanted 1 or more; pass rows with elements")
    check_memory(op, LAYOUTS, x, out, scale, (n_rows,))


def quant_fp8_token(
    x: torch.Tensor,
    out: torch.Tensor,
    scale: torch.Tensor,
    *,
    ROWS: int | None = None,
    BLOCK_N: int | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
) -> None:
    """Write x in e4m3 and the scale of each row, on x's device and its current stream.

    x: [rows, cols], bf16 or f16; out: the same in float8_e4m3fn; scale: [rows], f32; all
    contiguous. x is about out * scale. ROWS and BLOCK_N are powers of two. A BLOCK_N under cols
    asks for the looped form, which has one row a program; num_stages is its prefetch depth and has
    no effect otherwise. Raises TypeError or ValueError for anything else.
    """
    check(x, out, scale)
    n_rows, n_cols = x.shape
    if n_rows == 0:
        return
    if BLOCK_N is None:
        one_read = n_cols <= MAX_ONE_READ_COLS
        BLOCK_N = 1 << (n_cols - 1).bit_length() if one_read else PIECE
    VEC = math.gcd(n_cols, 16)
    with device_guard(x):
        if BLOCK_N < n_cols:
            quant_fp8_token_looped_kernel[(n_rows,)](
                x,
                bytes_of(out),
                scale,
                n_cols,
                BLOCK_N=BLOCK_N,
                VEC=VEC,
                HARDWARE=has_e4m3(),
                NUM_STAGES=num_stages or 3,
                num_warps=num_warps or max(1, min(32, BLOCK_N // 512)),
            )
        else:
            # 2048 elements a program, then 16 a thread: two 16-byte loads in flight.
            ROWS = ROWS or max(1, 2048 // BLOCK_N)
            quant_fp8_token_kernel[((n_rows + ROWS - 1) // ROWS,)](
                x,
                bytes_of(out),
                scale,
                n_rows,
                n_cols,
                ROWS=ROWS,
                BLOCK_N=BLOCK_N,
                VEC=VEC,
                EVEN_N=n_cols == BLOCK_N,
                HARDWARE=has_e4m3(),
                num_warps=num_warps or max(1, min(32, ROWS * BLOCK_N // 512)),
            )
