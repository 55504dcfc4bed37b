"""A comparison as text in a terminal, a log or a pipe."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from harness import stats
from harness.results import varying

if TYPE_CHECKING:
    from harness.compare import Comparison

_STYLES = {
    "SLOWER": "bold red",
    "MISSING": "magenta",
    "FASTER": "bold green",
    "UNCLEAR": "yellow",
    "SAME": "",
}
_TELLING_CLOCK = 0.01
_ENDLESS = 100_000  # columns; wider than any row


def render(comparison: Comparison, console: Console, limit: int = 200) -> None:
    """Print labels, the table (worst verdicts first, at most `limit` rows), counts and means.

    Names are never cut: a row wider than the console runs on. NO_COLOR is the console's business.
    """
    console.print(
        Text(f"base: {comparison.base_name}   new: {comparison.new_name}"), soft_wrap=True
    )
    for label in comparison.labels:
        console.print(Text(f"! {label}", style="yellow"), soft_wrap=True)
    rows = _ordered(comparison.rows)
    table = _table(rows.head(limit))
    console.print(_Uncut(table), soft_wrap=True)
    for line in _summary(comparison, rows, limit):
        console.print(Text(line), soft_wrap=True)


class _Uncut:
    """A table at its full width: Console.print would squeeze it into the terminal's."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        endless = options.update(max_width=_ENDLESS)
        width = Measurement.get(console, endless, self._table).maximum
        yield from console.render(self._table, options.update(width=max(width, 1)))


def _ordered(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a verdict or a new failure: failures, then worst verdict, then size."""
    shown = rows[(rows["verdict"] != "") | rows["failed"]]
    rank = shown["verdict"].map({v: i for i, v in enumerate(stats.VERDICTS)})
    order = pd.DataFrame(
        {"failed": ~shown["failed"], "rank": rank, "effect": -(shown["ratio"] - 1.0).abs()}
    )
    index = order.sort_values(["failed", "rank", "effect"], kind="stable").index
    ordered: pd.DataFrame = shown.loc[index]
    return ordered


def _table(rows: pd.DataFrame) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("op", "case", "dtype", "row"):
        table.add_column(name, no_wrap=True)
    for name in ("base us", "new us", "new/base", "99 % interval", "band"):
        table.add_column(name, no_wrap=True, justify="right")
    for name in ("verdict", "changed"):
        table.add_column(name, no_wrap=True)
    telling = varying(rows, ("math_mode", "distribution"))
    for row in rows.to_dict("records"):
        shown = {c: row[c] for c, ops in telling.items() if row["op"] in ops}
        table.add_row(
            Text(str(row["op"])),
            Text(_with(str(row["case"]), shown.get("distribution"))),
            Text(_with(str(row["dtype"]), shown.get("math_mode"))),
            Text(":".join(str(row[c]) for c in ("backend", "variant") if row.get(c))),
            Text(_time(row["base_us"])),
            Text(_time(row["new_us"])),
            Text(_number(row["ratio"], "{:.3f}")),
            Text(_interval(row["low"], row["high"])),
            Text(f"{100 * row['band']:.2g} %" if row["ratio"] == row["ratio"] else ""),
            Text(_verdict(row), style=_STYLES.get(row["verdict"], "")),
            Text(str(row["changed"])),
        )
    return table


def _with(text: str, extra: object) -> str:
    return f"{text} ({extra})" if extra else text


def _verdict(row: Mapping[Any, Any]) -> str:
    """Return the verdict with what explains it: a clock held down, or statuses without a time."""
    if row["at_equal_clock"]:
        return f"{row['verdict']} at equal clock (new ran at {row['clock_ratio']:.3f} of base's)"
    if row["limited"] and abs(row["clock_ratio"] - 1) > _TELLING_CLOCK:
        return f"{row['verdict']} (new ran at {row['clock_ratio']:.3f} of base's clock)"
    if row["base_status"] == row["new_status"]:
        return str(row["verdict"])
    text = f"{row['base_status'] or 'no row'} -> {row['new_status'] or 'no row'}"
    return f"{row['verdict'] or 'MISSING'} ({text})"


def _number(value: object, form: str) -> str:
    return form.format(value) if isinstance(value, float) and math.isfinite(value) else ""


def _time(value: object) -> str:
    """Return microseconds with four significant digits, never in exponent form."""
    if not isinstance(value, float) or not math.isfinite(value):
        return ""
    digits = 3 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{min(max(digits, 0), 9)}f}"


def _interval(low: float, high: float) -> str:
    if low != low or high != high:
        return ""
    return f"{low:.3f} .. {high:.3f}" if math.isfinite(high) else "too few rounds"


def _summary(comparison: Comparison, shown: pd.DataFrame, limit: int) -> list[str]:
    """Return the closing lines: rows hidden, counts, and means with what they leave out."""
    lines = []
    if len(shown) > limit:
        hidden = shown.iloc[limit:]["verdict"].value_counts()
        parts = [f"{n} {v}" for v, n in hidden.items()]
        lines.append(f"{len(shown) - limit} more rows not shown: {', '.join(parts)}")
    rows = comparison.rows
    counts = [f"{comparison.count(v)} {v}" for v in stats.VERDICTS]
    untimed = int(((rows["verdict"] == "") & ~rows["failed"]).sum())
    lines.append(
        f"{', '.join(counts)}; newly incorrect {comparison.newly_incorrect}; "
        f"only in base {_absent(rows, 'new')}, only in new {_absent(rows, 'base')}; "
        f"timed on neither side {untimed}"
    )
    # A launch-bound ratio compares two empty launches; averaging it in would pull towards 1.
    launch = rows["bound"] == "launch"
    for op in rows.loc[~launch, "op"].drop_duplicates():
        lines.append(_mean_line(str(op), rows[~launch & (rows["op"] == op)]))
    lines.append(_mean_line("overall", rows[~launch]))
    if launch.any():
        lines.append(_mean_line("launch-bound rows alone", rows[launch]))
    return lines


def _absent(rows: pd.DataFrame, side: str) -> int:
    return int((rows[f"{side}_status"] == "").sum())


def _mean_line(name: str, rows: pd.DataFrame) -> str:
    ratios = rows["ratio"].dropna()
    kept: Callable[[float], str] = "{:.3f}".format
    mean = kept(stats.geometric_mean(ratios)) if len(ratios) else "none"
    equal = int(rows["at_equal_clock"].sum())
    return (
        f"geometric mean new/base, {name}: {mean} over {len(ratios)} rows ok on both sides "
        f"({len(rows) - len(ratios)} left out{f', {equal} at equal clock' if equal else ''})"
    )
