"""reduce_sum: out[0] = sum of all x, for f32, bf16 and f16, summed and written in f32.

Pointers: x_ptr [N], any alignment; out_ptr [1], f32. Bytes: one read of 4 (f32) or 2 bytes an
element for one addition: memory bound, under about 4 MB bound by latency. N = 0 gives 0; NaN and
infinities travel in the sum. Offsets are 64-bit, so any length works.

A few programs a multiprocessor stride over tiles of BLOCK_SIZE elements; each leaves a partial, and
the last to finish adds them in a fixed order: one launch, and results repeat bit for bit.
_full_sum.py has the kernel, which squared_norm shares, and _last_program.py the counter.

The choice that is not obvious: a lane adds the 16 bytes that it loads before they meet its
accumulator. One accumulator for every element in flight would take the registers of half the loads.

What the language cannot do: keep the compiler from moving a load behind the first additions, so
more threads, or tiles prefetched through shared memory (num_stages), keep enough bytes in flight.
"""

import torch
import triton
import triton.language as tl

from ._full_sum import full_sum, launch_full_sum


@triton.jit
def reduce_sum_kernel(
    x_ptr,
    out_ptr,
    n_head,
    n_body,
    n_tail,
    n_programs,
    counters_ptr,
    partials_ptr,
    GROUP: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    NUM_STAGES: tl.constexpr,
    MOST_PROGRAMS: tl.constexpr,
):
    full_sum(
        x_ptr, out_ptr, n_head, n_body, n_tail, n_programs, counters_ptr, partials_ptr,
        False, GROUP, BLOCK_SIZE, NUM_STAGES, MOST_PROGRAMS,
    )  # fmt: skip


def reduce_sum(
    x: torch.Tensor,
    out: torch.Tensor,
    *,
    BLOCK_SIZE: int | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
    programs_per_sm: int | None = None,
) -> None:
    """Write the sum of x into out, on x's device and its current stream.

    x: [N], adjacent elements of f32, bf16 or f16; out: [1], f32, apart from x. BLOCK_SIZE is a
    power of two of 16 bytes or more; num_stages above 1 prefetches tiles into shared memory.
    Raises TypeError or ValueError for anything else.
    """
    launch_full_sum(
        "reduce_sum", reduce_sum_kernel, x, out, BLOCK_SIZE, num_warps, num_stages, programs_per_sm
    )
