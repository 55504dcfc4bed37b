"""The command `compare`: which runs and sides, where its output goes, and its exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .options import UsageError

if TYPE_CHECKING:
    from .compare import Comparison
    from .compare_gate import Outcome
    from .results import Run

_SUCH_AS = "such as --side cuda --vs triton"
_TEXTS = ("markdown", "csv", "json")


def compare(options: argparse.Namespace) -> int:
    """Compare, write what was asked for, print the table; returns the exit code."""
    from .compare_gate import read_gate

    gate = read_gate(options.fail_on, options.strict)
    base, new = _folders(options)
    _refuse_sides(options, bool(new))
    _refuse_outputs(options)
    comparison = _compared(options, base, new)
    outcome = gate.judge(comparison.rows)
    # A reader that closes the pipe early must not turn a slower row into success.
    with _closed_pipe_ignored():
        _write(options, comparison, outcome)
        sys.stdout.flush()
    return outcome.code


def _folders(options: argparse.Namespace) -> tuple[list[Path], list[Path]]:
    """The runs of base and of new, from the positional arguments or --base and --new."""
    places = [path for path in (options.base_run, options.new_run) if path is not None]
    if places and (options.base or options.new):
        raise UsageError(
            f"compare: {places[0]} and {'--base' if options.base else '--new'} were both given; "
            "name all runs by --base and --new, or one run a side without them"
        )
    base = list(options.base or places[:1])
    new = list(options.new or places[1:])
    if not base:
        raise UsageError(
            "compare: no run given, wanted BASE NEW, --base RUN ... --new RUN ..., or one run and "
            f"two sides of it, {_SUCH_AS}"
        )
    return base, new


def _refuse_sides(options: argparse.Namespace, two: bool) -> None:
    """Refuse `compare` with too few or too many of a second run, --side and --vs."""
    side, vs = options.side, options.vs
    if two:
        if side or vs:
            raise UsageError(
                "compare: --side and --vs compare within one run, but two were given; leave them "
                "or the second run out"
            )
    elif not (side or vs):
        raise UsageError(
            f"compare: one run given, wanted a second one, or two sides of the one, {_SUCH_AS}"
        )
    elif not (side and vs):
        given, lacks = ("--side", "--vs") if side else ("--vs", "--side")
        raise UsageError(f"compare: {given} {side or vs} without {lacks}; give both, {_SUCH_AS}")
    elif side == vs:
        raise UsageError(
            f"compare: --side and --vs are both {side!r}, wanted two backends, {_SUCH_AS}"
        )


def _refuse_outputs(options: argparse.Namespace) -> None:
    """Refuse files that cannot be, before anything is read."""
    given = {name: getattr(options, name) for name in _TEXTS if getattr(options, name) is not None}
    piped = [f"--{name}" for name, file in given.items() if file == "-"]
    if len(piped) > 1:
        raise UsageError(
            f"compare: {' and '.join(piped)} both go to standard output; give one of them a file"
        )
    for name, file in given.items():
        if file != "-" and Path(file).is_dir():
            raise UsageError(
                f"--{name} {file} is a folder, wanted a file or - for standard output; where it "
                f"is a run, put --{name} after the runs"
            )


def _compared(options: argparse.Namespace, base: Sequence[Path], new: Sequence[Path]) -> Comparison:
    from .compare import compare_runs, compare_sides
    from .results import read_run

    thresholds = {"noise_floor": options.noise_floor, "least_effect": options.least_effect}
    runs = [read_run(path) for path in base]
    if new:
        others = [read_run(path) for path in new]
        return compare_runs(runs, others, force=options.force, **thresholds)
    for run in runs:
        _refuse_backends(options, run)
    return compare_sides(runs, side=options.side, vs=options.vs, force=options.force, **thresholds)


def _refuse_backends(options: argparse.Namespace, run: Run) -> None:
    backends = sorted(run.rows["backend"].unique())
    for option, name in (("--side", options.side), ("--vs", options.vs)):
        if name not in backends and backends:
            raise UsageError(
                f"{option} {name!r}: {run.path} has no such backend, wanted one of "
                f"{', '.join(backends)}"
            )


def _write(options: argparse.Namespace, comparison: Comparison, outcome: Outcome) -> None:
    """Write the files, then standard output: what a closed pipe costs comes last."""
    from .compare_files import csv_text, json_text
    from .compare_markdown import markdown
    from .console import stdout

    makers = {
        "markdown": lambda: markdown(comparison, outcome),
        "csv": lambda: csv_text(comparison),
        "json": lambda: json_text(comparison, outcome),
    }
    asked = {name: getattr(options, name) for name in _TEXTS}
    for name, file in asked.items():
        if file is not None and file != "-":
            write_file(f"--{name}", Path(file), makers[name]())
    if options.plot is not None:
        _plot(comparison, options.plot)
    piped = next((name for name, file in asked.items() if file == "-"), None)
    if piped is not None:
        sys.stdout.write(makers[piped]())
        return
    from .compare import render

    render(comparison, stdout, outcome=outcome)


def write_file(option: str, path: Path, text: str) -> None:
    """Write a file whole or not at all; raises UsageError that names its option."""
    from .run_repair import write_atomically

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
    except OSError as error:
        raise UsageError(
            f"{option} {path}: cannot be written ({error.strerror or error}); choose another place"
        ) from error


def _plot(comparison: Comparison, path: Path) -> None:
    from .plot_compare import draw

    is_file = path.suffix in (".png", ".svg")
    draw(
        comparison.rows,
        comparison.base_name,
        comparison.new_name,
        path if is_file else path / "compare",
        card=_card(comparison),
    )


def _card(comparison: Comparison) -> str:
    """Model and date for the figure, where all runs share the model."""
    from .results import gpu_names, meta_value

    runs = [run for side in comparison.runs for run in side]
    names = {name for run in runs for name in gpu_names(run)}
    days = sorted({str(meta_value(run.meta, "started_utc") or "")[:10] for run in runs} - {""})
    return ", ".join([*(names if len(names) == 1 else ()), *days])


@contextmanager
def _closed_pipe_ignored() -> Iterator[None]:
    """Let `| head` end the output, and nothing else. rich leaves by SystemExit then."""
    import os

    try:
        yield
    except (BrokenPipeError, SystemExit):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
