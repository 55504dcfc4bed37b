"""An op's part of the page about its kernels: the drawing, and who does what by which evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from harness.explain.by_hand import ByHand, Cell, by_hand
from harness.explain.by_hand_view import MOST_PLACES
from harness.explain.reach import Named
from harness.explain.timed import SIDES, Facts, TimedPair, timed_pair
from harness.registry import Registry
from harness.report_drawing import drawing
from harness.report_sources import Source
from harness.report_svg import svg
from harness.report_text import cut
from harness.results import Run

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
    """What the page says of one pair. targets: path:line -> id of the lines that are linked to."""

    case: str
    picture: Markup
    sides: list[str]
    lines: list[Line]
    notes: list[str]
    targets: dict[str, str]


def made(
    run: Run, facts: Facts, op: str, anchor: str, registry: Registry, sources: Sequence[Source]
) -> Made | None:
    """Return the op's part, None where the run has no headline row of it.

    Without any launch there is neither drawing nor table, only why.
    """
    pair = timed_pair(run, facts, op)
    if pair is None:
        return None
    found = by_hand(registry, pair)
    known = any(side.launches for side in pair.sides)
    targets = _targets(found, anchor, sources) if known else {}
    return Made(
        f"{pair.case} {pair.dtype}",
        _picture(pair, run, anchor) if known else Markup(""),
        list(SIDES.values()),
        [_line(found, n, targets) for n in range(len(found.lines))] if known else [],
        list(found.notes),
        targets,
    )


def _picture(pair: TimedPair, run: Run, anchor: str) -> Markup:
    return svg(drawing(pair, run.meta.get("gpu")), anchor)


def _targets(found: ByHand, anchor: str, sources: Sequence[Source]) -> dict[str, str]:
    """Ids of the lines that the table names in files that the page shows."""
    side_of = {source.path: source.side.lower() for source in sources}
    named = [
        place
        for _, cells in found.lines
        for cell in cells
        for place in cell.source[:MOST_PLACES]
        if place.path in side_of
    ]
    return {_where(p): f"{anchor}-{side_of[p.path]}-{p.line}" for p in named}


def _line(found: ByHand, n: int, targets: dict[str, str]) -> Line:
    rule, cells = found.lines[n]
    return Line(rule.row, rule.about, [_verdict(cell, targets) for cell in cells])


def _verdict(cell: Cell, targets: dict[str, str]) -> Verdict:
    places = [
        Place(_where(p), _short(p.text), f"#{targets[_where(p)]}" if _where(p) in targets else "")
        for p in cell.source[:MOST_PLACES]
    ]
    more = len(cell.source) - len(places)
    return Verdict(cell.state, places, more, cut(cell.machine), cell.note)


def _where(place: Named) -> str:
    return f"{place.path}:{place.line}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
