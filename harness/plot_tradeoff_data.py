"""What the trade-off figure draws: how much code each side needs, and how near its roof it is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.machine import source_problem
from harness.pairs import size_of
from harness.registry import Registry
from harness.report_text import count, mapping, number, sequence
from harness.results import KEY, Run
from harness.sides import NAMES, SIDES

if TYPE_CHECKING:
    from harness.effort.counts import Effort

EffortOf = Callable[[Registry, str, str, str], "Effort"]
_CASE_KEY = tuple(c for c in KEY if c not in ("backend", "variant"))
NOT_INSTALLED = "counting needs lizard and tree-sitter; pip install 'cuda-vs-triton[effort]'"


@dataclass(frozen=True)
class Point:
    """One implementation: distinct concepts and tokens of all code of ours that it reaches, and
    its share of the roof in percent. name: of a rung, "" for the headline."""

    concepts: int
    tokens: int
    pct_roof: float
    name: str = ""


@dataclass(frozen=True)
class Arrow:
    """One op at its largest case that is timed on both sides."""

    op: str
    case: str
    cuda: Point
    triton: Point


@dataclass(frozen=True)
class Path:
    """A ladder: rungs of one side at one case, the simplest first, the headline last."""

    op: str
    side: str
    case: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class TradeOff:
    """left_out: what is not drawn, with its reason, a text each."""

    arrows: list[Arrow]
    paths: list[Path]
    left_out: list[str]


class _LeftOutError(Exception):
    """Why an implementation has no point."""


def trade_off(run: Run, effort_of: EffortOf | None = None) -> TradeOff | str:
    """Collect arrows and paths; a reason where nothing can be counted at all.

    effort_of: that of harness.effort.counts unless given.
    """
    if effort_of is None:
        try:
            # Here, not above: lizard and tree-sitter may be missing.
            from harness.effort.counts import effort_of as counted
        except ImportError:
            return NOT_INSTALLED
        effort_of = counted
    counter = _Counter(Registry(), effort_of)
    arrows, paths, left_out = [], [], []
    timed = run.rows[(run.rows["status"] == "ok") & run.rows["backend"].isin(SIDES)]
    for op in run.rows["op"].drop_duplicates():
        rows = timed[timed["op"] == op]
        try:
            counter.check(str(op))
            arrows.append(_arrow(str(op), rows, counter))
        except _LeftOutError as reason:
            left_out.append(f"{op} ({reason})")
            continue
        for side, rungs in mapping(mapping(run.meta.get("ladders")).get(op)).items():
            names = [str(mapping(rung).get("name")) for rung in sequence(rungs)]
            path, missing = _path(str(op), str(side), rows, names, counter)
            left_out += missing
            if path is not None:
                paths.append(path)
    return TradeOff(arrows, paths, left_out)


class _Counter:
    """Counts of sources, each asked once, believed only where the run was made from them."""

    def __init__(self, registry: Registry, effort_of: EffortOf) -> None:
        self._registry = registry
        self._effort_of = effort_of

    def check(self, op: str) -> None:
        if op not in self._registry.stems:
            raise _LeftOutError("its source is not in this checkout")

    def point(self, row: Mapping[Any, Any]) -> Point:
        op, side, rung = (str(row[c]) for c in ("op", "backend", "variant"))
        name = NAMES[side]
        if problem := source_problem(self._registry, op, side, {str(row["kernel_hash"])}, rung):
            raise _LeftOutError(f"{name}: {problem}")
        try:
            effort = self._effort_of(self._registry, op, side, rung)
        except ImportError:
            raise _LeftOutError(NOT_INSTALLED) from None
        if effort.missing:
            raise _LeftOutError(f"{name}: {effort.missing}")
        known = [c for c in (effort.device, effort.host, effort.shared) if c is not None]
        tokens = sum(c.tokens for c in known)
        if effort.device is None or tokens < 1:
            raise _LeftOutError(f"{name}: no code was counted")
        concepts = frozenset[str]().union(*(c.concepts for c in known))
        return Point(len(concepts), tokens, number(row["pct_roof"]), rung)


def _arrow(op: str, rows: pd.DataFrame, counter: _Counter) -> Arrow:
    main = rows[rows["headline"].fillna(False).astype(bool) & _known(rows)]
    both: dict[tuple[str, ...], dict[str, Mapping[Any, Any]]] = {}
    for row in main.to_dict("records"):
        both.setdefault(_key(row), {})[str(row["backend"])] = row
    cases = [by_side for by_side in both.values() if len(by_side) == len(SIDES)]
    if not cases:
        raise _LeftOutError("no case has a time and a roof on both sides")
    # Of equally large cases the first: max() keeps it.
    largest = max(cases, key=lambda by_side: size_of(by_side["cuda"]))
    cuda, triton = (counter.point(largest[side]) for side in SIDES)
    return Arrow(op, _case_name(largest["cuda"]), cuda, triton)


def _path(
    op: str, side: str, rows: pd.DataFrame, rungs: Sequence[str], counter: _Counter
) -> tuple[Path | None, list[str]]:
    """Return the ladder at its largest case, and which rungs have no point."""
    own = rows[(rows["backend"] == side) & _known(rows)]
    by_case: dict[tuple[str, ...], dict[str, Mapping[Any, Any]]] = {}
    for row in own[own["variant"].isin([*rungs, ""])].to_dict("records"):
        by_case.setdefault(_key(row), {})[str(row["variant"])] = row
    cases = [found for found in by_case.values() if "" in found and len(found) > 1]
    if not cases:
        return None, []
    largest = max(cases, key=lambda found: size_of(found[""]))
    points, missing = [], []
    for name in [*rungs, ""]:
        if name in largest:
            try:
                points.append(counter.point(largest[name]))
            except _LeftOutError as reason:
                missing.append(f"{op} {name} ({reason})")
    if len(points) < 2:
        return None, missing
    return Path(op, side, _case_name(largest[""]), tuple(points)), missing


def _known(rows: pd.DataFrame) -> pd.Series[bool]:
    share = rows["pct_roof"].astype("float64")
    known: pd.Series[bool] = (share > 0) & (share < 1e6)
    return known


def _key(row: Mapping[Any, Any]) -> tuple[str, ...]:
    return tuple(str(row[c]) for c in _CASE_KEY)


def _case_name(row: Mapping[Any, Any]) -> str:
    return f"{row['case']} {row['dtype']}"


def finding(found: TradeOff) -> str:
    """Return the figure's finding in words: what the arrows say in numbers."""
    fewer = sum(a.triton.concepts < a.cuda.concepts for a in found.arrows)
    near = [a for a in found.arrows if abs(a.triton.pct_roof - a.cuda.pct_roof) <= 5.0]
    ratios = [a.cuda.tokens / a.triton.tokens for a in found.arrows]
    middle = statistics.median(ratios) if ratios else math.nan
    return (
        f"Share of the roof against the code that it takes, for {count(len(found.arrows), 'op')} "
        f"at the largest case: Triton names fewer concepts in {fewer}, and is within 5 points of "
        f"the roof of CUDA in {len(near)}; the median of CUDA's tokens over Triton's is "
        f"{middle:.2f}."
    )
