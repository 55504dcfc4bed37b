"""What each subcommand does. Everything heavy is imported inside the function that needs it."""

from __future__ import annotations

import argparse
from pathlib import Path

from .compare_command import compare
from .export import export
from .options import (
    UsageError,
    print_units,
    resume_command,
    share_ptxas,
    sweep_options,
    units_of,
)
from .options import refuse_missing_device as _refuse_missing_device
from .reading import draw_after, plot, readme
from .report_command import report, report_after
from .schema import FAILED

__all__ = [
    "bench",
    "check",
    "compare",
    "crosscheck",
    "doctor",
    "effort",
    "explain",
    "export",
    "list_cases",
    "plot",
    "readme",
    "report",
    "sanitize",
    "tune",
]


def list_cases(options: argparse.Namespace) -> int:
    print_units(units_of(options)[1])
    return 0


def doctor(_options: argparse.Namespace) -> int:
    from . import doctor

    return doctor.main()


def bench(options: argparse.Namespace) -> int:
    if options.aa:
        return _bench_aa(options)
    if options.processes is not None:
        raise UsageError("--processes: belongs to --aa, which was not given")
    if options.resume and options.out is None:
        raise UsageError("--resume: which run? wanted --out FOLDER of the run to go on with")
    if options.resume and not (options.out / "meta.json").is_file():
        raise UsageError(f"--resume: {options.out} holds no run to go on with; leave --resume out")
    if options.same_ptxas:
        share_ptxas()
    has_gpu = _refuse_missing_device(options.device)
    if options.dry_run:
        from .dry_run import dry_run

        return dry_run(options, has_gpu)
    if has_gpu:
        return _bench_with_gpu(options)
    from .nogpu import bench_without_gpu

    return bench_without_gpu(options)


def _bench_with_gpu(options: argparse.Namespace) -> int:
    from .console import Progress, stdout
    from .plan import estimate_s
    from .sweep import run_sweep

    registry, units = units_of(options)
    progress = Progress()
    progress.note(f"{len(units)} cases, about {estimate_s(units, options.level):.0f} s")
    sweep = sweep_options(options, "quick" if options.level == "quick" else "default")
    run_dir, outcome = run_sweep(registry, units, options.out, sweep, progress, options.resume)
    counts = ", ".join(f"{count} {status}" for status, count in outcome.statuses.most_common())
    if outcome.interrupted:
        stdout.print(
            f"stopped after {counts or 'nothing'}; go on with: {resume_command(run_dir)}",
            markup=False,
        )
        return 130
    stdout.print(f"{run_dir}: {counts or 'nothing new'} in {outcome.elapsed_s:.0f} s", markup=False)
    for line in outcome.failures:
        stdout.print(f"  {line}", markup=False)
    if not options.no_plots:
        report_after(run_dir, figures=draw_after(run_dir))
    return 1 if any(outcome.statuses[status] for status in FAILED) else 0


def _bench_aa(options: argparse.Namespace) -> int:
    from . import aa_subset
    from .aa import refuse_used, run_aa
    from .aa_view import render
    from .console import Progress, stdout

    _refuse_with_aa(options)
    registry, units = units_of(options)
    chosen = aa_subset.choose(units)
    processes = aa_subset.PROCESSES if options.processes is None else options.processes
    text = (
        f"{len(chosen)} cases, {aa_subset.count_rows(chosen)} of "
        f"{aa_subset.count_rows(units)} rows, in {processes} processes: about "
        f"{aa_subset.estimate_s(chosen, processes):.0f} s"
    )
    if not _refuse_missing_device(options.device):
        raise UsageError("bench --aa times kernels and no GPU is visible; run it on a GPU machine")
    if options.dry_run:
        from .run_folder import refuse_unwritable

        refuse_unwritable(options.out or Path("results"))
        if options.out is not None:
            refuse_used(options.out)
        print_units(chosen)
        stdout.print(f"{text} on a GPU; nothing was run")
        return 0
    progress = Progress()
    progress.note(text)
    filtered = any((options.op, options.dtype, options.case, options.backend, options.kernels))
    sweep = sweep_options(options, "aa")
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


def check(options: argparse.Namespace) -> int:
    if not _refuse_missing_device(options.device):
        from .nogpu import checks_without_gpu

        run_dir, summary, bad = checks_without_gpu(options)
        print(f"{run_dir}: no GPU is visible. {summary}")
        return 1 if bad else 0
    from .checking import check_on_gpu

    _, units = units_of(options, tests=True)
    return check_on_gpu(units, sweep_options(options))


def tune(options: argparse.Namespace) -> int:
    from .console import Progress, stdout
    from .tune import tune as tune_units

    if not _refuse_missing_device(options.device):
        raise UsageError("tune times kernels and no GPU is visible; run it on a GPU machine")
    _, units = units_of(options)
    sweep = sweep_options(options)
    for file in tune_units(units, sweep, Progress()):
        stdout.print(f"wrote {file}", markup=False)
    return 0


def explain(options: argparse.Namespace) -> int:
    from .explain.command import explain as show_facts

    return show_facts(options)


def effort(options: argparse.Namespace) -> int:
    from .effort.command import effort as show_effort

    return show_effort(options)


def sanitize(options: argparse.Namespace) -> int:
    from .console import stdout
    from .sanitize_view import sanitize as run_sanitize

    return run_sanitize(options, stdout)


def crosscheck(options: argparse.Namespace) -> int:
    from .console import Progress, stdout
    from .crosscheck import CrosscheckSupervisor, Request, chosen_units
    from .crosscheck import crosscheck as check_timers
    from .other_timers import missing_package

    registry, units = units_of(options)
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
