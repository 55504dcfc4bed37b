"""Measures this card's roofs: curves of streaming kernels, and the library's matrix rate.

Copy, read-only and write-only rates are taken at many sizes, under the same flush and event
pairs as every row; each point is the best of several launch shapes.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .roofs import CURVES, Roofs, memory_time_us

if TYPE_CHECKING:
    import torch

    from .clock import CudaEventClock, Launch

# Total bytes of the points, as powers of two: every second one, and every one around the L2's size,
# where a curve bends.
_POINTS_LOG2 = (14, 16, 18, 20, 22, 24, 25, 26, 27, 28, 29, 30, 32)
_PROBE_SAMPLES, _FINAL_SAMPLES = 3, 15
_STEADY_BATCHES, _STEADY_SHARE, _MOST_BATCHES = 4, 0.01, 24
_MATRIX_EXTENT, _MATRIX_REST_S, _MATRIX_SPAN_S = 8192, 0.5, 0.3


def measure_roofs(
    clock: CudaEventClock, dtypes: Sequence[str], progress: Callable[[str], None]
) -> Roofs:
    """Measure all roofs on the current device; takes some seconds."""
    clock.calibrate()
    event_overhead_us, launch_floor_us = clock.event_overhead_us(), clock.launch_floor_us()
    kernels, method = _roof_kernels(clock)
    curves: dict[str, list[tuple[float, float]]] = {}
    shapes: dict[str, list[int]] = {}
    for kind in CURVES:
        progress(f"roof {kind}")
        best = [(total, *_best(clock, kernels(kind, total))) for total in _sizes()]
        curves[kind] = [(float(total), time_us) for total, time_us, _ in best]
        shapes[kind] = [shape for _, _, shape in best]
    progress("roof matrix")
    matrix = {dtype: _matrix_tflops(clock, dtype) for dtype in dtypes}
    roofs = Roofs(
        curves,
        matrix,
        launch_floor_us,
        event_overhead_us,
        clock.tick_us,
        clock.flush_bytes,
        method,
        shapes=shapes,
        queue_overhead_us=clock.queue_overhead_us(),
    )
    check_bytes = 3 << 28
    predicted_us = memory_time_us(roofs, 2 * check_bytes / 3, check_bytes / 3)
    measured_us, _ = _best(clock, kernels("add", check_bytes))
    return replace(roofs, add_check=measured_us / predicted_us)


def measure_roofs_again(
    clock: CudaEventClock, start: Roofs, progress: Callable[[str], None]
) -> Roofs:
    """The same points once more, each with the launch shape that was best at the start."""
    kernels, _ = _roof_kernels(clock)
    curves: dict[str, list[tuple[float, float]]] = {}
    for kind in CURVES:
        progress(f"roof {kind}")
        curves[kind] = []
        for (total, _), shape in zip(start.curves[kind], start.shapes[kind], strict=True):
            launch = kernels(kind, int(total))[shape]
            launch()
            curves[kind].append((total, _time_us(clock, launch)))
    progress("roof matrix")
    return replace(
        start,
        curves=curves,
        matrix_tflops={dtype: _matrix_tflops(clock, dtype) for dtype in start.matrix_tflops},
        launch_floor_us=clock.launch_floor_us(),
        event_overhead_us=clock.event_overhead_us(),
        queue_overhead_us=clock.queue_overhead_us(),
    )


def _sizes() -> list[int]:
    """Total bytes of the curve's points; the largest stays within a quarter of free memory."""
    import torch

    free_bytes, _ = torch.cuda.mem_get_info()
    return [1 << log2 for log2 in _POINTS_LOG2 if 1 << log2 <= free_bytes // 4]


def _roof_kernels(
    clock: CudaEventClock,
) -> tuple[Callable[[str, int], list[Launch]], str]:
    """kind, total bytes -> one launch per shape, and how the roofs were measured in words."""
    import torch

    from .availability import extension_problem

    def buffer(n_bytes: int) -> torch.Tensor:
        return torch.ones(max(n_bytes // 4, 4), dtype=torch.float32, device="cuda")

    if extension_problem():

        def torch_kernels(kind: str, total: int) -> list[Launch]:
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

    def own_kernels(kind: str, total: int) -> list[Launch]:
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


def _best(clock: CudaEventClock, launches: Sequence[Launch]) -> tuple[float, int]:
    """(microseconds, index) of the fastest launch."""
    for launch in launches:
        launch()
    probed = [
        statistics.median(clock.batch(launch, _PROBE_SAMPLES).samples_us) for launch in launches
    ]
    # The probe is short: let the two best settle it.
    finalists = sorted(range(len(launches)), key=probed.__getitem__)[:2]
    return min((_time_us(clock, launches[index]), index) for index in finalists)


def _time_us(clock: CudaEventClock, launch: Launch) -> float:
    """Median of the batch medians that have stopped drifting: a roof is warmed up like a row."""
    medians: list[float] = []
    while len(medians) < _MOST_BATCHES and not _steady(medians, clock.tick_us):
        medians.append(statistics.median(clock.batch(launch, _FINAL_SAMPLES).samples_us))
    clock.forget()
    return statistics.median(medians[-_STEADY_BATCHES:])


def _steady(medians: Sequence[float], tick_us: float) -> bool:
    last = medians[-_STEADY_BATCHES:]
    spread = max(last, default=0.0) - min(last, default=0.0)
    return len(last) == _STEADY_BATCHES and spread <= max(_STEADY_SHARE * min(last), 2 * tick_us)


def _matrix_tflops(clock: CudaEventClock, dtype: str) -> float:
    """The library's best rate on normal data at 8192 cubed: that of the fastest batch's median.

    After a rest: the power limit pulls a sustained product down by ten percent and more within
    tenths of a second, but rows take turns with cooler kernels, and a roof that they pass is none.
    """
    from .spec import random_tensor

    n = _MATRIX_EXTENT
    x = random_tensor((n, n), dtype, "cuda", 0)
    w = random_tensor((n, n), dtype, "cuda", 1)

    def launch() -> None:
        x @ w

    launch()
    clock.batch(launch, _PROBE_SAMPLES)
    time.sleep(_MATRIX_REST_S)
    medians = []
    start_s = clock.now_s()
    while clock.now_s() - start_s < _MATRIX_SPAN_S:
        medians.append(statistics.median(clock.batch(launch, _FINAL_SAMPLES).samples_us))
    clock.forget()
    return 2 * n**3 / (min(medians) * 1e6)
