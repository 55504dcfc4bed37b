"""column_sum: out[n] = sum over m of x[m, n], the bias gradient, for f32, bf16 and f16.

Pointers: x_ptr [n_rows, n_cols], last dimension contiguous, row stride stride_xm in elements;
out_ptr [n_cols], f32, in which the sums are made: thousands of gradients go into one, and rounding
n_cols results to bf16 would save nothing. Bytes: one read of 4 (f32) or 2 bytes an element for one
addition: memory bound. Offsets are 64-bit, so any extents work.

A program owns BLOCK_N columns and every n_splits-th block of BLOCK_M rows; it keeps one accumulator
for each place of a block, loads UNROLL blocks before it adds them, and adds up the accumulators of
a column once, at the end. n_splits programs share the rows of a column tile, so that few columns
still fill the GPU: each leaves its sums in global memory, and the last to finish adds them in a
fixed order. One launch, and results repeat bit for bit.

The choice that is not obvious: VEC states the power of two that divides n_cols and the row stride,
which keeps 16-byte loads under the column mask where they are no multiples of 16.

What the language cannot do: say how warps lie over rows and columns of a tile; the sums over a
block's rows go through shared memory as the compiler likes.
"""

import math

import torch
import triton
import triton.language as tl

from ._checks import device_guard, ranges_overlap, require_rows, require_tensors
from ._last_program import COUNTERS, PARTIALS, is_last, last_program_scratch
from ._scratch import multiprocessors

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LAYOUTS = {"x": "[M, N]", "out": "[N]"}
UNROLL = 8  # blocks of rows in flight where none is prefetched
MERGED_ROWS = tl.constexpr(16)  # partial sums of a column that the last program reads at once


@triton.jit
def column_sum_kernel(
    x_ptr,
    out_ptr,
    stride_xm,
    n_rows,
    n_cols,
    n_tiles,
    n_splits,
    counters_ptr,
    partials_ptr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,  # a power of two that divides n_cols and stride_xm
    EVEN_N: tl.constexpr,  # n_cols is a multiple of BLOCK_N
    UNROLL: tl.constexpr,  # blocks of rows loaded before they are added
    NUM_STAGES: tl.constexpr,  # 1, or more: blocks of rows prefetched into shared memory
):
    n_cols = tl.cast(n_cols, tl.int64) // VEC * VEC  # the same numbers, provably multiples of VEC
    stride_xm = tl.cast(stride_xm, tl.int64) // VEC * VEC
    pid = tl.program_id(axis=0)
    tile, split = pid % n_tiles, pid // n_tiles  # programs that run together read whole rows
    cols = tile.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_n = (cols < n_cols)[None, :]
    offs_m = tl.arange(0, BLOCK_M)[:, None]
    step = tl.cast(n_splits, tl.int64) * BLOCK_M  # rows from a block to the next one
    first = split * BLOCK_M
    x_ptrs = x_ptr + (first + offs_m) * stride_xm + cols[None, :]

    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    n_rounds = n_rows // (UNROLL * step)
    for _ in tl.range(0, n_rounds, num_stages=NUM_STAGES):
        for i in tl.static_range(UNROLL):
            if EVEN_N:
                x = tl.load(x_ptrs + i * step * stride_xm)
            else:
                x = tl.load(x_ptrs + i * step * stride_xm, mask=mask_n, other=0.0)
            sums += x.to(tl.float32)
        x_ptrs += UNROLL * step * stride_xm
    left = n_rows - n_rounds * UNROLL * step - first
    for i in tl.static_range(UNROLL):
        mask = i * step + offs_m < left
        if not EVEN_N:
            mask = mask & mask_n
        sums += tl.load(x_ptrs + i * step * stride_xm, mask=mask, other=0.0).to(tl.float32)
    total = tl.sum(sums, axis=0)

    if n_splits == 1:
        tl.store(out_ptr + cols, total, mask=cols < n_cols)
    else:
        width = n_tiles * BLOCK_N  # of the partials: [n_splits, width]
        tl.store(partials_ptr + split * width + cols, total)
        if is_last(counters_ptr + tile, n_splits):
            parts = tl.arange(0, MERGED_ROWS)[:, None]
            merged = tl.zeros([MERGED_ROWS, BLOCK_N], tl.float32)
            for start in range(0, n_splits, MERGED_ROWS):
                ptrs = partials_ptr + (start + parts) * width + cols[None, :]
                merged += tl.load(
                    ptrs, mask=start + parts < n_splits, other=0.0, cache_modifier=".cg"
                )
            tl.store(out_ptr + cols, tl.sum(merged, axis=0), mask=cols < n_cols)


def check(x: torch.Tensor, out: torch.Tensor) -> None:
    """Refuse what the kernel would get wrong."""
    op = "column_sum"
    require_tensors(op, DTYPES, LAYOUTS, (x, out), {"out": torch.float32})
    n_cols = x.shape[1]
    if out.shape[0] != n_cols:
        raise ValueError(
            f"{op}: out has shape {tuple(out.shape)}, wanted ({n_cols},) like x's columns; "
            "pass out as [N]"
        )
    require_rows(op, x=x)
    if n_cols > 1 and out.stride(0) != 1:
        raise ValueError(f"{op}: out has stride {out.stride(0)}, wanted 1; pass out.contiguous()")
    if ranges_overlap(x, out):
        raise ValueError(f"{op}: out overlaps x, wanted no shared memory; pass a fresh out")


def column_sum(
    x: torch.Tensor,
    out: torch.Tensor,
    *,
    BLOCK_M: int | None = None,
    BLOCK_N: int | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
    programs_per_sm: int | None = None,
) -> None:
    """Write the sum of each column of x into out, on x's device and its current stream.

    x: [M, N] of f32, bf16 or f16, any row stride >= N; out: [N], f32, apart from x. BLOCK_M and
    BLOCK_N are powers of two; num_stages above 1 prefetches blocks of rows into shared memory.
    Raises TypeError or ValueError for anything else.
    """
    check(x, out)
    n_rows, n_cols = x.shape
    if n_cols == 0:
        return
    num_warps, num_stages = num_warps or 4, num_stages or 1
    # A warp reads 512 bytes of a row at once, so a block has a row a warp.
    BLOCK_N = BLOCK_N or 512 // x.element_size()
    BLOCK_M = BLOCK_M or max(1, num_warps * 512 // (BLOCK_N * x.element_size()))
    n_tiles = (n_cols + BLOCK_N - 1) // BLOCK_N
    # By default 1024 threads a multiprocessor.
    n_programs = multiprocessors(x.device) * (programs_per_sm or max(1, 32 // num_warps))
    most_splits = min(COUNTERS, PARTIALS // BLOCK_N, n_programs) // n_tiles
    n_splits = max(1, min(most_splits, (n_rows + BLOCK_M - 1) // BLOCK_M))
    stride_xm = x.stride(0) if n_rows > 1 else n_cols  # torch may report any stride for one row
    VEC = math.gcd(n_cols, stride_xm, 16 // x.element_size())
    with device_guard(x):
        column_sum_kernel[(n_tiles * n_splits,)](
            x,
            out,
            stride_xm,
            n_rows,
            n_cols,
            n_tiles,
            n_splits,
            *last_program_scratch(x),
            BLOCK_M=BLOCK_M,
            BLOCK_N=BLOCK_N,
            VEC=VEC,
            EVEN_N=n_cols % BLOCK_N == 0,
            UNROLL=UNROLL if num_stages == 1 else 1,
            NUM_STAGES=num_stages,
            num_warps=num_warps,
        )
