"""Global memory of launches whose programs leave something for each other, and how many can run."""

import functools
from collections.abc import Callable

import torch

HOPPER_MULTIPROCESSORS = 132
HOPPER_SHARED_BYTES = 228 * 1024


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Of a GPU; as many as a Hopper has for CPU tensors, whose kernels are not launched."""
    if device.type != "cuda":
        return HOPPER_MULTIPROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.cache
def shared_bytes(device: torch.device) -> int:
    """Of a multiprocessor of a GPU; a Hopper's for CPU tensors."""
    if device.type != "cuda":
        return HOPPER_SHARED_BYTES
    return torch.cuda.get_device_properties(device).shared_memory_per_multiprocessor


_Scratch = tuple[torch.Tensor, torch.Tensor]
_kept: dict[tuple[object, ...], _Scratch] = {}


def scratch_for(x: torch.Tensor, n_counters: int, n_partials: int) -> _Scratch:
    """(int32 counters, f32 partials) for a launch on x's device and its current stream.

    Counters are 0, and the kernels leave them so.
    """
    return _on_current_stream(x, _counters_and_partials, n_counters, n_partials)


def exchange_for(x: torch.Tensor, n_words: int, n_counters: int) -> _Scratch:
    """(int64 words, int32 counters) for a launch on x's device and its current stream.

    Both are 0, and the kernels leave them so. n_counters is even.
    """
    return _on_current_stream(x, _words_and_counters, n_words, n_counters)


def _on_current_stream(
    x: torch.Tensor, allocate: Callable[[torch.device, int, int], _Scratch], *sizes: int
) -> _Scratch:
    """Kept for each device and stream, since launches on one stream follow each other. A graph may
    be replayed on any stream, beside others: a captured launch has memory and a zero fill of its
    own, which belong to the graph."""
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        return allocate(x.device, *sizes)
    stream = torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else 0
    key = (x.device, stream, allocate, *sizes)
    if key not in _kept:
        _kept[key] = allocate(x.device, *sizes)
    return _kept[key]


def _counters_and_partials(device: torch.device, n_counters: int, n_partials: int) -> _Scratch:
    counters = torch.zeros(n_counters, dtype=torch.int32, device=device)
    return counters, torch.empty(n_partials, dtype=torch.float32, device=device)


def _words_and_counters(device: torch.device, n_words: int, n_counters: int) -> _Scratch:
    memory = torch.zeros(n_words + n_counters // 2, dtype=torch.int64, device=device)  # one fill
    return memory[:n_words], memory[n_words:].view(torch.int32)
