"""The report's section about an earlier run: counts, labels, and each row's ratio to it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from harness import stats
from harness.compare import Comparison, compare_runs
from harness.plot_compare import draw as draw_comparison
from harness.plot_style import PlotError
from harness.plots import card_of
from harness.report_figures import Picture, data_uri
from harness.report_map import case_names
from harness.report_ops import Column, Value
from harness.report_text import cut, fixed, interval, number, time_us
from harness.results import Run

MAX_ROWS = 1000
COLUMNS = (
    Column("Op", False),
    Column("Case", False, "shape and layout"),
    Column("Dtype", False),
    Column("Row", False, "implementation: backend, and variant"),
    Column("Base µs", True, "median in the base run"),
    Column("This run µs", True, "median in this run"),
    Column("This / base", True, "ratio of times with its 99 % interval; above 1 is slower"),
    Column("Band", True, "a difference within it is called the same"),
    Column("Verdict", False),
    Column("Changed", False, "source, configuration, tools or GPU"),
)
# verdict -> CSS class, sign
_MARKS = {
    "SLOWER": ("bad", "▲"),
    "FASTER": ("good", "▼"),
    "SAME": ("same", "="),
    "UNCLEAR": ("unclear", "?"),
    "MISSING": ("none", "–"),
}


@dataclass(frozen=True, eq=False)
class Base:
    """What the page says about the base run."""

    name: str
    sentence: str
    labels: list[str]
    rows: list[list[Value]]
    hidden: int
    figure: Picture | None


def against(base: Run, run: Run) -> Base:
    """Compare `run` with `base`; raises ComparisonRefused as compare does."""
    comparison = compare_runs(base, run)
    rows = comparison.rows
    told = rows[(rows["verdict"] != "") | rows["failed"]]
    rank = told["verdict"].map({v: i for i, v in enumerate(stats.VERDICTS)}).fillna(-1)
    order = pd.DataFrame({"failed": ~told["failed"], "rank": rank})
    order["effect"] = -(told["ratio"] - 1.0).abs()
    told = told.loc[order.sort_values(["failed", "rank", "effect"], kind="stable").index]
    shown = told.head(MAX_ROWS)
    names = case_names(shown)
    lines = [_values(row, n) for row, n in zip(shown.to_dict("records"), names, strict=True)]
    text = sentence(comparison)
    return Base(
        name_of(base),
        text,
        list(comparison.labels),
        lines,
        len(told) - len(shown),
        _figure(comparison, "base", "this run", card_of(run), text),
    )


def name_of(run: Run) -> str:
    """Return what tells a run from others without naming a folder of this machine."""
    begun = run.meta.get("started_utc") or "unknown date"
    commit = str(run.meta.get("git_commit") or "not recorded")[:10]
    return f"run of {begun}, commit {commit}"


def sentence(comparison: Comparison) -> str:
    """Return the counts of verdicts in words."""
    counts = ", ".join(f"{comparison.count(v)} {v}" for v in stats.VERDICTS)
    ratios = comparison.rows.loc[comparison.rows["bound"] != "launch", "ratio"].dropna()
    mean = stats.geometric_mean(ratios)
    text = f"{counts}; {comparison.newly_incorrect} newly incorrect, {comparison.lost} lost"
    text += " (a time in the base run, none in this)."
    if len(ratios):
        text += f" Geometric mean of this run's time over the base's: {mean:.3f} over "
        text += f"{len(ratios)} rows that are not launch-bound."
    return text


def _values(row: Mapping[Any, Any], name: str) -> list[Value]:
    verdict = str(row["verdict"]) or "MISSING"
    kind, sign = _MARKS[verdict]
    note = str(row.get("reason") or "")
    if note:
        note = "" if note == "interval within the band" else note
    elif row["base_status"] != row["new_status"]:
        note = f"{row['base_status'] or 'no row'}, now {row['new_status'] or 'no row'}"
    elif row["at_equal_clock"]:
        note = f"at equal clock; {number(row['clock_ratio']):.3f} of the base's"
    ratio = number(row["ratio"])
    known = ratio == ratio
    band = 100 * number(row["band"])
    side = f"{row['backend']}:{row['variant']}" if row["variant"] else str(row["backend"])
    return [
        Value(str(row["op"])),
        Value(name),
        Value(str(row["dtype"])),
        Value(side),
        *(_number(number(row[c]), time_us(row[c])) for c in ("base_us", "new_us")),
        Value(
            fixed(ratio, 3) if known else "",
            repr(ratio) if known else "",
            interval(row["low"], row["high"]),
        ),
        _number(band, f"{band:.2g} %") if known else Value(""),
        Value(f"{sign} {verdict}", note=note, kind=kind),
        Value(cut(row["changed"])),
    ]


def _number(value: float, text: str) -> Value:
    return Value(text, repr(value) if value == value else "")


def _figure(
    comparison: Comparison, base_name: str, new_name: str, card: str, alt: str
) -> Picture | None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = Path(folder) / "compare.svg"
            draw_comparison(comparison.rows, base_name, new_name, path, card=card)
        except PlotError:
            return None
        return Picture("compare", data_uri(path), f"Each row in both runs: {alt}", "")
