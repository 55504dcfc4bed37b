"""quant_fp8_group: out = e4m3(x * 448 / amax), scale = amax / 448 for every 128 elements of a row.

Pointers: x_ptr (bf16 or f16) and out_ptr (bytes), [n_groups, 128], contiguous; scale_ptr, f32,
[n_groups]. A program owns GROUPS groups as one [GROUPS, 128] tile; rows do not matter, since their
length is a multiple of 128. Bytes: 3 an element and 4 / 128 of scale for about 5 operations: memory
bound. NaN makes its group NaN; an amax under 2^-33 counts as that. Offsets are 64-bit.

The choice that is not obvious: a tile of many groups. One program a group, as often seen, keeps
256 bytes in flight and leaves the chip to its launch rate.

What the language cannot do: let the lanes of a group read alternating 16-byte packs and still
store 16 bytes each, as an exchange between neighbours does: one layout serves load and store. On a
GPU before sm_89 the conversion is integer arithmetic.
"""

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

LAYOUTS = {"x": "[rows, cols]", "out": "[rows, cols]", "scale": "[rows, cols / 128]"}
GROUP_SIZE = 128
N = tl.constexpr(GROUP_SIZE)


@triton.jit
def quant_fp8_group_kernel(
    x_ptr,
    out_ptr,
    scale_ptr,
    n_groups,
    GROUPS: tl.constexpr,
    HARDWARE: tl.constexpr,  # the GPU has the conversion
):
    start = tl.program_id(axis=0).to(tl.int64) * GROUPS
    groups = start + tl.arange(0, GROUPS)
    offsets = groups[:, None] * N + tl.arange(0, N)[None, :]
    if start + GROUPS <= n_groups:
        x = tl.load(x_ptr + offsets).to(tl.float32)
        amax = amax_of(x)
        tl.store(out_ptr + offsets, e4m3_bits(x * factor_of(amax)[:, None], HARDWARE))
        tl.store(scale_ptr + groups, scale_of(amax))
    else:
        mask = groups < n_groups
        x = tl.load(x_ptr + offsets, mask=mask[:, None], other=0.0).to(tl.float32)
        amax = amax_of(x)
        out = e4m3_bits(x * factor_of(amax)[:, None], HARDWARE)
        tl.store(out_ptr + offsets, out, mask=mask[:, None])
        tl.store(scale_ptr + groups, scale_of(amax), mask=mask)


def check(x: torch.Tensor, out: torch.Tensor, scale: torch.Tensor) -> None:
    """Refuse what the kernel would get wrong."""
    op = "quant_fp8_group"
    check_kinds(op, LAYOUTS, x, out, scale)
    n_rows, n_cols = x.shape
    if n_cols % GROUP_SIZE:
        raise ValueError(
            f"{op}: x has {n_cols} columns, wanted a multiple of 128; pass x padded to whole groups"
        )
    check_memory(op, LAYOUTS, x, out, scale, (n_rows, n_cols // GROUP_SIZE))


def quant_fp8_group(
    x: torch.Tensor,
    out: torch.Tensor,
    scale: torch.Tensor,
    *,
    GROUPS: int | None = None,
    num_warps: int | None = None,
) -> None:
    """Write x in e4m3 and the scales of its groups of 128, on x's device and its current stream.

    x: [rows, cols], bf16 or f16, cols a multiple of 128; out: the same in float8_e4m3fn; scale:
    [rows, cols / 128], f32; all contiguous. x is about out * scale. GROUPS is a power of two.
    Raises TypeError or ValueError for anything else.
    """
    check(x, out, scale)
    n_groups = x.numel() // GROUP_SIZE
    if n_groups == 0:
        return
    num_warps = num_warps or 4
    GROUPS = GROUPS or num_warps * 8  # 32 elements a thread
    with device_guard(x):
        quant_fp8_group_kernel[((n_groups + GROUPS - 1) // GROUPS,)](
            x,
            bytes_of(out),
            scale,
            n_groups,
            GROUPS=GROUPS,
            HARDWARE=has_e4m3(),
            num_warps=num_warps,
        )
