"""bf16 or f16 to e4m3 with one scale for many elements: what the fp8 kernels share.

Kernels write bytes, since Triton knows no e4m3 pointer before sm_89.
"""

import functools

import torch
import triton
import triton.language as tl

from ._checks import ranges_overlap, require_contiguous, require_same_shape, require_tensors

DTYPES = (torch.bfloat16, torch.float16)
OWN_DTYPES = {"out": torch.float8_e4m3fn, "scale": torch.float32}
LARGEST = tl.constexpr(448.0)  # of e4m3
# Below this an amax counts as this: zeros get a finite scale, and 448 / amax stays finite. vLLM's
# 1e-10, as a power of two.
SMALLEST_AMAX = tl.constexpr(2.0**-33)


def check_kinds(op: str, layouts: dict[str, str], *tensors: torch.Tensor) -> None:
    """Of x, out and scale: devices, dtypes, dimensions, and out's shape."""
    require_tensors(op, DTYPES, layouts, tensors, OWN_DTYPES)
    require_same_shape(op, x=tensors[0], out=tensors[1])


def check_memory(
    op: str,
    layouts: dict[str, str],
    x: torch.Tensor,
    out: torch.Tensor,
    scale: torch.Tensor,
    scale_shape: tuple[int, ...],
) -> None:
    """The scale's shape; all contiguous and apart."""
    if scale.shape != scale_shape:
        raise ValueError(
            f"{op}: scale has shape {tuple(scale.shape)}, wanted {scale_shape}; "
            f"pass scale as {layouts['scale']}"
        )
    require_contiguous(op, x=x, out=out, scale=scale)
    for name, tensor, other_name, other in (
        ("out", out, "x", x),
        ("scale", scale, "x", x),
        ("scale", scale, "out", out),
    ):
        if ranges_overlap(tensor, other):
            raise ValueError(
                f"{op}: {name} overlaps {other_name}, wanted no shared memory; pass a fresh {name}"
            )


def bytes_of(out: torch.Tensor) -> torch.Tensor:
    """The same memory as uint8."""
    return out.view(torch.uint8)


def has_e4m3() -> bool:
    """Whether the GPU has the conversion (sm_89 and newer); the interpreter's is not trusted."""
    if triton.knobs.runtime.interpret:
        return False
    return _converts(triton.runtime.driver.active.get_current_device())


@functools.cache
def _converts(device: int | str) -> bool:
    return triton.runtime.driver.active.get_current_target().arch >= 89


@triton.jit
def amax_of(x):
    """The largest magnitude in each row of a float32 tile. tl.max drops NaN, but as integers the
    magnitudes are in the same order with NaN above all."""
    bits = tl.max(x.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=1)
    floor = tl.full(bits.shape, SMALLEST_AMAX, tl.float32).to(tl.int32, bitcast=True)
    return tl.maximum(bits, floor).to(tl.float32, bitcast=True)


@triton.jit
def factor_of(amax):
    """What x is multiplied by."""
    return tl.div_rn(tl.full(amax.shape, LARGEST, tl.float32), amax)


@triton.jit
def scale_of(amax):
    """What undoes it."""
    return tl.div_rn(amax, tl.full(amax.shape, LARGEST, tl.float32))


@triton.jit
def e4m3_bits(v, HARDWARE: tl.constexpr):
    """float32 of at most 448 to the bits of e4m3, ties to even."""
    if HARDWARE:
        code = v.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
    else:
        bits = v.to(tl.int32, bitcast=True)
        magnitude = bits & 0x7FFFFFFF
        # Normal numbers keep 3 of 23 bits; the exponent's bias falls from 127 to 7.
        normal = ((magnitude + 0x7FFFF + ((magnitude >> 20) & 1)) >> 20) - (120 << 3)
        # Below 2^-6 one step is 2^-9: float32's own next to 2^14.
        subnormal = (tl.abs(v) + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
        code = tl.where(magnitude < 0x3C800000, subnormal, normal)
        code = tl.where(magnitude > 0x7F800000, 0x7F, code)  # NaN
        code = (code | ((bits >> 24) & 0x80)).to(tl.uint8)
    return code
