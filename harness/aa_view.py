"""An A/A record as text in a terminal, a log or a pipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_MOST_CALLS = 20
_REPEATED = (
    ("free", "at full clock", "medians"),
    ("clock_limited", "whose clock was held down", "medians"),
    ("equal_clock", "whose clock was held down", "ratios at equal clock"),
)


def render(record: Mapping[str, Any], console: Console) -> None:
    """Print the floors by duration, what was called, and how well medians repeat."""
    if not record["complete"]:
        console.print(
            Text(f"PARTIAL: stopped after {record['processes']} processes", style="yellow")
        )
    console.print(_floors(record))
    for line in (*_call_lines(record["calls"]), *_repeat_lines(record["repeatability"])):
        console.print(Text(line))


def _floors(record: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("duration", no_wrap=True)
    for name in ("rows", "pairs", f"p{record['classes'][0]['percentile']}", "noise floor"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("source", no_wrap=True)
    named = [
        ("longer" if entry["below_us"] is None else f"below {entry['below_us']:g} us", entry)
        for entry in record["classes"]
    ]
    named += [
        ("clock held down", record["clock_limited"]),
        ("at equal clock", record["equal_clock"]),
    ]
    for name, entry in named:
        table.add_row(
            name,
            str(entry["rows"]),
            str(entry["pairs"]),
            _percent(entry["measured"]),
            _percent(entry["floor"]),
            entry["source"],
        )
    return table


def _call_lines(calls: Mapping[str, Any]) -> list[str]:
    if not calls["pairs"]:
        return ["no row was timed in two processes, so nothing was judged"]
    how = "floors from the other processes" if calls["cross_validated"] else "floors from all"
    lines = [
        f"{calls['called']} of {calls['pairs']} rows of two processes were called FASTER or "
        f"SLOWER: {calls['per_thousand']:.1f} in a thousand, wanted at most 1 ({how}, least "
        f"effect {_percent(calls['least_effect'])})"
    ]
    for row in calls["rows"][:_MOST_CALLS]:
        lines.append(
            f"  {row['verdict']}: {row_label(row)}, process {row['new'] + 1} against "
            f"{row['base'] + 1}: {row['ratio']:.3f} ({row['low']:.3f} .. {row['high']:.3f}), "
            f"band {_percent(row['band'])}"
        )
    if len(calls["rows"]) > _MOST_CALLS:
        lines.append(f"  and {len(calls['rows']) - _MOST_CALLS} more in aa.json")
    if calls["missing"]:
        lines.append(f"{calls['missing']} rows of two processes lack a time on one side")
    return lines


def _repeat_lines(found: Mapping[str, Any]) -> list[str]:
    lines = []
    for key, name, values in _REPEATED:
        part, what = found[key], f"rows of {found['from_us']:g} us and longer {name}"
        if not part["rows"]:
            lines.append(f"no {what}")
            continue
        lines.append(
            f"{100 * part['share']:.1f} % of {part['rows']} {what} have all {values} within "
            f"{_percent(found['within'])} (largest over smallest); "
            f"{100 * part['share_of_pairs']:.1f} % of {part['pairs']} pairs of processes do; worst:"
        )
        lines += [
            f"  {_percent(row['spread'])}: {row_label(row)}, {row['time_us']:.4g} us"
            for row in part["worst"]
        ]
    return lines


def row_label(row: Mapping[str, Any]) -> str:
    """Return the words that name a row of the table."""
    side = ":".join(str(row[c]) for c in ("backend", "variant") if row.get(c))
    return f"{row['op']} {row['case']} {row['dtype']} {side}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2g} %"
