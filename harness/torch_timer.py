"""The batch timer without the CUDA extension: what csrc/batch_timer.cu does, by torch calls.

Slower for the host, and without stamps of the SM clock; times mean the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class TorchBatchTimer:
    """Queues launches on the current stream, each between two events. `flush_buffer`: bytes,
    at least twice the L2."""

    def __init__(self, flush_buffer: torch.Tensor) -> None:
        self._flush_buffer = flush_buffer
        self._settle = flush_buffer[:1]
        self._events: list[tuple[Any, Any]] = []
        self._n_samples = 0

    def enqueue(
        self, launch: Callable[[], Any], n_samples: int, flush: str
    ) -> tuple[bool, float, float]:
        """(host stayed ahead of the device, host us up to the first sample's end, host us of the
        others); waits for nothing unless `launch` does."""
        import torch

        while len(self._events) < n_samples:
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._events.append((start, stop))
        self._n_samples = n_samples
        ahead = True
        ends = [time.perf_counter()]
        for start, stop in self._events[:n_samples]:
            self.flush(flush)
            self._settle.zero_()
            start.record()
            launch()
            stop.record()
            ahead &= not start.query()
            ends.append(time.perf_counter())
        return ahead, 1e6 * (ends[1] - ends[0]), 1e6 * (ends[-1] - ends[1])

    def samples_us(self) -> list[float]:
        """Times of the last batch, which must have been synchronised."""
        return [1e3 * start.elapsed_time(stop) for start, stop in self._events[: self._n_samples]]

    def device_us(self) -> float:
        """First start to last stop of that batch."""
        first, last = self._events[0][0], self._events[self._n_samples - 1][1]
        return 1e3 * float(first.elapsed_time(last))

    def flush(self, mode: str) -> None:
        """Bring L2 into the state that the mode promises; waits for nothing."""
        import torch

        if mode == "none":
            return
        self._flush_buffer.zero_()
        if mode == "clean":
            self._flush_buffer.view(torch.int32).sum()
