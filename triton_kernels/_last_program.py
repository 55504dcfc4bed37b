"""Which of several programs finishes last: it merges what all of them left in global memory.

Programs leave partial results in `partials` and call `is_last`; the one that gets True reads them
(through L2: cache_modifier=".cg"), in an order of its own, so that results repeat bit for bit.
"""

import functools

import torch
import triton
import triton.language as tl

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


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Of x's device; where nothing is launched on a GPU, what a Hopper has."""
    if device.type != "cuda":
        return 132
    return torch.cuda.get_device_properties(device).multi_processor_count


_scratch: dict[tuple[torch.device, int], tuple[torch.Tensor, torch.Tensor]] = {}


def scratch(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(counters, partials) for a launch on x's device and its current stream; counters are 0.

    Kept for each device and stream, since launches on one stream follow each other. A graph may be
    replayed beside others: a captured launch has memory and a zero fill of its own.
    """
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        return _allocate(x.device)
    stream = torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else 0
    key = (x.device, stream)
    if key not in _scratch:
        _scratch[key] = _allocate(x.device)
    return _scratch[key]


def _allocate(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    counters = torch.zeros(COUNTERS, dtype=torch.int32, device=device)
    return counters, torch.empty(PARTIALS, dtype=torch.float32, device=device)
