"""The pair that the page's words about a kernel rest on: the headline launches of one case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ..results import Run
from ..schema import KEY
from ..sides import NAMES, SIDES
from .fact_file import FACTS_NAME, TimedLaunch, launches_of, read, row_key
from .facts import ExplainError, KernelFacts
from .run_view import mismatches

_CASE = [column for column in KEY if column not in ("op", "backend", "variant")]


@dataclass(frozen=True)
class Facts:
    """facts.json of a run; `problem` says why there is none of it, `detail` also what its reader
    said."""

    kernels: Mapping[str, KernelFacts] = field(default_factory=dict)
    rows: Mapping[str, Any] = field(default_factory=dict)
    tools: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    detail: str = ""


@dataclass(frozen=True)
class TimedSide:
    """One side of the case. row: None where the run has none. unknown: why there are no launches,
    "" where there are."""

    backend: str
    row: Mapping[str, Any] | None = None
    launches: tuple[TimedLaunch, ...] = ()
    unknown: str = ""

    @property
    def shown(self) -> TimedLaunch | None:
        """The first launch with the largest grid: what a drawing shows of several."""
        known = [launch for launch in self.launches if launch.n_blocks]
        return max(known, key=lambda launch: launch.n_blocks or 0, default=None)


@dataclass(frozen=True)
class TimedPair:
    """The largest case of an op's first dtype, on both sides."""

    op: str
    case: str
    dtype: str
    sides: tuple[TimedSide, TimedSide]


def facts_of(run: Run) -> Facts:
    """Read the run's facts; a file that is missing or malformed becomes a problem in a line."""
    path = run.path / FACTS_NAME
    if not path.is_file():
        absent = f"the run has no {FACTS_NAME}"
        return Facts(problem=absent, detail=absent)
    try:
        found = read(path)
    except ExplainError as error:
        return Facts(
            problem=f"{FACTS_NAME} cannot be read; run the benchmark again",
            detail=str(error).replace(str(path), FACTS_NAME),
        )
    return Facts(found.kernels, found.rows, found.tools)


def timed_pair(run: Run, facts: Facts, op: str) -> TimedPair | None:
    """Return the op's pair, None where neither side has a headline row.

    The case: of those with a timed row the one with the most flops, then the most bytes, in the
    dtype that the run's file has first.
    """
    rows = run.rows[run.rows["op"] == op]
    rows = rows[rows["headline"].fillna(False).astype(bool) & rows["backend"].isin(SIDES)]
    if rows.empty:
        return None
    timed = rows[rows["status"] == "ok"]
    known = rows if timed.empty else timed
    known = known[known["dtype"] == known["dtype"].iloc[0]]
    moved = known["bytes_read"].fillna(0) + known["bytes_written"].fillna(0)
    size = pd.DataFrame({"flops": known["flops"].fillna(0.0), "moved": moved.astype("float64")})
    largest = size.sort_values(["flops", "moved"], ascending=False, kind="stable").index[0]
    case = known.loc[largest]
    same = rows[(rows[_CASE] == case[_CASE]).all(axis=1)]
    cuda, triton = (_side(same[same["backend"] == side], side, facts) for side in SIDES)
    return TimedPair(op, str(case["case"]), str(case["dtype"]), (cuda, triton))


def _side(rows: pd.DataFrame, backend: str, facts: Facts) -> TimedSide:
    if rows.empty:
        return TimedSide(backend, unknown=f"the run has no {NAMES[backend]} row of this case")
    row = {str(k): v for k, v in rows.iloc[0].items()}
    launches, unknown = _launches(row, facts)
    return TimedSide(backend, row, launches, unknown)


def _launches(row: Mapping[str, Any], facts: Facts) -> tuple[tuple[TimedLaunch, ...], str]:
    if row["status"] != "ok":
        return (), f"it was not timed: {row['status']}"
    entry = facts.rows.get(row_key(row))
    if entry is None:
        return (), facts.problem or f"{FACTS_NAME} has no entry for it"
    try:
        found = launches_of(entry, facts.kernels)
    except ExplainError:
        return (), f"{FACTS_NAME}: its entry cannot be read"
    if mismatches(row, entry):
        return (), f"{FACTS_NAME} is of other sources, another configuration or kernel"
    return found, "" if found else f"{FACTS_NAME} names no launch of it"
