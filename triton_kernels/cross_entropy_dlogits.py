"""cross_entropy_dlogits: out[m, :] = softmax(x[m, :]) - onehot(target[m]), and loss[m].

Pointers: x_ptr and out_ptr (f32, bf16 or f16), [n_rows, n_cols], last dimension contiguous, row
strides stride_xm and stride_om in elements (at least n_cols); target_ptr, int64, and loss_ptr, f32,
[n_rows]: loss[m] = log(sum(exp(x[m, :]))) - x[m, target[m]]. All arithmetic is fp32.

cross_entropy_dlogits_kernel: a program owns ROWS whole rows as one [ROWS, BLOCK_N] tile in
registers and reads them once. cross_entropy_dlogits_shared_row_kernel: PARTS programs that are
resident together share a row too wide for one and exchange maximum and sum through global memory
(_row_exchange.py) while their parts of the next row arrive: one read.
cross_entropy_dlogits_looped_kernel: a program owns one such row, walks it in BLOCK_N pieces for the
maximum and the sum, then back to front to write: two reads, of which the second can hit L2. Bytes:
one read and one write of an element and 12 a row, for about six operations: memory bound.

Limits: n_rows and n_cols below 2^30, one-read rows up to 32768 columns in one program (beyond that
registers spill). Programs cannot wait for each other in the interpreter, which takes the looped
form. NaN, +Inf, or nothing but -Inf in a row gives NaN; a target outside 0 to n_cols - 1 gives a
loss of NaN, reads nothing and leaves the softmax. out may be exactly x: the target's logit is read
before the row is merged, and a row is written after that.

The choice that is not obvious: the two wide forms read and write rows at any address by 16 bytes,
as long as x and out cross 16-byte boundaries together (ALIKE): up to 7 elements at each end of a
row are peeled off (_cross_entropy.py). Otherwise, and in tiles, VEC or out's alignment narrows
accesses.

What the language cannot do: tiles that are not a power of two, mask part of a 16-byte group at
once, and exchange partials between the blocks of a cluster through their shared memory.
"""

import math

import torch
import triton
import triton.language as tl

from ._checks import device_guard, require_rows, require_same_shape, rows_overlap_in_part
from ._cross_entropy import (
    LOG2E,
    aligned,
    body_start,
    check_kinds,
    check_rows_and_numbers,
    edge_columns,
    finite,
    is_class,
    pack_size,
    peel,
    require_apart,
    row_stride,
    shift_of,
    target_logit,
)
from ._row_exchange import (
    can_wait,
    gather,
    group_count,
    leave,
    publish,
    registers,
    scratch,
    stages,
)

LAYOUTS = {"x": "[rows, cols]", "target": "[rows]", "out": "[rows, cols]", "loss": "[rows]"}
MAX_ONE_READ_COLS = 16384
PIECE_BYTES = 32768
MAX_SHARED_ROW_COLS = 1 << 18  # 64 programs a row in f32
# Three or four programs of 8 warps a multiprocessor hold 48 or 64 KiB of rows and wait for as
# much: what registers hold without spills, 32 (16 bits) or 16 (f32) elements a thread.
PART_BYTES = 16384


@triton.jit
def cross_entropy_dlogits_kernel(
    x_ptr,
    target_ptr,
    out_ptr,
    loss_ptr,
    stride_xm,
    stride_om,
    n_rows,
    n_cols,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,  # a power of two that divides n_cols, stride_xm and stride_om
    EVEN_N: tl.constexpr,  # n_cols == BLOCK_N
):
    n_cols = n_cols // VEC * VEC  # the same numbers, now provably multiples of VEC
    stride_xm = stride_xm // VEC * VEC
    stride_om = stride_om // VEC * VEC
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)
    row_mask = rows < n_rows
    cols = tl.arange(0, BLOCK_N)[None, :]
    x_rows = x_ptr + rows.to(tl.int64) * stride_xm
    out_rows = out_ptr + rows.to(tl.int64) * stride_om
    target = tl.load(target_ptr + rows, mask=row_mask, other=-1)
    mask = row_mask[:, None]
    if not EVEN_N:
        mask = mask & (cols < n_cols)
    if EVEN_N and ROWS == 1:  # nothing to mask: the grid has one program for each row
        x = tl.load(x_rows[:, None] + cols).to(tl.float32)
    else:
        x = tl.load(x_rows[:, None] + cols, mask=mask, other=-float("inf")).to(tl.float32)
    logit = target_logit(x_rows, target, n_cols)
    # Subtract before scaling: x * LOG2E alone could overflow. max skips NaN, the sum keeps it.
    row_max = tl.max(x, axis=1)
    numerator = tl.exp2((x - row_max[:, None]) * LOG2E)
    row_sum = tl.sum(numerator, axis=1)
    hit = cols == _column_of(target, n_cols)[:, None]
    out = numerator * (1.0 / row_sum)[:, None] - tl.where(hit, 1.0, 0.0)
    if EVEN_N and ROWS == 1:
        tl.store(out_rows[:, None] + cols, out.to(out_ptr.dtype.element_ty))
    else:
        tl.store(out_rows[:, None] + cols, out.to(out_ptr.dtype.element_ty), mask=mask)
    tl.store(loss_ptr + rows, row_max - logit + tl.log(row_sum), mask=row_mask)


@triton.jit
def cross_entropy_dlogits_looped_kernel(
    x_ptr,
    target_ptr,
    out_ptr,
    loss_ptr,
    stride_xm,
    stride_om,
    n_cols,
    BLOCK_N: tl.constexpr,
    PACK: tl.constexpr,  # elements in 16 bytes
    SHIFT: tl.constexpr,  # elements between a 16-byte boundary and x_ptr
    ALIKE: tl.constexpr,  # every row of x and out lies alike between 16-byte boundaries
    PEEL: tl.constexpr,  # rows may begin or end between 16-byte boundaries
):
    row = tl.program_id(axis=0).to(tl.int64)
    target = tl.load(target_ptr + row)
    x_row = x_ptr + row * stride_xm
    out_row = out_ptr + row * stride_om
    logit = target_logit(x_row, target, n_cols)
    x_body, head, n_body = _body(x_ptr, row * stride_xm, n_cols, PACK, SHIFT)
    if ALIKE:
        out_body, _, _ = _body(out_ptr, row * stride_om, n_cols, PACK, SHIFT)
    else:
        out_body = out_row + head
    if PEEL:
        edge_cols = edge_columns(head, n_body, PACK)
        edge = tl.load(x_row + edge_cols, mask=edge_cols < n_cols, other=-float("inf"))
        edge = edge.to(tl.float32)

    # A lane keeps a maximum and a sum of its own columns: no exchange between lanes in the loop.
    LANES: tl.constexpr = BLOCK_N // PACK
    packs = tl.arange(0, LANES)[:, None] * PACK
    offs = packs + tl.arange(0, PACK)[None, :]
    lane_max = tl.full([LANES], -float("inf"), tl.float32)
    lane_sum = tl.zeros([LANES], tl.float32)
    for first in tl.range(0, n_body, BLOCK_N, num_stages=1):
        x = tl.load(
            x_body + first + offs,
            mask=packs + first < n_body,
            other=-float("inf"),
            eviction_policy="evict_last",
        ).to(tl.float32)
        new_max = tl.maximum(lane_max, tl.max(x, axis=1))
        shift = finite(new_max)
        lane_sum *= tl.exp2((lane_max - shift) * LOG2E)
        lane_sum += tl.sum(tl.exp2((x - shift[:, None]) * LOG2E), axis=1)
        lane_max = new_max

    row_max = tl.max(lane_max, axis=0)
    if PEEL:
        row_max = tl.maximum(row_max, tl.max(edge, axis=0))
    shift = finite(row_max)
    row_sum = tl.sum(lane_sum * tl.exp2((lane_max - shift) * LOG2E), axis=0)
    if PEEL:
        row_sum += tl.sum(tl.exp2((edge - shift) * LOG2E), axis=0)
    scale = 1.0 / row_sum  # a row of -Inf has sum 0: 0 * Inf makes its NaN

    # Back to front: the pieces read last are the likeliest to be in L2 still.
    column = _column_of(target, n_cols)
    n_pieces = tl.cdiv(n_body, BLOCK_N)
    for piece in tl.range(0, n_pieces, num_stages=1):
        first = (n_pieces - 1 - piece) * BLOCK_N
        mask = packs + first < n_body
        x = tl.load(x_body + first + offs, mask=mask, eviction_policy="evict_first")
        out = tl.exp2((x.to(tl.float32) - shift) * LOG2E) * scale
        out -= tl.where(offs + first + head == column, 1.0, 0.0)
        tl.store(out_body + first + offs, out.to(out_ptr.dtype.element_ty), mask=mask)
    if PEEL:
        out = tl.exp2((edge - shift) * LOG2E) * scale - tl.where(edge_cols == column, 1.0, 0.0)
        tl.store(out_row + edge_cols, out.to(out_ptr.dtype.element_ty), mask=edge_cols < n_cols)
    tl.store(loss_ptr + row, row_max - logit + tl.log(row_sum))


@triton.jit
def cross_entropy_dlogits_shared_row_kernel(
    x_ptr,
    target_ptr,
    out_ptr,
    loss_ptr,
    words_ptr,
    counters_ptr,
    stride_xm,
    stride_om,
    n_rows,
    n_cols,
    PARTS: tl.constexpr,  # programs that share a row
    BLOCK_N: tl.constexpr,  # columns of a part
    PACK: tl.constexpr,  # elements in 16 bytes
    SHIFT: tl.constexpr,  # elements between a 16-byte boundary and x_ptr, and so out_ptr
    PEEL: tl.constexpr,  # rows may begin or end between 16-byte boundaries
    NUM_STAGES: tl.constexpr,  # rows of a part on their way or in use
):
    pid = tl.program_id(axis=0)
    group = pid // PARTS
    part = pid % PARTS
    n_groups = tl.num_programs(axis=0) // PARTS
    packs = part * BLOCK_N + tl.arange(0, BLOCK_N // PACK)[:, None] * PACK
    offs = packs + tl.arange(0, PACK)[None, :]

    # Too narrow for the loop's cp.async, these are loaded a row ahead by hand: before others may
    # write into that row, where out is x.
    next_target, next_logit = _load_target(x_ptr, target_ptr, group, stride_xm, n_rows, n_cols)
    if PEEL:
        next_edge = _load_edge(x_ptr, group, stride_xm, n_rows, n_cols, part, PACK, SHIFT)
    step = 0
    for row in tl.range(group, n_rows, n_groups, num_stages=NUM_STAGES):
        start = row.to(tl.int64) * stride_xm
        body, head, n_body = _body(x_ptr, start, n_cols, PACK, SHIFT)
        v = tl.load(body + offs, mask=packs < n_body, other=-float("inf")).to(tl.float32)
        part_max = tl.max(v)
        if PEEL:
            edge = next_edge.to(tl.float32)
            part_max = tl.maximum(part_max, tl.max(edge))
        part_shift = finite(part_max)
        numerator = tl.exp2((v - part_shift) * LOG2E)
        part_sum = tl.sum(numerator)
        if PEEL:
            part_sum += tl.sum(tl.exp2((edge - part_shift) * LOG2E))
        if PARTS > 1:
            publish(words_ptr, group, part, step, part_max, part_sum, PARTS)
        target, logit = next_target, next_logit
        next_row = row + n_groups
        next_target, next_logit = _load_target(
            x_ptr, target_ptr, next_row, stride_xm, n_rows, n_cols
        )
        if PEEL:
            next_edge = _load_edge(x_ptr, next_row, stride_xm, n_rows, n_cols, part, PACK, SHIFT)
        if PARTS > 1:
            maxima, sums = gather(words_ptr, group, step, PARTS)
            row_max = tl.max(maxima, axis=0)
            shift = finite(row_max)
            row_sum = tl.sum(sums * tl.exp2((maxima - shift) * LOG2E), axis=0)
        else:
            row_max = part_max
            shift = part_shift
            row_sum = part_sum
        # A row of -Inf has sum 0: 0 / 0 makes its NaN.
        scale = tl.exp2((part_max - shift) * LOG2E) / row_sum
        column = _column_of(target, n_cols)
        out_start = row.to(tl.int64) * stride_om
        out_body, head, n_body = _body(out_ptr, out_start, n_cols, PACK, SHIFT)
        out = numerator * scale - tl.where(offs + head == column, 1.0, 0.0)
        tl.store(out_body + offs, out.to(out_ptr.dtype.element_ty), mask=packs < n_body)
        if PEEL:
            edge_cols = edge_columns(head, n_body, PACK)
            out = tl.exp2((edge - part_shift) * LOG2E) * scale
            out -= tl.where(edge_cols == column, 1.0, 0.0)
            mask = (part == 0) & (edge_cols < n_cols)
            tl.store(out_ptr + out_start + edge_cols, out.to(out_ptr.dtype.element_ty), mask=mask)
        if part == 0:
            tl.store(loss_ptr + row, row_max - logit + tl.log(row_sum))
        step += 1
    if PARTS > 1:
        leave(words_ptr, counters_ptr, group, PARTS)


@triton.jit
def _load_target(x_ptr, target_ptr, row, stride_xm, n_rows, n_cols):
    """The target of a row and its logit; -1, which is no class, past the last row."""
    target = tl.load(target_ptr + row, mask=row < n_rows, other=-1)
    return target, target_logit(x_ptr + row.to(tl.int64) * stride_xm, target, n_cols)


@triton.jit
def _load_edge(
    x_ptr, row, stride_xm, n_rows, n_cols, part, PACK: tl.constexpr, SHIFT: tl.constexpr
):
    """The edges of a row in its first part, -Inf in the others and past the last row."""
    start = row.to(tl.int64) * stride_xm
    head, n_body = peel(start + SHIFT, n_cols, PACK)
    edge_cols = edge_columns(head, n_body, PACK)
    mask = (row < n_rows) & (part == 0) & (edge_cols < n_cols)
    return tl.load(x_ptr + start + edge_cols, mask=mask, other=-float("inf"))


@triton.jit
def _body(ptr, start, n_cols, PACK: tl.constexpr, SHIFT: tl.constexpr):
    """(pointer to the body, edges before it, its elements) of the row `start` elements past ptr."""
    head, n_body = peel(start + SHIFT, n_cols, PACK)
    return aligned(ptr, SHIFT) + body_start(start + SHIFT, PACK), head, n_body


@triton.jit
def _column_of(target, n_cols):
    """The target's column, -1 where it is no class, in 32 bits."""
    return tl.where(is_class(target, n_cols), target, -1).to(tl.int32)


def check(x: torch.Tensor, target: torch.Tensor, out: torch.Tensor, loss: torch.Tensor) -> None:
    """Refuse what the kernels would get wrong."""
    op = "cross_entropy_dlogits"
    check_kinds(op, LAYOUTS, "loss", x, target, out, loss)
    require_same_shape(op, x=x, out=out)
    check_rows_and_numbers(op, x, target, loss, "loss")
    require_rows(op, out=out)
    if rows_overlap_in_part(x, out):
        raise ValueError(
            f"{op}: out overlaps x in part, wanted the same memory or none shared; pass a fresh out"
        )
    require_apart(op, "out", out, target=target)
    require_apart(op, "loss", loss, out=out)


def cross_entropy_dlogits(
    x: torch.Tensor,
    target: torch.Tensor,
    out: torch.Tensor,
    loss: torch.Tensor,
    *,
    ROWS: int | None = None,
    BLOCK_N: int | None = None,
    RESIDENT: int | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
) -> None:
    """Write the gradient and the loss of each row of x, on x's device and its current stream.

    x, out: [rows, cols], one dtype (f32, bf16, f16), any row stride >= cols; out may be x itself;
    target: [rows], int64; loss: [rows], f32. ROWS and BLOCK_N are powers of two. RESIDENT asks for
    the shared row form: that many programs on each multiprocessor, BLOCK_N columns each; the
    interpreter ignores it, and so do rows of x and out that are not aligned alike. Without it a
    BLOCK_N under cols asks for the looped form, which has one row a program; num_stages is the
    prefetch depth of shared rows. Raises TypeError or ValueError for anything else.
    """
    check(x, target, out, loss)
    n_rows, n_cols = x.shape
    if n_rows == 0:
        return
    stride_xm, stride_om = row_stride(x), row_stride(out)
    PACK, SHIFT = pack_size(x), shift_of(x)
    VEC = math.gcd(n_cols, stride_xm, stride_om, PACK)
    PEEL = VEC < PACK or SHIFT > 0
    ALIKE = shift_of(out) == SHIFT and (stride_xm - stride_om) % PACK == 0
    may_share = ALIKE and can_wait(x)
    if BLOCK_N is None:
        if n_cols <= MAX_ONE_READ_COLS:
            # the next power of two; triton.next_power_of_2 takes 1.6 us of host time
            BLOCK_N = 1 << max(n_cols - 1, 0).bit_length()
        elif may_share and n_cols <= MAX_SHARED_ROW_COLS:
            BLOCK_N = PART_BYTES // x.element_size()
            # edges take registers too
            RESIDENT = RESIDENT or (4 if x.dtype == torch.float32 else 3) - PEEL
        else:
            BLOCK_N = PIECE_BYTES // x.element_size()
    with device_guard(x):
        if RESIDENT and may_share:
            PARTS = 1 << (max(n_cols - 1, 0) // BLOCK_N).bit_length()
            part_bytes = BLOCK_N * x.element_size()
            n_groups = group_count(x, n_rows, PARTS, RESIDENT)
            num_warps = num_warps or 8
            cross_entropy_dlogits_shared_row_kernel[(n_groups * PARTS,)](
                x,
                target,
                out,
                loss,
                *scratch(x),
                stride_xm,
                stride_om,
                n_rows,
                n_cols,
                PARTS=PARTS,
                BLOCK_N=BLOCK_N,
                PACK=PACK,
                SHIFT=SHIFT,
                PEEL=PEEL,
                NUM_STAGES=num_stages or stages(x, part_bytes, RESIDENT),
                num_warps=num_warps,
                maxnreg=registers(num_warps, RESIDENT),
                launch_cooperative_grid=True,
            )
        elif BLOCK_N < n_cols:
            cross_entropy_dlogits_looped_kernel[(n_rows,)](
                x,
                target,
                out,
                loss,
                stride_xm,
                stride_om,
                n_cols,
                BLOCK_N=max(BLOCK_N, PACK),
                PACK=PACK,
                SHIFT=SHIFT,
                ALIKE=ALIKE,
                PEEL=PEEL,
                num_warps=num_warps or max(1, min(32, BLOCK_N // 512)),
            )
        else:
            # 2048 elements a program, then 16 a thread: two 16-byte loads in flight for bf16.
            ROWS = ROWS or max(1, 2048 // BLOCK_N)
            cross_entropy_dlogits_kernel[((n_rows + ROWS - 1) // ROWS,)](
                x,
                target,
                out,
                loss,
                stride_xm,
                stride_om,
                n_rows,
                n_cols,
                ROWS=ROWS,
                BLOCK_N=BLOCK_N,
                VEC=VEC,
                EVEN_N=n_cols == BLOCK_N,
                num_warps=num_warps or max(1, min(32, ROWS * BLOCK_N // 512)),
            )
