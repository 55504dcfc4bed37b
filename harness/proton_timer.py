"""Proton as a second timer: kernel durations as CUPTI reports them, without any event.

Proton does not flush, so we do, outside the scope that is read; only kernels that the closure
launched are inside a scope.
"""

from __future__ import annotations

import importlib
import json
import math
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .clock import CudaEventClock, Launch
from .other_timers import Figure, TimerError, Visit

_SAMPLES = 200
_SCOPE = "crosscheck."


class ProtonTimer:
    """Kernel durations from CUPTI through Proton, one scope a launch."""

    def __init__(self, clock: CudaEventClock) -> None:
        try:
            self._proton: Any = importlib.import_module("triton.profiler")
        except ImportError as error:
            raise TimerError(f"triton.profiler cannot be imported: {error}") from error
        self._clock = clock
        import torch
        import triton

        self.version = f"triton {triton.__version__} (Proton)"

        buffer = torch.empty(1, device="cuda")
        self._profile(lambda: buffer.fill_(0.0), 3)

    def time_all(self, n_closures: int, visit: Visit) -> dict[int, Figure]:
        """Raises TimerError when CUPTI gives no times."""
        figures: dict[int, Figure] = {}

        def one(index: int) -> Callable[[Launch], None]:
            def theirs(launch: Launch) -> None:
                samples_us = self._profile(launch, _SAMPLES)
                mean_us = statistics.fmean(samples_us)
                figures[index] = Figure(statistics.median(samples_us), mean_us, len(samples_us))

            return theirs

        for index in range(n_closures):
            visit(index, one(index))
        return figures

    def _profile(self, launch: Launch, n_samples: int) -> list[float]:
        """Microseconds of each launch's kernels. A session each: while our clock runs, CUPTI is
        not attached."""
        import torch

        with tempfile.TemporaryDirectory() as folder:
            name = Path(folder) / "profile"
            try:
                session = self._proton.start(str(name), context="shadow", data="tree")
                for sample in range(n_samples):
                    self._clock.flush()
                    with self._proton.scope(f"{_SCOPE}{sample:06d}"):
                        launch()
                torch.cuda.synchronize()
                self._proton.finalize(session)
                database = json.loads(name.with_suffix(".hatchet").read_text())
            except (RuntimeError, OSError, ValueError) as error:
                raise TimerError(
                    f"Proton cannot profile here ({' '.join(str(error).split())}); it needs CUPTI, "
                    "the right to use the GPU's performance counters, and no other profiler"
                ) from error
        samples_us = proton_samples_us(database, _SCOPE)
        if len(samples_us) != n_samples:
            raise TimerError(
                f"Proton saw kernels in {len(samples_us)} of {n_samples} launches; is another "
                "profiler attached, or TRITON_PROTON_DISABLE set?"
            )
        return samples_us


def proton_samples_us(database: Sequence[Mapping[str, Any]], prefix: str) -> list[float]:
    """Kernel microseconds under each scope whose name starts with `prefix`, from Hatchet JSON."""

    def kernels_ns(node: Mapping[str, Any]) -> float:
        # Kernels are the leaves; a frame above may repeat their sum.
        children = node.get("children", ())
        if not children:
            return float(node.get("metrics", {}).get("time (ns)", 0.0))
        return sum(kernels_ns(child) for child in children)

    found: list[float] = []

    def walk(node: Mapping[str, Any]) -> None:
        if str(node.get("frame", {}).get("name", "")).startswith(prefix):
            found.append(kernels_ns(node) / 1e3)
            return
        for child in node.get("children", ()):
            walk(child)

    for node in database:
        walk(node)
    return [us for us in found if us > 0 and math.isfinite(us)]
