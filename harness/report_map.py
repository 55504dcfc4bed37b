"""The report's first table: which side wins where, by how much, how sure; and its sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from harness import stats
from harness.compare import ComparisonRefused, compare_sides
from harness.report_text import UNKNOWN, count, interval, mapping, number, time_us, times
from harness.results import Run, gpu_names, varying

BAND = 0.02  # what compare takes for the least effect of interest
MAX_LINES = 600
# verdict of time CUDA / Triton -> CSS class, sign, words. The sign tells without colour.
WINNERS = {
    "FASTER": ("cuda", "◀", "CUDA faster"),
    "SLOWER": ("triton", "▶", "Triton faster"),
    "SAME": ("same", "=", "same"),
    "UNCLEAR": ("unclear", "?", "unclear"),
}
_FAR = 1.25  # from here on a cell is tinted more strongly


@dataclass(frozen=True)
class Cell:
    """One op, case and dtype: `detail` is for readers who want the times behind the ratio."""

    kind: str
    sign: str
    words: str
    ratio: str = ""
    interval: str = ""
    detail: str = ""
    far: bool = False


@dataclass(frozen=True)
class Line:
    """One case of an op; cells by dtype, None where the op has no such case in that dtype."""

    op: str
    case: str
    launch: bool
    cells: list[Cell | None]


@dataclass(frozen=True, eq=False)
class SideMap:
    """The comparison of both sides, as a table and as rows; `refused` says why there is none."""

    dtypes: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    hidden: int = 0
    labels: list[str] = field(default_factory=list)
    refused: str = ""
    rows: pd.DataFrame = field(default_factory=pd.DataFrame)


def side_map(run: Run) -> SideMap:
    """Compare CUDA with Triton, round by round, over all cases of the run."""
    try:
        comparison = compare_sides(run, "cuda", "triton", least_effect=BAND)
    except ComparisonRefused as refusal:
        return SideMap(refused=str(refusal).replace(str(run.path), "this run"))
    rows = comparison.rows
    dtypes = [str(d) for d in rows["dtype"].drop_duplicates()]
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for row, name in zip(rows.to_dict("records"), case_names(rows), strict=True):
        lines.setdefault((str(row["op"]), name), {})[str(row["dtype"])] = row
    shown = [_line(op, case, found, dtypes) for (op, case), found in lines.items()]
    return SideMap(
        dtypes, shown[:MAX_LINES], len(shown[MAX_LINES:]), list(comparison.labels), "", rows
    )


def case_names(rows: pd.DataFrame) -> list[str]:
    """Return each row's case, with its distribution and math mode where these tell rows apart."""
    telling = varying(rows, ("distribution", "math_mode"))
    names = []
    for row in rows.to_dict("records"):
        extra = [str(row[c]) for c, ops in telling.items() if row["op"] in ops and row[c]]
        names.append(f"{row['case']} ({', '.join(extra)})" if extra else str(row["case"]))
    return names


def _line(op: str, case: str, found: Mapping[str, Any], dtypes: Sequence[str]) -> Line:
    launch = any(row["bound"] == "launch" for row in found.values())
    return Line(op, case, launch, [cell(found[d]) if d in found else None for d in dtypes])


def cell(row: Mapping[Any, Any]) -> Cell:
    """Return one row of compare_sides as a cell."""
    if row["verdict"] in WINNERS:
        kind, sign, words = WINNERS[row["verdict"]]
        ratio = float(row["ratio"])
        detail = f"CUDA {time_us(row['new_us'])} µs, Triton {time_us(row['base_us'])} µs"
        detail += f"; {row['reason']}" if row.get("reason") else ""
        far = max(ratio, 1 / ratio) >= _FAR if ratio > 0 else False
        return Cell(
            kind, sign, words, f"{ratio:.3f}", interval(row["low"], row["high"]), detail, far
        )
    sides = {"CUDA": row["new_status"], "Triton": row["base_status"]}
    timed = [side for side, status in sides.items() if status == "ok"]
    words = f"{timed[0]} only" if timed else "not timed"
    why = [f"{side} {status or 'has no row'}" for side, status in sides.items() if status != "ok"]
    return Cell("none", UNKNOWN, words, detail=", ".join(dict.fromkeys(why)))


def op_sentence(rows: pd.DataFrame, timed: pd.DataFrame) -> str:
    """Return one op in one sentence; rows: of compare_sides, timed: the run's ok rows."""
    ratios = rows["ratio"].dropna()
    parts = []
    if len(ratios):
        near = int((ratios.sub(1.0).abs() <= 0.01).sum())
        parts.append(f"CUDA and Triton are within 1 % on {near} of {count(len(ratios), 'case')}")
        parts += [_wins(rows, v, side) for v, side in (("SLOWER", "Triton"), ("FASTER", "CUDA"))]
        unclear = int((rows["verdict"] == "UNCLEAR").sum())
        parts.append(f"{count(unclear, 'case')} unclear" if unclear else "")
    else:
        parts.append("no case was timed on both sides")
    parts += [_roof_share(timed, b, side) for b, side in (("cuda", "CUDA"), ("triton", "Triton"))]
    text = "; ".join(part for part in parts if part)
    return f"{text[0].upper()}{text[1:]}."


def _wins(rows: pd.DataFrame, verdict: str, side: str) -> str:
    won = rows[rows["verdict"] == verdict]
    if won.empty:
        return ""
    most = won.loc[won["ratio"].apply(math.log).abs().idxmax()]
    where = f"{most['case']} {most['dtype']}"
    if len(won) == 1:
        return f"{side} is {times(most['ratio'])} faster at {where}"
    return f"{side} is faster on {len(won)}, at most {times(most['ratio'])} at {where}"


def _roof_share(timed: pd.DataFrame, backend: str, side: str) -> str:
    part = timed[(timed["backend"] == backend) & timed["headline"].fillna(False)]
    share = part.loc[part["bound"] != "launch", "pct_roof"].dropna()
    if share.empty:
        return ""
    low, high = f"{share.min():.0f}", f"{share.max():.0f}"
    return f"{side} reaches {low if low == high else f'{low} to {high}'} % of the measured roof"


def summary(run: Run, sides: SideMap) -> list[str]:
    """Return the sentences under the title, every one made of numbers of this run."""
    text = [_scope(run, sides)]
    rows = sides.rows
    if not sides.refused and rows["ratio"].notna().any():
        text += _verdicts(rows)
    text.append(_checked(run.rows))
    if not run.complete:
        text.append("The run is not complete: it was interrupted, and what it holds is shown.")
    return text


def _scope(run: Run, sides: SideMap) -> str:
    names = " and ".join(gpu_names(run)) or "a GPU that is not recorded"
    ops = count(run.rows["op"].nunique(), "op")
    if sides.refused:
        return f"{count(len(run.rows), 'row')} of {ops} on {names}."
    both = int(sides.rows["ratio"].notna().sum())
    total = count(len(sides.rows), "case")
    return f"On {names}, {ops} in {total} (shape and dtype); {both} were timed on both sides."


def _verdicts(rows: pd.DataFrame) -> list[str]:
    counts = {v: int((rows["verdict"] == v).sum()) for v in WINNERS}
    text = [
        f"Triton is faster in {counts['SLOWER']}, CUDA in {counts['FASTER']}, they are the same "
        f"within {100 * BAND:g} % in {counts['SAME']}, and {counts['UNCLEAR']} cannot be told."
    ]
    called = rows[rows["verdict"].isin(["FASTER", "SLOWER"])]
    if len(called):
        most = called.loc[called["ratio"].apply(math.log).abs().idxmax()]
        side = "Triton" if most["verdict"] == "SLOWER" else "CUDA"
        text.append(
            f"The largest difference is {times(most['ratio'])}: {side}, in {most['op']} "
            f"{most['case']} {most['dtype']}."
        )
    ratios = rows.loc[rows["bound"] != "launch", "ratio"].dropna()
    if len(ratios):
        left = int((rows["bound"] == "launch").sum())
        text.append(
            f"The geometric mean of CUDA time over Triton time is "
            f"{stats.geometric_mean(ratios):.3f} over {count(len(ratios), 'case')}"
            + (f", without {left} that only compare launches." if left else ".")
        )
    return text


def _checked(rows: pd.DataFrame) -> str:
    counts = {str(s): int(n) for s, n in rows["status"].value_counts(sort=False).items()}
    ok = counts.pop("ok", 0)
    others = ", ".join(f"{n} {s}" for s, n in sorted(counts.items()))
    right = f"{ok} of {count(len(rows), 'row')} passed their check against float64 and were timed"
    return f"{right}; the others: {others}." if others else f"{right}."


def floor_words(entry: object, name: str = "") -> str:
    """Return a class of the noise floor in words: how far identical builds lie apart."""
    known = mapping(entry)
    floor = number(known.get("floor"))
    below = number(known.get("below_us"))
    where = name or (f"below {below:g} µs" if math.isfinite(below) else "longer")
    source = f" ({known['source']})" if known.get("source") else ""
    return f"{where}: {100 * floor:.2g} %{source}" if math.isfinite(floor) else ""
