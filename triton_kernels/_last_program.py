"""Which of several programs finishes last: it merges what all of them left in global memory.

Programs leave partial results in `partials` and call `is_last`; the one that gets True reads them
(through L2: cache_modifier=".cg"), in an order of its own, so that results repeat bit for bit.
"""

import torch
import triton
import triton.language as tl

from ._scratch import scratch_for

COUNTERS = 4096  # programs, or groups of them, that a launch may count
PARTIALS = 1 << 19  # float32 values that all programs of a launch may leave


@triton.jit
def is_last(counter_ptr, n_programs):
    """True in the last of n_programs programs to call; the counter is 0 before and after."""
    tl.debug_barrier()  # every thread's stores come before the one thread's release
    before = tl.atomic_add(counter_ptr, 1, sem="acq_rel", scope="gpu")
    last = before == n_programs - 1
    if last:
        tl.atomic_xchg(counter_ptr, 0, sem="relaxed", scope="gpu")
    tl.debug_barrier()  # one thread acquired; the others load after it
    return last


def last_program_scratch(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(counters, partials) for a launch on x's device and its current stream; counters are 0."""
    return scratch_for(x, COUNTERS, PARTIALS)
