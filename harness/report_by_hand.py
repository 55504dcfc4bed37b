"""An op's part of the page about its kernels: the drawing, and who does what by which evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from harness.explain.by_hand import ByHand, Cell, by_hand
from harness.explain.by_hand_view import MOST_PLACES
from harness.explain.hand_rules import Rule
from harness.explain.reach import Named
from harness.explain.timed import Facts, timed_pair
from harness.registry import Registry
from harness.report_drawing import drawing
from harness.report_svg import svg
from harness.report_text import cut
from harness.results import Run
from harness.sides import NAMES

_LONGEST = 60  # characters of a line of source in a cell


@dataclass(frozen=True)
class Place:
    """One place in a source; href: its line where the page shows that file, else ""."""

    where: str
    text: str
    href: str


@dataclass(frozen=True)
class Verdict:
    """One cell of the table; the words of by_hand.Cell, cut to what a table can hold."""

    state: str
    places: list[Place]
    more: int
    machine: str
    note: str


@dataclass(frozen=True)
class Line:
    """One row; `about` says what its name means."""

    row: str
    about: str
    cells: list[Verdict]


@dataclass(frozen=True, eq=False)
class Made:
    """What the page says of one pair."""

    case: str
    picture: Markup
    sides: list[str]
    lines: list[Line]
    notes: list[str]


def of_op(run: Run, facts: Facts, op: str, registry: Registry) -> ByHand | None:
    """Return the op's table, None where the run has no headline row of it."""
    pair = timed_pair(run, facts, op)
    return None if pair is None else by_hand(registry, pair)


def wanted(table: ByHand | None) -> frozenset[str]:
    """Return the lines of source that the table links to, as path:line."""
    lines = () if table is None else table.lines
    return frozenset(
        _where(place) for _, cells in lines for cell in cells for place in cell.source[:MOST_PLACES]
    )


def made(table: ByHand, run: Run, anchor: str, anchors: Mapping[str, str]) -> Made:
    """Return the op's part; anchor: the id of its section, anchors: path:line -> id of the lines
    that the page shows. Without any launch there is neither drawing nor table, only why."""
    pair = table.pair
    known = any(side.launches for side in pair.sides)
    drawn = svg(drawing(pair, run.meta.get("gpu")), anchor) if known else Markup("")
    lines = [_line(rule, cells, anchors) for rule, cells in table.lines] if known else []
    case = f"{pair.case} {pair.dtype}"
    return Made(case, drawn, list(NAMES.values()), lines, list(table.notes))


def _line(rule: Rule, cells: Sequence[Cell], anchors: Mapping[str, str]) -> Line:
    return Line(rule.row, rule.about, [_verdict(cell, anchors) for cell in cells])


def _verdict(cell: Cell, anchors: Mapping[str, str]) -> Verdict:
    places = [
        Place(_where(p), _short(p.text), f"#{anchors[_where(p)]}" if _where(p) in anchors else "")
        for p in cell.source[:MOST_PLACES]
    ]
    more = len(cell.source) - len(places)
    return Verdict(cell.state, places, more, cut(cell.machine), cell.note)


def _where(place: Named) -> str:
    return f"{place.path}:{place.line}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
