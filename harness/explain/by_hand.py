"""Who does what: by hand, by the compiler, or nobody, for each pair, with the evidence.

A source can say that its author named a thing, machine code that a thing is there. hand_rules.py
states once for each row which of the two decides; docs/explain.md says what each word may claim.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..registry import Registry
from ..sides import NAMES
from . import seen
from .hand_rules import ABSENT, BY_COMPILER, BY_HAND, RULES, UNKNOWN, Rule
from .reach import Named, SourceUses, source_uses
from .timed import TimedPair, TimedSide

MISSING = "missing"  # the run has no such side


@dataclass(frozen=True)
class Cell:
    """One side of one row. source: what in the source the word rests on. machine: what the machine
    code shows, "" where it says nothing. note: why, where these two do not say it."""

    state: str
    source: tuple[Named, ...] = ()
    machine: str = ""
    note: str = ""


@dataclass(frozen=True)
class ByHand:
    """One pair's table: a line a rule, its cells in the order of SIDES. notes: what is missing."""

    pair: TimedPair
    lines: tuple[tuple[Rule, tuple[Cell, ...]], ...]
    notes: tuple[str, ...]


def by_hand(registry: Registry, pair: TimedPair) -> ByHand:
    """Return the pair's table from the sources in this checkout and the run's facts."""
    sources = []
    for side in pair.sides:
        kernels = list(dict.fromkeys(launch.function for launch in side.launches))
        if kernels and side.row is not None:
            sources.append(source_uses(registry, pair.op, side.backend, side.row, kernels))
        else:
            sources.append(SourceUses(problem="which kernel ran is not known"))
    return table(pair, sources)


def table(pair: TimedPair, sources: Sequence[SourceUses]) -> ByHand:
    """sources: of each side, in the order of the pair's sides."""
    both = list(zip(pair.sides, sources, strict=True))
    lines = tuple((rule, tuple(cell(rule, side, uses) for side, uses in both)) for rule in RULES)
    by_reason: dict[str, list[str]] = {}
    for side, uses in both:
        if why := side.unknown or uses.problem:
            by_reason.setdefault(why, []).append(NAMES[side.backend])
    notes = (f"{' and '.join(names)}: {why}." for why, names in by_reason.items())
    return ByHand(pair, lines, tuple(notes))


def cell(rule: Rule, side: TimedSide, uses: SourceUses) -> Cell:
    """Return what the rule says of one side."""
    if side.row is None:
        return Cell(MISSING)
    opcodes = seen.opcodes(side)
    hand = _of(uses, rule.by_hand.get(side.backend, {}), opcodes)
    asked = _of(uses, rule.asked.get(side.backend, {}), opcodes)
    beside = rule.beside(side) if rule.beside else ""
    if rule.needs is not None:
        needed = rule.needs(side)
        if needed.there is False:
            return Cell(ABSENT, (), needed.words)
    if rule.look is None:
        state, places = _by_source(rule, side.backend, uses, hand, asked)
        unnamed = "" if places or uses.problem else "the source names none; "
        return Cell(state, places, beside, f"{unnamed}{rule.untold}")
    shown = rule.look(side)
    if shown.there is None:
        return Cell(UNKNOWN, hand or asked, shown.words)
    if not shown.there:
        named = _of(uses, rule.by_hand.get(side.backend, {}), None) or asked
        note = "named in the source, not in the code that ran" if named else ""
        return Cell(ABSENT, named, shown.words, note)
    if uses.problem:
        return Cell(UNKNOWN, (), shown.words, "whose work it is, only the source tells")
    return Cell(BY_HAND if hand else BY_COMPILER, hand or asked, shown.words)


def _by_source(
    rule: Rule, backend: str, uses: SourceUses, hand: tuple[Named, ...], asked: tuple[Named, ...]
) -> tuple[str, tuple[Named, ...]]:
    if uses.problem:
        return UNKNOWN, ()
    if hand:
        return BY_HAND, hand
    return (BY_COMPILER, asked) if asked else (rule.unnamed[backend], ())


def _of(
    uses: SourceUses, concepts: Mapping[str, str], opcodes: set[str] | None
) -> tuple[Named, ...]:
    """Places of these concepts, nearest to the kernel first, a line each, which stands for the
    first of its concepts; where the opcodes are known, only of concepts that left theirs."""
    left = [
        concept
        for concept, trace in concepts.items()
        if not trace or opcodes is None or any(re.fullmatch(trace, o) for o in opcodes)
    ]
    lines: dict[tuple[str, int], list[Named]] = {}
    for place in uses.device + uses.host:
        if place.concept in left:
            lines.setdefault((place.path, place.line), []).append(place)
    return tuple(min(found, key=lambda p: left.index(p.concept)) for found in lines.values())
