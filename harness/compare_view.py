"""A comparison as text in a terminal, a log or a pipe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from harness import stats
from harness.compare_gate import Outcome
from harness.compare_means import means, told
from harness.compare_reasons import SAME_REASON
from harness.compare_rerun import rerun_commands
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
COLUMNS = ("op", "case", "dtype", "row", "base us", "new us", "new/base", "99 % interval", "band")
TEXTS = ("verdict", "changed", "why")
_N_NAMES = 4
_MAX_COMMANDS = 5
_ENDLESS = 100_000  # columns; wider than any row


def render(
    comparison: Comparison, console: Console, limit: int = 200, outcome: Outcome | None = None
) -> None:
    """Print labels, the table (worst verdicts first, at most `limit` rows), counts and means.

    Names are never cut: a row wider than the console runs on. NO_COLOR is the console's business.
    """
    console.print(Text(heading(comparison)), soft_wrap=True)
    for label in comparison.labels:
        console.print(Text(f"! {label}", style="yellow"), soft_wrap=True)
    rows = ordered(comparison.rows)
    table = _table(rows.head(limit))
    console.print(_Uncut(table), soft_wrap=True)
    lines = [*hidden(rows, limit), counts(comparison)]
    lines += [mean.text for mean in told(means(comparison.rows), comparison.rows)]
    lines += _rerun(comparison)
    for line in [*lines, *([outcome.text] if outcome else [])]:
        console.print(Text(line), soft_wrap=True)


def heading(comparison: Comparison) -> str:
    """Return the line that names both sides."""
    text = f"base: {comparison.base_name}   new: {comparison.new_name}"
    if comparison.sides:
        text += f"   of {' + '.join(str(run.path) for run in comparison.runs[0])}"
    return text


def _rerun(comparison: Comparison) -> list[str]:
    commands = rerun_commands(comparison)
    if not commands:
        return []
    more = len(commands) - _MAX_COMMANDS
    lines = [f"to measure what is UNCLEAR again{'' if comparison.sides else ', on both sides'}:"]
    lines += [f"  {command}" for command in commands[:_MAX_COMMANDS]]
    return lines + ([f"  and {more} more commands, all in --json"] if more > 0 else [])


class _Uncut:
    """A table at its full width: Console.print would squeeze it into the terminal's."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        endless = options.update(max_width=_ENDLESS)
        width = Measurement.get(console, endless, self._table).maximum
        yield from console.render(self._table, options.update(width=max(width, 1)))


def ordered(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a verdict or a new failure: failures, then worst verdict, then size."""
    shown = rows[(rows["verdict"] != "") | rows["failed"]]
    rank = shown["verdict"].map({v: i for i, v in enumerate(stats.VERDICTS)})
    order = pd.DataFrame(
        {"failed": ~shown["failed"], "rank": rank, "effect": -(shown["ratio"] - 1.0).abs()}
    )
    index = order.sort_values(["failed", "rank", "effect"], kind="stable").index
    result: pd.DataFrame = shown.loc[index]
    return result


def _table(rows: pd.DataFrame) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, name in enumerate(COLUMNS):
        table.add_column(name, no_wrap=True, justify="left" if place < _N_NAMES else "right")
    for name in TEXTS:
        table.add_column(name, no_wrap=True)
    for cells in cells_of(rows):
        texts = [Text(cell) for cell in cells]
        verdict = len(COLUMNS)
        texts[verdict].stylize(_STYLES.get(cells[verdict], ""))
        table.add_row(*texts)
    return table


def cells_of(rows: pd.DataFrame) -> list[list[str]]:
    """Return each row's cells as text, those of COLUMNS and then those of TEXTS."""
    telling = varying(rows, ("math_mode", "distribution"))
    lines = []
    for row in rows.to_dict("records"):
        shown = {c: row[c] for c, ops in telling.items() if row["op"] in ops}
        lines.append(
            [
                str(row["op"]),
                _with(str(row["case"]), shown.get("distribution")),
                _with(str(row["dtype"]), shown.get("math_mode")),
                ":".join(str(row[c]) for c in ("backend", "variant") if row.get(c)),
                _time(row["base_us"]),
                _time(row["new_us"]),
                _number(row["ratio"], "{:.3f}"),
                _interval(row["low"], row["high"]),
                f"{100 * row['band']:.2g} %" if row["ratio"] == row["ratio"] else "",
                str(row["verdict"]) or "MISSING",
                str(row["changed"]),
                _why(row),
            ]
        )
    return lines


def _why(row: Mapping[Any, Any]) -> str:
    """The reason, without what every SAME row says."""
    return str(row["reason"]).removeprefix(SAME_REASON).removeprefix("; ")


def _with(text: str, extra: object) -> str:
    return f"{text} ({extra})" if extra else text


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


def hidden(shown: pd.DataFrame, limit: int) -> list[str]:
    """Return the line that counts the rows beyond the first `limit`, or none."""
    if len(shown) <= limit:
        return []
    parts = [f"{n} {v}" for v, n in shown.iloc[limit:]["verdict"].value_counts().items()]
    return [f"{len(shown) - limit} more rows not shown: {', '.join(parts)}"]


def counts(comparison: Comparison) -> str:
    """Return the line that counts verdicts, failures, and rows of one side alone."""
    rows = comparison.rows
    of_verdict = [f"{comparison.count(v)} {v}" for v in stats.VERDICTS]
    untimed = int(((rows["verdict"] == "") & ~rows["failed"]).sum())
    return (
        f"{', '.join(of_verdict)}; newly incorrect {comparison.newly_incorrect}; "
        f"only in base {_absent(rows, 'new')}, only in new {_absent(rows, 'base')}; "
        f"timed on neither side {untimed}"
    )


def _absent(rows: pd.DataFrame, side: str) -> int:
    return int((rows[f"{side}_status"] == "").sum())
