"""out[0] = sum of x[i], or of x[i] * x[i], over a whole vector, in float32 and in one launch.

x is a head of n_head elements up to the first 16-byte boundary, a body of whole 16-byte groups and
a tail. A program takes one tile of the body in every whole round; what the last whole round leaves
is shared out over all programs, so that none ends late. Program 0 takes head and tail. Each program
leaves one partial, and the last to finish adds them.

A lane reads 16 bytes at once and adds them before they meet its accumulator: one accumulator for
each 16 bytes in flight, and no exchange between lanes in the loop.
"""

import torch
import triton
import triton.language as tl

from ._checks import device_guard, ranges_overlap, require_tensors
from ._last_program import COUNTERS, is_last, last_program_scratch
from ._scratch import multiprocessors

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@triton.jit
def term(x, SQUARE: tl.constexpr):
    x = x.to(tl.float32)
    return x * x if SQUARE else x


@triton.jit
def full_sum(
    x_ptr,
    out_ptr,
    n_head,
    n_body,
    n_tail,
    n_programs,
    counters_ptr,
    partials_ptr,
    SQUARE: tl.constexpr,
    GROUP: tl.constexpr,  # elements of 16 bytes
    BLOCK_SIZE: tl.constexpr,
    NUM_STAGES: tl.constexpr,  # 1, or more: tiles prefetched into shared memory
    MOST_PROGRAMS: tl.constexpr,  # a power of two, n_programs or more
):
    LANES: tl.constexpr = BLOCK_SIZE // GROUP
    pid = tl.program_id(axis=0)
    body_ptr = tl.multiple_of(x_ptr + n_head, 16)  # multiple_of counts bytes for a pointer
    n_groups = tl.cast(n_body, tl.int64) // GROUP
    lanes = tl.arange(0, LANES)[:, None]
    offs = lanes * GROUP + tl.arange(0, GROUP)[None, :]

    sums = tl.zeros([LANES], tl.float32)
    round_size = n_programs * LANES  # in groups
    n_rounds = n_groups // round_size
    for i in tl.range(0, n_rounds, num_stages=NUM_STAGES):
        tile = i * n_programs + pid
        x = tl.load(body_ptr + tile * BLOCK_SIZE + offs)
        sums += tl.sum(term(x, SQUARE), axis=1)

    first = n_rounds * round_size
    share = (n_groups - first + n_programs - 1) // n_programs
    begin = first + pid * share
    end = tl.minimum(begin + share, n_groups)
    x = tl.load(body_ptr + begin * GROUP + offs, mask=begin + lanes < end, other=0.0)
    sums += tl.sum(term(x, SQUARE), axis=1)

    total = tl.sum(sums, axis=0)
    if pid == 0:
        ends = tl.arange(0, GROUP)
        head = tl.load(x_ptr + ends, mask=ends < n_head, other=0.0)
        tail = tl.load(body_ptr + n_groups * GROUP + ends, mask=ends < n_tail, other=0.0)
        total += tl.sum(term(head, SQUARE) + term(tail, SQUARE), axis=0)
    if n_programs == 1:
        tl.store(out_ptr, total)
    else:
        tl.store(partials_ptr + pid, total)
        if is_last(counters_ptr, n_programs):
            parts = tl.arange(0, MOST_PROGRAMS)
            partials = tl.load(
                partials_ptr + parts, mask=parts < n_programs, other=0.0, cache_modifier=".cg"
            )
            tl.store(out_ptr, tl.sum(partials, axis=0))


def check(op: str, x: torch.Tensor, out: torch.Tensor) -> None:
    """Refuse what the kernel would get wrong."""
    require_tensors(op, DTYPES, {"x": "[N]", "out": "[1]"}, (x, out), {"out": torch.float32})
    if out.numel() != 1:
        raise ValueError(f"{op}: out has shape {tuple(out.shape)}, wanted (1,); pass out as [1]")
    if x.numel() > 1 and x.stride(0) != 1:
        raise ValueError(f"{op}: x has stride {x.stride(0)}, wanted 1; pass x.contiguous()")
    if ranges_overlap(x, out):
        raise ValueError(f"{op}: out overlaps x, wanted no shared memory; pass a fresh out")


def launch_full_sum(
    op: str,
    kernel: triton.JITFunction,
    x: torch.Tensor,
    out: torch.Tensor,
    BLOCK_SIZE: int | None,
    num_warps: int | None,
    num_stages: int | None,
    programs_per_sm: int | None,
) -> None:
    """Check, choose a configuration where it is None, and launch `kernel` on x's current stream."""
    check(op, x, out)
    n_elements, itemsize = x.numel(), x.element_size()
    group = 16 // itemsize
    n_head = min(-x.data_ptr() % 16 // itemsize, n_elements)
    n_body = (n_elements - n_head) // group * group
    n_sms = multiprocessors(x.device)
    num_warps = num_warps or 4
    if BLOCK_SIZE is None:
        # Four loads a thread, fewer where there would not be a tile for every multiprocessor.
        smallest = num_warps * 32 * group
        BLOCK_SIZE = 4 * smallest
        while BLOCK_SIZE > smallest and n_body < BLOCK_SIZE * n_sms:
            BLOCK_SIZE //= 2
    # By default 1536 threads a multiprocessor: with four loads each, 96 KB are in flight.
    n_programs = n_sms * (programs_per_sm or max(1, 48 // num_warps))
    n_programs = max(1, min(n_programs, COUNTERS, (n_body + BLOCK_SIZE - 1) // BLOCK_SIZE))
    with device_guard(x):
        kernel[(n_programs,)](
            x,
            out,
            n_head,
            n_body,
            n_elements - n_head - n_body,
            n_programs,
            *last_program_scratch(x),
            GROUP=group,
            BLOCK_SIZE=BLOCK_SIZE,
            NUM_STAGES=num_stages or 1,
            MOST_PROGRAMS=1 << (n_programs - 1).bit_length(),
            num_warps=num_warps,
        )
