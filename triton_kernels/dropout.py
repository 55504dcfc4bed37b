"""dropout: out[i] = x[i] / (1 - p) where a Philox word says keep, else 0, for f32 and bf16.

Pointers: x_ptr, out_ptr, each [n_elements], stride 1. A program owns BLOCK_SIZE consecutive
elements. Word i of Philox-4x32-10 counter g decides element 4 * g + i: all four words are used and
no mask is stored. Bytes: one read and one write of 4 (f32) or 2 (bf16) bytes an element for 5 wide
multiplications: memory bound; tl.rand, which throws three words away, would be bound by the ALUs.
A dropped NaN is 0. Offsets are 64-bit, so any length works.

The choice that is not obvious: tl.philox gives four tensors, while elements lie in one. A lane
computes the counters of one 16-byte pack (two in bf16) and tl.join puts their words in a row inside
its registers, so that word and element meet without an exchange between lanes. The full tile has
its own branch without a mask: one mask over a tail of n % 16 != 0 would make all loads scalar.

What the language cannot do: join without naming the order twice (join(join(a, c), join(b, d)) is
a, b, c, d); and keep 16-byte accesses in views that start off a boundary.
"""

import torch
import triton
import triton.language as tl

from ._checks import device_guard, ranges_overlap, require_shape_of_x, require_tensors

DTYPES = (torch.float32, torch.bfloat16)
LAYOUTS = {"x": "[N]", "out": "[N]"}


@triton.jit
def words_at(seed, counters):
    """Four words of each 64-bit counter. Not tl.randint4x, which runs Philox-4x64 on 64-bit offsets
    in some versions of Triton."""
    low = counters.to(tl.uint32)
    zero = low * 0
    return tl.philox(seed, low, (counters >> 32).to(tl.uint32), zero, zero)


@triton.jit
def keep_words(seed, packs, COUNTERS: tl.constexpr):
    """The words of COUNTERS (1 or 2) neighbouring counters a pack, in order: [4 * len(packs)]."""
    if COUNTERS == 1:
        a, b, c, d = words_at(seed, packs)
    else:
        a0, b0, c0, d0 = words_at(seed, packs * 2)
        a1, b1, c1, d1 = words_at(seed, packs * 2 + 1)
        a, b, c, d = tl.join(a0, a1), tl.join(b0, b1), tl.join(c0, c1), tl.join(d0, d1)
    # The last join is the index that runs fastest.
    return tl.join(tl.join(a, c), tl.join(b, d)).reshape(COUNTERS * 4 * packs.shape[0])


@triton.jit(do_not_specialize=["seed", "threshold"])
def dropout_kernel(
    x_ptr,
    out_ptr,
    n_elements,
    seed,
    threshold,  # keep from here on
    scale,
    COUNTERS: tl.constexpr,  # in 16 bytes of x
    BLOCK_SIZE: tl.constexpr,
):
    PACKS: tl.constexpr = BLOCK_SIZE // (4 * COUNTERS)
    pid = tl.program_id(axis=0).to(tl.int64)
    words = keep_words(seed, pid * PACKS + tl.arange(0, PACKS), COUNTERS)
    keep = words >= threshold.to(tl.uint32)
    block_start = pid * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    if block_start + BLOCK_SIZE <= n_elements:
        x = tl.load(x_ptr + offsets).to(tl.float32)
        out = tl.where(keep, x * scale, 0.0)
        tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty))
    else:
        mask = offsets < n_elements
        x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
        out = tl.where(keep, x * scale, 0.0)
        tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


def check(x: torch.Tensor, out: torch.Tensor, p: float) -> None:
    """Refuse what the kernel would get wrong."""
    require_tensors("dropout", DTYPES, LAYOUTS, (x, out))
    require_shape_of_x("dropout", x, out=out)
    for name, tensor in (("x", x), ("out", out)):
        if tensor.numel() > 1 and tensor.stride(0) != 1:
            raise ValueError(
                f"dropout: {name} has stride {tensor.stride(0)}, wanted 1; pass {name}.contiguous()"
            )
    if x.data_ptr() != out.data_ptr() and ranges_overlap(x, out):
        raise ValueError(
            "dropout: out overlaps x in part, wanted the same memory or none shared; "
            "pass a fresh out"
        )
    if not 0.0 <= p < 1.0:
        raise ValueError(f"dropout: p is {float(p)}, wanted 0 <= p < 1; pass a probability")


def dropout(
    x: torch.Tensor,
    out: torch.Tensor,
    *,
    p: float = 0.1,
    seed: int = 0,
    BLOCK_SIZE: int | None = None,
    num_warps: int | None = None,
) -> None:
    """Write x with a share p of it dropped into out, on x's device and its current stream.

    x, out: [N], contiguous, one dtype (f32 or bf16); out may be x itself. seed: a signed 64-bit
    integer; the same one drops the same elements. BLOCK_SIZE is a power of two, at least 8. Raises
    TypeError or ValueError for anything else.
    """
    check(x, out, p)
    n_elements = x.numel()
    if n_elements == 0:
        return
    # Two 16-byte packs a thread.
    num_warps = num_warps or 4
    BLOCK_SIZE = BLOCK_SIZE or num_warps * 32 * (32 // x.element_size())
    with device_guard(x):
        dropout_kernel[((n_elements + BLOCK_SIZE - 1) // BLOCK_SIZE,)](
            x,
            out,
            n_elements,
            seed,
            int(p * 2**32),
            1.0 / (1.0 - p),
            COUNTERS=4 // x.element_size(),
            BLOCK_SIZE=BLOCK_SIZE,
            num_warps=num_warps,
        )
