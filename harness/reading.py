"""The commands that read a run's files: plot, compare, readme. No torch, no triton, no GPU."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from .options import UsageError


def draw_after(run_dir: Path, out: Path | None = None) -> list[Path]:
    """Draw what a command has measured and return the files: figures that cannot be drawn here do
    not fail it."""
    from .console import stdout

    if importlib.util.find_spec("matplotlib") is None:
        stdout.print(
            "no plots: matplotlib is not installed; pip install matplotlib, then "
            f"python -m harness plot {run_dir}",
            markup=False,
        )
        return []
    return _draw(run_dir, out, None)


def _draw(run_dir: Path, out: Path | None, formats: Sequence[str] | None) -> list[Path]:
    """Draw a run; [] when it holds nothing to draw, which standard error was then told."""
    from .console import stdout
    from .plots import plot_run
    from .results import read_run

    run = read_run(run_dir)
    folder = out or run.path / "plots"
    figures = plot_run(run, folder, tuple(formats or ("png", "svg")))
    if not figures:
        return []
    if not run.complete:
        print(f"warning: {run_dir} is not a finished run; what it holds is drawn", file=sys.stderr)
    stdout.print(f"{len(figures)} figures in {folder}", markup=False)
    return figures


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
