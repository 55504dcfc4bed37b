"""nvbench as a second timer: its cold measurement, and how to read what it writes.

What its interval holds (nvbench/detail/measure_cold_launch_timer_core.cuh): memset of one L2 size,
stream synchronised, blocking kernel, a kernel that reads the SM clock, start event, the launch,
stop event, the clock again, then the blocking kernel is let go.
"""

from __future__ import annotations

import importlib
import json
import statistics
import tempfile
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .clock import Launch
from .other_timers import Figure, TimerError, Visit
from .protocol import one_line

_SAMPLES = 300


class NvbenchTimer:
    """nvbench's cold measurement on torch's current stream.

    A process can run nvbench once, so all closures are registered first.
    """

    def __init__(self) -> None:
        try:
            self._bench: Any = importlib.import_module("cuda.bench")
            self._bench.run_all_benchmarks  # noqa: B018  loads the extension for this CUDA
            self.version = f"cuda-bench {self._bench.__version__}"
        except (ImportError, AttributeError, OSError, RuntimeError) as error:
            text = " ".join(str(error).split())
            raise TimerError(
                f"cuda-bench cannot be loaded: {text}; pip install 'cuda-bench[cu13]>=0.3' for "
                "CUDA 13, 'cuda-bench[cu12]>=0.3' for CUDA 12"
            ) from error

    def time_all(self, n_closures: int, visit: Visit) -> dict[int, Figure]:
        """Raises TimerError when nvbench itself fails."""
        import torch

        for index in range(n_closures):
            self._bench.register(_benchmark(index, visit)).set_name(str(index))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "nvbench.json"
            try:
                self._bench.run_all_benchmarks(_arguments(file, torch.cuda.current_device()))
            except Exception as error:
                cause = error.__cause__ or error
                raise TimerError(f"nvbench failed: {one_line(cause)}") from error
            return {int(name): figure for name, figure in nvbench_figures(file).items()}


class _CurrentStream:
    """torch's current stream in the form that nvbench takes."""

    def __cuda_stream__(self) -> tuple[int, int]:
        import torch

        return 0, int(torch.cuda.current_stream().cuda_stream)


def _benchmark(index: int, visit: Visit) -> Callable[[Any], None]:
    def function(state: Any) -> None:
        def theirs(launch: Launch) -> None:
            state.set_stream(_CurrentStream())
            # sync stays off: the blocking kernel hides the launch as our spin does.
            state.exec(lambda _launch: launch(), batched=False)
            handed_over.append(True)

        handed_over: list[bool] = []
        visit(index, theirs)
        if not handed_over:
            state.skip("not timed")

    return function


def _arguments(file: Path, device: int) -> list[str]:
    return [
        "crosscheck",
        "--quiet",
        "--devices",
        str(device),
        "--jsonbin",
        str(file),
        "--stopping-criterion",
        "sample-count",
        "--target-samples",
        str(_SAMPLES),
        # A power-limited matrix kernel runs below 75 % of the default clock; its samples count.
        "--throttle-threshold",
        "0",
    ]


def nvbench_figures(file: Path) -> dict[str, Figure]:
    """Cold GPU times by benchmark name from a file that `--jsonbin` wrote; skipped ones left out.

    Raises TimerError when the file is not what nvbench 0.3 writes.
    """
    try:
        root = json.loads(file.read_text())
        return {
            benchmark["name"]: _figure(state, file.parent)
            for benchmark in root["benchmarks"]
            for state in benchmark["states"] or []
            if not state.get("is_skipped")
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TimerError(
            f"nvbench's result file is not understood ({type(error).__name__}: {error}); "
            "wanted the JSON of cuda-bench 0.3 or newer"
        ) from error


def _figure(state: Mapping[str, Any], folder: Path) -> Figure:
    summaries: dict[str, dict[str, Any]] = {
        summary["tag"]: {entry["name"]: entry["value"] for entry in summary["data"]}
        for summary in state["summaries"]
    }
    samples_file = summaries["nv/json/bin:nv/cold/sample_times"]
    samples_us = _samples_us(folder, samples_file["filename"])
    if len(samples_us) != int(samples_file["size"]):
        raise ValueError(f"{len(samples_us)} samples, wanted {samples_file['size']}")
    clock = summaries.get("nv/cold/sm_clock_rate/mean")
    return Figure(
        median_us=statistics.median(samples_us),
        # Numbers are strings there: JSON has no 64-bit integers.
        mean_us=1e6 * float(summaries["nv/cold/time/gpu/mean"]["value"]),
        n_samples=len(samples_us),
        sm_mhz=1e-6 * float(clock["value"]) if clock else None,
    )


def _samples_us(folder: Path, name: str) -> list[float]:
    """Little-endian float32 seconds; the name is relative to the JSON file, in older releases to
    the folder above it."""
    samples = array("f")
    at = next((f for f in (folder / name, folder.parent / name) if f.is_file()), folder / name)
    samples.frombytes(at.read_bytes())
    return [1e6 * seconds for seconds in samples]
