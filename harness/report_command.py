"""`report`, and the page that bench leaves behind; jinja2 and pygments may be missing."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .schema import ResultsError

_NEEDED = {"jinja2": "jinja2>=3.1", "pygments": "pygments>=2.17", "matplotlib": "matplotlib>=3.8"}


class ReportError(Exception):
    """No report can be written; the text is one line that says what to do."""


def report(options: argparse.Namespace) -> int:
    """Write a run's report; one line says where it is."""
    missing = _missing()
    if missing:
        raise ReportError(f"no report: {missing}")
    from .explain.fact_file import FACTS_NAME
    from .explain.timed import facts_of
    from .report import REPORT_NAME, write_report
    from .results import read_run

    run = read_run(options.run)
    out = options.out or run.path / REPORT_NAME
    if out.is_dir():
        out = out / REPORT_NAME
    base = None if options.base is None else read_run(options.base)
    _refuse_unwritable(out)
    if not run.complete:
        print(f"warning: {run.path} is not a finished run; what it holds is shown", file=sys.stderr)
    if (run.path / FACTS_NAME).exists() and (problem := facts_of(run).problem):
        print(f"warning: {run.path}: {problem}; the page goes without it", file=sys.stderr)
    path = write_report(run, out, base)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


def _refuse_unwritable(out: Path) -> None:
    """Find out before the page is made, which takes seconds, that it could not be written."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise ReportError(
            f"cannot write {out}: {error.strerror or error}; choose another --out"
        ) from error


def report_after(run_dir: Path, out: Path | None = None, figures: Sequence[Path] = ()) -> None:
    """Write the report of what a command has measured; where it cannot be, say so in a line.

    figures: those that were just drawn; without them they are drawn again.
    """
    from .console import stdout

    missing = _missing()
    if missing:
        stdout.print(f"no report: {missing}", markup=False)
        return
    from .report import REPORT_NAME, write_report
    from .results import read_run

    try:
        path = write_report(read_run(run_dir), out or run_dir / REPORT_NAME, None, figures or None)
    except ResultsError as error:
        stdout.print(f"no report: {error}", markup=False)
        return
    stdout.print(f"report: {path}", markup=False)


def _missing() -> str:
    """Return what to install, "" when all is there."""
    absent = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if not absent:
        return ""
    wanted = " ".join(f"'{_NEEDED[name]}'" for name in absent)
    verb = "is" if len(absent) == 1 else "are"
    return f"{' and '.join(absent)} {verb} not installed; pip install {wanted}"
