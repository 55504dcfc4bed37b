"""`crosscheck`: the same closures through another timer, both figures side by side."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from .console import Progress
from .crosscheck_files import claimed, write
from .crosscheck_problem import is_sliceable
from .crosscheck_rows import EMPTY, Row, judge
from .crosscheck_view import render
from .machine import gpu_slug, public_gpu_facts, software_facts, timestamp
from .plan import Unit
from .protocol import Contender
from .registry import Registry
from .sides import SIDES
from .spec import Case, OpSpec
from .supervisor import Supervisor, WorkerDiedError

# Microseconds from a short launch to a long one; what a kernel takes is only guessed here, from
# rates within a factor of two of a large GPU's.
_RUNGS_US = (3.1, 4.0, 6.0, 10.0, 18.0, 35.0, 70.0, 140.0, 300.0, 750.0, 2500.0)
_OPS_A_RUNG = 2
_NEAR = math.log(1.5)
_GUESSED_BYTES_PER_US = 4e6
_GUESSED_FLOPS_PER_US = 4e8
_GUESSED_LAUNCH_US = 3.0
# 5 ms on an H200. No bench case is as long without running into the power limit.
_LONG_BYTES = 22e9


@dataclass(frozen=True)
class Request:
    """What to cross-check: `units` with their contenders, an empty kernel before them."""

    timer: str
    units: Sequence[Unit]
    seed: int
    kernels: Sequence[Path]

    def as_json(self) -> dict[str, Any]:
        empty = {"op": EMPTY, "dims": {}, "layout": "contiguous", "dtype": "", "backend": "cuda"}
        subjects = [
            {
                "op": unit.spec.stem,
                "dims": dict(unit.case.dims),
                "layout": unit.case.layout,
                "dtype": unit.dtype,
                "backend": contender.backend,
            }
            for unit in self.units
            for contender in unit.contenders
        ]
        return {
            "timer": self.timer,
            "seed": self.seed,
            "kernels": [str(path) for path in self.kernels],
            "subjects": [empty, *subjects],
        }


class CrosscheckSupervisor(Supervisor):
    def ask(self, request: Request) -> Iterator[dict[str, Any]]:
        """The worker's events; raises WorkerDiedError, also when the other timer fails."""
        self.start()
        try:
            yield from self._ask(request.as_json())
        except WorkerDiedError as death:
            whose = f"{death.contender}: " if death.contender else ""
            raise WorkerDiedError(death.status, death.contender, whose + death.reason) from None


def chosen_units(
    registry: Registry, selected: Sequence[Unit] | None, backends: Sequence[str]
) -> list[Unit]:
    """What to time: `selected` with our two sides or the named `backends`; None takes kernels
    from the shortest launch to several milliseconds."""
    sides = tuple(backends) or SIDES
    if selected is None:
        everywhere = tuple(Contender(side) for side in sides)
        cases = [*_ladder(registry), *_long_case(registry)]
        selected = [Unit(spec, case, spec.dtypes[0], everywhere) for spec, case in cases]
    restricted = [
        replace(
            unit,
            contenders=tuple(
                c
                for c in unit.contenders
                if c.backend in sides and c.backend not in unit.spec.absent
            ),
        )
        for unit in selected
    ]
    return [unit for unit in restricted if unit.contenders]


def _ladder(registry: Registry) -> list[tuple[OpSpec, Case]]:
    """For every rung of a ladder of times the nearest case of the ops that were used least; and
    the shortest of every op that no rung took."""
    left = [
        (spec, case, math.log(_guessed_us(spec, case)))
        for spec in (registry.spec(stem) for stem in registry.stems)
        for case in spec.bench_cases
        if case.layout == "contiguous"
    ]
    chosen: list[tuple[OpSpec, Case]] = []
    for rung_us in _RUNGS_US:
        ops: list[str] = []
        for _ in range(_OPS_A_RUNG):
            used = Counter(spec.stem for spec, _ in chosen)
            near = [
                (used[spec.stem], abs(log_us - math.log(rung_us)), place)
                for place, (spec, _, log_us) in enumerate(left)
                if spec.stem not in ops and abs(log_us - math.log(rung_us)) < _NEAR
            ]
            if near:
                spec, case, _ = left.pop(min(near)[2])
                ops.append(spec.stem)
                chosen.append((spec, case))
    used_stems = {spec.stem for spec, _ in chosen}
    shortest: dict[str, tuple[OpSpec, Case]] = {}
    for spec, case, _ in sorted(left, key=lambda timed: timed[2]):
        if spec.stem not in used_stems:
            shortest.setdefault(spec.stem, (spec, case))
    return chosen + list(shortest.values())


def _long_case(registry: Registry) -> list[tuple[OpSpec, Case]]:
    """The first sliceable op's largest case with more of the extent that it sweeps."""
    for spec in (registry.spec(stem) for stem in registry.stems):
        if is_sliceable(spec) and not spec.compute_bound and spec.sweep_dim:
            cases = [case for case in spec.bench_cases if case.layout == "contiguous"]
            largest = max(cases, key=lambda case: _bytes(spec, case))
            factor = max(1, round(_LONG_BYTES / _bytes(spec, largest)))
            extent = factor * largest.dims[spec.sweep_dim]
            return [(spec, Case({**largest.dims, spec.sweep_dim: extent}))]
    return []


def _bytes(spec: OpSpec, case: Case) -> int:
    dtype = spec.dtypes[0]
    return spec.bytes_read(case, dtype) + spec.bytes_written(case, dtype)


def _guessed_us(spec: OpSpec, case: Case) -> float:
    compute_us = spec.flops(case) / _GUESSED_FLOPS_PER_US if spec.compute_bound else 0.0
    return _GUESSED_LAUNCH_US + max(_bytes(spec, case) / _GUESSED_BYTES_PER_US, compute_us)


def crosscheck(
    request: Request,
    supervisor: CrosscheckSupervisor,
    out: Path | None,
    progress: Progress,
    console: Console,
) -> int:
    """Run, print and write; exit code 0 when all is within bounds, 1 otherwise.

    Raises WorkerDiedError when the worker or the other timer fails, ResultsError when the folder
    is used or cannot be written, the latter before anything is timed.
    """
    started_utc = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with supervisor, contextlib.ExitStack() as claims:
        if out is not None:
            claims.enter_context(claimed(out))
        gpu = supervisor.start()
        folder = out or Path("results") / gpu_slug(gpu["name"]) / "crosscheck" / timestamp()
        if out is None:
            claims.enter_context(claimed(folder))
        figures = _collect(supervisor.ask(request), len(request.as_json()["subjects"]), progress)
        rows = [Row.from_json(row) for row in figures["rows"]]
        verdict = judge(rows, request.timer, figures["queue_overhead_us"])
        # Shown first: a disk that is full by now costs the files, not the figures.
        render(verdict, request.timer, console)
        facts = {
            "timer": request.timer,
            "timer_version": figures["version"],
            "gpu": public_gpu_facts(gpu),
            "software": software_facts(),
            "flush": "write",
            "seed": request.seed,
            "queue_overhead_us": figures["queue_overhead_us"],
            "started_utc": started_utc,
            "command": sys.argv[1:],
        }
        write(folder, verdict, facts)
    console.print(f"written to {folder}", markup=False)
    return 0 if verdict.passed else 1


def _collect(
    events: Iterator[dict[str, Any]], n_subjects: int, progress: Progress
) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    n_timed = 0
    for event in events:
        if event["event"] == "timed":
            n_timed += 1
            time_us = event["ours_us"]
            what = event["status"] if time_us is None else f"ours {time_us:.2f} us"
            progress.note(f"[{n_timed}/{n_subjects}] {event['label']}: {what}")
        elif event["event"] == "figures":
            figures = event
    return figures
