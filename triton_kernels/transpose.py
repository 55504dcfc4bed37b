"""transpose: out[n, m] = x[m, n], for f32, bf16 and 8-bit integers, moved bit for bit.

Pointers: x_ptr, [n_rows, n_cols], and out_ptr, [n_cols, n_rows], both row-major contiguous. A
program owns one BLOCK_M x BLOCK_N tile of x. Bytes: one read and one write an element, no
arithmetic: memory bound. Offsets are 64-bit, so any extents work.

transpose_kernel hands the tile to tl.trans. Its layouts for load and store are both 16 bytes wide,
and the change between them goes through shared memory, 16-bit elements by ldmatrix, 32-bit ones
one by one. The full tile has its own branch without a mask.

transpose_bytes_kernel, for bytes whose rows and columns come in fours: tl.trans would move them
through shared memory one byte an instruction. It reads x as words, four tiles of them from rows 4m,
4m + 1, 4m + 2 and 4m + 3, transposes squares of 4 x 4 bytes in registers, and joins what it gets to
one tile of words for tl.trans.

The choice that is not obvious: tiles are walked in bands of GROUP_M tile rows, down the columns of
each band. What runs at one time is then a near-square patch, in long runs of DRAM pages on both
sides. VEC states what divides the extents, where they are no multiples of 16.

What the language cannot do: say how a tile passes through shared memory (the CUDA side transposes
in registers first and keeps all of those accesses 16 bytes wide). Tensor descriptors (TMA) are left
unused, and rows that begin at odd addresses are moved element by element.
"""

import math

import torch
import triton
import triton.language as tl

from ._checks import device_guard, ranges_overlap, require_contiguous, require_tensors

DTYPES = (torch.float32, torch.bfloat16, torch.int8)
LAYOUTS = {"x": "[M, N]", "out": "[N, M]"}


@triton.jit
def tile_of(n_rows, n_cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and column of this program's tile, 64-bit."""
    pid = tl.program_id(axis=0)
    n_tile_rows = tl.cdiv(n_rows, BLOCK_M).to(tl.int32)
    n_in_band = GROUP_M * tl.cdiv(n_cols, BLOCK_N).to(tl.int32)
    first = pid // n_in_band * GROUP_M
    band = tl.minimum(n_tile_rows - first, GROUP_M)
    within = pid % n_in_band
    row = (first + within % band).to(tl.int64) * BLOCK_M
    return row, (within // band).to(tl.int64) * BLOCK_N


@triton.jit
def offsets_of(rows, cols, row_stride, LONG: tl.constexpr):
    """Within a tile; 32 bits unless LONG."""
    stride = row_stride if LONG else row_stride.to(tl.int32)
    return rows[:, None] * stride + cols[None, :]


@triton.jit
def transpose_kernel(
    x_ptr,
    out_ptr,
    n_rows,
    n_cols,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP_M: tl.constexpr,  # tile rows in a band
    VEC: tl.constexpr,  # divides both extents
    LONG: tl.constexpr,  # offsets within a tile need 64 bits
):
    n_rows = tl.cast(n_rows, tl.int64) // VEC * VEC  # now provably multiples of VEC
    n_cols = tl.cast(n_cols, tl.int64) // VEC * VEC
    row, col = tile_of(n_rows, n_cols, BLOCK_M, BLOCK_N, GROUP_M)
    rows, cols = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    x_ptr += row * n_cols + col
    out_ptr += col * n_rows + row
    full = (row + BLOCK_M <= n_rows) & (col + BLOCK_N <= n_cols)
    if full & (VEC > 1):  # with accesses of one element, a mask is cheaper than a second branch
        x = tl.load(x_ptr + offsets_of(rows, cols, n_cols, LONG))
        tl.store(out_ptr + offsets_of(cols, rows, n_rows, LONG), tl.trans(x))
    else:
        row_inside, col_inside = rows < n_rows - row, cols < n_cols - col
        x_mask = row_inside[:, None] & col_inside[None, :]
        x = tl.load(x_ptr + offsets_of(rows, cols, n_cols, LONG), mask=x_mask)
        out_mask = col_inside[:, None] & row_inside[None, :]
        tl.store(out_ptr + offsets_of(cols, rows, n_rows, LONG), tl.trans(x), mask=out_mask)


@triton.jit
def transpose_squares(a, b, c, d):
    """The columns of squares of 4 x 4 bytes whose rows are the words a, b, c, d."""
    # Masks after each shift to the right: it repeats the sign.
    ac_lo = (a & 0xFFFF) | (c << 16)  # bytes a0 a1 c0 c1
    ac_hi = ((a >> 16) & 0xFFFF) | (c & -0x10000)
    bd_lo = (b & 0xFFFF) | (d << 16)
    bd_hi = ((b >> 16) & 0xFFFF) | (d & -0x10000)
    return (
        (ac_lo & 0x00FF00FF) | ((bd_lo & 0x00FF00FF) << 8),  # a0 b0 c0 d0
        ((ac_lo >> 8) & 0x00FF00FF) | (bd_lo & -0xFF0100),
        (ac_hi & 0x00FF00FF) | ((bd_hi & 0x00FF00FF) << 8),
        ((ac_hi >> 8) & 0x00FF00FF) | (bd_hi & -0xFF0100),
    )


@triton.jit
def transpose_words(x_ptrs, n_cols, mask, MASKED: tl.constexpr):
    """The transposed tile of words: four rows of it for each column of x_ptrs."""
    a = tl.load(x_ptrs, mask=mask) if MASKED else tl.load(x_ptrs)
    b = tl.load(x_ptrs + n_cols, mask=mask) if MASKED else tl.load(x_ptrs + n_cols)
    c = tl.load(x_ptrs + 2 * n_cols, mask=mask) if MASKED else tl.load(x_ptrs + 2 * n_cols)
    d = tl.load(x_ptrs + 3 * n_cols, mask=mask) if MASKED else tl.load(x_ptrs + 3 * n_cols)
    a, b, c, d = transpose_squares(a, b, c, d)
    words = tl.join(tl.join(a, c), tl.join(b, d))  # [BLOCK_M, BLOCK_N, 2, 2]: a b c d in a row
    return tl.trans(words.reshape(words.shape[0], 4 * words.shape[1]))


@triton.jit
def transpose_bytes_kernel(
    x_ptr,  # int32: [4 * n_rows, n_cols] words
    out_ptr,  # int32: [4 * n_cols, n_rows] words
    n_rows,  # squares of 4 x 4 bytes, as n_cols
    n_cols,
    BLOCK_M: tl.constexpr,  # squares, as BLOCK_N
    BLOCK_N: tl.constexpr,
    GROUP_M: tl.constexpr,  # tile rows in a band
    VEC: tl.constexpr,  # divides both extents
    LONG: tl.constexpr,  # offsets within a tile need 64 bits
):
    n_rows = tl.cast(n_rows, tl.int64) // VEC * VEC  # now provably multiples of VEC
    n_cols = tl.cast(n_cols, tl.int64) // VEC * VEC
    row, col = tile_of(n_rows, n_cols, BLOCK_M, BLOCK_N, GROUP_M)
    rows, cols = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    x_ptrs = x_ptr + 4 * row * n_cols + col + offsets_of(rows, cols, 4 * n_cols, LONG)
    out_rows = tl.arange(0, 4 * BLOCK_N)
    out_ptrs = out_ptr + 4 * col * n_rows + row + offsets_of(out_rows, rows, n_rows, LONG)
    row_inside, col_inside = rows < n_rows - row, cols < n_cols - col
    mask = row_inside[:, None] & col_inside[None, :]
    if (row + BLOCK_M <= n_rows) & (col + BLOCK_N <= n_cols):
        tl.store(out_ptrs, transpose_words(x_ptrs, n_cols, mask, MASKED=False))
    else:
        words = transpose_words(x_ptrs, n_cols, mask, MASKED=True)
        out_inside = out_rows < 4 * (n_cols - col)
        tl.store(out_ptrs, words, mask=out_inside[:, None] & row_inside[None, :])


def check(x: torch.Tensor, out: torch.Tensor) -> None:
    """Refuse what the kernels would get wrong."""
    require_tensors("transpose", DTYPES, LAYOUTS, (x, out))
    n_rows, n_cols = x.shape
    if out.shape != (n_cols, n_rows):
        raise ValueError(
            f"transpose: out has shape {tuple(out.shape)}, wanted ({n_cols}, {n_rows}); "
            "pass out as [N, M]"
        )
    require_contiguous("transpose", x=x, out=out)
    if ranges_overlap(x, out):
        raise ValueError("transpose: out overlaps x, wanted no shared memory; pass a fresh out")


def tile_config(
    x: torch.Tensor, block_m: int | None, block_n: int | None, num_warps: int | None
) -> tuple[int, int, int]:
    """(BLOCK_M, BLOCK_N, num_warps) with defaults for those that are None."""
    itemsize = x.element_size()
    if any(extent * itemsize % 16 for extent in x.shape):
        # Accesses of one element: 16 of them a thread, as more would spill their addresses.
        block_m, block_n = block_m or 64, block_n or 64
        return block_m, block_n, num_warps or max(1, min(16, block_m * block_n // 512))
    side = 64 if itemsize == 4 else 128
    block_m, block_n = block_m or side, block_n or side
    # 128 bytes of loads in flight a thread
    return block_m, block_n, num_warps or max(1, min(16, block_m * block_n * itemsize // 4096))


def transpose(
    x: torch.Tensor,
    out: torch.Tensor,
    *,
    BLOCK_M: int | None = None,
    BLOCK_N: int | None = None,
    GROUP_M: int | None = None,
    num_warps: int | None = None,
) -> None:
    """Write the transpose of x into out, on x's device and its current stream.

    x: [M, N], out: [N, M], one dtype (f32, bf16 or int8), both row-major contiguous.
    BLOCK_M x BLOCK_N elements a tile, powers of two; GROUP_M tile rows a band.
    Raises TypeError or ValueError for anything else.
    """
    check(x, out)
    if x.numel() == 0:
        return
    n_rows, n_cols = x.shape
    itemsize = x.element_size()
    BLOCK_M, BLOCK_N, num_warps = tile_config(x, BLOCK_M, BLOCK_N, num_warps)
    kernel = transpose_kernel
    if itemsize == 1 and not (n_rows | n_cols | x.data_ptr() | out.data_ptr()) % 4:
        kernel = transpose_bytes_kernel
        x, out = x.view(torch.int32), out.view(torch.int32)
        itemsize, n_rows, n_cols = 4, n_rows // 4, n_cols // 4
        BLOCK_M, BLOCK_N = BLOCK_M // 4, BLOCK_N // 4
    grid = (-(-n_rows // BLOCK_M) * -(-n_cols // BLOCK_N),)
    with device_guard(x):
        kernel[grid](
            x,
            out,
            n_rows,
            n_cols,
            BLOCK_M=BLOCK_M,
            BLOCK_N=BLOCK_N,
            GROUP_M=GROUP_M or 16,
            VEC=math.gcd(n_rows, n_cols, 16 // itemsize),
            LONG=max(n_rows, n_cols) >= 1 << 21,  # tiles have up to 2^10 rows
            num_warps=num_warps,
        )
