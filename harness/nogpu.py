"""`bench` and `check` on a machine without a GPU: prove all that can be proved there.

The CUDA side is built and imported, every interpretable Triton kernel is checked on small
shapes against float64, and each Triton kernel is compiled for sm_90. Nothing is timed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .console import Progress, interruptible, stdout
from .explanation_view import take_lines
from .machine import timestamp
from .options import UsageError, resume_command, sweep_options, units_of
from .plan import Unit
from .reading import draw_after
from .registry import REPOSITORY, Registry
from .report_command import report_after
from .rows import RowMaker
from .run_writer import RunWriter
from .schema import FAILED
from .supervisor import Supervisor
from .sweep import (
    SweepOptions,
    is_written,
    request_for,
    run_meta,
    without_absent,
    write_new,
)

_MAX_ELEMENTS = 1 << 17
_COMPILE_TIMEOUT_S = 300


@dataclass(frozen=True)
class Compiled:
    """The offline compilation of one op's Triton side in one dtype."""

    stem: str
    dtype: str
    ok: bool
    text: str


@dataclass(frozen=True)
class Found:
    """Rows by (backend, status, reason)."""

    reasons: Counter[tuple[str, str, str]]

    def count(self, statuses: Sequence[str]) -> int:
        return sum(n for (_, status, _), n in self.reasons.items() if status in statuses)


def bench_without_gpu(options: argparse.Namespace) -> int:
    """Check, compile and plot what needs no GPU; says plainly what was not measured."""
    run_dir, summary, bad = checks_without_gpu(options)
    references = sorted((REPOSITORY / "results").glob("*/reference/bench.csv"))
    for reference in [] if options.no_plots else references:
        gpu = reference.parent.parent.name
        figures = draw_after(reference.parent, run_dir / "plots" / gpu)
        report_after(reference.parent, run_dir / f"report-{gpu}.html", figures)
    drawn = "" if references else " No committed reference run to draw."
    stdout.print(
        f"{run_dir}: no GPU is visible, so NOTHING WAS TIMED. {summary}{drawn}", markup=False
    )
    return 1 if bad else 0


def checks_without_gpu(options: argparse.Namespace) -> tuple[Path, str, bool]:
    """(the run's folder, what was found in words, is anything wrong)."""
    registry, units = selected(options)
    small = small_units(units)
    sweep = sweep_options(options)
    run_dir = options.out or Path("results") / "no-gpu" / timestamp()
    resume = getattr(options, "resume", None)
    try:
        found = run_checks(registry, small, run_dir, sweep, Progress(), bool(resume))
    except KeyboardInterrupt:
        # Only bench knows --resume.
        further = f"the rows so far are in {run_dir}"
        if resume is not None:
            further = f"go on with: {resume_command(run_dir)}"
        stdout.print(f"stopped; {further}", markup=False)
        raise
    compiled = compile_offline(units, sweep.kernels) if has_triton(units) else []
    for one in compiled:
        verdict = "compiled" if one.ok else "FAILED"
        stdout.print(f"sm_90 {one.stem} {one.dtype}: {verdict}: {one.text}", markup=False)
    bad = found.count(FAILED) > 0 or not all(one.ok for one in compiled)
    return run_dir, summary(found, compiled), bad


def selected(options: argparse.Namespace) -> tuple[Registry, list[Unit]]:
    """The test cases that match; raises UsageError when the interpreter could run none of them."""
    registry, units = units_of(options, tests=True)
    if not small_units(units):
        raise UsageError(
            "no test case that matches is small enough for the interpreter; on a GPU the same "
            "filters select from the bench cases that `list` shows"
        )
    return registry, units


def outlook(small: Sequence[Unit], units: Sequence[Unit]) -> str:
    """One sentence on what `bench` would do here."""
    n_rows = sum(len(unit.contenders) for unit in small)
    text = f"{len(small)} test cases, {n_rows} rows, in Triton's interpreter"
    if has_triton(units):
        text += f", and {len(_compiled_alone(units))} compilations for sm_90"
    return f"No GPU is visible: {text}; nothing would be timed."


def small_units(units: Sequence[Unit]) -> list[Unit]:
    """The units that the interpreter finishes in about a second."""
    return [unit for unit in units if unit.spec.n_output_elements(unit.case) <= _MAX_ELEMENTS]


def has_triton(units: Sequence[Unit]) -> bool:
    return bool(_compiled_alone(units))


def run_checks(
    registry: Registry,
    units: Sequence[Unit],
    run_dir: Path,
    options: SweepOptions,
    progress: Progress,
    resume: bool = False,
) -> Found:
    """Check `units` on the CPU into `run_dir`."""
    found = Found(Counter())
    meta = run_meta(registry, units, options, {"name": "none"})
    maker = RowMaker(registry, meta["gpu"], options.device, roofs=None)
    with (
        interruptible() as stopped,
        RunWriter.create(run_dir, meta, resume=resume) as writer,
        Supervisor(silence_s=options.timeout_s, module="harness.cpu_worker") as supervisor,
    ):
        for unit in progress.units(units, lambda u: u.label):
            if stopped:
                raise KeyboardInterrupt
            if is_written(unit, writer):
                continue
            present = without_absent(unit)
            asked = request_for(present, options, timed=False)
            answered = supervisor.run(asked) if present.contenders else []
            events = maker.absent(unit) + maker.complete(present, answered)
            for event in events if options.explain else []:
                stdout.print("\n".join(take_lines(unit.label, event["row"])), markup=False)
            for row in write_new(unit, events, writer):
                found.reasons[row["backend"], row["status"], row["reason"]] += 1
            progress.unit_done(unit.label, [event["row"] for event in events])
        writer.finish({})
    return found


def summary(found: Found, compiled: Sequence[Compiled]) -> str:
    """One sentence a backend: how many rows, with which outcome and why."""
    sentences = []
    for backend in dict.fromkeys(backend for backend, _, _ in found.reasons):
        parts = [
            f"{count} {status} ({reason})" if len(reason) < 90 else f"{count} {status}"
            for (name, status, reason), count in found.reasons.most_common()
            if name == backend
        ]
        sentences.append(f"{backend}: {', '.join(parts)}.")
    if compiled:
        failed = sum(not one.ok for one in compiled)
        sentences.append(f"sm_90: {len(compiled) - failed} compiled, {failed} failed.")
    return " ".join(sentences) or "Every row had been written before."


def _compiled_alone(units: Sequence[Unit]) -> list[tuple[str, str]]:
    with_triton = (
        unit
        for unit in units
        if any(c.backend == "triton" for c in unit.contenders) and "triton" not in unit.spec.absent
    )
    return list(dict.fromkeys((unit.spec.stem, unit.dtype) for unit in with_triton))


def compile_offline(
    units: Sequence[Unit], kernels: Sequence[Path] = (), arch: int = 90
) -> list[Compiled]:
    """Compile each op's Triton side for `arch` in a process of its own, one per dtype."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    roots = [word for folder in kernels for word in ("--kernels", str(folder.resolve()))]
    results = []
    for stem, dtype in _compiled_alone(units):
        words = [stem, "--arch", str(arch), "--dtype", dtype, *roots]
        done = _run([sys.executable, "-m", "harness.offline", *words], environment)
        results.append(Compiled(stem, dtype, *done))
    return results


def _run(command: list[str], environment: dict[str, str]) -> tuple[bool, str]:
    """(did it succeed, the last line it printed)."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=environment,
            cwd=REPOSITORY,
            timeout=_COMPILE_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return False, f"not done after {_COMPILE_TIMEOUT_S} s"
    text = done.stdout if done.returncode == 0 else done.stderr
    return done.returncode == 0, (text.strip().splitlines() or ["printed nothing"])[-1]
