"""Timers that are not ours, to check ours against: what they have in common.

Both get the closures that `bench` times. nvbench (pip's cuda-bench) times each launch with an
event pair of its own; Proton reads each kernel's duration from CUPTI.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from .clock import CudaEventClock, Launch

TIMERS = ("nvbench", "proton")
_PACKAGES = {
    "nvbench": ("cuda.bench", "cuda-bench is not installed: pip install 'cuda-bench[cu13]'"),
    "proton": (
        "triton.profiler",
        "triton.profiler is not installed: pip install triton, whose Linux wheels carry it",
    ),
}


class TimerError(Exception):
    """The other timer cannot be used here; one line that says what to do."""


@dataclass(frozen=True)
class Figure:
    """What the other timer says of one closure, in microseconds; `sm_mhz` None when unknown."""

    median_us: float
    mean_us: float
    n_samples: int
    sm_mhz: float | None = None


# visit(index, theirs): binds closure number `index`, times it with our clock, hands it to
# `theirs`, times it again. A closure that cannot be timed is never handed over.
Visit = Callable[[int, Callable[[Launch], None]], None]


class OtherTimer(Protocol):
    """`version` names package and release. `time_all` visits the closures 0..n-1 and returns the
    figures of those that were handed over; it raises TimerError when the timer fails."""

    version: str

    def time_all(self, n_closures: int, visit: Visit) -> Mapping[int, Figure]: ...


def missing_package(timer: str) -> str:
    """Why `timer` cannot be imported; empty when it can. Needs no GPU."""
    package, advice = _PACKAGES[timer]
    try:
        found = importlib.util.find_spec(package) is not None
    except ImportError:
        found = False
    return "" if found else advice


def other_timer(name: str, clock: CudaEventClock) -> OtherTimer:
    """The timer called `name`, loaded and tried. Raises TimerError when it does not work here."""
    if reason := missing_package(name):
        raise TimerError(reason)
    if name == "nvbench":
        from .nvbench_timer import NvbenchTimer

        return NvbenchTimer()
    from .proton_timer import ProtonTimer

    return ProtonTimer(clock)
