"""layer_norm: out[m, :] = (x[m, :] - mean) * rsqrt(variance + eps) * w + b, for f32, bf16 and f16.

Pointers: x_ptr and out_ptr, [n_rows, n_cols], last dimension contiguous, row strides stride_xm and
stride_om in elements (at least n_cols); w_ptr and b_ptr, [n_cols], contiguous. All arithmetic is
fp32 with one rounding at the end. Bytes: one read and one write an element (4 + 4 f32, 2 + 2 bf16)
for eight operations: memory bound; w and b come from chip.

layer_norm_kernel: a program owns ROWS whole rows as one [ROWS, BLOCK_N] tile in registers, reads
them once and goes over them for the mean, then for the distances from it.
layer_norm_resident_kernel: programs stay, keep w and b in registers and deal out the rows in turn,
one each, while the next ones arrive: one read.
layer_norm_shared_row_kernel: PARTS programs that are resident together share a row too wide for
one, keep BLOCK_N columns of it, of w and of b each in registers and exchange sum and squared
distances of their parts through global memory (_row_exchange.py) while their parts of the next row
arrive: one read.
layer_norm_looped_kernel: a program walks one such row for the moments, then back to front to write:
two reads, the second of which can hit L2.

Limits: n_rows and n_cols below 2^30. Programs cannot wait for each other in the interpreter, which
takes the looped form. NaN or Inf makes its row NaN; a row whose squared distances overflow float32
becomes b.

The choice that is not obvious: moments of parts, (count, sum, squared distances), are merged by
their own means, never as E[x^2] - E[x]^2. VEC says which power of two divides the strides, EVEN_N
that no column needs a mask, as in softmax.

What the language cannot do: tiles that are not a power of two (5120 columns hold 8192 lanes), keep
a row as it came, in 16 bits, across its reductions, and exchange sums between the blocks of a
cluster through their shared memory.
"""

import torch
import triton
import triton.language as tl

from ._checks import device_guard
from ._rms import check, plan
from ._row_exchange import (
    gather,
    group_count,
    leave,
    publish,
    registers,
    scratch,
    stages,
)

MAX_ONE_READ_COLS = 16384  # beyond that registers spill
# Wider rows than this have programs that stay: w and b, read for each row, are twice x's bytes from
# L2. On an H200, bf16: 16384 columns 138 us, a program a row 212; 8192 columns 138 against 136.
MAX_PASSING_COLS = 8192
# Columns of a part and programs on a multiprocessor, by bytes an element; small parts in many
# programs overlap their exchanges, until a row has too many: bf16 at 131072 columns 344 us against
# 353 with the parts of the widest rows, at 262144 columns 447 against 415.
PARTS_OF_A_ROW = {2: (4096, 4), 4: (4096, 2)}
PARTS_OF_THE_WIDEST = {2: (8192, 2), 4: (4096, 2)}
MAX_COLS_OF_SMALL_PARTS = 1 << 17
THREAD_BYTES = 64  # of a row, in programs that stay: as much of w and of b beside it
LANE_COLS = tl.constexpr(8)  # columns a lane reads at once: 16 bytes of 16 bits, 32 of f32


@triton.jit
def layer_norm_kernel(
    x_ptr,
    w_ptr,
    b_ptr,
    out_ptr,
    stride_xm,
    stride_om,
    n_rows,
    n_cols,
    eps,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,  # a power of two that divides n_cols, stride_xm and stride_om
    EVEN_N: tl.constexpr,  # n_cols == BLOCK_N
):
    n_cols = n_cols // VEC * VEC  # the same numbers, now provably multiples of VEC
    stride_xm = stride_xm // VEC * VEC
    stride_om = stride_om // VEC * VEC
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK_N)[None, :]
    mask = tl.full([ROWS, BLOCK_N], True, tl.int1)
    col_mask = tl.full([1, BLOCK_N], True, tl.int1)
    if ROWS > 1:  # else the grid has one program for each row
        mask = mask & (rows < n_rows)
    if not EVEN_N:
        mask = mask & (cols < n_cols)
        col_mask = cols < n_cols
    rows = rows.to(tl.int64)
    x = tl.load(x_ptr + rows * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=col_mask, other=0.0, eviction_policy="evict_last")
    b = tl.load(b_ptr + cols, mask=col_mask, other=0.0, eviction_policy="evict_last")
    centred = x - (tl.sum(x, axis=1) / n_cols)[:, None]
    distances = centred if EVEN_N else tl.where(col_mask, centred, 0.0)
    rstd = tl.rsqrt(tl.sum(distances * distances, axis=1) / n_cols + eps)
    out = centred * rstd[:, None] * w.to(tl.float32) + b.to(tl.float32)
    tl.store(out_ptr + rows * stride_om + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def layer_norm_resident_kernel(
    x_ptr,
    w_ptr,
    b_ptr,
    out_ptr,
    stride_xm,
    stride_om,
    n_rows,
    n_cols,
    eps,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,  # a power of two that divides n_cols, stride_xm and stride_om
    EVEN_N: tl.constexpr,  # n_cols == BLOCK_N
    NUM_STAGES: tl.constexpr,  # rows on their way or in use
):
    n_cols = n_cols // VEC * VEC  # the same numbers, now provably multiples of VEC
    stride_xm = stride_xm // VEC * VEC
    stride_om = stride_om // VEC * VEC
    cols = tl.arange(0, BLOCK_N)
    mask = tl.full([BLOCK_N], True, tl.int1) if EVEN_N else cols < n_cols
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    b = tl.load(b_ptr + cols, mask=mask, other=0.0)
    first, step = tl.program_id(axis=0), tl.num_programs(axis=0)
    for row in tl.range(first, n_rows, step, num_stages=NUM_STAGES):
        x = tl.load(x_ptr + tl.cast(row, tl.int64) * stride_xm + cols, mask=mask, other=0.0)
        v = x.to(tl.float32)
        centred = v - tl.sum(v, axis=0) / n_cols
        if not EVEN_N:
            centred = tl.where(mask, centred, 0.0)
        rstd = tl.rsqrt(tl.sum(centred * centred, axis=0) / n_cols + eps)
        out = centred * rstd * w.to(tl.float32) + b.to(tl.float32)
        out_ptrs = out_ptr + tl.cast(row, tl.int64) * stride_om + cols
        tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def layer_norm_looped_kernel(
    x_ptr,
    w_ptr,
    b_ptr,
    out_ptr,
    stride_xm,
    stride_om,
    n_cols,
    eps,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,  # a power of two that divides n_cols, stride_xm and stride_om
    EVEN_N: tl.constexpr,  # n_cols is a multiple of BLOCK_N
    NUM_STAGES: tl.constexpr,  # pieces in flight, prefetched into shared memory
):
    n_cols = n_cols // VEC * VEC  # the same numbers, now provably multiples of VEC
    stride_xm = stride_xm // VEC * VEC
    stride_om = stride_om // VEC * VEC
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_xm
    out_ptr += row * stride_om

    # A lane keeps the moments of its own columns: no exchange between lanes in the loop.
    LANES: tl.constexpr = BLOCK_N // LANE_COLS
    offs_n = tl.arange(0, LANES)[:, None] * LANE_COLS + tl.arange(0, LANE_COLS)[None, :]
    counts = tl.zeros([LANES], tl.float32)
    sums = tl.zeros([LANES], tl.float32)
    distances = tl.zeros([LANES], tl.float32)
    for start in tl.range(0, n_cols, BLOCK_N, num_stages=NUM_STAGES):
        cols = start + offs_n
        mask = tl.full([LANES, LANE_COLS], True, tl.int1) if EVEN_N else cols < n_cols
        x = tl.load(x_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
        x = x.to(tl.float32)
        n = tl.sum(mask.to(tl.float32), axis=1)
        total = tl.sum(x, axis=1)
        centred = tl.where(mask, x - (total / tl.maximum(n, 1.0))[:, None], 0.0)
        gap = sums / tl.maximum(counts, 1.0) - total / tl.maximum(n, 1.0)
        weight = counts * n / tl.maximum(counts + n, 1.0)
        # an infinite gap to nothing is none
        between = tl.where(weight > 0.0, gap * gap * weight, 0.0)
        distances += tl.sum(centred * centred, axis=1) + between
        counts += n
        sums += total

    mean = tl.sum(sums, axis=0) / n_cols
    gaps = tl.where(counts > 0.0, sums / tl.maximum(counts, 1.0) - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(distances + counts * gaps * gaps, axis=0) / n_cols + eps)

    # Back to front: the pieces read last are the likeliest to be in L2 still.
    n_pieces = tl.cdiv(n_cols, BLOCK_N)
    for piece in tl.range(0, n_pieces, num_stages=NUM_STAGES):
        cols = (n_pieces - 1 - piece) * BLOCK_N + offs_n
        mask = tl.full([LANES, LANE_COLS], True, tl.int1) if EVEN_N else cols < n_cols
        x = tl.load(x_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first")
        w = tl.load(w_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
        b = tl.load(b_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
        out = (x.to(tl.float32) - mean) * rstd * w.to(tl.float32) + b.to(tl.float32)
        tl.store(out_ptr + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def layer_norm_shared_row_kernel(
    x_ptr,
    w_ptr,
    b_ptr,
    out_ptr,
    words_ptr,
    counters_ptr,
    stride_xm,
    stride_om,
    n_rows,
    n_cols,
    eps,
    PARTS: tl.constexpr,  # programs that share a row, more than one
    BLOCK_N: tl.constexpr,  # columns of a part
    VEC: tl.constexpr,  # a power of two that divides n_cols, stride_xm and stride_om
    EVEN_N: tl.constexpr,  # n_cols == PARTS * BLOCK_N
    NUM_STAGES: tl.constexpr,  # rows of a part on their way or in use
):
    n_cols = n_cols // VEC * VEC  # the same numbers, now provably multiples of VEC
    stride_xm = stride_xm // VEC * VEC
    stride_om = stride_om // VEC * VEC
    pid = tl.program_id(axis=0)
    group = pid // PARTS
    part = pid % PARTS
    n_groups = tl.num_programs(axis=0) // PARTS
    cols = part * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = tl.full([BLOCK_N], True, tl.int1) if EVEN_N else cols < n_cols
    x_ptrs = x_ptr + cols
    out_ptrs = out_ptr + cols
    # Columns of this part and of all parts; the last ones may have none.
    n_part = tl.maximum(tl.minimum(n_cols - part * BLOCK_N, BLOCK_N), 1).to(tl.float32)
    starts = tl.arange(0, PARTS) * BLOCK_N
    n_parts = tl.maximum(tl.minimum(n_cols - starts, BLOCK_N), 0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    b = tl.load(b_ptr + cols, mask=mask, other=0.0)

    step = 0
    for row in tl.range(group, n_rows, n_groups, num_stages=NUM_STAGES):
        x = tl.load(x_ptrs + row.to(tl.int64) * stride_xm, mask=mask, other=0.0)
        v = x.to(tl.float32)
        total = tl.sum(v, axis=0)
        centred = v - total / n_part
        if not EVEN_N:
            centred = tl.where(mask, centred, 0.0)
        distances = tl.sum(centred * centred, axis=0)
        publish(words_ptr, group, part, step, total, distances, PARTS)
        totals, all_distances = gather(words_ptr, group, step, PARTS)
        mean = tl.sum(totals, axis=0) / n_cols
        gaps = totals / tl.maximum(n_parts, 1.0) - mean
        between = tl.where(n_parts > 0.0, n_parts * gaps * gaps, 0.0)
        distances = tl.sum(all_distances + between, axis=0)
        rstd = tl.rsqrt(distances / n_cols + eps)
        out = (v - mean) * rstd * w.to(tl.float32) + b.to(tl.float32)
        row_ptrs = out_ptrs + row.to(tl.int64) * stride_om
        tl.store(row_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask)
        step += 1
    leave(words_ptr, counters_ptr, group, PARTS)


def layer_norm(
    x: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    *,
    eps: float = 1e-5,
    ROWS: int | None = None,
    BLOCK_N: int | None = None,
    RESIDENT: int | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
) -> None:
    """Write x, its rows brought to mean 0 and variance 1, times w, plus b, into out, on x's device
    and its current stream.

    x, out: [rows, cols], any row stride >= cols; w, b: [cols]; one dtype (f32, bf16, f16); out may
    be x itself. ROWS and BLOCK_N are powers of two. RESIDENT asks for programs that stay, that many
    on each multiprocessor: with one row each, or sharing one where BLOCK_N is under cols, which the
    interpreter turns into the looped form. Without it a BLOCK_N under cols asks for the looped
    form, which has one row a program and needs BLOCK_N >= 8; num_stages is the prefetch depth of
    all but one read. Raises TypeError or ValueError for anything else.
    """
    check("layer_norm", {"x": x}, {"w": w, "b": b}, {"out": out})
    if x.numel() == 0:
        return
    n_rows, n_cols = x.shape
    if BLOCK_N is None and ROWS is None and MAX_PASSING_COLS < n_cols <= MAX_ONE_READ_COLS:
        RESIDENT = RESIDENT or 1
    form = plan(
        (x,),
        (out,),
        PARTS_OF_A_ROW if n_cols <= MAX_COLS_OF_SMALL_PARTS else PARTS_OF_THE_WIDEST,
        rows=ROWS,
        block=BLOCK_N,
        resident=RESIDENT,
        num_warps=num_warps,
        one_read_bytes=MAX_ONE_READ_COLS * x.element_size(),
        thread_bytes=THREAD_BYTES,
        alone_stays=True,
    )
    meta = {"BLOCK_N": form.block, "VEC": form.vec, "num_warps": form.num_warps}
    arguments = (x, w, b, out, *form.strides)
    with device_guard(x):
        if form.resident:
            meta["maxnreg"] = registers(form.num_warps, form.resident)
            meta["NUM_STAGES"] = num_stages or stages(
                x, form.block * x.element_size(), form.resident
            )
        if form.resident and form.block >= n_cols:
            layer_norm_resident_kernel[(group_count(x, n_rows, 1, form.resident),)](
                *arguments, n_rows, n_cols, eps, EVEN_N=n_cols == form.block, **meta
            )
        elif form.resident:
            PARTS = 1 << ((n_cols - 1) // form.block).bit_length()
            n_groups = group_count(x, n_rows, PARTS, form.resident)
            layer_norm_shared_row_kernel[(n_groups * PARTS,)](
                x,
                w,
                b,
                out,
                *scratch(x),
                *form.strides,
                n_rows,
                n_cols,
                eps,
                PARTS=PARTS,
                EVEN_N=n_cols == PARTS * form.block,
                launch_cooperative_grid=True,
                **meta,
            )
        elif form.block < n_cols:
            layer_norm_looped_kernel[(n_rows,)](
                *arguments,
                n_cols,
                eps,
                EVEN_N=n_cols % form.block == 0,
                NUM_STAGES=num_stages or 3,
                **meta,
            )
        else:
            layer_norm_kernel[((n_rows + form.rows - 1) // form.rows,)](
                *arguments,
                n_rows,
                n_cols,
                eps,
                ROWS=form.rows,
                EVEN_N=n_cols == form.block,
                **meta,
            )
