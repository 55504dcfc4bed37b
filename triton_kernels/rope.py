"""rope: half-split (NeoX) rotary embedding, for f32 and bf16; fp32 inside, rounded once.

With (a, b) = (x[t, h, i], x[t, h, i + D/2]) for i < D/2:
    out[t, h, i] = a * cos[t, i] - b * sin[t, i]
    out[t, h, i + D/2] = b * cos[t, i] + a * sin[t, i]

Pointers: x_ptr, out_ptr, [n_tokens, n_heads, 2 * half], cos_ptr, sin_ptr, [n_tokens, half], all
row-major contiguous. A program owns a TOKENS x HEADS x BLOCK_D tile of each half. Bytes: one read
and one write an element, and 1 / n_heads of a read for cos and sin, for three operations: memory
bound. Offsets are 64-bit, so any number of tokens works. out may be exactly x: a pair is read by
the program that writes it, and before it does.

The choice that is not obvious: cos and sin are loaded as matrices, once for all heads of the tile,
and spread over them in registers. Masks are the same for a whole row where BLOCK_D divides half, so
that accesses stay 16 bytes wide; VEC states what divides half where that is no multiple of 16.

What the language cannot do: heads whose half is not a power of two fill a tile only in part (48
columns take 64 lanes).
"""

import math

import torch
import triton
import triton.language as tl

from ._checks import (
    device_guard,
    ranges_overlap,
    require_contiguous,
    require_shape_of_x,
    require_tensors,
)

DTYPES = (torch.float32, torch.bfloat16)
LAYOUTS = {"x": "[T, H, D]", "cos": "[T, D / 2]", "sin": "[T, D / 2]", "out": "[T, H, D]"}
MAX_BLOCK_D = 512


@triton.jit
def turn(x_ptrs, out_ptrs, cos, sin, half, mask, MASKED: tl.constexpr):
    """Turn the pairs (x_ptrs, x_ptrs + half)."""
    a = tl.load(x_ptrs, mask=mask) if MASKED else tl.load(x_ptrs)
    b = tl.load(x_ptrs + half, mask=mask) if MASKED else tl.load(x_ptrs + half)
    a, b = a.to(tl.float32), b.to(tl.float32)
    lower = (a * cos - b * sin).to(out_ptrs.dtype.element_ty)
    upper = (b * cos + a * sin).to(out_ptrs.dtype.element_ty)
    if MASKED:
        tl.store(out_ptrs, lower, mask=mask)
        tl.store(out_ptrs + half, upper, mask=mask)
    else:
        tl.store(out_ptrs, lower)
        tl.store(out_ptrs + half, upper)


@triton.jit
def rope_kernel(
    x_ptr,
    cos_ptr,
    sin_ptr,
    out_ptr,
    n_tokens,
    n_heads,
    half,
    TOKENS: tl.constexpr,
    HEADS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    VEC: tl.constexpr,  # a power of two that divides half
    EVEN: tl.constexpr,  # HEADS divides n_heads and BLOCK_D divides half
):
    half = half // VEC * VEC  # the same number, now provably a multiple of VEC
    pid = tl.program_id(axis=0)
    n_head_blocks, n_col_blocks = tl.cdiv(n_heads, HEADS), tl.cdiv(half, BLOCK_D)
    first_col = pid % n_col_blocks * BLOCK_D
    first_head = pid // n_col_blocks % n_head_blocks * HEADS
    first_token = (pid // n_col_blocks // n_head_blocks).to(tl.int64) * TOKENS

    tokens, cols = first_token + tl.arange(0, TOKENS), first_col + tl.arange(0, BLOCK_D)
    heads = first_head + tl.arange(0, HEADS)
    angle_offsets = tokens[:, None] * half + cols[None, :]
    rows = tokens[:, None] * n_heads + heads[None, :]
    offsets = rows[:, :, None] * (2 * half) + cols[None, None, :]
    mask = (tokens < n_tokens)[:, None] & (cols < half)[None, :]
    if EVEN and TOKENS == 1:  # nothing to mask: the grid has one program for each token
        cos = tl.load(cos_ptr + angle_offsets).to(tl.float32)[:, None, :]
        sin = tl.load(sin_ptr + angle_offsets).to(tl.float32)[:, None, :]
        turn(x_ptr + offsets, out_ptr + offsets, cos, sin, half, mask, MASKED=False)
    else:
        cos = tl.load(cos_ptr + angle_offsets, mask=mask).to(tl.float32)[:, None, :]
        sin = tl.load(sin_ptr + angle_offsets, mask=mask).to(tl.float32)[:, None, :]
        mask3 = mask[:, None, :] & (heads < n_heads)[None, :, None]
        turn(x_ptr + offsets, out_ptr + offsets, cos, sin, half, mask3, MASKED=True)


def check(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, out: torch.Tensor) -> None:
    """Refuse what the kernel would get wrong."""
    require_tensors("rope", DTYPES, LAYOUTS, (x, cos, sin, out))
    n_tokens, _, head_dim = x.shape
    if head_dim % 2:
        raise ValueError(
            f"rope: x has {head_dim} columns, wanted an even number; pass x as [T, H, D]"
        )
    for name, tensor in (("cos", cos), ("sin", sin)):
        if tensor.shape != (n_tokens, head_dim // 2):
            raise ValueError(
                f"rope: {name} has shape {tuple(tensor.shape)}, wanted "
                f"({n_tokens}, {head_dim // 2}); pass {name} as [T, D / 2]"
            )
    require_shape_of_x("rope", x, out=out)
    require_contiguous("rope", x=x, cos=cos, sin=sin, out=out)
    if x.data_ptr() != out.data_ptr() and ranges_overlap(x, out):
        raise ValueError(
            "rope: out overlaps x in part, wanted the same memory or none shared; pass a fresh out"
        )
    for name, tensor in (("cos", cos), ("sin", sin)):
        if ranges_overlap(tensor, out):
            raise ValueError(
                f"rope: out overlaps {name}, wanted no shared memory; pass a fresh out"
            )


def rope(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    out: torch.Tensor,
    *,
    TOKENS: int | None = None,
    HEADS: int | None = None,
    num_warps: int | None = None,
) -> None:
    """Write x turned by cos and sin into out, on x's device and its current stream.

    x, out: [T, H, D], D even; cos, sin: [T, D / 2]; one dtype (f32 or bf16), all row-major
    contiguous; out may be x itself. TOKENS and HEADS, of a tile, are powers of two.
    Raises TypeError or ValueError for anything else.
    """
    check(x, cos, sin, out)
    if x.numel() == 0:
        return
    n_tokens, n_heads, head_dim = x.shape
    half = head_dim // 2
    BLOCK_D = min(MAX_BLOCK_D, 1 << (half - 1).bit_length())
    # 2048 pairs a tile, 16 a thread: 64 bytes of loads in flight for bf16, 128 for f32.
    HEADS = HEADS or min(1 << (n_heads - 1).bit_length(), max(1, 2048 // BLOCK_D))
    TOKENS = TOKENS or max(1, 2048 // (BLOCK_D * HEADS))
    grid = (-(-n_tokens // TOKENS) * -(-n_heads // HEADS) * -(-half // BLOCK_D),)
    with device_guard(x):
        rope_kernel[grid](
            x,
            cos,
            sin,
            out,
            n_tokens,
            n_heads,
            half,
            TOKENS=TOKENS,
            HEADS=HEADS,
            BLOCK_D=BLOCK_D,
            VEC=math.gcd(half, 16 // x.element_size()),
            EVEN=n_heads % HEADS == 0 and half % BLOCK_D == 0,
            num_warps=num_warps or max(1, min(16, TOKENS * HEADS * BLOCK_D // 512)),
        )
