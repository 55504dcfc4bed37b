"""One case on its way through bind, first check, timing and second check, in the worker."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .availability import unavailable
from .backends import Bound, Compilations, bind, matrix_form, timed, watch_compilations
from .check import Problem
from .later_runs import LaterRuns
from .protocol import Contender, Request
from .registry import Registry
from .roster import Roster, context_is_lost
from .spec import Case, Config
from .stream_order import MOVED, leaves_the_stream

if TYPE_CHECKING:
    from .worker import Worker

# What a contender may keep allocated after its first call: its scratch, not the card.
_KEPT_BYTES_LEAST = 1 << 30
_KEPT_TRAFFICS = 8


class CaseRun:
    """One case on its way through bind, check, measure and the second check."""

    def __init__(self, worker: Worker, request: Request, registry: Registry, case: Case) -> None:
        self._worker, self._request, self._registry = worker, request, registry
        self._spec = registry.spec(request.op)
        self._clock = worker.clock
        worker.say("stage", contender="", stage="inputs")
        self._problem = Problem(self._spec, case, request.dtype, "cuda", request.seed)
        traffic = self._spec.bytes_read(case, request.dtype)
        traffic += self._spec.bytes_written(case, request.dtype)
        self._roster = Roster(worker, max(_KEPT_BYTES_LEAST, _KEPT_TRAFFICS * traffic))

    def execute(self) -> None:
        for contender in self._request.contenders:
            with self._roster.blame(contender, "first run"):
                self._first_run(contender)
        later = LaterRuns(self._worker, self._request, self._problem, self._roster)
        if self._roster.live and self._request.timed:
            later.measure()
        elif self._roster.live:
            later.repeat()
        self._worker.say("stage", contender="", stage="answers")
        for contender in self._request.contenders:
            self._worker.say_row(contender, **self._roster.rows[contender])
        if self._request.timed:
            later.name_kernels()

    def release(self) -> None:
        """Give the memory back before the next case, whatever happened in this one."""
        import torch

        self._roster.live.clear()
        del self._problem
        self._clock.forget()
        gc.collect()
        torch.cuda.empty_cache()

    def _first_run(self, contender: Contender) -> None:
        reason = unavailable(contender.backend)
        if reason:
            self._roster.rows[contender] = {"status": "unsupported", "reason": reason}
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
        self._roster.rows[contender] = row
        self._roster.refuse_hoard(contender)
        if not self._worker.came_back():
            self._roster.rows[contender] |= {"status": "mismatch", "reason": MOVED}
        elif verdict.ok:
            self._watch_stream_order(contender, bound)

    def _watch_stream_order(self, contender: Contender, bound: Bound) -> None:
        """Let the contender live if its work stays on the stream that is timed."""
        reason = ""
        # A baseline that returns a tensor of its own gets new memory with each call.
        if bound.produced() is self._problem.produced:
            reason = leaves_the_stream(
                self._clock, self._problem.out, self._problem.poison, bound.call
            )
        if reason:
            self._roster.rows[contender] |= {"status": "mismatch", "reason": reason}
        else:
            self._roster.live[contender] = bound

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
