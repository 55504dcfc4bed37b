"""The process that touches the GPU: a request in, rows out.

It runs each implementation alone and synchronised before any is timed, so that a fault names
its author; after an illegal access the CUDA context is lost, so it says whose fault it was and
dies. It writes no file: the parent does.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from . import measure as measuring
from . import roofs as roof_curves
from .backends import Bound, bind, matrix_form, timed, unavailable, watch_compilations
from .check import Problem, Verdict
from .clock import CudaEventClock
from .machine import gpu_facts, gpu_slug, writable_triton_cache
from .protocol import Contender, Request
from .registry import Registry
from .rows import is_timing
from .spec import Case, OpSpec

# Words of errors after which the CUDA context of a process is lost.
_FATAL = (
    "illegal memory access",
    "misaligned address",
    "device-side assert",
    "launch failure",
    "illegal instruction",
    "unspecified launch",
    "hardware stack error",
)
_CHECK_BYTES_PER_ELEMENT = 64


class Worker:
    def __init__(self, answers: IO[str], device: int) -> None:
        import torch

        self._answers = answers
        torch.cuda.set_device(device)
        self._gpu = gpu_facts(device)
        self._slug = gpu_slug(self._gpu["name"])
        self._clock = CudaEventClock()
        # Launches go to a stream of our own: the default stream synchronises with every other.
        self._stream = torch.cuda.Stream()
        torch.cuda.set_stream(self._stream)
        self.say("ready", gpu=self._gpu)

    def say(self, event: str, **facts: Any) -> None:
        self._answers.write(json.dumps({"event": event, **facts}) + "\n")
        self._answers.flush()

    def roofs(self, dtypes: list[str]) -> None:
        measured = roof_curves.measure_roofs(
            self._clock, dtypes, lambda what: self.say("stage", contender="", stage=what)
        )
        self.say("roofs", roofs=measured.as_meta())

    def case(self, request: Request) -> None:
        """Check, time, check again; one "row" event a contender."""
        spec = Registry(tuple(Path(k) for k in request.kernels)).spec(request.op)
        case = Case(request.dims, request.layout)
        shortage = _memory_shortage(spec, case, request.dtype)
        if shortage:
            for contender in request.contenders:
                self._row(contender, status="unsupported", reason=shortage)
            return
        run = _CaseRun(self, request, spec, case)
        try:
            run.execute()
        finally:
            run.release()

    def _row(self, contender: Contender, **row: Any) -> None:
        rounds, samples = row.pop("rounds", []), row.pop("samples", [])
        row |= {"backend": contender.backend, "variant": contender.variant}
        self.say("row", row=row, rounds=rounds, samples=samples)


class _CaseRun:
    """One case on its way through bind, check, measure and the second check."""

    def __init__(self, worker: Worker, request: Request, spec: OpSpec, case: Case) -> None:
        self._worker, self._request, self._spec = worker, request, spec
        self._clock = worker._clock
        self._registry = Registry(tuple(Path(k) for k in request.kernels))
        worker.say("stage", contender="", stage="inputs")
        self._problem = Problem(spec, case, request.dtype, "cuda", request.seed)
        self._rows: dict[Contender, dict[str, Any]] = {}
        self._live: dict[Contender, Bound] = {}

    def execute(self) -> None:
        for contender in self._request.contenders:
            with self._blame(contender, "first run"):
                self._first_run(contender)
        if self._request.timed and self._live:
            self._measure()
        for contender in self._request.contenders:
            row = self._rows[contender]
            self._worker._row(contender, **row)

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
        import torch

        self._worker.say("stage", contender=contender.label, stage=stage)
        try:
            yield
        except torch.cuda.OutOfMemoryError as error:
            self._fail(contender, "oom", error)
            torch.cuda.empty_cache()
        except Exception as error:
            if any(word in str(error) for word in _FATAL):
                self._worker.say("fault", contender=contender.label, reason=_one_line(error))
                os._exit(1)  # the CUDA context is lost: nothing more can be learned here
            traceback.print_exc(file=sys.stderr)
            self._fail(contender, "error", error)

    def _fail(self, contender: Contender, status: str, error: BaseException) -> None:
        self._live.pop(contender, None)
        self._rows[contender] = {"status": status, "reason": _one_line(error)}

    def _first_run(self, contender: Contender) -> None:
        reason = unavailable(contender.backend)
        if reason:
            self._rows[contender] = {"status": "unsupported", "reason": reason}
            return
        with watch_compilations() as compiled:
            bound = bind(
                self._registry,
                self._problem,
                contender.backend,
                contender.variant,
                contender.config,
                self._worker._slug,
            )
            self._problem.poison()
            first_call_ms = timed(bound.call)
        verdict = self._problem.judge(bound.produced(), bound.unfused)
        row: dict[str, Any] = {
            "config": json.dumps(bound.config, sort_keys=True) if bound.config else "",
            "config_source": bound.config_source,
            "form": bound.form,
            "first_call_ms": first_call_ms,
            **_verdict_columns(verdict),
        }
        if contender.backend == "triton" and compiled.ptx:
            row["form"] = matrix_form("".join(compiled.ptx))
            row["kernel_symbol"] = ",".join(dict.fromkeys(compiled.symbols))
            row["shared_bytes"] = max(fact["shared_bytes"] for fact in compiled.facts)
            row["compile_ms"] = compiled.compile_us / 1e3 if compiled.count else None
        self._rows[contender] = row
        if verdict.ok:
            self._live[contender] = bound

    def _measure(self) -> None:
        import torch

        settings = measuring.SETTINGS[self._request.settings]
        launches = {contender: bound.call for contender, bound in self._live.items()}
        for launch in launches.values():
            launch()
        torch.cuda.synchronize()
        self._worker.say("stage", contender="", stage="measure")
        with watch_compilations() as compiled:
            measured = measuring.measure(
                launches, self._clock, settings, self._request.seed, self._new_inputs
            )
        for contender, measurement in measured.items():
            row = self._rows[contender]
            row |= _time_columns(measurement, settings, self._clock.tick_us)
            if compiled.count:
                row["warnings"] = _join(row.get("warnings"), "compiled_while_timed")
        for contender in list(self._live):
            with self._blame(contender, "second check"):
                self._second_check(contender)
        if self._request.settings == "tune":
            return
        for contender in list(self._live):
            with self._blame(contender, "graph and host time"):
                self._graph_and_host(contender)

    def _new_inputs(self) -> None:
        """Same pointers, other values: what was cached by pointer or by content shows."""
        self._problem.reseed(self._request.seed + 1000)
        self._problem.poison()

    def _second_check(self, contender: Contender) -> None:
        import torch

        bound, row = self._live[contender], self._rows[contender]
        self._problem.poison()
        bound.call()
        torch.cuda.synchronize()
        verdict = self._problem.judge(bound.produced(), bound.unfused)
        if not verdict.ok:
            del self._live[contender]
            reason = f"right before timing, wrong after it: {verdict.reason}"
            self._rows[contender] = {
                key: value
                for key, value in row.items()
                if not is_timing(key) and key not in ("rounds", "samples")
            } | {"status": "mismatch", "reason": reason}

    def _graph_and_host(self, contender: Contender) -> None:
        """Two further times, in columns of their own; neither may cost the row."""
        import torch

        bound, row = self._live[contender], self._rows[contender]
        row["host_us_p50"] = self._clock.host_us(bound.call)
        try:
            self._problem.poison()
            graph_us = self._clock.graph_us(bound.call)
            torch.cuda.synchronize()
            verdict = self._problem.judge(bound.produced(), bound.unfused)
            if verdict.ok:
                row["graph_us_p50"] = graph_us
            else:
                row["warnings"] = _join(row.get("warnings"), "graph_replay_wrong")
        except RuntimeError as error:
            if any(word in str(error) for word in _FATAL):
                raise
            torch.cuda.synchronize()
            row["warnings"] = _join(row.get("warnings"), "not_capturable")


def _verdict_columns(verdict: Verdict) -> dict[str, Any]:
    return {
        "status": "untimed" if verdict.ok else "mismatch",
        "reason": "" if verdict.ok else verdict.reason,
        "max_abs_err": verdict.max_abs_err,
        "max_rel_err": verdict.max_rel_err,
        "tolerance": verdict.tolerance,
    }


def _time_columns(
    measurement: measuring.Measurement, settings: measuring.Settings, tick_us: float
) -> dict[str, Any]:
    """The row's timing columns; `invalid` with empty times where no sample was believable."""
    samples = sorted(measurement.samples_us)
    if len(measurement.rounds) < 2:
        raw = ", ".join(f"{value:g}" for value in measurement.rejected[:3])
        return {"status": "invalid", "reason": f"no usable samples; the timer gave {raw}"}
    mean, half_width = measurement.half_width(settings.confidence, tick_us)
    deviation = math.sqrt(sum((s - mean) ** 2 for s in samples) / max(len(samples) - 1, 1))
    clocks = sorted(measurement.sm_mhz)
    warnings = None if measurement.hidden else "launch_not_hidden"
    if measurement.rejected:
        warnings = _join(warnings, "samples_rejected")
    return {
        "status": "ok",
        "cache": "cold",
        "n_samples": len(samples),
        "n_rounds": len(measurement.rounds),
        "precision_pct": 100 * half_width / mean,
        "time_us_p50": float(np.quantile(samples, 0.5)),
        "time_us_p20": float(np.quantile(samples, 0.2)),
        "time_us_p80": float(np.quantile(samples, 0.8)),
        "time_us_min": samples[0],
        "time_us_mean": sum(samples) / len(samples),
        "time_us_std": deviation,
        "ci_low_us": mean - half_width,
        "ci_high_us": mean + half_width,
        "sm_mhz_p50": clocks[len(clocks) // 2] if clocks else None,
        "warnings": warnings,
        "rounds": measurement.round_means_us,
        "samples": [list(samples) for samples in measurement.rounds],
    }


def _join(warnings: str | None, more: str) -> str:
    return f"{warnings},{more}" if warnings else more


def _one_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else 'no message'}"


def _memory_shortage(spec: OpSpec, case: Case, dtype: str) -> str:
    """Why the case does not fit; empty when it does.

    Inputs are held twice and each output element costs the float64 reference, allowance and
    the checker's temporaries.
    """
    import torch

    free_bytes, _ = torch.cuda.mem_get_info()
    needed = 2 * spec.bytes_read(case, dtype) + spec.bytes_written(case, dtype)
    needed += _CHECK_BYTES_PER_ELEMENT * math.prod(spec.output_shape(case))
    if needed <= free_bytes:
        return ""
    return f"needs {needed / 1e9:.1f} GB, {free_bytes / 1e9:.1f} GB are free"


def main() -> int:
    """Serve requests from standard input until it closes."""
    # A kernel's printf must not end up between our answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    writable_triton_cache()
    worker = Worker(answers, device=int(os.environ.get("CVT_DEVICE", "0")))
    for line in sys.stdin:
        message = json.loads(line)
        if message["kind"] == "roofs":
            worker.roofs(message["dtypes"])
        else:
            worker.case(Request.from_json(message["request"]))
        worker.say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
