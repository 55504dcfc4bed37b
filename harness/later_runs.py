"""What a case's contenders do after their first run: timed rounds or repeats, and more checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import measure as measuring
from .backends import watch_compilations
from .check import Problem
from .explain import launched
from .other_times import graph_us, host_us
from .protocol import Contender, Request, one_line
from .roster import Roster, context_is_lost
from .stream_order import LATE, is_unjoined
from .time_columns import time_columns

if TYPE_CHECKING:
    from .worker import Worker

# More than the ten times that a kernel may be right out of luck or by design.
_REPEATS = 12
_NEXT_SEED, _NUDGE = 1000, 2000


class LaterRuns:
    """The part of a case that begins when every contender has run once, alone."""

    def __init__(self, worker: Worker, request: Request, problem: Problem, roster: Roster) -> None:
        self._worker, self._request = worker, request
        self._problem, self._roster = problem, roster
        self._clock = worker.clock
        self._turn: Contender | None = None
        self._seed = request.seed

    def measure(self) -> None:
        """Time all that live, then check them again on inputs that they have not seen."""
        settings = measuring.SETTINGS[self._request.settings]
        with watch_compilations() as compiled:
            measured = self._rounds(settings)
        for contender, measurement in measured.items():
            columns = time_columns(measurement, settings, self._clock, self._request.flush)
            self._roster.rows[contender] |= columns
            if compiled.count:
                self._roster.warn(contender, "compiled_while_timed")
        self._worker.say("stage", contender="", stage="inputs")
        if self._problem.restore_inputs():
            # Whose doing it was shows in the second check, where each runs alone.
            for contender in self._roster.live:
                self._roster.warn(contender, "inputs_changed_while_timed")
        if settings.second_seed and self._roster.live:
            self._problem.nudge(self._request.seed + _NUDGE)
        for contender in list(self._roster.live) if settings.second_seed else []:
            with self._roster.blame(contender, "second check"):
                self._second_check(contender)
        if not settings.other_times:
            return
        for contender in list(self._roster.live):
            with self._roster.blame(contender, "graph and host time"):
                self._graph_and_host(contender)

    def name_kernels(self) -> None:
        """Say which kernels were timed; rows have been said: failing here costs none of them."""
        for contender, bound in self._roster.live.items():
            if self._roster.rows[contender].get("graph_us_p50") is None:
                continue  # another capture would fail as that one did
            self._worker.say("stage", contender=contender.label, stage="kernels")
            try:
                launches = launched.launches_of(bound.call)
                if contender.backend in ("cuda", "triton"):
                    launches = launched.without_fills(launches)
                told: dict[str, Any] = {"columns": launched.columns(launches)}
                told["launches"] = launched.as_events(launches)
            except Exception as error:
                if context_is_lost():
                    raise
                told = {"launch_problem": f"{contender.label}: {one_line(error)}"}
            self._worker.say("kernels", contender=contender.label, **told)

    def repeat(self) -> None:
        """Without timing nothing runs often; what is right once may be wrong when run again."""
        import torch

        self._new_inputs()
        for contender in list(self._roster.live):
            with self._roster.blame(contender, "repeat"):
                for _ in range(_REPEATS):
                    self._roster.live[contender].call()
                torch.cuda.synchronize()  # a fault belongs to its author
        self._problem.restore_inputs()  # whose doing it was shows below, where each runs alone
        self._problem.nudge(self._request.seed + _NUDGE)
        for contender in list(self._roster.live):
            with self._roster.blame(contender, "repeat"):
                self._second_check(contender, "right at first, wrong when run again")

    def _rounds(self, settings: measuring.Settings) -> dict[Contender, measuring.Measurement]:
        """Interleaved rounds of all that live; whoever raises in its turn is out, and the others
        start again: the rounds that it took part in are not theirs alone."""
        while self._roster.live:
            try:
                return measuring.measure(
                    {contender: bound.call for contender, bound in self._roster.live.items()},
                    self._clock,
                    settings,
                    self._request.seed,
                    self._new_inputs if settings.second_seed else lambda: None,
                    self._take_turn,
                )
            except Exception as error:
                culprit = self._turn
                if culprit is None:
                    raise
                self._roster.fail(culprit, error)
        return {}

    def _take_turn(self, contender: Contender) -> None:
        self._turn = contender
        self._worker.say("stage", contender=contender.label, stage="measure")

    def _new_inputs(self) -> None:
        """Same pointers, other values: what was cached by pointer or by content shows."""
        self._turn = None  # what goes wrong here is nobody's fault
        self._worker.say("stage", contender="", stage="new inputs")
        self._seed += _NEXT_SEED  # when rounds start again, these were rewritten before
        self._problem.reseed(self._seed)
        self._problem.poison()

    def _second_check(
        self, contender: Contender, what: str = "right before timing, wrong after it"
    ) -> None:
        import torch

        bound = self._roster.live[contender]
        self._problem.poison()
        bound.call()
        torch.cuda.synchronize()
        verdict = self._problem.judge(bound.produced(), bound.unfused)
        if not verdict.ok:
            self._roster.disown(contender, f"{what}: {verdict.reason}")

    def _graph_and_host(self, contender: Contender) -> None:
        """Two further times, in columns of their own; neither may cost the row."""
        import torch

        bound, row = self._roster.live[contender], self._roster.rows[contender]
        try:
            row["host_us_p50"] = host_us(bound.call)
            self._problem.poison()
            best_case_us = graph_us(self._clock, bound.call)
            torch.cuda.synchronize()
            verdict = self._problem.judge(bound.produced(), bound.unfused)
            if verdict.ok:
                row["graph_us_p50"] = best_case_us
            else:
                self._roster.warn(contender, "graph_replay_wrong")
        except Exception as error:
            if context_is_lost():
                raise
            if is_unjoined(error):
                self._roster.disown(contender, LATE)
            else:
                self._roster.warn(contender, "not_capturable")
