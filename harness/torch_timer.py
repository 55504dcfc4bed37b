"""The batch timer without the CUDA extension: what csrc/batch_timer.cpp does, by torch calls.

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
    twice the L2."""

    def __init__(self, flush_buffer: torch.Tensor) -> None:
        import torch

        properties: Any = torch.cuda.get_device_properties(flush_buffer.device)
        # At the highest clock, and some of it: a spin may be too long, never too short.
        self._cycles_per_ns = max(2.0, 1.1 * getattr(properties, "clock_rate", 0) / 1e6)
        self._flush_buffer = flush_buffer
        self._settle = flush_buffer[:1]
        self._events: list[tuple[Any, Any]] = []
        self._n_samples = 0

    def enqueue(
        self, launch: Callable[[], Any], n_samples: int, flush: str, spin_ns: int, per_spin: int
    ) -> tuple[bool, float, float]:
        """(host stayed ahead of the device, host us of the first sample, mean host us of the
        others). `per_spin` samples are queued behind one spin; 0: one spin, and a host that is
        paced by the device."""
        import torch

        while len(self._events) < n_samples:
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._events.append((start, stop))
        self._n_samples = n_samples
        ahead, host_us = True, []
        for index, (start, stop) in enumerate(self._events[:n_samples]):
            self._hold_back(index, spin_ns, per_spin)
            begin = time.perf_counter()
            self.flush(flush)
            self._settle.zero_()
            start.record()
            launch()
            stop.record()
            ahead &= not start.query()
            host_us.append(1e6 * (time.perf_counter() - begin))
        return ahead, host_us[0], sum(host_us[1:]) / max(n_samples - 1, 1)

    def _hold_back(self, index: int, spin_ns: int, per_spin: int) -> None:
        paced = per_spin == 0
        if index >= 2 if paced else index > 0 and index % per_spin == 0:
            last = self._events[index - 2 if paced else index - 1][1]
            while not last.query():
                pass
        if spin_ns and (index == 0 if paced else index % per_spin == 0):
            self.spin(spin_ns)

    def spin(self, ns: int) -> None:
        """Keep the current stream busy; waits for nothing."""
        import torch

        torch.cuda._sleep(int(self._cycles_per_ns * ns))

    def samples_us(self) -> list[float]:
        """Times of the last batch, which must have been synchronised."""
        return [1e3 * start.elapsed_time(stop) for start, stop in self._events[: self._n_samples]]

    def sm_mhz(self) -> None:
        """Unknown: it takes a kernel of our own to read the clock."""

    def flush(self, mode: str) -> None:
        """Bring L2 into the state that the mode promises; waits for nothing."""
        import torch

        if mode == "none":
            return
        if mode == "write":
            self._flush_buffer[: self._flush_buffer.numel() // 2].zero_()
        else:
            self._flush_buffer.zero_()
            self._flush_buffer.view(torch.int32).sum()
