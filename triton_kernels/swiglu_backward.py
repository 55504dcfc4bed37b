"""swiglu_backward: the gradients of swiglu's gate and up, for f32, bf16 and f16.

With s = sigmoid(gate): out = dgate = dout * up * s * (1 + gate * (1 - s)), dup = dout * gate * s.

Pointers: dout_ptr, gate_ptr, up_ptr, out_ptr, dup_ptr, [n_rows, n_cols], last dimension contiguous,
any row stride of at least n_cols: inputs and gradients may be column halves of one tensor each.
All arithmetic is fp32 with one rounding at the end; s is computed again, not read. Bytes: three
reads and two writes of 4 (f32) or 2 bytes an element for about 10 operations, an exp2 and a
reciprocal: memory bound.

swiglu_backward_kernel: rows that lie back to back are one stream, of which a program owns
BLOCK_SIZE elements. swiglu_backward_rows_kernel: a program owns ROWS x BLOCK_N elements of strided
rows. Offsets are 64-bit. A gate of Inf or -Inf gives a dgate of NaN, as in torch.

The choice that is not obvious: up is multiplied by the slope, at most 1.1, before dout, so that
only a gradient that overflows is infinite.

What the language cannot do: 16-byte accesses on pointers that differ in alignment; a reciprocal of
one instruction (a division scales its operands first). Cache hints are left unused.
"""

import torch
import triton
import triton.language as tl

from ._stream import launch_rows, rows_tile, step_back, stream_tile
from ._swiglu import check, sigmoid


@triton.jit
def gradients(dout_ptrs, gate_ptrs, up_ptrs, out_ptrs, dup_ptrs, mask):
    dout = tl.load(dout_ptrs, mask=mask).to(tl.float32)
    gate = tl.load(gate_ptrs, mask=mask).to(tl.float32)
    up = tl.load(up_ptrs, mask=mask).to(tl.float32)
    s = sigmoid(gate)
    out = dout * (up * (s * (1.0 + gate * (1.0 - s))))
    dup = dout * (gate * s)
    tl.store(out_ptrs, out.to(out_ptrs.dtype.element_ty), mask=mask)
    tl.store(dup_ptrs, dup.to(dup_ptrs.dtype.element_ty), mask=mask)


@triton.jit
def swiglu_backward_kernel(
    dout_ptr,
    gate_ptr,
    up_ptr,
    out_ptr,
    dup_ptr,
    n_elements,
    SHIFT: tl.constexpr,  # elements between the 16-byte boundary and the first element
    BLOCK_SIZE: tl.constexpr,
):
    offsets, mask, full = stream_tile(n_elements, SHIFT, BLOCK_SIZE)
    dout_ptrs = step_back(dout_ptr, SHIFT) + offsets
    gate_ptrs = step_back(gate_ptr, SHIFT) + offsets
    up_ptrs = step_back(up_ptr, SHIFT) + offsets
    out_ptrs = step_back(out_ptr, SHIFT) + offsets
    dup_ptrs = step_back(dup_ptr, SHIFT) + offsets
    if full:
        gradients(dout_ptrs, gate_ptrs, up_ptrs, out_ptrs, dup_ptrs, None)
    else:
        gradients(dout_ptrs, gate_ptrs, up_ptrs, out_ptrs, dup_ptrs, mask)


@triton.jit
def swiglu_backward_rows_kernel(
    dout_ptr,
    gate_ptr,
    up_ptr,
    out_ptr,
    dup_ptr,
    stride_dm,
    stride_gm,
    stride_um,
    stride_om,
    stride_dum,
    n_rows,
    n_cols,
    n_tiles,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    VEC: tl.constexpr,  # a power of two that divides n_cols and the strides
    WHOLE: tl.constexpr,  # no tile hangs over
):
    rows, cols, mask = rows_tile(n_rows, n_cols, n_tiles, ROWS, BLOCK_N, VEC)
    dout_ptrs = dout_ptr + rows * (stride_dm // VEC * VEC) + cols
    gate_ptrs = gate_ptr + rows * (stride_gm // VEC * VEC) + cols
    up_ptrs = up_ptr + rows * (stride_um // VEC * VEC) + cols
    out_ptrs = out_ptr + rows * (stride_om // VEC * VEC) + cols
    dup_ptrs = dup_ptr + rows * (stride_dum // VEC * VEC) + cols
    gradients(dout_ptrs, gate_ptrs, up_ptrs, out_ptrs, dup_ptrs, None if WHOLE else mask)


def swiglu_backward(
    dout: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    out: torch.Tensor,
    dup: torch.Tensor,
    *,
    BLOCK_SIZE: int | None = None,
    num_warps: int | None = None,
) -> None:
    """Write the gradients of gate and up into out and dup, on dout's device and its current stream.

    All are [rows, cols] of one dtype (f32, bf16, f16), any row stride >= cols; an output may be an
    input itself. BLOCK_SIZE is a power of two. Raises TypeError or ValueError for anything else.
    """
    check("swiglu_backward", {"dout": dout, "gate": gate, "up": up}, {"out": out, "dup": dup})
    launch_rows(
        swiglu_backward_kernel,
        swiglu_backward_rows_kernel,
        (dout, gate, up, out, dup),
        BLOCK_SIZE,
        num_warps,
    )
