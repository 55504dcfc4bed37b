"""One case on its way through bind, first check, timing and second check, in the worker."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import measure as measuring
from .backends import Bound, Compilations, bind, matrix_form, timed, unavailable, watch_compilations
from .check import Problem
from .other_times import graph_us, host_us
from .protocol import Contender, Request, one_line
from .registry import Registry
from .rows import is_timing
from .spec import Case, Config
from .stream_order import LATE, is_unjoined, leaves_the_stream
from .time_columns import join_warnings, time_columns

if TYPE_CHECKING:
    from .worker import Worker


_NEXT_SEED = 1000


class CaseRun:
    """One case on its way through bind, check, measure and the second check."""

    def __init__(self, worker: Worker, request: Request, registry: Registry, case: Case) -> None:
        self._worker, self._request, self._registry = worker, request, registry
        self._spec = registry.spec(request.op)
        self._clock = worker.clock
        worker.say("stage", contender="", stage="inputs")
        self._problem = Problem(self._spec, case, request.dtype, "cuda", request.seed)
        self._rows: dict[Contender, dict[str, Any]] = {}
        self._live: dict[Contender, Bound] = {}
        self._turn: Contender | None = None
        self._seed = request.seed

    def execute(self) -> None:
        for contender in self._request.contenders:
            with self._blame(contender, "first run"):
                self._first_run(contender)
        if self._request.timed and self._live:
            self._measure()
        for contender in self._request.contenders:
            row = self._rows[contender]
            self._worker.say_row(contender, **row)

    def release(self) -> None:
        """Give the memory back before the next case, whatever happened in this one."""
        import torch

        self._live.clear()
        del self._problem
        self._clock.forget()
        gc.collect()
        torch.cuda.empty_cache()

    @contextlib.contextmanager
    def _blame(self, contender: Contender, stage: str) -> Iterator[None]:
        """Turn an exception inside the block into the contender's row."""
        self._worker.say("stage", contender=contender.label, stage=stage)
        try:
            yield
        except Exception as error:
            self._fail(contender, error)

    def _fail(self, contender: Contender, error: Exception) -> None:
        """The exception ends the contender, and the process too where the GPU is lost."""
        import torch

        if context_is_lost():
            self._worker.say("fault", contender=contender.label, reason=one_line(error))
            os._exit(1)  # nothing more can be learned in this process
        no_memory = isinstance(error, torch.cuda.OutOfMemoryError)
        if no_memory:
            torch.cuda.empty_cache()
        else:
            traceback.print_exception(error, file=sys.stderr)
        self._live.pop(contender, None)
        status = "oom" if no_memory else "error"
        self._rows[contender] = {"status": status, "reason": one_line(error)}

    def _first_run(self, contender: Contender) -> None:
        reason = unavailable(contender.backend)
        if reason:
            self._rows[contender] = {"status": "unsupported", "reason": reason}
            return
        with watch_compilations() as compiled:
            bound, first_call_ms = self._bind_and_call(contender, contender.config)
        verdict = self._problem.judge(bound.produced(), bound.unfused)
        row: dict[str, Any] = {
            "config": json.dumps(bound.config, sort_keys=True) if bound.config else "",
            "config_source": bound.config_source,
            "form": bound.form,
            "first_call_ms": first_call_ms,
            **verdict.columns(),
        }
        if self._request.explain:
            row["explanation"] = self._problem.explain(bound.produced(), bound.unfused)
        if contender.backend == "triton":
            row |= self._triton_facts(compiled, row["config"])
        self._rows[contender] = row
        if verdict.ok:
            self._watch_stream_order(contender, bound)

    def _watch_stream_order(self, contender: Contender, bound: Bound) -> None:
        """Let the contender live if its work stays on the stream that is timed."""
        reason = ""
        # A baseline that returns a tensor of its own gets new memory with each call.
        if bound.produced() is self._problem.out:
            reason = leaves_the_stream(
                self._clock, self._problem.out, self._problem.poison, bound.call
            )
        if reason:
            self._rows[contender] |= {"status": "mismatch", "reason": reason}
        else:
            self._live[contender] = bound

    def _bind_and_call(self, contender: Contender, config: Config | None) -> tuple[Bound, float]:
        """The bound launch after its first call, and that call's milliseconds.

        A configuration borrowed from another case or GPU may not exist here; then the
        launcher's own choice runs, and the row's config_source says so.
        """

        def bound_with(config: Config | None) -> Bound:
            self._problem.poison()
            return bind(
                self._registry,
                self._problem,
                contender.backend,
                contender.variant,
                config,
                self._worker.gpu_slug,
            )

        bound = bound_with(config)
        try:
            return bound, timed(bound.call)
        except Exception:
            if not bound.config_source.startswith("nearest") or context_is_lost():
                raise
        default = replace(bound_with({}), config_source="default")
        return default, timed(default.call)

    def _triton_facts(self, compiled: Compilations, config: str) -> dict[str, Any]:
        """Facts of the kernels that the first call compiled or loaded.

        A case with the specialisation of an earlier one loads nothing: the earlier facts hold.
        """
        key = (self._spec.stem, self._request.dtype, config)
        if compiled.ptx:
            self._worker.triton_facts[key] = {
                "form": matrix_form("".join(compiled.ptx)),
                "kernel_symbol": ",".join(dict.fromkeys(compiled.symbols)),
                "shared_bytes": max(compiled.shared_bytes),
            }
        compile_ms = compiled.compile_us / 1e3 if compiled.count else None
        return self._worker.triton_facts.get(key, {}) | {"compile_ms": compile_ms}

    def _measure(self) -> None:
        settings = measuring.SETTINGS[self._request.settings]
        with watch_compilations() as compiled:
            measured = self._rounds(settings)
        for contender, measurement in measured.items():
            row = self._rows[contender]
            row |= time_columns(measurement, settings, self._clock, self._request.flush)
            if compiled.count:
                row["warnings"] = join_warnings(row.get("warnings"), "compiled_while_timed")
        self._worker.say("stage", contender="", stage="inputs")
        if self._problem.restore_inputs():
            # Whose doing it was shows in the second check, where each runs alone.
            for contender in self._live:
                row = self._rows[contender]
                row["warnings"] = join_warnings(row.get("warnings"), "inputs_changed_while_timed")
        for contender in list(self._live) if settings.second_seed else []:
            with self._blame(contender, "second check"):
                self._second_check(contender)
        if not settings.other_times:
            return
        for contender in list(self._live):
            with self._blame(contender, "graph and host time"):
                self._graph_and_host(contender)

    def _rounds(self, settings: measuring.Settings) -> dict[Contender, measuring.Measurement]:
        """Interleaved rounds of all that live; whoever raises in its turn is out, and the others
        start again: the rounds that it took part in are not theirs alone."""
        while self._live:
            try:
                return measuring.measure(
                    {contender: bound.call for contender, bound in self._live.items()},
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
                self._fail(culprit, error)
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

    def _second_check(self, contender: Contender) -> None:
        import torch

        bound = self._live[contender]
        self._problem.poison()
        bound.call()
        torch.cuda.synchronize()
        verdict = self._problem.judge(bound.produced(), bound.unfused)
        if not verdict.ok:
            self._disown(contender, f"right before timing, wrong after it: {verdict.reason}")

    def _disown(self, contender: Contender, reason: str) -> None:
        """Take back the times of a contender that has turned out wrong."""
        del self._live[contender]
        self._rows[contender] = {
            key: value
            for key, value in self._rows[contender].items()
            if not is_timing(key) and key not in ("rounds", "samples")
        } | {"status": "mismatch", "reason": reason}

    def _graph_and_host(self, contender: Contender) -> None:
        """Two further times, in columns of their own; neither may cost the row."""
        import torch

        bound, row = self._live[contender], self._rows[contender]
        try:
            row["host_us_p50"] = host_us(bound.call)
            self._problem.poison()
            best_case_us = graph_us(self._clock, bound.call)
            torch.cuda.synchronize()
            verdict = self._problem.judge(bound.produced(), bound.unfused)
            if verdict.ok:
                row["graph_us_p50"] = best_case_us
            else:
                row["warnings"] = join_warnings(row.get("warnings"), "graph_replay_wrong")
        except Exception as error:
            if context_is_lost():
                raise
            if is_unjoined(error):
                self._disown(contender, LATE)
            else:
                row["warnings"] = join_warnings(row.get("warnings"), "not_capturable")


def context_is_lost() -> bool:
    """After a fault inside a kernel every call of the process fails, this one too."""
    import torch

    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False
