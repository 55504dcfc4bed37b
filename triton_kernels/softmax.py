"""softmax: out[m, :] = exp(x[m, :] - max) / sum(exp(x[m, :] - max)), for f32, bf16 and f16.

Pointers: x_ptr and out_ptr, [n_rows, n_cols], last dimension contiguous, row strides stride_xm and
stride_om in elements (at least n_cols). All arithmetic is fp32 with one rounding at the end.

softmax_kernel: a program owns ROWS whole rows as one [ROWS, BLOCK_N] tile in registers and reads
them once. Bytes: one read and one write an element (4 + 4 f32, 2 + 2 bf16) for about five
operations: memory bound. softmax_shared_row_kernel: PARTS programs that are resident together
share a row too wide for one, keep BLOCK_N columns each in registers and exchange maximum and sum
through global memory (_row_exchange.py) while their parts of the next row arrive: one read.
softmax_looped_kernel: a program owns one such row, walks it in BLOCK_N pieces for the maximum and
the sum, then walks it back to front to write: two reads and one write, of which the second read
can hit L2.

Limits: n_rows and n_cols below 2^30, one-read rows up to 32768 columns in one program (beyond
that registers spill). Programs cannot wait for each other in the interpreter, which takes the
looped form.
NaN, +Inf, or nothing but -Inf in a row gives a row of NaN, as torch does.

The choice that is not obvious: Triton knows that an integer is a multiple of 16, or nothing. Rows
of 1000 bf16 columns start at 16-byte boundaries too, so VEC states the multiple that holds and
keeps 16-byte accesses; n_cols == BLOCK_N drops the column mask altogether (EVEN_N).

What the language cannot do: tiles that are not a power of two (5120 columns hold 8192 lanes), and
exchange partials between the blocks of a cluster through their shared memory: the shared row form
goes through L2, a store and a load a row. The compiler copies the next rows' parts into shared
memory meanwhile (cp.async), as a CUDA author would by hand.
"""

import math

import torch
import triton
import triton.language as tl

from ._checks import (
    device_guard,
    ranges_overlap,
    require_extents_below,
    require_shape_of_x,
    require_tensors,
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

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LAYOUTS = {"x": "[rows, cols]", "out": "[rows, cols]"}
MAX_EXTENT = 1 << 30  # row and column numbers are 32 bits and run up to a tile past the end
LOG2E = tl.constexpr(1.4426950408889634)  # exp(a) = exp2(a * LOG2E); exp2 is one instruction
LANE_COLS = tl.constexpr(8)  # columns a lane reads at once: 16 bytes of bf16, 32 of f32
# On an H200 8192 x 32768 bf16 ran at 78 % of copy speed with one read and 88 % with two.
MAX_ONE_READ_COLS = 16384
# Four stages prefetch three pieces: 96 KiB of shared memory, so at most two rows a multiprocessor
# are open at once and rows of 128 KiB stay in a 50 MB L2 until their second read.
PIECE_BYTES = 32768
MAX_SHARED_ROW_COLS = 1 << 18  # 64 programs a row in f32
# Three or four programs of 8 warps a multiprocessor hold 48 or 64 KiB of rows, and twice as much
# is on its way: 32 (16 bits) or 16 (f32) elements a thread, what registers hold without spills.
PART_BYTES = 16384


@triton.jit
def softmax_kernel(
    x_ptr,
    out_ptr,
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
    pid = tl.program_id(axis=0)
    rows = pid * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK_N)[None, :]
    mask = rows < n_rows
    if not EVEN_N:
        mask = mask & (cols < n_cols)
    x_ptrs = x_ptr + rows.to(tl.int64) * stride_xm + cols
    out_ptrs = out_ptr + rows.to(tl.int64) * stride_om + cols
    if EVEN_N and ROWS == 1:  # nothing to mask: the grid has one program for each row
        x = tl.load(x_ptrs).to(tl.float32)
    else:
        x = tl.load(x_ptrs, mask=mask, other=-float("inf")).to(tl.float32)
    # Subtract before scaling: x * LOG2E alone could overflow. max skips NaN, the sum keeps it.
    numerator = tl.exp2((x - tl.max(x, axis=1)[:, None]) * LOG2E)
    out = numerator * (1.0 / tl.sum(numerator, axis=1))[:, None]
    if EVEN_N and ROWS == 1:
        tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty))
    else:
        tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_looped_kernel(
    x_ptr,
    out_ptr,
    stride_xm,
    stride_om,
    n_cols,
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

    # A lane keeps a maximum and a sum of its own columns: no exchange between lanes in the loop.
    LANES: tl.constexpr = BLOCK_N // LANE_COLS
    offs_n = tl.arange(0, LANES)[:, None] * LANE_COLS + tl.arange(0, LANE_COLS)[None, :]
    lane_max = tl.full([LANES], -float("inf"), tl.float32)
    lane_sum = tl.zeros([LANES], tl.float32)
    for start in tl.range(0, n_cols, BLOCK_N, num_stages=NUM_STAGES):
        cols = start + offs_n
        if EVEN_N:
            x = tl.load(x_ptr + cols, eviction_policy="evict_last").to(tl.float32)
        else:
            mask = cols < n_cols
            x = tl.load(
                x_ptr + cols, mask=mask, other=-float("inf"), eviction_policy="evict_last"
            ).to(tl.float32)
        new_max = tl.maximum(lane_max, tl.max(x, axis=1))
        # A lane may have met only -Inf so far; subtracting that from itself would make NaN.
        shift = tl.where(new_max == -float("inf"), 0.0, new_max)
        lane_sum *= tl.exp2((lane_max - shift) * LOG2E)
        lane_sum += tl.sum(tl.exp2((x - shift[:, None]) * LOG2E), axis=1)
        lane_max = new_max

    row_max = tl.max(lane_max, axis=0)
    shift = tl.where(row_max == -float("inf"), 0.0, row_max)
    row_sum = tl.sum(lane_sum * tl.exp2((lane_max - shift) * LOG2E), axis=0)
    scale = 1.0 / row_sum  # a row of -Inf has sum 0: 0 * Inf makes its NaN

    # Back to front: the pieces read last are the likeliest to be in L2 still.
    n_pieces = tl.cdiv(n_cols, BLOCK_N)
    for piece in tl.range(0, n_pieces, num_stages=NUM_STAGES):
        cols = (n_pieces - 1 - piece) * BLOCK_N + offs_n
        if EVEN_N:
            x = tl.load(x_ptr + cols, eviction_policy="evict_first").to(tl.float32)
            out = tl.exp2((x - shift) * LOG2E) * scale
            tl.store(out_ptr + cols, out.to(out_ptr.dtype.element_ty))
        else:
            mask = cols < n_cols
            x = tl.load(x_ptr + cols, mask=mask, eviction_policy="evict_first").to(tl.float32)
            out = tl.exp2((x - shift) * LOG2E) * scale
            tl.store(out_ptr + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_shared_row_kernel(
    x_ptr,
    out_ptr,
    words_ptr,
    counters_ptr,
    stride_xm,
    stride_om,
    n_rows,
    n_cols,
    PARTS: tl.constexpr,  # programs that share a row
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
    x_ptrs = x_ptr + cols
    out_ptrs = out_ptr + cols

    step = 0
    for row in tl.range(group, n_rows, n_groups, num_stages=NUM_STAGES):
        row_ptrs = x_ptrs + row.to(tl.int64) * stride_xm
        if EVEN_N:
            x = tl.load(row_ptrs)
        else:
            x = tl.load(row_ptrs, mask=cols < n_cols, other=-float("inf"))
        v = x.to(tl.float32)
        part_max = tl.max(v, axis=0)
        # A part may hold only -Inf; subtracting that from itself would make NaN.
        numerator = tl.exp2((v - _finite(part_max)) * LOG2E)
        part_sum = tl.sum(numerator, axis=0)
        if PARTS > 1:
            publish(words_ptr, group, part, step, part_max, part_sum, PARTS)
        if PARTS > 1:
            maxima, sums = gather(words_ptr, group, step, PARTS)
            shift = _finite(tl.max(maxima, axis=0))
            row_sum = tl.sum(sums * tl.exp2((maxima - shift) * LOG2E), axis=0)
        else:
            shift = _finite(part_max)
            row_sum = part_sum
        # A row of -Inf has sum 0: 0 / 0 makes its NaN.
        out = numerator * (tl.exp2((part_max - shift) * LOG2E) / row_sum)
        row_ptrs = out_ptrs + row.to(tl.int64) * stride_om
        if EVEN_N:
            tl.store(row_ptrs, out.to(out_ptr.dtype.element_ty))
        else:
            tl.store(row_ptrs, out.to(out_ptr.dtype.element_ty), mask=cols < n_cols)
        step += 1
    if PARTS > 1:
        leave(words_ptr, counters_ptr, group, PARTS)


@triton.jit
def _finite(maximum):
    return tl.where(maximum == -float("inf"), 0.0, maximum)


def shares_memory_in_part(x: torch.Tensor, out: torch.Tensor) -> bool:
    """Whether out meets x without being x; column views side by side in one buffer do not meet."""
    stride = x.stride(0) * x.element_size()
    same_stride = x.stride(0) == out.stride(0)
    if x.data_ptr() == out.data_ptr() and (same_stride or x.shape[0] <= 1):
        return False
    if not ranges_overlap(x, out):
        return False
    width = x.shape[1] * x.element_size()
    if same_stride and stride > 0:
        return not width <= (out.data_ptr() - x.data_ptr()) % stride <= stride - width
    return True


def check(x: torch.Tensor, out: torch.Tensor) -> None:
    """Refuse what the kernels would get wrong."""
    require_tensors("softmax", DTYPES, LAYOUTS, (x, out))
    require_shape_of_x("softmax", x, out=out)
    n_rows, n_cols = x.shape
    require_extents_below("softmax", MAX_EXTENT, rows=n_rows, cols=n_cols)
    for name, tensor in (("x", x), ("out", out)):
        if n_cols > 1 and tensor.stride(1) != 1:
            raise ValueError(
                f"softmax: {name} has last-dimension stride {tensor.stride(1)}, wanted 1; "
                f"pass {name}.contiguous()"
            )
        if n_rows > 1 and tensor.stride(0) < n_cols:
            raise ValueError(
                f"softmax: {name} has row stride {tensor.stride(0)}, wanted at least {n_cols}; "
                f"pass {name}.contiguous()"
            )
    if shares_memory_in_part(x, out):
        raise ValueError(
            "softmax: out overlaps x in part, wanted the same memory or none shared; "
            "pass a fresh out"
        )


def softmax(
    x: torch.Tensor,
    out: torch.Tensor,
    *,
    ROWS: int | None = None,
    BLOCK_N: int | None = None,
    RESIDENT: int | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
) -> None:
    """Write the softmax of each row of x into out, on x's device and its current stream.

    x, out: [rows, cols], one dtype (f32, bf16, f16), any row stride >= cols; out may be x itself.
    ROWS and BLOCK_N are powers of two. RESIDENT asks for the shared row form: that many programs
    on each multiprocessor, BLOCK_N columns each; the interpreter ignores it. Without it a BLOCK_N
    under cols asks for the looped form, which has one row a program and needs BLOCK_N >= 8;
    num_stages is the prefetch depth of both. Raises TypeError or ValueError for anything else.
    """
    check(x, out)
    n_rows, n_cols = x.shape
    if x.numel() == 0:
        return
    stride_xm, stride_om = x.stride(0), out.stride(0)
    if n_rows == 1:  # torch may report any stride for a dimension of one row
        stride_xm = stride_om = n_cols
    VEC = math.gcd(n_cols, stride_xm, stride_om, 16 // x.element_size())
    if BLOCK_N is None:
        if n_cols <= MAX_ONE_READ_COLS:
            # the next power of two; triton.next_power_of_2 takes 1.6 us of host time
            BLOCK_N = 1 << (n_cols - 1).bit_length()
        elif VEC * x.element_size() == 16 and n_cols <= MAX_SHARED_ROW_COLS and can_wait(x):
            BLOCK_N = PART_BYTES // x.element_size()
            RESIDENT = RESIDENT or (4 if x.dtype == torch.float32 else 3)
        else:
            BLOCK_N = PIECE_BYTES // x.element_size()
    with device_guard(x):
        if RESIDENT and can_wait(x):
            PARTS = 1 << ((n_cols - 1) // BLOCK_N).bit_length()
            part_bytes = BLOCK_N * x.element_size()
            n_groups = group_count(x, n_rows, PARTS, RESIDENT)
            num_warps = num_warps or 8
            softmax_shared_row_kernel[(n_groups * PARTS,)](
                x,
                out,
                *scratch(x),
                stride_xm,
                stride_om,
                n_rows,
                n_cols,
                PARTS=PARTS,
                BLOCK_N=BLOCK_N,
                VEC=VEC,
                EVEN_N=n_cols == PARTS * BLOCK_N,
                NUM_STAGES=num_stages or stages(x, part_bytes, RESIDENT),
                num_warps=num_warps,
                maxnreg=registers(num_warps, RESIDENT),
                launch_cooperative_grid=True,
            )
        elif BLOCK_N < n_cols:
            softmax_looped_kernel[(n_rows,)](
                x,
                out,
                stride_xm,
                stride_om,
                n_cols,
                BLOCK_N=BLOCK_N,
                VEC=VEC,
                EVEN_N=n_cols % BLOCK_N == 0,
                NUM_STAGES=num_stages or 4,
                num_warps=num_warps or max(1, min(32, BLOCK_N // 512)),
            )
        else:
            # 2048 elements a program, then 16 a thread: two 16-byte loads in flight for bf16.
            ROWS = ROWS or max(1, 2048 // BLOCK_N)
            softmax_kernel[((n_rows + ROWS - 1) // ROWS,)](
                x,
                out,
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
