"""One op of the report: its sentence, the table of all its rows, and what its marks mean."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from harness.report_by_hand import Made
from harness.report_effort import Written
from harness.report_figures import Picture
from harness.report_ladders import Ladder
from harness.report_map import SideMap, case_names, op_sentence
from harness.report_sources import Sources
from harness.report_text import UNKNOWN, cut, fixed, interval, number, short, time_us
from harness.results import KEY, Run
from harness.schema import FAILED

MAX_ROWS = 2500  # of a whole report: more no browser scrolls well, and the page stays below 10 MB

WARNINGS = {
    "launch_not_hidden": "the host could not queue launches ahead of the device, so the time may "
    "contain the launcher's own",
    "samples_rejected": "samples whose launch came too late were thrown away and taken again",
    "clock_limited": "the SM clock was held down, mostly by the power limit; the time is that of "
    "the clock the card gave",
    "power_limited": "the SM clock was held down by the power limit",
    "compiled_while_timed": "something was compiled while the case was timed",
    "inputs_changed_while_timed": "the inputs were not the same after timing",
    "graph_replay_wrong": "the replayed CUDA graph gave a wrong answer, so it has no graph time",
    "not_capturable": "a CUDA graph cannot capture it, so it has no graph time",
    "above_roof": "faster than the roof that this run measured: a roof is the best rate seen, "
    "not a law of nature",
    "gpu_shared": "another process was seen on the GPU meanwhile",
}


@dataclass(frozen=True)
class Column:
    """A sortable column; `help` is its title, `numeric` aligns right and sorts by value."""

    name: str
    numeric: bool = True
    help: str = ""


COLUMNS = (
    Column("Case", False, "shape and layout"),
    Column("Dtype", False),
    Column("Row", False, "implementation: backend, and variant"),
    Column("Form", False, "code path that ran"),
    Column("Status", False, "ok: right against float64 before and after timing"),
    Column("Time µs", True, "device time of one launch, median"),
    Column("± %", True, "half width of the mean's 99 % interval"),
    Column("CUDA / Triton", True, "ratio of times, round by round, with its 99 % interval"),
    Column("× torch", True, "torch's time over this time"),
    Column("% of roof", True, "share of the roof measured in this run"),
    Column("Roof", False),
    Column("Bound", False, "launch: within two launch floors, compares latency, not kernels"),
    Column("Graph µs", True, "a launch in a replayed CUDA graph, caches warm"),
    Column("Host µs", True, "CPU time of one call"),
    Column("Max abs. error", True, "largest absolute error against float64"),
    Column("Max rel. error", True, "largest relative error against float64"),
    Column("Allowance", True, "allowed absolute error at the element that uses most of its own"),
    Column("Warnings", False),
    Column("Configuration", False),
)


@dataclass(frozen=True)
class Value:
    """One cell: what is shown, what is sorted by, and a second, smaller line.

    anchor: of a line's first cell, the id that links to the line go to.
    """

    text: str
    key: str = ""
    note: str = ""
    kind: str = ""
    anchor: str = ""


@dataclass(frozen=True, eq=False)
class Op:
    """All that the page says about one op."""

    name: str
    anchor: str
    sentence: str
    figures: list[Picture]
    rows: list[list[Value]]
    hidden: int
    warnings: list[tuple[str, int, str]]
    ladders: list[Ladder]
    compiled: list[list[str]]
    sources: Sources
    made: Made | None = None
    written: Written = field(default_factory=Written)


COMPILED = ("registers", "spill_bytes", "shared_bytes", "kernel_symbol")


def table(run: Run, op: str, sides: SideMap, room: int) -> tuple[list[list[Value]], int]:
    """Return the op's rows in file order, at most `room`, and how many are left out."""
    rows = run.rows[run.rows["op"] == op]
    ratios = {}
    if len(sides.rows):
        part = sides.rows[(sides.rows["op"] == op) & sides.rows["ratio"].notna()]
        ratios = {_case(row): row for row in part.to_dict("records")}
    names = case_names(rows)
    shown = rows.head(max(room, 0))
    lines = []
    for place, row, name in zip(shown.index, shown.to_dict("records"), names, strict=False):
        stands = row["backend"] == "cuda" and row["headline"] is True
        case = Value(name, anchor=f"row-{place}")
        lines.append([case, *_values(row, ratios.get(_case(row), {}) if stands else {})])
    return lines, len(rows) - len(shown)


def _case(row: Mapping[Any, Any]) -> tuple[str, ...]:
    """What a CUDA and a Triton row of one case share."""
    return tuple(str(row[c]) for c in KEY if c not in ("backend", "variant"))


def _values(row: Mapping[Any, Any], side: Mapping[Any, Any]) -> list[Value]:
    """The row's cells behind its case's name."""
    implementation = f"{row['backend']}:{row['variant']}" if row["variant"] else row["backend"]
    ratio = number(side.get("ratio"))
    marks = [mark for mark in str(row["warnings"]).split(";") if mark]
    return [
        Value(str(row["dtype"])),
        Value(str(implementation)),
        Value(str(row["form"]) or UNKNOWN),
        Value(
            str(row["status"]),
            note=cut(row["reason"]),
            kind="bad" if row["status"] in FAILED else "",
        ),
        _number(row["time_us_p50"], time_us(row["time_us_p50"])),
        _number(row["precision_pct"], fixed(row["precision_pct"], 2)),
        Value(
            fixed(ratio, 3) if side else "",
            _key(ratio),
            interval(side.get("low"), side.get("high")) if side else "",
        ),
        _number(row["speedup_vs_torch"], fixed(row["speedup_vs_torch"], 2)),
        _number(row["pct_roof"], fixed(row["pct_roof"], 0)),
        Value(str(row["roof_name"]) or UNKNOWN),
        Value(str(row["bound"]) or UNKNOWN),
        _number(row["graph_us_p50"], time_us(row["graph_us_p50"])),
        _number(row["host_us_p50"], time_us(row["host_us_p50"])),
        *(_number(row[c], short(row[c])) for c in ("max_abs_err", "max_rel_err", "tolerance")),
        Value(", ".join(marks) or UNKNOWN, kind="marks"),
        Value(configuration(row["config"]) or UNKNOWN, note=cut(row["config_source"])),
    ]


def _key(value: float) -> str:
    return repr(value) if math.isfinite(value) else ""


def _number(value: object, text: str) -> Value:
    return Value(text, _key(number(value)))


def configuration(text: object) -> str:
    """Return a tuned configuration as NAME=value words; JSON's quotes only cost width."""
    try:
        found = json.loads(str(text))
    except ValueError:
        found = None
    if isinstance(found, Mapping):
        return cut(" ".join(f"{k}={v}" for k, v in found.items()))
    return cut(str(text).replace(";", " "))


def warnings_in_words(rows: pd.DataFrame) -> list[tuple[str, int, str]]:
    """Return each mark of these rows with how many have it and what it means."""
    counts: dict[str, int] = {}
    for text in rows["warnings"]:
        for mark in dict.fromkeys(m for m in str(text).split(";") if m):
            counts[mark] = counts.get(mark, 0) + 1
    meaning = "a mark that this version of the report does not know"
    return [(mark, n, WARNINGS.get(mark, meaning)) for mark, n in sorted(counts.items())]


def compiled(rows: pd.DataFrame) -> list[list[str]]:
    """Return what the compilers made of each implementation, [] where no row records any of it."""
    told = rows["kernel_symbol"].ne("") | rows[list(COMPILED[:3])].notna().any(axis=1)
    lines: dict[tuple[Any, ...], int] = {}
    for row in rows[told].to_dict("records"):
        numbers = [-1 if pd.isna(row[c]) else int(row[c]) for c in COMPILED[:3]]
        row_name = f"{row['backend']}:{row['variant']}" if row["variant"] else str(row["backend"])
        key = (row_name, str(row["dtype"]), str(row["form"]), str(row["kernel_symbol"]), *numbers)
        lines[key] = lines.get(key, 0) + 1
    unknown = ("", -1)
    return [
        [UNKNOWN if value in unknown else str(value) for value in key] + [str(n)]
        for key, n in sorted(lines.items())
    ]


def sentence(run: Run, op: str, sides: SideMap) -> str:
    """Return the op's own sentence of numbers."""
    timed = run.rows[(run.rows["op"] == op) & (run.rows["status"] == "ok")]
    rows = sides.rows
    if sides.refused:
        rows = pd.DataFrame({"op": [], "ratio": [], "verdict": []})
    return op_sentence(rows[rows["op"] == op], timed)
