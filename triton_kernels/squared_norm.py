"""squared_norm: out[0] = sum of all x * x, for f32, bf16 and f16, squared and summed in f32.

The kernel of reduce_sum with a square before the first addition, into which it fuses: see
reduce_sum.py for pointers, limits and the choices made, and _full_sum.py for the code. Bytes: one
read of 4 (f32) or 2 bytes an element for a fused multiply-add: memory bound. NaN travels; an
infinity, or a square beyond float32, gives +Inf.
"""

import torch
import triton
import triton.language as tl

from ._full_sum import full_sum, launch_full_sum


@triton.jit
def squared_norm_kernel(
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
        True, GROUP, BLOCK_SIZE, NUM_STAGES, MOST_PROGRAMS,
    )  # fmt: skip


def squared_norm(
    x: torch.Tensor,
    out: torch.Tensor,
    *,
    BLOCK_SIZE: int | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
    programs_per_sm: int | None = None,
) -> None:
    """Write the sum of the squares of x into out, on x's device and its current stream.

    x: [N], adjacent elements of f32, bf16 or f16; out: [1], f32, apart from x. BLOCK_SIZE is a
    power of two of 16 bytes or more; num_stages above 1 prefetches tiles into shared memory.
    Raises TypeError or ValueError for anything else.
    """
    launch_full_sum(
        "squared_norm",
        squared_norm_kernel,
        x,
        out,
        BLOCK_SIZE,
        num_warps,
        num_stages,
        programs_per_sm,
    )
