"""`explain --by-hand`: the tables of by_hand.py for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..registry import REPOSITORY, Registry
from ..results import read_run
from ..sides import NAMES
from ..spelling import did_you_mean
from .by_hand import ByHand, Cell, by_hand
from .facts import ExplainError
from .reach import Named
from .timed import facts_of, timed_pair

MOST_PLACES = 2  # of a cell's source; the first ones are those nearest to the kernel


def lines(run_path: Path | None, ops: Sequence[str], sides: Sequence[str]) -> list[str]:
    """The tables of these ops, of all without any. Raises ExplainError for an op that the run
    lacks, and where no run is named and no single reference is there; ResultsError as read_run."""
    run = read_run(run_path if run_path is not None else reference())
    known = [str(op) for op in run.rows["op"].drop_duplicates()]
    for op in ops:
        if op not in known:
            raise ExplainError(
                f"op {op!r} is not in this run; it has {', '.join(known)}{did_you_mean(op, known)}"
            )
    facts, registry = facts_of(run), Registry()
    text: list[str] = []
    for op in ops or known:
        pair = timed_pair(run, facts, op)
        if pair is None:
            text += ["", f"{op}: neither side has a headline row"]
        else:
            text += ["", *_table(by_hand(registry, pair), sides)]
    return text[1:]


def reference() -> Path:
    """The committed run, where there is exactly one."""
    found = sorted((REPOSITORY / "results").glob("*/reference"))
    if len(found) != 1:
        have = ", ".join(str(path) for path in found) or "none"
        raise ExplainError(f"--by-hand: want one results/<gpu>/reference, got {have}; name a --run")
    return found[0]


def places_in_words(places: Sequence[Named]) -> tuple[list[str], str]:
    """(the first places, how many more there are)."""
    first = [f"{place.path}:{place.line} {place.text}" for place in places[:MOST_PLACES]]
    left = len(places) - len(first)
    return first, f"and {left} more" if left else ""


def _table(table: ByHand, sides: Sequence[str]) -> list[str]:
    pair = table.pair
    text = [f"{pair.op} {pair.case} {pair.dtype}"]
    wide = max(len(rule.row) for rule, _ in table.lines)
    for rule, cells in table.lines:
        row = rule.row
        for side, cell in zip(pair.sides, cells, strict=True):
            if side.backend not in sides:
                continue
            text.append(
                f"  {row:<{wide}}  {NAMES[side.backend]:<6}  {cell.state:<15} {evidence(cell)}"
            )
            row = ""
    text += [f"  note: {note}" for note in table.notes]
    return [line.rstrip() for line in text]


def evidence(cell: Cell) -> str:
    """All that the cell's word rests on, in one line."""
    first, more = places_in_words(cell.source)
    source = " ".join([", ".join(first), *([more] if more else [])])
    return "; ".join(part for part in (source, cell.machine, cell.note) if part)
