"""The commands that read a run's files: plot and readme. No torch, no triton, no GPU."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path


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
