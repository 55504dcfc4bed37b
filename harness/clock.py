"""Timing one batch of launches: the protocol, and CUDA events behind a timed spin.

The device never waits for the host inside an interval: a spin kernel holds the stream until the
host is ahead, and a batch counts only if every stop event was queued before the device had
reached its start event. From then on the flushes keep the device busier than the host, which
waits so that few samples are queued at a time; a launcher too slow for that gets a spin for every
few samples.
"""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from .schema import FLUSHES
from .torch_timer import TorchBatchTimer

Launch = Callable[[], Any]

MAX_BATCH = 200
_SPIN_MARGIN = 1.5
_SPIN_LEAST_US = 20.0
# The first, three with the spin doubled, and one that hides nothing.
_SPIN_ATTEMPTS = 5
_PER_SPIN = 3
_FLUSH_SPIN_US = 300.0
_FLOOR_SAMPLES = 50


@dataclass(frozen=True)
class Batch:
    """`hidden`: every launch was queued before the device reached it. `sm_mhz`: mean SM clock
    around the batch, None when unknown. `utc_s`: when it ended, seconds since the epoch."""

    samples_us: tuple[float, ...]
    hidden: bool
    sm_mhz: float | None = None
    utc_s: float | None = None


@dataclass(frozen=True)
class _Pace:
    """Microseconds that the host needs to queue the first sample and each further one, and the
    device to run one, its flush included."""

    first_us: float
    each_us: float
    device_us: float


_UNKNOWN_PACE = _Pace(first_us=150.0, each_us=100.0, device_us=0.0)


class Clock(Protocol):
    """What measuring needs of time. `tick_us` is the timer's resolution; `max_sm_mhz` the card's
    highest SM clock, 0 when unknown."""

    tick_us: float
    max_sm_mhz: float

    def batch(self, launch: Launch, n_samples: int) -> Batch: ...

    def now_s(self) -> float: ...


class CudaEventClock:
    """Device time of single launches on the current stream.

    `flush_mode` says what precedes each: "clean" writes twice the L2 and reads it back, "write"
    writes the L2's size once and leaves dirty lines, as most timers do, "none" leaves L2 warm.
    """

    # Events on NVIDIA GPUs resolve to a 1 MHz to 31.25 MHz timer; measured in `calibrate`.
    tick_us = 0.032

    def __init__(self, flush_mode: str = "clean") -> None:
        import torch

        from .availability import extension_problem

        if flush_mode not in FLUSHES:
            raise ValueError(f"flush {flush_mode!r}: wanted one of {', '.join(FLUSHES)}")
        self._torch: Any = torch
        self._extension: Any = None
        if not extension_problem():
            from . import _cuda

            self._extension = _cuda
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        # Twice the L2: what the read-back leaves is then clean whatever the replacement policy.
        self.flush_bytes = 2 * int(properties.L2_cache_size)
        self.flush_mode = flush_mode
        self.max_sm_mhz = getattr(properties, "clock_rate", 0) / 1e3
        buffer = torch.empty(self.flush_bytes, dtype=torch.uint8, device="cuda")
        self._timer: Any = TorchBatchTimer(buffer)
        self._empty: Launch = buffer[:1].zero_
        if self._extension is not None:
            n_sms = int(properties.multi_processor_count)
            stamps = torch.zeros((2, n_sms, 2), dtype=torch.int64, device="cuda")
            self._timer = self._extension.BatchTimer(buffer, stamps)
            self._empty = self._extension.empty
        self._flush_times_us: dict[str, float] = {}
        self._paces: dict[int, _Pace] = {}
        self._never_hides: set[int] = set()

    def now_s(self) -> float:
        return time.perf_counter()

    def flush(self) -> None:
        """What precedes each sample, once: for timers that bring no flush of their own."""
        self._timer.flush(self.flush_mode)

    def batch(self, launch: Launch, n_samples: int) -> Batch:
        """Time `n_samples` launches one by one; none waits for the host unless `launch` does."""
        n_samples = min(n_samples, MAX_BATCH)
        if self._extension is not None:
            self._extension.reset_persisting_l2()
        pace = self._paces.get(id(launch), _UNKNOWN_PACE)
        per_spin = 0 if _SPIN_MARGIN * pace.each_us < pace.device_us else _PER_SPIN
        spin_us = _SPIN_MARGIN * (pace.first_us + max(per_spin - 1, 0) * pace.each_us)
        spin_us += _SPIN_LEAST_US
        with no_garbage_collection():
            for attempt in range(_SPIN_ATTEMPTS):
                hide = id(launch) not in self._never_hides
                ahead, first_us, each_us = self._timer.enqueue(
                    launch, n_samples, self.flush_mode, int(1e3 * spin_us) * hide, per_spin
                )
                self._torch.cuda.synchronize()
                hidden = ahead and hide
                if hidden or not hide:
                    break
                per_spin = _PER_SPIN
                spin_us = max(2 * spin_us, _SPIN_MARGIN * (first_us + _PER_SPIN * each_us))
                if attempt == _SPIN_ATTEMPTS - 2:
                    self._never_hides.add(id(launch))
        samples = tuple(self._timer.samples_us())
        if hidden:
            device_us = statistics.median(samples) + self._flush_us()
            self._paces[id(launch)] = _Pace(first_us, each_us or first_us, device_us)
        return Batch(samples, hidden, self._timer.sm_mhz(), time.time())

    def forget(self) -> None:
        """Drop what is known of closures that are about to be freed: their ids get reused."""
        self._paces.clear()
        self._never_hides.clear()

    def spin(self, duration_us: float) -> None:
        """Keep the current stream busy; queues work, waits for nothing."""
        spin = self._timer.spin if self._extension is None else self._extension.spin
        spin(int(1e3 * duration_us))

    def _flush_us(self) -> float:
        """What a flush takes; measured once a mode, coarsely: it only decides how to pace."""
        if self.flush_mode not in self._flush_times_us:
            start, stop = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.spin(_FLUSH_SPIN_US)
            start.record()
            self.flush()
            stop.record()
            self._torch.cuda.synchronize()
            self._flush_times_us[self.flush_mode] = 1e3 * start.elapsed_time(stop)
        return self._flush_times_us[self.flush_mode]

    def event_overhead_us(self) -> float:
        """Median of an event pair with nothing between."""
        return statistics.median(self.batch(lambda: None, _FLOOR_SAMPLES).samples_us)

    def launch_floor_us(self) -> float:
        """Median of an empty kernel through the same path."""
        return statistics.median(self.batch(self._empty, _FLOOR_SAMPLES).samples_us)

    def queue_overhead_us(self) -> float:
        """How much longer an interval in a full queue is than one with nothing queued behind it:
        the empty kernel's. A constant of ours that timers of single launches do not have."""
        alone = [self.batch(self._empty, 1).samples_us[0] for _ in range(_FLOOR_SAMPLES)]
        return self.launch_floor_us() - statistics.median(alone)

    def calibrate(self) -> None:
        """Set `tick_us` to the smallest step seen between different samples of a short launch."""
        step_us = smallest_step_us(self.batch(lambda: None, MAX_BATCH).samples_us)
        self.tick_us = step_us or self.tick_us


def smallest_step_us(samples_us: Iterable[float]) -> float | None:
    """The smallest step between different samples, the timer's tick; None when all are equal.

    Less than a ten-thousandth of a microsecond is rounding: times come as float32 milliseconds.
    """
    steps = [b - a for a, b in itertools.pairwise(sorted(set(samples_us))) if b - a > 1e-4]
    return min(steps, default=None)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
