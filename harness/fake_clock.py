"""A clock for tests of the measuring logic: no device, no waiting."""

from __future__ import annotations

from typing import Any

from .clock import Batch


class FakeClock:
    """Each launch is an object whose `next_us()` says how long it took; it may say more:
    `hidden`, and `sm_mhz`. Time passes by what the launches took."""

    def __init__(
        self, tick_us: float = 0.001, overhead_s: float = 1e-5, max_sm_mhz: float = 0.0
    ) -> None:
        self.tick_us = tick_us
        self.max_sm_mhz = max_sm_mhz
        self._overhead_s = overhead_s
        self._now_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def batch(self, launch: Any, n_samples: int) -> Batch:
        samples = tuple(launch.next_us() for _ in range(n_samples))
        elapsed = [sample for sample in samples if sample == sample and 0 < sample < 1e12]
        self._now_s += sum(elapsed) * 1e-6 + n_samples * self._overhead_s
        return Batch(
            samples,
            getattr(launch, "hidden", True),
            getattr(launch, "sm_mhz", None),
            self._now_s,
        )
