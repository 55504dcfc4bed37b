"""This card's ceilings, measured in the run that they judge.

Memory: the best rate of copy, read-only and write-only kernels as curves over size, under the
same flush and event pairs as every row. Matrix: the library's rate per dtype. The arithmetic
on them needs no torch; only `measure_roofs` does.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .clock import CudaEventClock

_SMALLEST_LOG2, _LARGEST_LOG2, _STEP_LOG2 = 14, 32, 2
_PROBE_SAMPLES, _FINAL_SAMPLES = 3, 15
_MATRIX_EXTENT = 8192


@dataclass(frozen=True)
class Roofs:
    """`curves`: kind -> ((total bytes, microseconds), ...) ascending; `matrix_tflops`: dtype ->
    rate; the rest in microseconds. `add_check` is the measured time over the predicted time of
    a two-read, one-write kernel: how well the composition rule holds on this card."""

    curves: Mapping[str, Sequence[tuple[float, float]]]
    matrix_tflops: Mapping[str, float]
    launch_floor_us: float
    event_overhead_us: float
    tick_us: float
    flush_bytes: int
    method: str
    add_check: float = math.nan

    def as_meta(self) -> dict[str, Any]:
        return {
            "curves_us": {kind: [list(point) for point in c] for kind, c in self.curves.items()},
            "matrix_tflops": dict(self.matrix_tflops),
            "launch_floor_us": self.launch_floor_us,
            "event_overhead_us": self.event_overhead_us,
            "tick_us": self.tick_us,
            "flush_bytes": self.flush_bytes,
            "method": self.method,
            "add_measured_over_predicted": self.add_check,
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


def measure_roofs(
    clock: CudaEventClock, dtypes: Sequence[str], progress: Callable[[str], None]
) -> Roofs:
    """Measure all roofs on the current device; takes some seconds."""
    clock.calibrate()
    event_overhead_us, launch_floor_us = clock.event_overhead_us(), clock.launch_floor_us()
    kernels, method = _roof_kernels(clock)
    curves: dict[str, list[tuple[float, float]]] = {}
    for kind in ("copy", "read", "write"):
        progress(f"roof {kind}")
        curves[kind] = [(float(total), _best_us(clock, kernels, kind, total)) for total in _sizes()]
    progress("roof matrix")
    matrix = {dtype: _matrix_tflops(clock, dtype) for dtype in dtypes}
    roofs = Roofs(
        curves, matrix, launch_floor_us, event_overhead_us, clock.tick_us, clock.flush_bytes, method
    )
    check_bytes = 3 << 28
    predicted_us = memory_time_us(roofs, 2 * check_bytes / 3, check_bytes / 3)
    measured_us = _best_us(clock, kernels, "add", check_bytes)
    meta = roofs.as_meta() | {"add_measured_over_predicted": measured_us / predicted_us}
    return Roofs.from_meta(meta)


def _sizes() -> list[int]:
    """Total bytes of the curve's points; the largest stays within a quarter of free memory."""
    import torch

    free_bytes, _ = torch.cuda.mem_get_info()
    largest = min(1 << _LARGEST_LOG2, free_bytes // 4)
    return [
        1 << e for e in range(_SMALLEST_LOG2, _LARGEST_LOG2 + 1, _STEP_LOG2) if 1 << e <= largest
    ]


def _roof_kernels(
    clock: CudaEventClock,
) -> tuple[Callable[[str, int], list[Callable[[], Any]]], str]:
    """kind, total bytes -> one launch per shape, and how the roofs were measured in words."""
    import torch

    from .backends import extension_problem

    def buffer(n_bytes: int) -> torch.Tensor:
        return torch.ones(max(n_bytes // 4, 4), dtype=torch.float32, device="cuda")

    if extension_problem():

        def torch_kernels(kind: str, total: int) -> list[Callable[[], Any]]:
            if kind == "copy":
                source, target = buffer(total // 2), buffer(total // 2)
                return [lambda: target.copy_(source)]
            if kind == "add":
                a, b, out = buffer(total // 3), buffer(total // 3), buffer(total // 3)
                return [lambda: torch.add(a, b, out=out)]
            whole = buffer(total)
            return [whole.sum] if kind == "read" else [lambda: whole.fill_(1.0)]

        return torch_kernels, "torch copy_, sum and fill_ (the CUDA extension is absent)"
    from . import _cuda

    shapes = range(_cuda.roof_shapes())

    def own_kernels(kind: str, total: int) -> list[Callable[[], Any]]:
        if kind == "copy":
            source, target = buffer(total // 2), buffer(total // 2)
            return [functools.partial(_cuda.roof_copy, target, source, s) for s in shapes]
        if kind == "add":
            a, b, out = buffer(total // 3), buffer(total // 3), buffer(total // 3)
            return [functools.partial(_cuda.roof_add, out, a, b, s) for s in shapes]
        whole, sink = buffer(total), buffer(1 << 20)
        if kind == "read":
            return [functools.partial(_cuda.roof_read, whole, sink, s) for s in shapes]
        return [functools.partial(_cuda.roof_write, whole, s) for s in shapes]

    return own_kernels, f"own streaming kernels, best of {len(shapes)} launch shapes at each size"


def _best_us(
    clock: CudaEventClock,
    kernels: Callable[[str, int], list[Callable[[], Any]]],
    kind: str,
    total: int,
) -> float:
    launches = kernels(kind, total)
    for launch in launches:
        launch()
    probed = [
        (_median(clock.batch(launch, _PROBE_SAMPLES).samples_us), launch) for launch in launches
    ]
    probed.sort(key=lambda pair: pair[0])
    # The probe is short: let the two best settle it.
    finals = [_median(clock.batch(launch, _FINAL_SAMPLES).samples_us) for _, launch in probed[:2]]
    clock.forget()
    return min(finals)


def _matrix_tflops(clock: CudaEventClock, dtype: str) -> float:
    """The library's rate on normal data at 8192 cubed, median of single launches."""
    from .spec import random_tensor

    n = _MATRIX_EXTENT
    x = random_tensor((n, n), dtype, "cuda", 0)
    w = random_tensor((n, n), dtype, "cuda", 1)

    def launch() -> None:
        x @ w

    clock.batch(launch, 10)
    time_us = _median(clock.batch(launch, 20).samples_us)
    clock.forget()
    return 2 * n**3 / (time_us * 1e6)


def _median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
