"""The command line: parsing and exit codes; everything heavy is imported where it is needed."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .plan import Unit
    from .registry import Registry

_BAD_STATUSES = ("mismatch", "error", "timeout", "invalid", "oom")


class UsageError(Exception):
    """Bad input: one line for the user, exit code 2."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code."""
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except BrokenPipeError:  # `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if type(error).__name__ in _ONE_LINE_ERRORS:
            print(f"error: {error}", file=sys.stderr)
            return 2
        raise


# By name: importing their modules here would cost every --help their imports.
_ONE_LINE_ERRORS = (
    "UsageError",
    "PlanError",
    "RegistryError",
    "ResultsError",
    "ComparisonRefused",
    "PlotError",
    "WorkerDiedError",
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m harness", description="CUDA and Triton kernels, checked and timed in pairs."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(
        name: str, function: Callable[[argparse.Namespace], int], text: str
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=function)
        return sub

    listing = add("list", _list, "list ops, cases and implementations")
    _add_selection(listing)
    add("doctor", _doctor, "say what works on this machine and why the rest does not")
    check = add("check", _check, "check every implementation against float64, untimed")
    _add_selection(check)
    _add_running(check)
    bench = add("bench", _bench, "check and time, write CSV and plots")
    _add_selection(bench)
    _add_running(bench)
    bench.add_argument("--dry-run", action="store_true", help="print what would run, and how long")
    bench.add_argument("--resume", action="store_true", help="go on with the run in --out")
    bench.add_argument("--no-plots", action="store_true", help="write the CSV files only")
    tuning = add("tune", _tune, "search configurations on this GPU, write harness/tuned/")
    _add_selection(tuning)
    _add_running(tuning)
    plot = add("plot", _plot, "draw a run's figures from its files")
    plot.add_argument("run", type=Path, help="a run's folder or its bench.csv")
    plot.add_argument("--out", type=Path, help="folder of the figures (default RUN/plots)")
    plot.add_argument("--format", action="append", choices=("png", "svg"), dest="formats")
    _add_compare(add("compare", _compare, "compare two runs, or the two sides of one"))
    readme = add("readme", _readme, "write the README's results table from a run")
    readme.add_argument("run", type=Path)
    readme.add_argument("--readme", type=Path, default=Path("README.md"))
    readme.add_argument("--check", action="store_true", help="only say whether it is up to date")
    return parser


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--op", action="append", default=[], help="an op's stem; repeatable")
    parser.add_argument("--dtype", action="append", default=[], help="such as bf16; repeatable")
    parser.add_argument(
        "--case", action="append", default=[], help="'N>=4096', 'M=2^13,K<1024' or a name's glob"
    )
    parser.add_argument("--backend", action="append", default=[], help="cuda, triton, torch, ...")
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument(
        "--quick", action="store_const", dest="level", const="quick", help="under a minute"
    )
    effort.add_argument(
        "--full",
        action="store_const",
        dest="level",
        const="full",
        help="every case, every baseline",
    )
    parser.add_argument(
        "--kernels",
        action="append",
        type=Path,
        default=[],
        metavar="DIR",
        help="another root with harness/specs and triton_kernels",
    )
    parser.set_defaults(level="default")


def _add_running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", type=int, default=0, help="CUDA device index (default 0)")
    parser.add_argument("--out", type=Path, help="the run's folder (default results/<gpu>/<time>)")
    parser.add_argument("--seed", type=int, default=20240117, help="seed of the inputs")
    parser.add_argument(
        "--timeout",
        type=float,
        default=180.0,
        metavar="S",
        help="seconds a worker may be silent (default 180)",
    )


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", type=Path, help="a run's folder")
    parser.add_argument("new", type=Path, nargs="?", help="the run to judge")
    parser.add_argument("--side", help="with one run: this backend ...")
    parser.add_argument("--vs", help="... against this one")
    parser.add_argument(
        "--least-effect",
        type=float,
        default=0.02,
        metavar="SHARE",
        help="differences below this are SAME (default 0.02)",
    )
    parser.add_argument(
        "--noise-floor",
        type=float,
        metavar="SHARE",
        help="instead of the runs' own or the default table",
    )
    parser.add_argument("--force", action="store_true", help="turn refusals into labels")


def _registry(options: argparse.Namespace) -> Registry:
    from .registry import Registry

    return Registry(tuple(options.kernels))


def _units(options: argparse.Namespace, tests: bool = False) -> tuple[Registry, list[Unit]]:
    from .plan import Filters, plan

    registry = _registry(options)
    filters = Filters(options.op, options.dtype, options.case, options.backend)
    return registry, plan(registry, filters, options.level, tests)


def _list(options: argparse.Namespace) -> int:
    from .console import stdout

    _, units = _units(options)
    for unit in units:
        names = " ".join(
            f"{c.backend}(absent)" if c.backend in unit.spec.absent else c.backend
            for c in unit.contenders
        )
        stdout.print(f"{unit.label:<40} {unit.case.dims_text:<24} {names}", markup=False)
    return 0


def _doctor(_options: argparse.Namespace) -> int:
    from . import doctor

    return doctor.main()


def _gpu_count() -> int:
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            "torch is not installed, which bench and check need; run `make bench`, or "
            "pip install 'cuda-vs-triton[bench]'"
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
    if not 0 <= device < max(count, 1):
        raise UsageError(f"--device {device}: {count} GPUs are visible, wanted 0..{count - 1}")
    return count > 0


def _bench(options: argparse.Namespace) -> int:
    from .console import stdout
    from .plan import estimate_s

    if options.resume and options.out is None:
        raise UsageError("--resume: which run? wanted --out FOLDER of the run to go on with")
    if options.dry_run:
        _list(options)
        _, units = _units(options)
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
    from .sweep import SweepOptions, run_sweep

    registry, units = _units(options)
    progress = Progress()
    progress.note(f"{len(units)} cases, about {estimate_s(units, options.level):.0f} s")
    settings = "quick" if options.level == "quick" else "default"
    sweep = SweepOptions(
        options.device, options.seed, settings, tuple(options.kernels), options.timeout
    )
    run_dir, outcome = run_sweep(registry, units, options.out, sweep, progress, options.resume)
    counts = ", ".join(f"{count} {status}" for status, count in outcome.statuses.most_common())
    if outcome.interrupted:
        stdout.print(
            f"stopped after {counts or 'nothing'}; go on with: {_resume_command(run_dir)}",
            markup=False,
        )
        return 130
    stdout.print(f"{run_dir}: {counts or 'nothing new'} in {outcome.elapsed_s:.0f} s", markup=False)
    if not options.no_plots:
        _draw(run_dir, None, None)
    return 1 if any(outcome.statuses[status] for status in _BAD_STATUSES) else 0


def _resume_command(run_dir: Path) -> str:
    """The command that was given, with the folder it wrote to."""
    given = [word for word in sys.argv[1:] if word != "--resume"]
    if "--out" in given:
        at = given.index("--out")
        del given[at : at + 2]
    return shlex.join(["python", "-m", "harness", *given, "--resume", "--out", str(run_dir)])


def _bench_without_gpu(options: argparse.Namespace) -> int:
    """Check, compile and plot what needs no GPU; says plainly what was not measured."""
    from .backends import extension_problem
    from .console import stdout
    from .registry import REPOSITORY

    run_dir, bad = _checks_without_gpu(options)
    references = sorted((REPOSITORY / "results").glob("*/reference/bench.csv"))
    for reference in [] if options.no_plots else references:
        _draw(reference.parent, run_dir / "plots" / reference.parent.parent.name, None)
    extension = extension_problem() or "built and imported"
    stdout.print(
        f"{run_dir}: no GPU is visible, so NOTHING WAS TIMED. Checked: Triton kernels in the "
        f"interpreter against float64, compilation for sm_90. The CUDA extension: {extension}."
        + (
            f" Plots are of the committed reference runs ({len(references)})." if references else ""
        ),
        markup=False,
    )
    return 1 if bad else 0


def _checks_without_gpu(options: argparse.Namespace) -> tuple[Path, bool]:
    from . import nogpu
    from .console import Progress, stdout
    from .sweep import SweepOptions

    registry, units = _units(options, tests=True)
    sweep = SweepOptions(
        options.device, options.seed, "default", tuple(options.kernels), options.timeout
    )
    run_dir, statuses = nogpu.run_checks(
        registry,
        nogpu.small_units(units),
        options.out,
        sweep,
        Progress(),
        getattr(options, "resume", False),
    )
    compiled = nogpu.compile_offline(units)
    for one in compiled:
        verdict = "compiled" if one.ok else "FAILED"
        stdout.print(f"sm_90 {one.stem} {one.dtype}: {verdict}: {one.text}", markup=False)
    bad = any(statuses[s] for s in _BAD_STATUSES) or not all(one.ok for one in compiled)
    stdout.print(", ".join(f"{count} {status}" for status, count in statuses.most_common()))
    return run_dir, bad


def _check(options: argparse.Namespace) -> int:
    if not _refuse_missing_device(options.device):
        run_dir, bad = _checks_without_gpu(options)
        print(f"{run_dir}: checked without a GPU")
        return 1 if bad else 0
    from .checking import check_on_gpu

    registry, units = _units(options, tests=True)
    return check_on_gpu(registry, units, options)


def _tune(options: argparse.Namespace) -> int:
    from .console import Progress, stdout
    from .sweep import SweepOptions
    from .tune import tune

    if not _refuse_missing_device(options.device):
        raise UsageError("tune times kernels and no GPU is visible; run it on a GPU machine")
    _, units = _units(options)
    sweep = SweepOptions(
        options.device, options.seed, "default", tuple(options.kernels), options.timeout
    )
    for file in tune(units, sweep, Progress()):
        stdout.print(f"wrote {file}", markup=False)
    return 0


def _draw(run_dir: Path, out: Path | None, formats: Sequence[str] | None) -> None:
    from .console import stdout

    if importlib.util.find_spec("matplotlib") is None:
        stdout.print(
            "no plots: matplotlib is not installed; pip install matplotlib, then "
            f"python -m harness plot {run_dir}",
            markup=False,
        )
        return
    from .plots import plot_run
    from .results import read_run

    figures = plot_run(
        read_run(run_dir), out or run_dir / "plots", tuple(formats or ("png", "svg"))
    )
    stdout.print(f"{len(figures)} figures in {out or run_dir / 'plots'}", markup=False)


def _plot(options: argparse.Namespace) -> int:
    folder = options.run.parent if options.run.is_file() else options.run
    _draw(folder, options.out, options.formats)
    return 0


def _compare(options: argparse.Namespace) -> int:
    from .compare import compare_runs, compare_sides, exit_code, render
    from .console import stdout
    from .results import read_run

    base = read_run(options.base)
    thresholds = {"noise_floor": options.noise_floor, "least_effect": options.least_effect}
    if options.new is None:
        if not (options.side and options.vs):
            raise UsageError("compare: one run given, wanted two, or --side cuda --vs triton")
        comparison = compare_sides(base, side=options.side, vs=options.vs, **thresholds)
    else:
        comparison = compare_runs(base, read_run(options.new), force=options.force, **thresholds)
    render(comparison, stdout)
    return exit_code(comparison)


def _readme(options: argparse.Namespace) -> int:
    from .readme import check_readme, update_readme
    from .results import read_run

    run = read_run(options.run)
    if not options.check:
        update_readme(options.readme, run)
        return 0
    if check_readme(options.readme, run):
        return 0
    print(
        f"{options.readme}: the results table is not what {options.run} gives; run `make readme`",
        file=sys.stderr,
    )
    return 1
