"""What each subcommand does. Everything heavy is imported inside the function that needs it."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .schema import FAILED

if TYPE_CHECKING:
    from .plan import Unit
    from .registry import Registry
    from .sweep import SweepOptions


class UsageError(Exception):
    """Bad input: one line for the user, exit code 2."""


def _units(options: argparse.Namespace, tests: bool = False) -> tuple[Registry, list[Unit]]:
    from .plan import Filters, plan
    from .registry import Registry

    registry = Registry(tuple(options.kernels))
    filters = Filters(options.op, options.dtype, options.case, options.backend)
    return registry, plan(registry, filters, options.level, tests)


def _sweep_options(options: argparse.Namespace, settings: str = "default") -> SweepOptions:
    from .sweep import SweepOptions

    return SweepOptions(
        options.device,
        options.seed,
        settings,
        tuple(options.kernels),
        options.timeout,
        getattr(options, "flush", "clean"),
    )


def list_cases(options: argparse.Namespace) -> int:
    _print_units(_units(options)[1])
    return 0


def _print_units(units: Sequence[Unit]) -> None:
    from .console import stdout

    for unit in units:
        names = " ".join(
            f"{c.backend}(absent)" if c.backend in unit.spec.absent else c.backend
            for c in unit.contenders
        )
        stdout.print(f"{unit.label:<40} {unit.case.dims_text:<24} {names}", markup=False)


def doctor(_options: argparse.Namespace) -> int:
    from . import doctor

    return doctor.main()


def _gpu_count() -> int:
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            "torch is not installed, which bench, check and tune need; run `make bench` in the "
            "checkout, which installs it into .venv"
        )
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _refuse_missing_device(device: int) -> bool:
    """True when a GPU is there; raises UsageError when GPUs are but not the one asked for."""
    count = _gpu_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if count == 0 and visible is not None and visible.strip() not in ("", "-1"):
        raise UsageError(
            f"CUDA_VISIBLE_DEVICES={visible!r} names no GPU of this machine; unset it, or "
            "set it to '' for the run without a GPU"
        )
    if device and count == 0:
        raise UsageError(f"--device {device}: no GPU is visible; leave --device out")
    if count and not 0 <= device < count:
        raise UsageError(f"--device {device}: {count} GPUs are visible, wanted 0..{count - 1}")
    return count > 0


def bench(options: argparse.Namespace) -> int:
    from .console import stdout
    from .plan import estimate_s

    if options.aa:
        return _bench_aa(options)
    if options.processes is not None:
        raise UsageError("--processes: belongs to --aa, which was not given")
    if options.resume and options.out is None:
        raise UsageError("--resume: which run? wanted --out FOLDER of the run to go on with")
    if options.resume and not (options.out / "meta.json").is_file():
        raise UsageError(f"--resume: {options.out} holds no run to go on with; leave --resume out")
    if options.dry_run:
        _, units = _units(options)
        _print_units(units)
        n_rows = sum(len(unit.contenders) for unit in units)
        stdout.print(
            f"{len(units)} cases, {n_rows} rows, about {estimate_s(units, options.level):.0f} s "
            "on a GPU; nothing was run"
        )
        return 0
    if not _refuse_missing_device(options.device):
        return _bench_without_gpu(options)
    return _bench_with_gpu(options)


def _bench_with_gpu(options: argparse.Namespace) -> int:
    from .console import Progress, stdout
    from .plan import estimate_s
    from .sweep import run_sweep

    registry, units = _units(options)
    progress = Progress()
    progress.note(f"{len(units)} cases, about {estimate_s(units, options.level):.0f} s")
    sweep = _sweep_options(options, "quick" if options.level == "quick" else "default")
    run_dir, outcome = run_sweep(registry, units, options.out, sweep, progress, options.resume)
    counts = ", ".join(f"{count} {status}" for status, count in outcome.statuses.most_common())
    if outcome.interrupted:
        stdout.print(
            f"stopped after {counts or 'nothing'}; go on with: {_resume_command(run_dir)}",
            markup=False,
        )
        return 130
    stdout.print(f"{run_dir}: {counts or 'nothing new'} in {outcome.elapsed_s:.0f} s", markup=False)
    for line in outcome.failures:
        stdout.print(f"  {line}", markup=False)
    if not options.no_plots:
        _draw_after(run_dir)
    return 1 if any(outcome.statuses[status] for status in FAILED) else 0


def _bench_aa(options: argparse.Namespace) -> int:
    from . import aa_subset
    from .console import Progress, stdout

    _refuse_with_aa(options)
    registry, units = _units(options)
    chosen = aa_subset.choose(units)
    processes = aa_subset.PROCESSES if options.processes is None else options.processes
    text = (
        f"{len(chosen)} cases, {aa_subset.count_rows(chosen)} of "
        f"{aa_subset.count_rows(units)} rows, in {processes} processes: about "
        f"{aa_subset.estimate_s(chosen, processes):.0f} s"
    )
    if options.dry_run:
        _print_units(chosen)
        stdout.print(f"{text} on a GPU; nothing was run")
        return 0
    if not _refuse_missing_device(options.device):
        raise UsageError("bench --aa times kernels and no GPU is visible; run it on a GPU machine")
    from .aa import run_aa
    from .aa_view import render

    progress = Progress()
    progress.note(text)
    filtered = any((options.op, options.dtype, options.case, options.backend, options.kernels))
    sweep = _sweep_options(options, "aa")
    run = run_aa(registry, chosen, options.out, sweep, processes, filtered, progress)
    if not run.record:
        stdout.print("stopped before two processes had finished: nothing to compare")
        return 130
    render(run.record, stdout)
    kept = f"{run.floor} is written" if run.floor else f"not for later runs: {run.kept_out}"
    stdout.print(f"{run.folder}: {run.record['elapsed_s']:.0f} s; noise floor {kept}", markup=False)
    return 130 if run.interrupted else int(not run.passed)


def _refuse_with_aa(options: argparse.Namespace) -> None:
    from .aa_subset import LEAST_PROCESSES

    if options.resume:
        raise UsageError("--aa: cannot be resumed; leave --resume out")
    if options.level != "default":
        raise UsageError(
            f"--aa: chooses its own rows and effort; leave --{options.level} out, or filter by "
            "--op, --dtype, --case and --backend"
        )
    if options.processes is not None and options.processes < LEAST_PROCESSES:
        raise UsageError(f"--processes {options.processes}: wanted {LEAST_PROCESSES} or more")


def _resume_command(run_dir: Path) -> str:
    """The command that was given, with the folder it wrote to."""
    given = [word for word in sys.argv[1:] if word != "--resume"]
    if "--out" in given:
        at = given.index("--out")
        del given[at : at + 2]
    return shlex.join(["python", "-m", "harness", *given, "--resume", "--out", str(run_dir)])


def _bench_without_gpu(options: argparse.Namespace) -> int:
    """Check, compile and plot what needs no GPU; says plainly what was not measured."""
    from .console import stdout
    from .registry import REPOSITORY

    run_dir, summary, bad = _checks_without_gpu(options)
    references = sorted((REPOSITORY / "results").glob("*/reference/bench.csv"))
    for reference in [] if options.no_plots else references:
        _draw_after(reference.parent, run_dir / "plots" / reference.parent.parent.name)
    drawn = "" if references else " No committed reference run to draw."
    stdout.print(
        f"{run_dir}: no GPU is visible, so NOTHING WAS TIMED. {summary}{drawn}", markup=False
    )
    return 1 if bad else 0


def _checks_without_gpu(options: argparse.Namespace) -> tuple[Path, str, bool]:
    """(the run's folder, what was found in words, is anything wrong)."""
    from . import nogpu
    from .console import Progress, stdout
    from .machine import timestamp

    registry, units = _units(options, tests=True)
    small = nogpu.small_units(units)
    if not small:
        raise UsageError(
            "no test case that matches is small enough for the interpreter; on a GPU the same "
            "filters select from the bench cases that `list` shows"
        )
    sweep = _sweep_options(options)
    run_dir = options.out or Path("results") / "no-gpu" / timestamp()
    try:
        found = nogpu.run_checks(
            registry, small, run_dir, sweep, Progress(), getattr(options, "resume", False)
        )
    except KeyboardInterrupt:
        stdout.print(f"stopped; go on with: {_resume_command(run_dir)}", markup=False)
        raise
    compiled = nogpu.compile_offline(units) if nogpu.has_triton(units) else []
    for one in compiled:
        verdict = "compiled" if one.ok else "FAILED"
        stdout.print(f"sm_90 {one.stem} {one.dtype}: {verdict}: {one.text}", markup=False)
    bad = found.count(FAILED) > 0 or not all(one.ok for one in compiled)
    return run_dir, nogpu.summary(found, compiled), bad


def check(options: argparse.Namespace) -> int:
    if not _refuse_missing_device(options.device):
        run_dir, summary, bad = _checks_without_gpu(options)
        print(f"{run_dir}: no GPU is visible. {summary}")
        return 1 if bad else 0
    from .checking import check_on_gpu

    _, units = _units(options, tests=True)
    return check_on_gpu(units, _sweep_options(options))


def tune(options: argparse.Namespace) -> int:
    from .console import Progress, stdout
    from .tune import tune as tune_units

    if not _refuse_missing_device(options.device):
        raise UsageError("tune times kernels and no GPU is visible; run it on a GPU machine")
    _, units = _units(options)
    sweep = _sweep_options(options)
    for file in tune_units(units, sweep, Progress()):
        stdout.print(f"wrote {file}", markup=False)
    return 0


def _draw_after(run_dir: Path, out: Path | None = None) -> None:
    """Draw what a command has measured: figures that cannot be drawn here do not fail it."""
    from .console import stdout

    if importlib.util.find_spec("matplotlib") is None:
        stdout.print(
            "no plots: matplotlib is not installed; pip install matplotlib, then "
            f"python -m harness plot {run_dir}",
            markup=False,
        )
        return
    _draw(run_dir, out, None)


def _draw(run_dir: Path, out: Path | None, formats: Sequence[str] | None) -> bool:
    """Draw a run; False when it holds nothing to draw, which standard error was then told."""
    from .console import stdout
    from .plots import plot_run
    from .results import read_run

    run = read_run(run_dir)
    folder = out or run.path / "plots"
    figures = plot_run(run, folder, tuple(formats or ("png", "svg")))
    if not figures:
        return False
    if not run.complete:
        print(f"warning: {run_dir} is not a finished run; what it holds is drawn", file=sys.stderr)
    stdout.print(f"{len(figures)} figures in {folder}", markup=False)
    return True


def plot(options: argparse.Namespace) -> int:
    return 0 if _draw(options.run, options.out, options.formats) else 2


def compare(options: argparse.Namespace) -> int:
    from .compare import compare_runs, compare_sides, exit_code, render
    from .console import stdout
    from .results import read_run

    thresholds = {"noise_floor": options.noise_floor, "least_effect": options.least_effect}
    _refuse_sides(options)
    base = read_run(options.base)
    if options.new is None:
        backends = sorted(base.rows["backend"].unique())
        for option, name in (("--side", options.side), ("--vs", options.vs)):
            if name not in backends and backends:
                raise UsageError(
                    f"{option} {name!r}: {base.path} has no such backend, wanted one of "
                    f"{', '.join(backends)}"
                )
        comparison = compare_sides(base, side=options.side, vs=options.vs, **thresholds)
    else:
        comparison = compare_runs(base, read_run(options.new), force=options.force, **thresholds)
    render(comparison, stdout)
    return exit_code(comparison)


def _refuse_sides(options: argparse.Namespace) -> None:
    """Refuse `compare` with too few or too many of a second run, --side and --vs."""
    side, vs, such_as = options.side, options.vs, "such as --side cuda --vs triton"
    if options.new is not None:
        if side or vs:
            raise UsageError(
                "compare: --side and --vs compare within one run, but two were given; leave them "
                "or the second run out"
            )
    elif not (side or vs):
        raise UsageError(
            f"compare: one run given, wanted a second one, or two sides of the one, {such_as}"
        )
    elif not (side and vs):
        given, lacks = ("--side", "--vs") if side else ("--vs", "--side")
        raise UsageError(f"compare: {given} {side or vs} without {lacks}; give both, {such_as}")
    elif side == vs:
        raise UsageError(
            f"compare: --side and --vs are both {side!r}, wanted two backends, {such_as}"
        )


def crosscheck(options: argparse.Namespace) -> int:
    from .console import Progress, stdout
    from .crosscheck import CrosscheckSupervisor, Request, chosen_units
    from .crosscheck import crosscheck as check_timers
    from .other_timers import missing_package

    registry, units = _units(options)
    by_default = options.level == "default" and not (options.op or options.dtype or options.case)
    units = chosen_units(registry, None if by_default else units, options.backend)
    if not units:
        raise UsageError("no selected case has a cuda or triton side; name one with --backend")
    if not _refuse_missing_device(options.device):
        raise UsageError("crosscheck times kernels and no GPU is visible; run it on a GPU machine")
    if reason := missing_package(options.timer):
        raise UsageError(reason)
    request = Request(options.timer, units, options.seed, options.kernels)
    supervisor = CrosscheckSupervisor(options.device, options.timeout, "harness.crosscheck_worker")
    return check_timers(request, supervisor, options.out, Progress(), stdout)


def readme(options: argparse.Namespace) -> int:
    from .readme import check_readme, update_readme
    from .results import read_run

    run = read_run(options.run)
    if not options.check:
        update_readme(options.readme, run)
        print(f"wrote the results table of {options.readme} from {options.run}")
        return 0
    if check_readme(options.readme, run):
        return 0
    print(
        f"{options.readme}: the results table is not what {options.run} gives; run `make readme`",
        file=sys.stderr,
    )
    return 1
