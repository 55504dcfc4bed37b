"""`crosscheck`: the same closures through another timer, both figures side by side."""

from __future__ import annotations

import csv
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from . import crosscheck_rows as rules
from .console import Progress
from .crosscheck_rows import EMPTY, Judged, Row, Verdict
from .crosscheck_view import render
from .machine import gpu_slug, public_gpu_facts, software_facts, timestamp
from .plan import Unit
from .protocol import Contender
from .registry import Registry
from .spec import Case, OpSpec
from .supervisor import Supervisor, WorkerDiedError

SIDES = ("cuda", "triton")
# Microseconds from a short launch to a long one; what a kernel takes is only guessed here, from
# rates within a factor of two of a large GPU's.
_RUNGS_US = (3.1, 4.0, 6.0, 10.0, 18.0, 35.0, 70.0, 140.0, 300.0, 750.0, 2500.0)
_OPS_A_RUNG = 2
_NEAR = math.log(1.5)
_GUESSED_BYTES_PER_US = 4e6
_GUESSED_FLOPS_PER_US = 4e8
_GUESSED_LAUNCH_US = 3.0


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
            if contender.backend not in unit.spec.absent
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
        return [
            Unit(spec, case, spec.dtypes[0], tuple(Contender(side) for side in sides))
            for spec, case in _ladder(registry)
        ]
    restricted = [
        replace(unit, contenders=tuple(c for c in unit.contenders if c.backend in sides))
        for unit in selected
    ]
    return [unit for unit in restricted if unit.contenders]


def _ladder(registry: Registry) -> list[tuple[OpSpec, Case]]:
    """For every rung of a ladder of times the nearest case of the ops that were used least."""
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
    return chosen


def _guessed_us(spec: OpSpec, case: Case) -> float:
    dtype = spec.dtypes[0]
    n_bytes = spec.bytes_read(case, dtype) + spec.bytes_written(case, dtype)
    compute_us = spec.flops(case) / _GUESSED_FLOPS_PER_US if spec.compute_bound else 0.0
    return _GUESSED_LAUNCH_US + max(n_bytes / _GUESSED_BYTES_PER_US, compute_us)


def crosscheck(
    request: Request,
    supervisor: CrosscheckSupervisor,
    out: Path | None,
    progress: Progress,
    console: Console,
) -> int:
    """Run, print and write; exit code 0 when all is within bounds, 1 otherwise.

    Raises WorkerDiedError when the worker or the other timer fails, ResultsError when the folder
    cannot be written.
    """
    started_utc = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with supervisor:
        gpu = supervisor.start()
        folder = out or Path("results") / gpu_slug(gpu["name"]) / "crosscheck" / timestamp()
        _make(folder)
        figures = _collect(supervisor.ask(request), len(request.as_json()["subjects"]), progress)
    rows = [Row.from_json(row) for row in figures["rows"]]
    overhead_us = rules.overhead_for(request.timer, rows, figures["queue_overhead_us"])
    verdict = rules.judge(rows, overhead_us)
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
    render(verdict, request.timer, console)
    console.print(f"written to {folder}", markup=False)
    return 0 if verdict.passed else 1


def _make(folder: Path) -> None:
    from .results import ResultsError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(f"{folder} cannot be written: {error.strerror}") from error


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


_DERIVED: Mapping[str, Callable[[Judged], Any]] = {
    "net_us": lambda judged: judged.net_us,
    "difference_us": lambda judged: judged.difference_us,
    "difference_pct": lambda judged: judged.difference_pct,
    "bound_us": lambda judged: judged.bound_us,
    "within": lambda judged: judged.within,
    "other_clock": lambda judged: judged.other_clock,
}


def write(folder: Path, verdict: Verdict, facts: Mapping[str, Any]) -> None:
    """`crosscheck.csv`, one row a kernel, raw microseconds; `crosscheck.json`, the rest."""
    with (folder / "crosscheck.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, judged in enumerate(verdict.rows):
            cells = asdict(judged.row) | {"overhead_us": verdict.overhead_us}
            cells |= {name: value(judged) for name, value in _DERIVED.items()}
            if number == 0:
                writer.writerow(cells)
            writer.writerow("" if value is None else value for value in cells.values())
    summary = {
        "overhead_us": verdict.overhead_us,
        "offset_us": verdict.offset_us,
        "offset_within": verdict.offset_within,
        "n_rows": len(verdict.rows),
        "n_within": verdict.n_within,
        "n_other_clock": verdict.n_other_clock,
        "passed": verdict.passed,
        "bounds": {
            "short_us": rules.SHORT_US,
            "short_bound_us": rules.SHORT_BOUND_US,
            "relative_bound": rules.RELATIVE_BOUND,
            "offset_bound_us": rules.OFFSET_BOUND_US,
        },
    }
    text = json.dumps({**facts, **summary}, indent=1)
    (folder / "crosscheck.json").write_text(text + "\n")
