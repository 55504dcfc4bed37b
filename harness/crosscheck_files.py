"""The files of `crosscheck`: a folder claimed before any measuring, two files at the end."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import crosscheck_rows as rules
from .crosscheck_rows import Judged, Verdict
from .measure import FULL_CLOCK
from .run_lock import RunLock
from .run_repair import write_atomically
from .schema import BENCH_NAME, ResultsError

TABLE_NAME = "crosscheck.csv"
RECORD_NAME = "crosscheck.json"


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold `folder` for one writer; one that nothing was written into is removed again.

    Raises ResultsError, in one line, when it holds results, another process has it or nothing can
    be written there.
    """
    there_before = folder.is_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = RunLock(folder)
    except OSError as error:
        raise _cannot_write(folder, error) from error
    try:
        held = [n for n in (TABLE_NAME, RECORD_NAME, BENCH_NAME) if (folder / n).exists()]
        if held:
            raise ResultsError(f"{folder} already holds {', '.join(held)}; choose another --out")
        yield
    finally:
        lock.release()
        if not there_before:
            with contextlib.suppress(OSError):  # not empty: that is what it is for
                folder.rmdir()


_DERIVED: Mapping[str, Callable[[Judged], Any]] = {
    "net_us": lambda judged: judged.net_us,
    "difference_us": lambda judged: judged.difference_us,
    "difference_pct": lambda judged: judged.difference_pct,
    "bound_us": lambda judged: judged.bound_us,
    "within": lambda judged: judged.within,
    "exempt": lambda judged: judged.exempt,
}


def write(folder: Path, verdict: Verdict, facts: Mapping[str, Any]) -> None:
    """`crosscheck.csv`, one row a kernel, raw microseconds; `crosscheck.json`, the rest, last."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for number, judged in enumerate(verdict.rows):
        cells = asdict(judged.row) | {"overhead_us": verdict.overhead_us}
        cells |= {name: value(judged) for name, value in _DERIVED.items()}
        if number == 0:
            writer.writerow(cells)
        writer.writerow("" if value is None else value for value in cells.values())
    record = json.dumps({**facts, **_summary(verdict)}, indent=1) + "\n"
    for name, content in ((TABLE_NAME, text.getvalue()), (RECORD_NAME, record)):
        try:
            write_atomically(folder / name, content.encode())
        except OSError as error:
            raise _cannot_write(folder / name, error) from error


def _summary(verdict: Verdict) -> dict[str, Any]:
    farthest = rules.worst(verdict.exempt)
    empty = verdict.empty
    return {
        "overhead_us": verdict.overhead_us,
        "offset_us": verdict.offset_us,
        "offset_spread_us": verdict.spread_us,
        "n_short": verdict.n_short,
        "offset_within": verdict.offset_within,
        "empty_ours_us": empty and empty.ours_us,
        "empty_other_us": empty and empty.other_us,
        "n_rows": len(verdict.rows),
        "n_judged": len(verdict.judged),
        "n_within": sum(judged.within for judged in verdict.judged),
        "n_exempt": len(verdict.exempt),
        "n_exempt_within": sum(judged.within for judged in verdict.exempt),
        "exempt_largest": farthest and farthest.row.label,
        "exempt_largest_us": farthest and farthest.difference_us,
        "exempt_largest_pct": farthest and farthest.difference_pct,
        "n_too_large": len(verdict.too_large),
        "passed": verdict.passed,
        "bounds": {
            "short_us": rules.SHORT_US,
            "short_bound_us": rules.SHORT_BOUND_US,
            "relative_bound": rules.RELATIVE_BOUND,
            "offset_bound_us": rules.OFFSET_BOUND_US,
            "spread_bound_us": rules.SPREAD_BOUND_US,
            "least_short": rules.LEAST_SHORT,
            "full_clock": FULL_CLOCK,
            "clock_bound": rules.CLOCK_BOUND,
        },
    }


def _cannot_write(path: Path, error: OSError) -> ResultsError:
    return ResultsError(f"cannot write {path}: {error.strerror or error}; choose another --out")
