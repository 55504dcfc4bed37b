"""This card's ceilings as numbers: what an op could take at best, and how far they drifted.

measure_roofs.py measures them, in the run that they judge.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CURVES = ("copy", "read", "write")
DRIFT_PCT, DRIFT_FROM_US = 2.0, 10.0


@dataclass(frozen=True)
class Roofs:
    """`curves`: kind -> ((total bytes, microseconds), ...) ascending; `matrix_tflops`: dtype ->
    rate; the rest in microseconds. `add_check` is the measured time over the predicted time of
    a two-read, one-write kernel: how well the composition rule holds on this card. `shapes`: the
    launch shape that was best at each point of a curve."""

    curves: Mapping[str, Sequence[tuple[float, float]]]
    matrix_tflops: Mapping[str, float]
    launch_floor_us: float
    event_overhead_us: float
    tick_us: float
    flush_bytes: int
    method: str
    add_check: float = math.nan
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    queue_overhead_us: float | None = None

    def as_meta(self) -> dict[str, Any]:
        return {
            "curves_us": {kind: [list(point) for point in c] for kind, c in self.curves.items()},
            "matrix_tflops": dict(self.matrix_tflops),
            "launch_floor_us": self.launch_floor_us,
            "event_overhead_us": self.event_overhead_us,
            "queue_overhead_us": self.queue_overhead_us,
            "tick_us": self.tick_us,
            "flush_bytes": self.flush_bytes,
            "method": self.method,
            "add_measured_over_predicted": self.add_check,
            "shapes": {kind: list(shapes) for kind, shapes in self.shapes.items()},
        }

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any]) -> Roofs:
        return cls(
            curves={k: [(p[0], p[1]) for p in c] for k, c in meta["curves_us"].items()},
            matrix_tflops=meta["matrix_tflops"],
            launch_floor_us=meta["launch_floor_us"],
            event_overhead_us=meta["event_overhead_us"],
            tick_us=meta["tick_us"],
            flush_bytes=meta["flush_bytes"],
            method=meta["method"],
            add_check=meta["add_measured_over_predicted"],
            shapes=meta.get("shapes", {}),
            queue_overhead_us=meta.get("queue_overhead_us"),
        )


def memory_time_us(roofs: Roofs, bytes_read: float, bytes_written: float) -> float:
    """Roof time: 2 min(R, W) bytes at the copy rate, the rest at the read or write rate.

    Every rate is taken at the op's total bytes, so ramp and latency count as they do for it.
    """
    total = bytes_read + bytes_written
    if total <= 0:
        return math.nan
    copied = 2 * min(bytes_read, bytes_written)
    rest_kind = "read" if bytes_read > bytes_written else "write"
    return copied * _us_per_byte(roofs.curves["copy"], total) + (total - copied) * _us_per_byte(
        roofs.curves[rest_kind], total
    )


def _us_per_byte(curve: Sequence[tuple[float, float]], total: float) -> float:
    """Interpolated in log(bytes), log(time); beyond the ends, the end's rate or latency."""
    if total <= curve[0][0]:
        # Below the smallest size the time is latency and does not shrink with the bytes.
        return curve[0][1] / total
    if total >= curve[-1][0]:
        return curve[-1][1] / curve[-1][0]
    for (bytes_0, us_0), (bytes_1, us_1) in itertools.pairwise(curve):
        if total <= bytes_1:
            share = math.log(total / bytes_0) / math.log(bytes_1 / bytes_0)
            return math.exp(math.log(us_0) + share * math.log(us_1 / us_0)) / total
    raise AssertionError("unreachable: the curve is ascending")


def roof_of(
    roofs: Roofs, dtype: str, bytes_read: int, bytes_written: int, flops: int, matrix: bool
) -> tuple[str, float]:
    """(roof_name, roof_us): the slower of memory and, for a matrix op, the library's rate."""
    memory_us = memory_time_us(roofs, bytes_read, bytes_written)
    if matrix and dtype in roofs.matrix_tflops:
        matrix_us = flops / (roofs.matrix_tflops[dtype] * 1e6)
        if not memory_us >= matrix_us:
            return f"matrix_{dtype}", matrix_us
    kind = "copy" if bytes_read == bytes_written else "copy+read"
    return ("copy+write" if bytes_written > bytes_read else kind), memory_us


def drift(start: Roofs, end: Roofs) -> dict[str, Any]:
    """How far each roof's rate moved over a run, in percent: the worst, and all beyond
    DRIFT_PCT. Positive is faster at the end.

    Points below DRIFT_FROM_US are left out: they are latency, of whose spread the noise floor
    speaks.
    """
    moved: dict[str, float] = {}
    for kind in CURVES:
        for (total, start_us), (_, end_us) in zip(
            start.curves[kind], end.curves[kind], strict=True
        ):
            if start_us >= DRIFT_FROM_US:
                moved[f"{kind} {_size(total)}"] = 100 * (start_us / end_us - 1)
    for dtype, rate in start.matrix_tflops.items():
        moved[f"matrix {dtype}"] = 100 * (end.matrix_tflops[dtype] / rate - 1)
    worst = max(moved, key=lambda name: abs(moved[name]), default="")
    return {
        "worst_pct": moved.get(worst, 0.0),
        "at": worst,
        "above_2_pct": [
            f"{name} {percent:+.1f} %"
            for name, percent in moved.items()
            if abs(percent) > DRIFT_PCT
        ],
    }


def _size(n_bytes: float) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if n_bytes >= scale:
            return f"{n_bytes / scale:g} {unit}"
    return f"{n_bytes / 1024:g} KiB"
