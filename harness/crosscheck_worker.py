"""The process that times the same closures with our clock and with another timer.

A process of its own: nvbench runs once a process, and two processes never share the GPU. Each
closure is checked against float64, timed by us, by the other, and by us again, so that a clock
that drifts shows.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from .availability import extension_problem, unavailable
from .backends import Bound, bind
from .check import Problem
from .clock import Batch, Launch
from .crosscheck_problem import problem_for
from .crosscheck_rows import EMPTY, Row
from .machine import writable_triton_cache
from .other_timers import Figure, TimerError, other_timer
from .protocol import one_line, open_answers
from .registry import Registry
from .spec import Case
from .worker import Worker

_BATCHES = 4
_SAMPLES = 50
_WARM_S = 0.15


class _NotTimedError(Exception):
    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class Session:
    """One request: {"timer", "seed", "kernels", "subjects"}, subjects as crosscheck.py makes
    them."""

    def __init__(self, worker: Worker, request: Mapping[str, Any]) -> None:
        self._worker, self._clock = worker, worker.clock
        # nvbench can only write; the same state before ours.
        self._clock.flush_mode = "write"
        self._seed = int(request["seed"])
        self._registry = Registry(tuple(Path(k) for k in request["kernels"]))
        self._subjects: list[dict[str, Any]] = request["subjects"]
        self._timer_name: str = request["timer"]
        self._rows = [_row(self._registry, subject) for subject in self._subjects]
        self._problem: tuple[tuple[Any, ...], Problem] | None = None

    def run(self) -> None:
        """Say "timed" after each closure and "figures" at the end, or "fault" with the reason."""
        try:
            if reason := extension_problem():
                raise TimerError(reason)
            timer = other_timer(self._timer_name, self._clock)
            overheads = [self._clock.queue_overhead_us()]
            figures = timer.time_all(len(self._subjects), self._visit)
            overheads.append(self._clock.queue_overhead_us())
        except TimerError as error:
            self._worker.say("fault", contender="", reason=str(error))
            return
        for index, row in enumerate(self._rows):
            self._rows[index] = _with_figure(row, figures.get(index))
        self._worker.say(
            "figures",
            version=timer.version,
            queue_overhead_us=statistics.fmean(overheads),
            rows=[asdict(row) for row in self._rows],
        )

    def _visit(self, index: int, theirs: Callable[[Launch], None]) -> None:
        row = self._rows[index]
        # The contender names whose turn it is, should the process die in it.
        self._worker.say("stage", contender=row.label, stage="crosscheck")
        try:
            launch = self._launch(self._subjects[index])
            before = self._ours(launch)
            theirs(launch)
            row = _with_ours(row, before, self._ours(launch), self._clock.max_sm_mhz)
        except _NotTimedError as error:
            row = replace(row, status=error.status, reason=error.reason)
        except TimerError:
            raise
        except Exception as error:
            row = replace(row, status="error", reason=one_line(error))
        finally:
            self._clock.forget()
        self._rows[index] = row
        self._worker.say("timed", label=row.label, status=row.status, ours_us=row.ours_us)

    def _ours(self, launch: Launch) -> list[Batch]:
        start_s = self._clock.now_s()
        while self._clock.now_s() - start_s < _WARM_S:
            self._clock.batch(launch, 10)
        return [self._clock.batch(launch, _SAMPLES) for _ in range(_BATCHES)]

    def _launch(self, subject: Mapping[str, Any]) -> Launch:
        """The subject's closure after a first run whose answer was right."""
        import torch

        if subject["op"] == EMPTY:
            from . import _cuda

            launch: Launch = _cuda.empty
            launch()
            return launch
        if reason := unavailable(subject["backend"]):
            raise _NotTimedError("unsupported", reason)
        try:
            return self._checked(self._problem_of(subject), subject["backend"])
        except torch.cuda.OutOfMemoryError as error:
            self._problem = None
            raise _NotTimedError("oom", one_line(error)) from None

    def _checked(self, problem: Problem, backend: str) -> Launch:
        import torch

        problem.poison()
        bound: Bound = bind(self._registry, problem, backend, "", None, self._worker.gpu_slug)
        bound.call()
        torch.cuda.synchronize()
        verdict = problem.judge(bound.produced(), bound.unfused)
        if not verdict.ok:
            raise _NotTimedError("mismatch", verdict.reason)
        return bound.call

    def _problem_of(self, subject: Mapping[str, Any]) -> Problem:
        """Both sides of a case share inputs and output, so placement favours nobody."""
        key = tuple(json.dumps(subject[k]) for k in ("op", "dims", "layout", "dtype"))
        if self._problem is None or self._problem[0] != key:
            self._problem = None  # its memory first
            spec, case = self._registry.spec(subject["op"]), _case(subject)
            self._problem = key, problem_for(spec, case, subject["dtype"], self._seed)
        return self._problem[1]


def _case(subject: Mapping[str, Any]) -> Case:
    return Case(subject["dims"], subject["layout"])


def _row(registry: Registry, subject: Mapping[str, Any]) -> Row:
    if subject["op"] == EMPTY:
        return Row(EMPTY, "", "", subject["backend"])
    compute_bound = registry.spec(subject["op"]).compute_bound
    name = _case(subject).name
    return Row(
        subject["op"], name, subject["dtype"], subject["backend"], compute_bound=compute_bound
    )


def _with_ours(row: Row, before: list[Batch], after: list[Batch], max_sm_mhz: float) -> Row:
    def median_us(batches: list[Batch]) -> float:
        return statistics.median(sample for batch in batches for sample in batch.samples_us)

    batches = before + after
    clocks = [batch.sm_mhz for batch in batches if batch.sm_mhz is not None]
    return replace(
        row,
        ours_us=median_us(batches),
        ours_before_us=median_us(before),
        ours_after_us=median_us(after),
        n_ours=sum(len(batch.samples_us) for batch in batches),
        hidden=all(batch.hidden for batch in batches),
        max_sm_mhz=max_sm_mhz,
        ours_sm_mhz=statistics.median(clocks) if clocks else None,
    )


def _with_figure(row: Row, figure: Figure | None) -> Row:
    if row.status != "ok":
        return row
    if figure is None:
        return replace(row, status="error", reason="the other timer gave no figure")
    for whose, time_us in (("our", row.ours_us), ("the other", figure.median_us)):
        if time_us is None or not (time_us > 0 and math.isfinite(time_us)):
            # Left out of the row: what is written must stay readable JSON.
            reason = f"{whose} timer gave {time_us} us"
            return replace(row, status="invalid", reason=reason, ours_us=None)
    return replace(
        row,
        other_us=figure.median_us,
        other_mean_us=figure.mean_us,
        n_other=figure.n_samples,
        other_sm_mhz=figure.sm_mhz,
    )


def main() -> int:
    """Serve requests from standard input until it closes."""
    answers = open_answers()
    writable_triton_cache()
    worker = Worker(answers, device=int(os.environ.get("CVT_DEVICE", "0")))
    for line in sys.stdin:
        Session(worker, json.loads(line)).run()
        worker.say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
