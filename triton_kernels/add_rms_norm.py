"""add_rms_norm: h = x + r and out[m, :] = h[m, :] * rsqrt(mean(h[m, :]^2) + eps) * w.

For f32, bf16 and f16. Pointers: x_ptr, r_ptr, out_ptr and h_ptr, [n_rows, n_cols], last dimension
contiguous, each with a row stride in elements (at least n_cols); w_ptr, [n_cols], contiguous. All
arithmetic is fp32. The norm is taken of the fp32 sum; h is that sum rounded, as in FlashInfer and
quack (torch, vLLM and Liger round first). Bytes: two reads and two writes an element (8 + 8 f32,
4 + 4 bf16) for five operations: memory bound; w comes from L1 or L2.

The kernels have the forms of rms_norm.py. The looped one reads x and r twice and writes h in its
second pass, since h may be x or r.

Limits: n_rows and n_cols below 2^30. Programs cannot wait for each other in the interpreter, which
takes the looped form. A row whose squares overflow float32 becomes 0, NaN where h is infinite.

The choice that is not obvious: h is stored before the row is reduced, so that writing is under way
while it is. As in rms_norm, w is loaded before the reduction, VEC says which power of two divides
the strides, and EVEN_N that no column needs a mask.

What the language cannot do: tiles that are not a power of two (5120 columns hold 8192 lanes), and
exchange sums between the blocks of a cluster through their shared memory.
"""

import torch
import triton
import triton.language as tl

from ._checks import device_guard, rows_overlap_in_part
from ._rms import check, inverse_rms, plan, refuse_overlap
from ._row_exchange import (
    gather_one,
    group_count,
    leave,
    publish_one,
    registers,
    scratch,
    stages,
)

# (columns of a part, programs of 8 warps on a multiprocessor) by bytes an element: 64 KiB of x and
# r on their way, without spills
PARTS_OF_A_ROW = {2: (4096, 4), 4: (2048, 4)}


@triton.jit
def add_rms_norm_kernel(
    x_ptr,
    r_ptr,
    w_ptr,
    out_ptr,
    h_ptr,
    stride_xm,
    stride_rm,
    stride_om,
    stride_hm,
    n_rows,
    n_cols,
    inverse_cols,
    eps,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,  # a power of two that divides n_cols and the strides
    EVEN_N: tl.constexpr,  # n_cols == BLOCK_N
):
    n_cols = n_cols // VEC * VEC  # the same numbers, now provably multiples of VEC
    stride_xm = stride_xm // VEC * VEC
    stride_rm = stride_rm // VEC * VEC
    stride_om = stride_om // VEC * VEC
    stride_hm = stride_hm // VEC * VEC
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
    x = tl.load(x_ptr + rows * stride_xm + cols, mask=mask, other=0.0)
    r = tl.load(r_ptr + rows * stride_rm + cols, mask=mask, other=0.0)
    w = tl.load(w_ptr + cols, mask=w_mask, other=0.0, eviction_policy="evict_last")
    h = x.to(tl.float32) + r.to(tl.float32)
    tl.store(h_ptr + rows * stride_hm + cols, h.to(h_ptr.dtype.element_ty), mask=mask)
    rstd = inverse_rms(tl.sum(h * h, axis=1), inverse_cols, eps)
    out = h * rstd[:, None] * w.to(tl.float32)
    tl.store(out_ptr + rows * stride_om + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def add_rms_norm_looped_kernel(
    x_ptr,
    r_ptr,
    w_ptr,
    out_ptr,
    h_ptr,
    stride_xm,
    stride_rm,
    stride_om,
    stride_hm,
    n_cols,
    inverse_cols,
    eps,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,  # a power of two that divides n_cols and the strides
    EVEN_N: tl.constexpr,  # n_cols is a multiple of BLOCK_N
    NUM_STAGES: tl.constexpr,  # pieces in flight, prefetched into shared memory
):
    n_cols = n_cols // VEC * VEC  # the same numbers, now provably multiples of VEC
    stride_xm = stride_xm // VEC * VEC
    stride_rm = stride_rm // VEC * VEC
    stride_om = stride_om // VEC * VEC
    stride_hm = stride_hm // VEC * VEC
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_xm
    r_ptr += row * stride_rm
    out_ptr += row * stride_om
    h_ptr += row * stride_hm
    offs_n = tl.arange(0, BLOCK_N)

    squares = tl.zeros([BLOCK_N], tl.float32)  # no exchange between lanes in the loop
    for start in tl.range(0, n_cols, BLOCK_N, num_stages=NUM_STAGES):
        cols = start + offs_n
        mask = tl.full([BLOCK_N], True, tl.int1) if EVEN_N else cols < n_cols
        x = tl.load(x_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
        r = tl.load(r_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
        h = x.to(tl.float32) + r.to(tl.float32)
        squares += h * h
    rstd = inverse_rms(tl.sum(squares, axis=0), inverse_cols, eps)

    # Back to front: the pieces read last are the likeliest to be in L2 still.
    n_pieces = tl.cdiv(n_cols, BLOCK_N)
    for piece in tl.range(0, n_pieces, num_stages=NUM_STAGES):
        cols = (n_pieces - 1 - piece) * BLOCK_N + offs_n
        mask = tl.full([BLOCK_N], True, tl.int1) if EVEN_N else cols < n_cols
        x = tl.load(x_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first")
        r = tl.load(r_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first")
        w = tl.load(w_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
        h = x.to(tl.float32) + r.to(tl.float32)
        out = h * rstd * w.to(tl.float32)
        tl.store(h_ptr + cols, h.to(h_ptr.dtype.element_ty), mask=mask)
        tl.store(out_ptr + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def add_rms_norm_shared_row_kernel(
    x_ptr,
    r_ptr,
    w_ptr,
    out_ptr,
    h_ptr,
    words_ptr,
    counters_ptr,
    stride_xm,
    stride_rm,
    stride_om,
    stride_hm,
    n_rows,
    n_cols,
    inverse_cols,
    eps,
    PARTS: tl.constexpr,  # programs that share a row
    BLOCK_N: tl.constexpr,  # columns of a part
    VEC: tl.constexpr,  # a power of two that divides n_cols and the strides
    EVEN_N: tl.constexpr,  # n_cols == PARTS * BLOCK_N
    HOLD_W: tl.constexpr,  # registers have room for the part's weights
    NUM_STAGES: tl.constexpr,  # rows of a part on their way or in use
):
    n_cols = n_cols // VEC * VEC  # the same numbers, now provably multiples of VEC
    stride_xm = stride_xm // VEC * VEC
    stride_rm = stride_rm // VEC * VEC
    stride_om = stride_om // VEC * VEC
    stride_hm = stride_hm // VEC * VEC
    pid = tl.program_id(axis=0)
    group = pid // PARTS
    part = pid % PARTS
    n_groups = tl.num_programs(axis=0) // PARTS
    cols = part * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = tl.full([BLOCK_N], True, tl.int1) if EVEN_N else cols < n_cols
    x_ptrs = x_ptr + cols
    r_ptrs = r_ptr + cols
    out_ptrs = out_ptr + cols
    h_ptrs = h_ptr + cols

    if HOLD_W:
        w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    step = 0
    for row in tl.range(group, n_rows, n_groups, num_stages=NUM_STAGES):
        this_row = row.to(tl.int64)
        x = tl.load(x_ptrs + this_row * stride_xm, mask=mask, other=0.0)
        r = tl.load(r_ptrs + this_row * stride_rm, mask=mask, other=0.0)
        h = x.to(tl.float32) + r.to(tl.float32)
        square_sum = tl.sum(h * h, axis=0)
        if PARTS > 1:
            publish_one(words_ptr, group, part, step, square_sum, PARTS)
        tl.store(h_ptrs + this_row * stride_hm, h.to(h_ptr.dtype.element_ty), mask=mask)
        if PARTS > 1:
            sums = gather_one(words_ptr, group, step, PARTS)
            square_sum = tl.sum(sums, axis=0)
        if not HOLD_W:
            w = tl.load(w_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
        out = h * inverse_rms(square_sum, inverse_cols, eps) * w.to(tl.float32)
        tl.store(out_ptrs + this_row * stride_om, out.to(out_ptr.dtype.element_ty), mask=mask)
        step += 1
    if PARTS > 1:
        leave(words_ptr, counters_ptr, group, PARTS)


def add_rms_norm(
    x: torch.Tensor,
    r: torch.Tensor,
    w: torch.Tensor,
    out: torch.Tensor,
    h: torch.Tensor,
    *,
    eps: float = 1e-6,
    ROWS: int | None = None,
    BLOCK_N: int | None = None,
    RESIDENT: int | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
) -> None:
    """Write x + r into h and, divided row by row by its root mean square and times w, into out, on
    x's device and its current stream.

    x, r, out, h: [rows, cols], any row stride >= cols; w: [cols]; one dtype (f32, bf16, f16). out
    and h may each be x or r itself, not each other. ROWS and BLOCK_N are powers of two. RESIDENT
    asks for the shared row form: that many programs on each multiprocessor, BLOCK_N columns each;
    the interpreter ignores it. Without it a BLOCK_N under cols asks for the looped form, which has
    one row a program; num_stages is the prefetch depth of both. Raises
    TypeError or ValueError for anything else.
    """
    check("add_rms_norm", {"x": x, "r": r}, {"w": w}, {"out": out, "h": h})
    if x.numel() == 0:
        return
    if out.data_ptr() == h.data_ptr() or rows_overlap_in_part(out, h):
        refuse_overlap("add_rms_norm", "h", "out")
    n_rows, n_cols = x.shape
    form = plan(
        (x, r),
        (out, h),
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
            part_bytes = (3 - form.holds_w) * form.block * x.element_size()
            n_groups = group_count(x, n_rows, PARTS, form.resident)
            add_rms_norm_shared_row_kernel[(n_groups * PARTS,)](
                x,
                r,
                w,
                out,
                h,
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
            add_rms_norm_looped_kernel[(n_rows,)](
                x,
                r,
                w,
                out,
                h,
                *form.strides,
                *numbers,
                EVEN_N=n_cols % form.block == 0,
                NUM_STAGES=num_stages or 3,
                **meta,
            )
        else:
            add_rms_norm_kernel[((n_rows + form.rows - 1) // form.rows,)](
                x,
                r,
                w,
                out,
                h,
                *form.strides,
                n_rows,
                *numbers,
                ROWS=form.rows,
                EVEN_N=n_cols == form.block,
                **meta,
            )
