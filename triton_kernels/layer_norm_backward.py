"""layer_norm_backward: dx = rstd * (w dy - mean(w dy) - xhat mean(w dy xhat)) a row, with xhat =
(x - mean) * rstd; dw = sum of dy xhat and db = sum of dy over rows; for f32, bf16 and f16.

Pointers, all contiguous: dy_ptr, x_ptr and dx_ptr [n_rows, n_cols], w_ptr, dw_ptr and db_ptr
[n_cols], in one dtype; mean_ptr and rstd_ptr [n_rows], f32. dw and db have the parameters' dtype,
as autograd wants them; all arithmetic before that is fp32. Bytes: two reads and one write an
element (8 + 4 f32, 4 + 2 bf16) for 13 operations: memory bound.

layer_norm_backward_kernel: programs stay and deal out the rows, ROWS at a time, in turn; each keeps
dw and db of all columns in registers and leaves one partial row. layer_norm_backward_shared_row_
kernel: PARTS programs that are resident together share a row too wide for one and exchange its two
sums through global memory (_row_exchange.py) while their parts of the next row arrive.
layer_norm_backward_looped_kernel and layer_norm_backward_columns_kernel: dx row by row, dw and db
column by column, for rows of any width: four reads and one write. After either,
layer_norm_backward_reduce_kernel adds the partial rows in a fixed order: no locks and no atomics,
results repeat bit for bit.

Limits: n_rows and n_cols below 2^30. Programs cannot wait for each other in the interpreter, which
takes the looped form.

The choice that is not obvious: there are about as many partial rows as multiprocessors, whatever
the number of rows, so that they stay in L2. VEC says which power of two divides n_cols.

What the language cannot do: tiles that are not a power of two, keep x and dy in 16 bits or in
shared memory across the reduction, and exchange sums between the blocks of a cluster.
"""

import math

import torch
import triton
import triton.language as tl

from ._checks import (
    device_guard,
    ranges_overlap,
    require_contiguous,
    require_extents_below,
    require_same_shape,
    require_tensors,
)
from ._rms import DTYPES, MAX_EXTENT, MAX_SHARED_ROW_COLS, ROWS, WEIGHTS, refuse_overlap
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
from ._scratch import multiprocessors, scratch_for

OP = "layer_norm_backward"
LAYOUTS = {
    **dict.fromkeys(("dy", "x"), ROWS),
    "w": WEIGHTS,
    **dict.fromkeys(("mean", "rstd"), "[rows]"),
    "out": ROWS,
    **dict.fromkeys(("dw", "db"), WEIGHTS),
}
OWN_DTYPES = {"mean": torch.float32, "rstd": torch.float32}
TILE = 4096  # elements that a program has at a time: 16 a thread of 8 warps
MAX_ONE_PROGRAM_COLS = 8192
PART_BYTES = 8192  # of a shared row of x, and as much of dy
LOOPED_COLS = 4096
COLUMNS_M, COLUMNS_N = 16, 128  # of a program that walks columns
MAX_COLUMN_SUMS = 1 << 22  # columns times partial rows: 32 MB of dw and db
REDUCED_COLS = 64
REDUCED_ROWS = tl.constexpr(64)  # partial rows that a program reads at once


@triton.jit
def layer_norm_backward_kernel(
    dy_ptr,
    x_ptr,
    w_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    partials_ptr,
    n_rows,
    n_cols,
    inverse_cols,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,  # also the width of a partial row
    VEC: tl.constexpr,  # a power of two that divides n_cols
    EVEN_N: tl.constexpr,  # n_cols == BLOCK_N
    NUM_STAGES: tl.constexpr,  # tiles of rows in flight, prefetched into shared memory
):
    n_cols = n_cols // VEC * VEC  # the same number, now provably a multiple of VEC
    pid = tl.program_id(axis=0)
    n_programs = tl.num_programs(axis=0)
    cols = tl.arange(0, BLOCK_N)
    col_mask = tl.full([BLOCK_N], True, tl.int1) if EVEN_N else cols < n_cols
    w = tl.load(w_ptr + cols, mask=col_mask, other=0.0)[None, :]

    dw = tl.zeros([ROWS, BLOCK_N], tl.float32)
    db = tl.zeros([ROWS, BLOCK_N], tl.float32)
    for tile in tl.range(pid, tl.cdiv(n_rows, ROWS), n_programs, num_stages=NUM_STAGES):
        rows = tile * ROWS + tl.arange(0, ROWS)
        row_mask = rows < n_rows
        mask = row_mask[:, None] & col_mask[None, :]
        offsets = rows.to(tl.int64)[:, None] * n_cols + cols[None, :]
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=row_mask, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + rows, mask=row_mask, other=0.0)[:, None]
        xhat = (x - mean) * rstd
        wdy = w.to(tl.float32) * dy
        c1 = (tl.sum(wdy * xhat, axis=1) * inverse_cols)[:, None]
        c2 = (tl.sum(wdy, axis=1) * inverse_cols)[:, None]
        dx = (wdy - c2 - xhat * c1) * rstd
        tl.store(dx_ptr + offsets, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dw += dy * xhat
        db += dy
    partials_ptr += pid.to(tl.int64) * (2 * BLOCK_N)
    tl.store(partials_ptr + cols, tl.sum(dw, axis=0))
    tl.store(partials_ptr + BLOCK_N + cols, tl.sum(db, axis=0))


@triton.jit
def layer_norm_backward_shared_row_kernel(
    dy_ptr,
    x_ptr,
    w_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    partials_ptr,
    words_ptr,
    counters_ptr,
    n_rows,
    n_cols,
    inverse_cols,
    PARTS: tl.constexpr,  # programs that share a row, more than one
    BLOCK_N: tl.constexpr,  # columns of a part
    VEC: tl.constexpr,  # a power of two that divides n_cols
    EVEN_N: tl.constexpr,  # n_cols == PARTS * BLOCK_N
    NUM_STAGES: tl.constexpr,  # rows of a part on their way or in use
):
    n_cols = n_cols // VEC * VEC  # the same number, now provably a multiple of VEC
    pid = tl.program_id(axis=0)
    group = pid // PARTS
    part = pid % PARTS
    n_groups = tl.num_programs(axis=0) // PARTS
    cols = part * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = tl.full([BLOCK_N], True, tl.int1) if EVEN_N else cols < n_cols
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)

    dw = tl.zeros([BLOCK_N], tl.float32)
    db = tl.zeros([BLOCK_N], tl.float32)
    step = 0
    for row in tl.range(group, n_rows, n_groups, num_stages=NUM_STAGES):
        offsets = row.to(tl.int64) * n_cols + cols
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        xhat = (x - tl.load(mean_ptr + row)) * rstd
        wdy = w.to(tl.float32) * dy
        with_xhat = tl.sum(wdy * xhat, axis=0)
        plain = tl.sum(wdy, axis=0)
        publish(words_ptr, group, part, step, with_xhat, plain, PARTS)
        dw += dy * xhat
        db += dy
        sums, plain_sums = gather(words_ptr, group, step, PARTS)
        c1 = tl.sum(sums, axis=0) * inverse_cols
        c2 = tl.sum(plain_sums, axis=0) * inverse_cols
        dx = (wdy - c2 - xhat * c1) * rstd
        tl.store(dx_ptr + offsets, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        step += 1
    leave(words_ptr, counters_ptr, group, PARTS)
    partials_ptr += group.to(tl.int64) * (2 * PARTS * BLOCK_N)
    tl.store(partials_ptr + cols, dw)
    tl.store(partials_ptr + PARTS * BLOCK_N + cols, db)


@triton.jit
def layer_norm_backward_looped_kernel(
    dy_ptr,
    x_ptr,
    w_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    n_cols,
    inverse_cols,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,  # a power of two that divides n_cols
):
    n_cols = n_cols // VEC * VEC  # the same number, now provably a multiple of VEC
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * n_cols
    x_ptr += row * n_cols
    dx_ptr += row * n_cols
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    offs_n = tl.arange(0, BLOCK_N)

    with_xhat = tl.zeros([BLOCK_N], tl.float32)  # no exchange between lanes in the loop
    plain = tl.zeros([BLOCK_N], tl.float32)
    for start in range(0, n_cols, BLOCK_N):
        cols = start + offs_n
        mask = cols < n_cols
        x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        wdy = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32) * dy
        with_xhat += wdy * ((x - mean) * rstd)
        plain += wdy
    c1 = tl.sum(with_xhat, axis=0) * inverse_cols
    c2 = tl.sum(plain, axis=0) * inverse_cols

    # Back to front: the pieces read last are the likeliest to be in L2 still.
    n_pieces = tl.cdiv(n_cols, BLOCK_N)
    for piece in range(0, n_pieces):
        cols = (n_pieces - 1 - piece) * BLOCK_N + offs_n
        mask = cols < n_cols
        x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        wdy = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32) * dy
        dx = (wdy - c2 - (x - mean) * rstd * c1) * rstd
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


@triton.jit
def layer_norm_backward_columns_kernel(
    dy_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    partials_ptr,
    n_rows,
    n_cols,
    n_tiles,
    n_splits,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,  # a power of two that divides n_cols
):
    n_cols = n_cols // VEC * VEC  # the same number, now provably a multiple of VEC
    pid = tl.program_id(axis=0)
    tile, split = pid % n_tiles, pid // n_tiles  # programs that run together read whole rows
    cols = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    col_mask = (cols < n_cols)[None, :]
    dw = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    db = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for first in range(split * BLOCK_M, n_rows, n_splits * BLOCK_M):
        rows = first + tl.arange(0, BLOCK_M)
        mask = (rows < n_rows)[:, None] & col_mask
        offsets = rows.to(tl.int64)[:, None] * n_cols + cols[None, :]
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)[:, None]
        dw += dy * ((x - mean) * rstd)
        db += dy
    width = n_tiles * BLOCK_N
    partials_ptr += split.to(tl.int64) * (2 * width)
    tl.store(partials_ptr + cols, tl.sum(dw, axis=0))
    tl.store(partials_ptr + width + cols, tl.sum(db, axis=0))


@triton.jit
def layer_norm_backward_reduce_kernel(
    partials_ptr,  # [n_partials, 2, width]
    dw_ptr,
    db_ptr,
    n_partials,
    n_cols,
    width,
    BLOCK_N: tl.constexpr,
):
    which = tl.program_id(axis=1)  # dw or db
    cols = tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = cols < n_cols
    rows = tl.arange(0, REDUCED_ROWS)[:, None]
    sums = tl.zeros([REDUCED_ROWS, BLOCK_N], tl.float32)
    for start in range(0, n_partials, REDUCED_ROWS):
        offsets = ((start + rows).to(tl.int64) * 2 + which) * width + cols[None, :]
        sums += tl.load(
            partials_ptr + offsets, mask=(start + rows < n_partials) & mask[None, :], other=0.0
        )
    total = tl.sum(sums, axis=0)
    if which == 0:
        tl.store(dw_ptr + cols, total.to(dw_ptr.dtype.element_ty), mask=mask)
    else:
        tl.store(db_ptr + cols, total.to(db_ptr.dtype.element_ty), mask=mask)


def check(tensors: dict[str, torch.Tensor]) -> None:
    """Refuse what the kernels would get wrong."""
    require_tensors(OP, DTYPES, LAYOUTS, tuple(tensors.values()), OWN_DTYPES)
    require_same_shape(OP, **{name: tensors[name] for name in ("dy", "x", "out")})
    for names, dim, lines in ((("w", "dw", "db"), 1, "columns"), (("mean", "rstd"), 0, "rows")):
        extent = tensors["dy"].shape[dim]
        for name in names:
            if tensors[name].shape[0] != extent:
                raise ValueError(
                    f"{OP}: {name} has shape {tuple(tensors[name].shape)}, wanted ({extent},) "
                    f"like dy's {lines}; pass {name} as {LAYOUTS[name]}"
                )
    n_rows, n_cols = tensors["dy"].shape
    require_extents_below(OP, MAX_EXTENT, rows=n_rows, cols=n_cols)
    require_contiguous(OP, **tensors)
    earlier = ["dy", "x", "w", "mean", "rstd"]
    for written in ("out", "dw", "db"):
        for name in earlier:
            if ranges_overlap(tensors[written], tensors[name]):
                refuse_overlap(OP, written, name)
        earlier.append(written)


Partials = tuple[torch.Tensor, int, int]  # memory, partial rows, columns of one


def partials_for(x: torch.Tensor, n_partials: int, width: int) -> Partials:
    """Float32 memory of n_partials rows of dw and db; powers of two, so that few sizes are kept."""
    n_floats = 1 << (2 * n_partials * width - 1).bit_length()
    return scratch_for(x, 0, n_floats)[1], n_partials, width


def launch_one_program(
    tensors: tuple[torch.Tensor, ...],
    vec: int,
    block: int,
    rows: int | None,
    resident: int | None,
    num_warps: int | None,
    num_stages: int | None,
) -> Partials:
    """dx, and partial rows of one program each; tensors are dy, x, w, mean, rstd and dx."""
    x = tensors[1]
    n_rows, n_cols = x.shape
    rows = rows or max(1, TILE // block)
    num_warps = num_warps or max(1, min(16, rows * block // 512))
    n_tiles = (n_rows + rows - 1) // rows
    most = multiprocessors(x.device) * (resident or max(1, 16 // num_warps))
    most = max(1, min(most, n_tiles, MAX_COLUMN_SUMS // block))
    # As few as have as many tiles each, but for one: all end together.
    partials = partials_for(x, math.ceil(n_tiles / math.ceil(n_tiles / most)), block)
    layer_norm_backward_kernel[(partials[1],)](
        *tensors,
        partials[0],
        n_rows,
        n_cols,
        1.0 / n_cols,
        ROWS=rows,
        BLOCK_N=block,
        VEC=vec,
        EVEN_N=n_cols == block,
        NUM_STAGES=num_stages or 3,
        num_warps=num_warps,
    )
    return partials


def launch_shared_row(
    tensors: tuple[torch.Tensor, ...],
    vec: int,
    block: int,
    resident: int | None,
    num_warps: int | None,
    num_stages: int | None,
) -> Partials:
    """dx, and partial rows of a group of programs each."""
    x = tensors[1]
    n_rows, n_cols = x.shape
    parts = 1 << ((n_cols - 1) // block).bit_length()
    num_warps, resident = num_warps or 8, resident or 2
    n_groups = group_count(x, n_rows, parts, resident)
    partials = partials_for(x, n_groups, parts * block)
    layer_norm_backward_shared_row_kernel[(n_groups * parts,)](
        *tensors,
        partials[0],
        *scratch(x),
        n_rows,
        n_cols,
        1.0 / n_cols,
        PARTS=parts,
        BLOCK_N=block,
        VEC=vec,
        EVEN_N=n_cols == parts * block,
        NUM_STAGES=num_stages or stages(x, 2 * block * x.element_size(), resident),
        num_warps=num_warps,
        maxnreg=registers(num_warps, resident),
        launch_cooperative_grid=True,
    )
    return partials


def launch_looped(tensors: tuple[torch.Tensor, ...], vec: int) -> Partials:
    """dx row by row; then partial rows by columns, four programs a multiprocessor."""
    dy, x, _, mean, rstd, _ = tensors
    n_rows, n_cols = x.shape
    layer_norm_backward_looped_kernel[(n_rows,)](
        *tensors, n_cols, 1.0 / n_cols, BLOCK_N=LOOPED_COLS, VEC=vec, num_warps=8
    )
    n_tiles = (n_cols + COLUMNS_N - 1) // COLUMNS_N
    width = n_tiles * COLUMNS_N
    most = min(4 * multiprocessors(x.device) // n_tiles, MAX_COLUMN_SUMS // width)
    n_splits = max(1, min(most, (n_rows + COLUMNS_M - 1) // COLUMNS_M))
    partials = partials_for(x, n_splits, width)
    layer_norm_backward_columns_kernel[(n_tiles * n_splits,)](
        dy,
        x,
        mean,
        rstd,
        partials[0],
        n_rows,
        n_cols,
        n_tiles,
        n_splits,
        BLOCK_M=COLUMNS_M,
        BLOCK_N=COLUMNS_N,
        VEC=vec,
        num_warps=4,
    )
    return partials


def layer_norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    out: torch.Tensor,
    dw: torch.Tensor,
    db: torch.Tensor,
    *,
    ROWS: int | None = None,
    BLOCK_N: int | None = None,
    RESIDENT: int | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
) -> None:
    """Write the gradients of layer_norm's x, w and b into out, dw and db, on x's device and its
    current stream.

    dy, x, out: [rows, cols]; w, dw, db: [cols]; one dtype (f32, bf16, f16); mean, rstd: [rows] of
    f32; all contiguous, outputs apart from everything else. ROWS and BLOCK_N are powers of two;
    RESIDENT is programs a multiprocessor. A BLOCK_N under cols asks for shared rows, which rows off
    16-byte boundaries and the interpreter turn into the looped form; num_stages is the prefetch
    depth of the other two. Raises TypeError or ValueError for anything else.
    """
    tensors = (dy, x, w, mean, rstd, out)
    check(dict(zip(LAYOUTS, (*tensors, dw, db), strict=True)))
    n_rows, n_cols = x.shape
    if n_cols == 0:
        return
    VEC = math.gcd(n_cols, 16 // x.element_size())
    if BLOCK_N is None:
        width = 1 << (n_cols - 1).bit_length()
        BLOCK_N = width if width <= MAX_ONE_PROGRAM_COLS else PART_BYTES // x.element_size()
    with device_guard(x):
        if n_rows == 0:
            partials = partials_for(x, 1, n_cols)[0], 0, n_cols
        elif BLOCK_N >= n_cols:
            partials = launch_one_program(
                tensors, VEC, BLOCK_N, ROWS, RESIDENT, num_warps, num_stages
            )
        elif VEC * x.element_size() == 16 and n_cols <= MAX_SHARED_ROW_COLS and can_wait(x):
            partials = launch_shared_row(tensors, VEC, BLOCK_N, RESIDENT, num_warps, num_stages)
        else:
            partials = launch_looped(tensors, VEC)
        memory, n_partials, width = partials
        layer_norm_backward_reduce_kernel[((n_cols + REDUCED_COLS - 1) // REDUCED_COLS, 2)](
            memory, dw, db, n_partials, n_cols, width, BLOCK_N=REDUCED_COLS, num_warps=4
        )
