"""adamw: one step of AdamW over one f32 tensor, new weights and moments out of place.

m_out = m + (1 - beta1) (g - m), v_out = v + (1 - beta2) (g^2 - v),
out = p - (lr * weight_decay * p + step_size * m_out / (sqrt(v_out) * inv_bias2 + eps)).

Pointers: p_ptr, g_ptr, m_ptr, v_ptr, out_ptr, m_out_ptr, v_out_ptr, each [n_elements], stride 1.
A program owns BLOCK_SIZE consecutive elements. Bytes: four reads and three writes of 4 bytes an
element for about 15 operations: memory bound. Bias correction is computed on the host. Division
and square root are IEEE's (tl.div_rn, tl.sqrt_rn). Offsets are 64-bit, so any length works.

The choice that is not obvious: the decay is subtracted with the update rather than multiplied in,
since 1 - lr * weight_decay rounded to f32 shrinks or grows every weight alike. As in vector_add the
full tile has a branch of its own, and views that all start the same few elements past a 16-byte
boundary are stepped back to it by SHIFT.

What the language cannot do: 16-byte accesses on pointers that differ in alignment. Cache hints and
a list of tensors in one launch are left unused.
"""

import torch
import triton
import triton.language as tl

from ._checks import device_guard, ranges_overlap, require_same_shape, require_tensors

DTYPES = (torch.float32,)
NAMES = ("p", "g", "m", "v", "out", "m_out", "v_out")
LAYOUTS = dict.fromkeys(NAMES, "[N]")


@triton.jit
def stepped(p, g, m, v, one_minus_beta1, one_minus_beta2, decay, step_size, inv_bias2, eps):
    """(p, m, v) after the step."""
    m += one_minus_beta1 * (g - m)
    v += one_minus_beta2 * (g * g - v)
    update = tl.div_rn(step_size * m, tl.sqrt_rn(v) * inv_bias2 + eps)
    return p - (decay * p + update), m, v


@triton.jit
def adamw_kernel(
    p_ptr,
    g_ptr,
    m_ptr,
    v_ptr,
    out_ptr,
    m_out_ptr,
    v_out_ptr,
    n_elements,
    one_minus_beta1,
    one_minus_beta2,
    decay,
    step_size,
    inv_bias2,
    eps,
    SHIFT: tl.constexpr,  # elements between the 16-byte boundary and the first element
    BLOCK_SIZE: tl.constexpr,
):
    if SHIFT > 0:
        p_ptr = tl.multiple_of(p_ptr - SHIFT, 16)  # multiple_of counts bytes for a pointer
        g_ptr = tl.multiple_of(g_ptr - SHIFT, 16)
        m_ptr = tl.multiple_of(m_ptr - SHIFT, 16)
        v_ptr = tl.multiple_of(v_ptr - SHIFT, 16)
        out_ptr = tl.multiple_of(out_ptr - SHIFT, 16)
        m_out_ptr = tl.multiple_of(m_out_ptr - SHIFT, 16)
        v_out_ptr = tl.multiple_of(v_out_ptr - SHIFT, 16)
    block_start = tl.program_id(axis=0).to(tl.int64) * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    end = tl.cast(n_elements, tl.int64) + SHIFT
    if (block_start >= SHIFT) & (block_start + BLOCK_SIZE <= end):
        p = tl.load(p_ptr + offsets)
        g = tl.load(g_ptr + offsets)
        m = tl.load(m_ptr + offsets)
        v = tl.load(v_ptr + offsets)
        p, m, v = stepped(
            p, g, m, v, one_minus_beta1, one_minus_beta2, decay, step_size, inv_bias2, eps
        )
        tl.store(out_ptr + offsets, p)
        tl.store(m_out_ptr + offsets, m)
        tl.store(v_out_ptr + offsets, v)
    else:
        mask = (offsets >= SHIFT) & (offsets < end)
        p = tl.load(p_ptr + offsets, mask=mask)
        g = tl.load(g_ptr + offsets, mask=mask)
        m = tl.load(m_ptr + offsets, mask=mask)
        v = tl.load(v_ptr + offsets, mask=mask)
        p, m, v = stepped(
            p, g, m, v, one_minus_beta1, one_minus_beta2, decay, step_size, inv_bias2, eps
        )
        tl.store(out_ptr + offsets, p, mask=mask)
        tl.store(m_out_ptr + offsets, m, mask=mask)
        tl.store(v_out_ptr + offsets, v, mask=mask)


def shared_shift(tensors: tuple[torch.Tensor, ...]) -> int:
    """Elements that all start past a 16-byte boundary; 0 when they differ or are aligned."""
    past = tensors[0].data_ptr() % 16
    if past == 0 or any(tensor.data_ptr() % 16 != past for tensor in tensors[1:]):
        return 0
    return past // 4


def check(tensors: tuple[torch.Tensor, ...], step: int) -> None:
    """Refuse what the kernel would get wrong."""
    require_tensors("adamw", DTYPES, LAYOUTS, tensors)
    named = dict(zip(NAMES, tensors, strict=True))
    require_same_shape("adamw", **named)
    for name, tensor in named.items():
        if tensor.numel() > 1 and tensor.stride(0) != 1:
            raise ValueError(
                f"adamw: {name} has stride {tensor.stride(0)}, wanted 1; pass {name}.contiguous()"
            )
    for i, name in enumerate(NAMES[4:], 4):
        out = named[name]
        for other in NAMES[:4]:
            if out.data_ptr() != named[other].data_ptr() and ranges_overlap(out, named[other]):
                raise ValueError(
                    f"adamw: {name} overlaps {other} in part, wanted the same memory or none "
                    f"shared; pass a fresh {name}"
                )
        for other in NAMES[4:i]:
            if ranges_overlap(out, named[other]):
                raise ValueError(
                    f"adamw: {name} overlaps {other}, wanted no shared memory; pass a fresh {name}"
                )
    if step < 1:
        raise ValueError(f"adamw: step is {step}, wanted 1 or more; count steps from 1")


def adamw(
    p: torch.Tensor,
    g: torch.Tensor,
    m: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    m_out: torch.Tensor,
    v_out: torch.Tensor,
    *,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    step: int = 10,
    BLOCK_SIZE: int | None = None,
    num_warps: int | None = None,
) -> None:
    """Write one AdamW step into out, m_out and v_out, on p's device and its current stream.

    All are [N], contiguous, f32; an output may be an input itself (p, m and v, in place). step
    counts from 1. BLOCK_SIZE is a power of two. Raises TypeError or ValueError for anything else.
    """
    tensors = (p, g, m, v, out, m_out, v_out)
    check(tensors, step)
    n_elements = p.numel()
    if n_elements == 0:
        return
    # One 16-byte load of each input a thread.
    num_warps = num_warps or 4
    BLOCK_SIZE = BLOCK_SIZE or num_warps * 32 * 4
    SHIFT = shared_shift(tensors)
    with device_guard(p):
        adamw_kernel[((SHIFT + n_elements + BLOCK_SIZE - 1) // BLOCK_SIZE,)](
            *tensors,
            n_elements,
            1.0 - beta1,
            1.0 - beta2,
            lr * weight_decay,
            lr / (1.0 - beta1**step),
            (1.0 - beta2**step) ** -0.5,
            eps,
            SHIFT=SHIFT,
            BLOCK_SIZE=BLOCK_SIZE,
            num_warps=num_warps,
        )
