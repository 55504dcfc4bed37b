"""A comparison for programs: every row as CSV, all of it as JSON (docs/results-schema.md)."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness import stats
from harness.compare_gate import Outcome
from harness.compare_means import means
from harness.compare_rerun import rerun_commands
from harness.results import Run, meta_fact
from harness.schema import META_FACTS

if TYPE_CHECKING:
    from harness.compare import Comparison

COMPARE_SCHEMA = "1.0"
# In this order. Columns that a comparison of two sides lacks are empty there.
COLUMNS = (
    *("op", "family", "case", "dims", "distribution", "dtype", "math_mode", "backend", "variant"),
    *("bound", "cache", "base_status", "new_status", "base_us", "new_us", "ratio", "low", "high"),
    *("band", "verdict", "changed", "reason", "lost", "failed", "limited", "at_equal_clock"),
    *("clock_ratio", "paired", "by_runs", "base_runs", "new_runs"),
)
# The most that pandas writes; times are in us, so this is far below any clock's tick.
_DECIMALS = 15


def table_of(comparison: Comparison) -> pd.DataFrame:
    """Return COLUMNS of every row, also of those without a verdict, in the order of the files."""
    table: pd.DataFrame = comparison.rows.reindex(columns=list(COLUMNS))
    return table


def csv_text(comparison: Comparison) -> str:
    """Return every row as CSV: empty means unknown, flags are 1 and 0."""
    table = table_of(comparison)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    # Half the time that DataFrame.to_csv takes for a hundred thousand rows.
    writer.writerows(zip(*(_cells(table[name]) for name in COLUMNS), strict=True))
    return stream.getvalue()


def _cells(column: pd.Series[Any]) -> list[Any]:
    """A column's cells as the csv module writes them, each number with all its digits."""
    if column.dtype.kind == "b":
        return column.astype("int64").tolist()
    if column.dtype.kind != "f":
        return column.tolist()
    # An interval without an upper end is none; no other column can be infinite.
    return ["" if not math.isfinite(value) else value for value in column.tolist()]


def json_text(comparison: Comparison, outcome: Outcome) -> str:
    """Return everything that the terminal shows and more as JSON."""
    rows = comparison.rows
    facts: dict[str, Any] = {
        "schema": COMPARE_SCHEMA,
        "sides": list(comparison.sides) or None,
        "base": [_facts(run) for run in comparison.runs[0]],
        "new": [_facts(run) for run in comparison.runs[1]],
        "labels": list(comparison.labels),
        "counts": {verdict: comparison.count(verdict) for verdict in stats.VERDICTS}
        | {"newly_incorrect": comparison.newly_incorrect, "lost": comparison.lost},
        "means": [
            {
                "level": mean.level,
                "name": mean.name,
                "ratio": mean.ratio if mean.n_rows else None,
                "n_rows": mean.n_rows,
                "left_out": mean.left_out,
                "at_equal_clock": mean.at_equal_clock,
            }
            for mean in means(rows)
        ],
        "rerun": rerun_commands(comparison),
        "gate": outcome.counts,
        "exit_code": outcome.code,
    }
    lines = table_of(comparison).to_json(
        orient="records", double_precision=_DECIMALS, force_ascii=False
    )
    head = json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False)
    return head.removesuffix("\n}") + f',\n "rows": {lines}\n}}\n'


def _facts(run: Run) -> dict[str, Any]:
    """A run's folder and what compare reads of its machine; null is not recorded."""
    names = [name for name in META_FACTS if name != "clocks"]
    return {"path": str(run.path)} | {name: meta_fact(run.meta, name) for name in names}
