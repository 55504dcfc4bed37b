"""Timing one batch of launches: the protocol, and CUDA events behind a timed spin.

The device never waits for the host inside an interval: a spin kernel holds the stream while a
whole batch is queued behind it, and the batch counts only if the spin was still running when
the last launch had been queued.
"""

from __future__ import annotations

import gc
import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

Launch = Callable[[], Any]

MAX_BATCH = 200
_SPIN_MARGIN = 1.5
_SPIN_ATTEMPTS = 4
_FIRST_ENQUEUE_US = 60.0
_HOST_BURST = 20
_GRAPH_LAUNCHES = 20
_GRAPH_SPIN_US = 300.0


@dataclass(frozen=True)
class Batch:
    """`hidden`: the launches were queued before the device reached them. `sm_mhz` is 0 when
    unknown."""

    samples_us: tuple[float, ...]
    hidden: bool
    sm_mhz: float = 0.0


class Clock(Protocol):
    """What measuring needs of time. `tick_us` is the timer's resolution."""

    tick_us: float

    def batch(self, launch: Launch, n_samples: int) -> Batch: ...

    def now_s(self) -> float: ...


class CudaEventClock:
    """Device time of single launches on the current stream, L2 cold and clean."""

    # Events on NVIDIA GPUs resolve to a 1 MHz to 31.25 MHz timer; measured in `calibrate`.
    tick_us = 0.032

    def __init__(self) -> None:
        import torch

        from .backends import extension_problem

        self._torch: Any = torch
        self._extension: Any = None
        if not extension_problem():
            from . import _cuda

            self._extension = _cuda
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        # Twice the L2: what the read-back leaves is then clean whatever the replacement policy.
        self.flush_bytes = 2 * int(properties.L2_cache_size)
        self._flush_buffer = torch.empty(self.flush_bytes, dtype=torch.uint8, device="cuda")
        self._stamps = torch.zeros(4, dtype=torch.int64, device="cuda")
        self._stamp_before, self._stamp_behind = self._stamps[:2], self._stamps[2:]
        self._events = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            for _ in range(MAX_BATCH)
        ]
        self._spin_ended = torch.cuda.Event()
        self._enqueue_us: dict[int, float] = {}
        self._never_hides: set[int] = set()

    def now_s(self) -> float:
        return time.perf_counter()

    def flush(self) -> None:
        """Fill L2 with clean lines: write a buffer of twice its size, then read it back."""
        if self._extension is not None:
            self._extension.flush_l2(self._flush_buffer)
        else:
            self._flush_buffer.zero_()
            self._flush_buffer.view(self._torch.int32).sum()

    def batch(self, launch: Launch, n_samples: int) -> Batch:
        """Time `n_samples` launches one by one; none waits for the host unless `launch` does."""
        n_samples = min(n_samples, MAX_BATCH)
        if self._extension is not None:
            self._extension.reset_persisting_l2()
        spin_us = self._spin_estimate_us(launch, n_samples)
        with no_garbage_collection():
            for attempt in range(_SPIN_ATTEMPTS):
                hide = id(launch) not in self._never_hides
                if hide:
                    self._spin(spin_us)
                self._spin_ended.record()
                enqueue_start = time.perf_counter()
                self._enqueue(launch, n_samples)
                hidden = hide and not self._spin_ended.query()
                enqueue_us = (time.perf_counter() - enqueue_start) * 1e6
                self._torch.cuda.synchronize()
                if hidden:
                    self._enqueue_us[id(launch)] = enqueue_us / n_samples
                if hidden or not hide:
                    break
                spin_us = max(2 * spin_us, _SPIN_MARGIN * enqueue_us)
                if attempt == _SPIN_ATTEMPTS - 2:
                    self._never_hides.add(id(launch))
        samples = tuple(1e3 * a.elapsed_time(b) for a, b in self._events[:n_samples])
        return Batch(samples, hidden, self._sm_mhz())

    def forget(self) -> None:
        """Drop what is known of closures that are about to be freed: their ids get reused."""
        self._enqueue_us.clear()
        self._never_hides.clear()

    def _spin_estimate_us(self, launch: Launch, n_samples: int) -> float:
        known = self._enqueue_us.get(id(launch), _FIRST_ENQUEUE_US)
        return _SPIN_MARGIN * known * n_samples + 100.0

    def _spin(self, duration_us: float) -> None:
        if self._extension is not None:
            self._extension.spin(int(duration_us * 1e3))
        else:
            self._torch.cuda._sleep(int(duration_us * 2000))  # cycles; no SM runs above 2 GHz

    def _enqueue(self, launch: Launch, n_samples: int) -> None:
        stamp = self._extension.stamp if self._extension is not None else None
        if stamp is not None:
            stamp(self._stamp_before)
        for start, stop in self._events[:n_samples]:
            self.flush()
            start.record()
            launch()
            stop.record()
        if stamp is not None:
            stamp(self._stamp_behind)

    def _sm_mhz(self) -> float:
        """Mean SM clock over the last batch, from one-thread stamps before and behind it."""
        cycles_0, ns_0, cycles_1, ns_1 = self._stamps.tolist()
        if ns_1 <= ns_0:
            return 0.0
        mhz = 1e3 * (cycles_1 - cycles_0) / (ns_1 - ns_0)
        # Cycle counters differ between SMs: stamps that landed on two of them say nothing.
        return mhz if 100.0 < mhz < 4000.0 else 0.0

    def graph_us(self, launch: Launch) -> float:
        """Microseconds a launch, back to back in a CUDA graph, warm L2: a best case.

        Raises RuntimeError when the launch cannot be captured or the graph holds no work.
        """
        torch = self._torch
        graph = torch.cuda.CUDAGraph()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with torch.cuda.graph(graph):
                for _ in range(_GRAPH_LAUNCHES):
                    launch()
        if any("graph is empty" in str(warning.message).lower() for warning in caught):
            raise RuntimeError("the captured graph holds no work")
        graph.replay()
        times: list[float] = []
        for _ in range(5):
            start, stop = self._events[0]
            # As in `batch`: without it the interval would hold the host's cost of the replay.
            self._spin(_GRAPH_SPIN_US)
            start.record()
            graph.replay()
            stop.record()
            torch.cuda.synchronize()
            times.append(1e3 * start.elapsed_time(stop) / _GRAPH_LAUNCHES)
        return sorted(times)[len(times) // 2]

    def host_us(self, launch: Launch) -> float:
        """Host microseconds of one call, median of bursts; the empty loop is subtracted."""
        per_burst = []
        with no_garbage_collection():
            for _ in range(9):
                self._torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(_HOST_BURST):
                    launch()
                middle = time.perf_counter()
                for _ in range(_HOST_BURST):
                    pass
                end = time.perf_counter()
                per_burst.append(((middle - start) - (end - middle)) / _HOST_BURST * 1e6)
        self._torch.cuda.synchronize()
        return sorted(per_burst)[len(per_burst) // 2]

    def event_overhead_us(self) -> float:
        """Median of an event pair with nothing between."""
        samples = sorted(self.batch(lambda: None, 50).samples_us)
        return samples[len(samples) // 2]

    def launch_floor_us(self) -> float:
        """Median of an empty kernel through the same path."""
        if self._extension is None:
            buffer = self._torch.empty(1, device="cuda")
            samples = sorted(self.batch(lambda: buffer.fill_(0.0), 50).samples_us)
        else:
            samples = sorted(self.batch(self._extension.empty, 50).samples_us)
        return samples[len(samples) // 2]

    def calibrate(self) -> None:
        """Set `tick_us` to the smallest step seen between different samples of a short launch."""
        samples = sorted(set(self.batch(lambda: None, MAX_BATCH).samples_us))
        steps = [b - a for a, b in itertools.pairwise(samples) if b - a > 1e-4]
        self.tick_us = min(steps) if steps else self.tick_us


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class FakeClock:
    """A clock for tests: each launch is an object whose `next_us()` says how long it took."""

    def __init__(self, tick_us: float = 0.001, overhead_s: float = 1e-5) -> None:
        self.tick_us = tick_us
        self._overhead_s = overhead_s
        self._now_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def batch(self, launch: Any, n_samples: int) -> Batch:
        samples = tuple(launch.next_us() for _ in range(n_samples))
        elapsed = [sample for sample in samples if sample == sample and sample > 0]
        self._now_s += sum(elapsed) * 1e-6 + n_samples * self._overhead_s
        return Batch(samples, getattr(launch, "hidden", True), getattr(launch, "sm_mhz", 0.0))
