"""Global memory of launches whose programs leave something for each other, and how many can run."""

import functools

import torch

HOPPER_MULTIPROCESSORS = 132


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Of a GPU; as many as a Hopper has for CPU tensors, whose kernels are not launched."""
    if device.type != "cuda":
        return HOPPER_MULTIPROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count


_kept: dict[tuple[torch.device, int, int, int], tuple[torch.Tensor, torch.Tensor]] = {}


def scratch_for(
    x: torch.Tensor, n_counters: int, n_partials: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(int32 counters, f32 partials) for a launch on x's device and its current stream.

    Counters are 0, and the kernels leave them so. Kept for each device and stream, since launches
    on one stream follow each other. A graph may be replayed on any stream, beside others: a
    captured launch has memory and a zero fill of its own, which belong to the graph.
    """
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        return _allocate(x.device, n_counters, n_partials)
    stream = torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else 0
    key = (x.device, stream, n_counters, n_partials)
    if key not in _kept:
        _kept[key] = _allocate(x.device, n_counters, n_partials)
    return _kept[key]


def _allocate(
    device: torch.device, n_counters: int, n_partials: int
) -> tuple[torch.Tensor, torch.Tensor]:
    counters = torch.zeros(n_counters, dtype=torch.int32, device=device)
    return counters, torch.empty(n_partials, dtype=torch.float32, device=device)
