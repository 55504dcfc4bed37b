"""swiglu: out[m, i] = gate[m, i] * sigmoid(gate[m, i]) * up[m, i], for f32, bf16 and f16.

Pointers: gate_ptr, up_ptr, out_ptr, [n_rows, n_cols], last dimension contiguous, any row stride of
at least n_cols: gate and up may be column halves of one tensor. All arithmetic is fp32 with one
rounding at the end. Bytes: two reads and one write of 4 (f32) or 2 bytes an element for about 6
operations, an exp2 and a reciprocal: memory bound.

swiglu_kernel: rows that lie back to back are one stream, of which a program owns BLOCK_SIZE
elements; one row of 14336 is 28 programs. swiglu_rows_kernel: a program owns ROWS x BLOCK_N
elements of strided rows. Offsets are 64-bit. A gate of -Inf gives NaN, as in torch; a sigmoid whose
exp overflows counts as 0.

The choice that is not obvious: not one row a program, which leaves a power of two of lanes half
empty (14336 columns hold 16384) and a single row to a single multiprocessor.

What the language cannot do: 16-byte accesses on pointers that differ in alignment; a reciprocal of
one instruction (a division scales its operands first). Cache hints are left unused.
"""

import torch
import triton
import triton.language as tl

from ._stream import launch_rows, rows_tile, step_back, stream_tile
from ._swiglu import check, sigmoid


@triton.jit
def silu_mul(gate_ptrs, up_ptrs, out_ptrs, mask):
    gate = tl.load(gate_ptrs, mask=mask).to(tl.float32)
    up = tl.load(up_ptrs, mask=mask).to(tl.float32)
    out = gate * sigmoid(gate) * up
    tl.store(out_ptrs, out.to(out_ptrs.dtype.element_ty), mask=mask)


@triton.jit
def swiglu_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    n_elements,
    SHIFT: tl.constexpr,  # elements between the 16-byte boundary and the first element
    BLOCK_SIZE: tl.constexpr,
):
    offsets, mask, full = stream_tile(n_elements, SHIFT, BLOCK_SIZE)
    gate_ptrs = step_back(gate_ptr, SHIFT) + offsets
    up_ptrs = step_back(up_ptr, SHIFT) + offsets
    out_ptrs = step_back(out_ptr, SHIFT) + offsets
    if full:
        silu_mul(gate_ptrs, up_ptrs, out_ptrs, None)
    else:
        silu_mul(gate_ptrs, up_ptrs, out_ptrs, mask)


@triton.jit
def swiglu_rows_kernel(
    gate_ptr,
    up_ptr,
    out_ptr,
    stride_gm,
    stride_um,
    stride_om,
    n_rows,
    n_cols,
    n_tiles,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,  # a power of two that divides n_cols and the strides
    WHOLE: tl.constexpr,  # no tile hangs over
):
    rows, cols, mask = rows_tile(n_rows, n_cols, n_tiles, ROWS, BLOCK_N, VEC)
    gate_ptrs = gate_ptr + rows * (stride_gm // VEC * VEC) + cols
    up_ptrs = up_ptr + rows * (stride_um // VEC * VEC) + cols
    out_ptrs = out_ptr + rows * (stride_om // VEC * VEC) + cols
    silu_mul(gate_ptrs, up_ptrs, out_ptrs, None if WHOLE else mask)


def swiglu(
    gate: torch.Tensor,
    up: torch.Tensor,
    out: torch.Tensor,
    *,
    BLOCK_SIZE: int | None = None,
    num_warps: int | None = None,
) -> None:
    """Write silu(gate) * up into out, on gate's device and its current stream.

    gate, up, out: [rows, cols], one dtype (f32, bf16, f16), any row stride >= cols; out may be gate
    or up itself. BLOCK_SIZE is a power of two. Raises TypeError or ValueError for anything else.
    """
    check("swiglu", {"gate": gate, "up": up}, {"out": out})
    launch_rows(swiglu_kernel, swiglu_rows_kernel, (gate, up, out), BLOCK_SIZE, num_warps)
