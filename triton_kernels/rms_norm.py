"""rms_norm: out[m, :] = x[m, :] * rsqrt(mean(x[m, :]^2) + eps) * w, for f32, bf16 and f16.

Pointers: x_ptr and out_ptr, [n_rows, n_cols], last dimension contiguous, row strides stride_xm and
stride_om in elements (at least n_cols); w_ptr, [n_cols], contiguous. All arithmetic is fp32 with
one rounding at the end. Bytes: one read and one write an element (4 + 4 f32, 2 + 2 bf16) for four
operations: memory bound; w comes from L1 or L2.

rms_norm_kernel: a program owns ROWS whole rows as one [ROWS, BLOCK_N] tile in registers and reads
them once. rms_norm_shared_row_kernel: PARTS programs that are resident together share a row too
wide for one, keep BLOCK_N columns each in registers and exchange their sums through global memory
(_row_exchange.py) while their parts of the next row arrive: one read. rms_norm_looped_kernel: a
program walks one such row for the sum, then back to front to write: two reads, the second of which
can hit L2.

Limits: n_rows and n_cols below 2^30. Programs cannot wait for each other in the interpreter, which
takes the looped form. A row whose squares overflow float32 becomes 0, NaN where x is infinite.

The choice that is not obvious: w is loaded before the reduction, whose latency hides that of L2; a
program that shares rows loads its part of w once for all of them where registers allow. VEC says
which power of two divides the strides, EVEN_N that no column needs a mask, as in softmax.

What the language cannot do: tiles that are not a power of two (5120 columns hold 8192 lanes), and
exchange sums between the blocks of a cluster through their shared memory.
"""

import torch
import triton
import triton.language as tl

from ._checks import device_guard
from ._rms import check, inverse_rms, plan
from ._row_exchange import (
    gather_one,
    group_count,
    leave,
    publish_one,
    registers,
    scratch,
    stages,
)

# (columns of a part, programs of 8 warps on a multiprocessor) by bytes an element: 40 or 48 KiB of
# rows on their way, without spills
PARTS_OF_A_ROW = {2: (4096, 5), 4: (4096, 3)}


@triton.jit
def rms_norm_kernel(
    x_ptr,
    w_ptr,
    out_ptr,
    stride_xm,
    stride_om,
    n_rows,
    n_cols,
    inverse_cols,
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
    w_mask = tl.full([1, BLOCK_N], True, tl.int1)
    if ROWS > 1:  # else the grid has one program for each row
        mask = mask & (rows < n_rows)
    if not EVEN_N:
        mask = mask & (cols < n_cols)
        w_mask = cols < n_cols
    rows = rows.to(tl.int64)
    x = tl.load(x_ptr + rows * stride_xm + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=w_mask, other=0.0, eviction_policy="evict_last")
    rstd = inverse_rms(tl.sum(x * x, axis=1), inverse_cols, eps)
    out = x * rstd[:, None] * w.to(tl.float32)
    tl.store(out_ptr + rows * stride_om + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def rms_norm_looped_kernel(
    x_ptr,
    w_ptr,
    out_ptr,
    stride_xm,
    stride_om,
    n_cols,
    inverse_cols,
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
    offs_n = tl.arange(0, BLOCK_N)

    squares = tl.zeros([BLOCK_N], tl.float32)  # no exchange between lanes in the loop
    for start in tl.range(0, n_cols, BLOCK_N, num_stages=NUM_STAGES):
        cols = start + offs_n
        mask = tl.full([BLOCK_N], True, tl.int1) if EVEN_N else cols < n_cols
        x = tl.load(x_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
        squares += x.to(tl.float32) * x.to(tl.float32)
    rstd = inverse_rms(tl.sum(squares, axis=0), inverse_cols, eps)

    # Back to front: the pieces read last are the likeliest to be in L2 still.
    n_pieces = tl.cdiv(n_cols, BLOCK_N)
    for piece in tl.range(0, n_pieces, num_stages=NUM_STAGES):
        cols = (n_pieces - 1 - piece) * BLOCK_N + offs_n
        mask = tl.full([BLOCK_N], True, tl.int1) if EVEN_N else cols < n_cols
        x = tl.load(x_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first")
        w = tl.load(w_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
        out = x.to(tl.float32) * rstd * w.to(tl.float32)
        tl.store(out_ptr + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def rms_norm_shared_row_kernel(
    x_ptr,
    w_ptr,
    out_ptr,
    words_ptr,
    counters_ptr,
    stride_xm,
    stride_om,
    n_rows,
    n_cols,
    inverse_cols,
    eps,
    PARTS: tl.constexpr,  # programs that share a row
    BLOCK_N: tl.constexpr,  # columns of a part
    VEC: tl.constexpr,  # a power of two that divides n_cols, stride_xm and stride_om
    EVEN_N: tl.constexpr,  # n_cols == PARTS * BLOCK_N
    HOLD_W: tl.constexpr,  # registers have room for the part's weights
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

    if HOLD_W:
        w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    step = 0
    for row in tl.range(group, n_rows, n_groups, num_stages=NUM_STAGES):
        x = tl.load(x_ptrs + row.to(tl.int64) * stride_xm, mask=mask, other=0.0)
        v = x.to(tl.float32)
        square_sum = tl.sum(v * v, axis=0)
        if PARTS > 1:
            publish_one(words_ptr, group, part, step, square_sum, PARTS)
            sums = gather_one(words_ptr, group, step, PARTS)
            square_sum = tl.sum(sums, axis=0)
        if not HOLD_W:
            w = tl.load(w_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
        out = v * inverse_rms(square_sum, inverse_cols, eps) * w.to(tl.float32)
        row_ptrs = out_ptrs + row.to(tl.int64) * stride_om
        tl.store(row_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask)
        step += 1
    if PARTS > 1:
        leave(words_ptr, counters_ptr, group, PARTS)


def rms_norm(
    x: torch.Tensor,
    w: torch.Tensor,
    out: torch.Tensor,
    *,
    eps: float = 1e-6,
    ROWS: int | None = None,
    BLOCK_N: int | None = None,
    RESIDENT: int | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
) -> None:
    """Write x, divided row by row by its root mean square and times w, into out, on x's device and
    its current stream.

    x, out: [rows, cols], any row stride >= cols; w: [cols]; one dtype (f32, bf16, f16); out may be
    x itself. ROWS and BLOCK_N are powers of two. RESIDENT asks for the shared row form: that many
    programs on each multiprocessor, BLOCK_N columns each; the interpreter ignores it. Without it a
    BLOCK_N under cols asks for the looped form, which has one row a program; num_stages is the
    prefetch depth of both. Raises TypeError or ValueError for anything else.
    """
    check("rms_norm", {"x": x}, {"w": w}, {"out": out})
    if x.numel() == 0:
        return
    n_rows, n_cols = x.shape
    form = plan(
        (x,),
        (out,),
        PARTS_OF_A_ROW,
        rows=ROWS,
        block=BLOCK_N,
        resident=RESIDENT,
        num_warps=num_warps,
    )
    numbers = (n_cols, 1.0 / n_cols, eps)
    meta = {"BLOCK_N": form.block, "VEC": form.vec, "num_warps": form.num_warps}
    with device_guard(x):
        if form.resident:
            PARTS = 1 << ((n_cols - 1) // form.block).bit_length()
            part_bytes = (2 - form.holds_w) * form.block * x.element_size()
            n_groups = group_count(x, n_rows, PARTS, form.resident)
            rms_norm_shared_row_kernel[(n_groups * PARTS,)](
                x,
                w,
                out,
                *scratch(x),
                *form.strides,
                n_rows,
                *numbers,
                PARTS=PARTS,
                EVEN_N=n_cols == PARTS * form.block,
                HOLD_W=form.holds_w,
                NUM_STAGES=num_stages or stages(x, part_bytes, form.resident),
                maxnreg=registers(form.num_warps, form.resident),
                launch_cooperative_grid=True,
                **meta,
            )
        elif form.block < n_cols:
            rms_norm_looped_kernel[(n_rows,)](
                x,
                w,
                out,
                *form.strides,
                *numbers,
                EVEN_N=n_cols % form.block == 0,
                NUM_STAGES=num_stages or 3,
                **meta,
            )
        else:
            rms_norm_kernel[((n_rows + form.rows - 1) // form.rows,)](
                x,
                w,
                out,
                *form.strides,
                n_rows,
                *numbers,
                ROWS=form.rows,
                EVEN_N=n_cols == form.block,
                **meta,
            )
