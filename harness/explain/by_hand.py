"""Who does what: by hand, by the compiler, or nobody, for each pair, with the evidence.

A source can say that its author named a thing, machine code that a thing is there. RULES states
once for each row which of the two decides; docs/explain.md says what each word may claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..registry import Registry
from . import seen
from .reach import SWIZZLE, Named, SourceUses, source_uses
from .seen import Seen
from .timed import SIDES, TimedPair, TimedSide

BY_HAND = "by hand"
BY_COMPILER = "by the compiler"
ABSENT = "absent"
UNKNOWN = "unknown"
MISSING = "missing"  # the run has no such side

Aspects = Mapping[str, tuple[str, ...]]
NOBODY: Aspects = {"cuda": (), "triton": ()}


@dataclass(frozen=True)
class Rule:
    """One row. by_hand: aspects of concepts that name the thing itself, by side. asked: those that
    ask the compiler for it, or for what it makes the thing from. look: what in the machine code
    shows it; None where nothing can, for the reason in `untold`, and the source decides alone.
    needs: what must be in the machine code before there can be any. unnamed: the answer, by side,
    where the source decides and names nothing. launch: aspects that the launching code names."""

    row: str
    about: str
    by_hand: Aspects
    asked: Aspects = field(default_factory=lambda: NOBODY)
    look: Callable[[TimedSide], Seen] | None = None
    untold: str = ""
    needs: Callable[[TimedSide], Seen] | None = None
    unnamed: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(SIDES, ABSENT))
    launch: tuple[str, ...] = ()
    beside: Callable[[TimedSide], str] | None = None  # a fact that is shown and decides nothing


def _both(*aspects: str) -> Aspects:
    return dict.fromkeys(SIDES, aspects)


def _cuda(*aspects: str) -> Aspects:
    return {"cuda": aspects, "triton": ()}


def _triton(*aspects: str) -> Aspects:
    return {"cuda": (), "triton": aspects}


RULES = (
    Rule(
        "vector width",
        "global accesses of several elements at once",
        by_hand=_cuda("vector width"),
        asked=_triton("vector width"),  # a hint tells what is aligned, never how wide to load
        look=seen.vector_width,
    ),
    Rule(
        "coalescing",
        "which lane takes which element, so that a warp's accesses share lines",
        by_hand=_cuda("element index"),
        asked=_triton("element index"),
        untold="not visible in counts of instructions: it follows from who deals elements to lanes",
        unnamed=dict.fromkeys(SIDES, UNKNOWN),
    ),
    Rule(
        "shared staging",
        "data that pass through shared memory, be it a tile or the scratch of a reduction",
        by_hand=_cuda("shared memory"),
        look=seen.shared_memory,
    ),
    Rule(
        "swizzle",
        "an order of shared memory that avoids conflicts between banks",
        by_hand=_cuda(SWIZZLE),
        untold="not told by the machine code: an address's bits do not show in counts",
        needs=seen.shared_memory,
        unnamed={"cuda": ABSENT, "triton": UNKNOWN},  # Triton lays shared memory out unasked
    ),
    Rule(
        "pipelining",
        "asynchronous copies into shared memory; loads that are only issued early do not count",
        by_hand=_cuda("pipelining"),
        asked=_triton("pipelining"),
        look=seen.async_copies,
    ),
    Rule(
        "matrix unit",
        "products on the tensor cores",
        by_hand=_cuda("matrix unit"),
        asked=_triton("matrix unit"),  # tl.dot names a product; the instruction is chosen for it
        look=seen.matrix_unit,
    ),
    Rule(
        "barriers",
        "waiting for the other threads of a block, warp or cluster",
        by_hand=_both("barrier"),
        look=seen.barriers,
    ),
    Rule(
        "reduction tree",
        "partial results combined between the lanes of a warp",
        by_hand=_cuda("reduction"),
        asked=_triton("reduction"),  # tl.sum names the sum, not the tree
        look=seen.shuffles,
    ),
    Rule(
        "boundary handling",
        "no access beyond the end: a condition in CUDA, a mask in Triton",
        by_hand=_both("boundary"),
        untold="not told by the machine code: predicates are not counted",
    ),
    Rule(
        "tile-to-SM mapping",
        "which block or program owns which part of the work",
        by_hand=_both("program index", "mapping"),
        untold="the grid alone does not show it",
        launch=("mapping",),
        beside=seen.grid,
    ),
)


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
            by_reason.setdefault(why, []).append(SIDES[side.backend])
    notes = (f"{' and '.join(names)}: {why}." for why, names in by_reason.items())
    return ByHand(pair, lines, tuple(notes))


def cell(rule: Rule, side: TimedSide, uses: SourceUses) -> Cell:
    """Return what the rule says of one side."""
    if side.row is None:
        return Cell(MISSING)
    places = uses.device + _of(uses.host, rule.launch)
    hand = _of(places, rule.by_hand[side.backend])
    asked = _of(places, rule.asked[side.backend])
    beside = rule.beside(side) if rule.beside else ""
    if rule.needs is not None:
        needed = rule.needs(side)
        if needed.there is False:
            return Cell(ABSENT, (), needed.words)
    if rule.look is None:
        state, places = _by_source(rule, side.backend, uses, hand, asked)
        return Cell(state, places, beside, rule.untold)
    shown = rule.look(side)
    if shown.there is None:
        return Cell(UNKNOWN, hand or asked, shown.words)
    if not shown.there:
        word = "named" if hand else "asked for" if asked else ""
        note = f"{word} in the source, but not in the code that ran" if word else ""
        return Cell(ABSENT, hand or asked, shown.words, note)
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


def _of(places: Iterable[Named], aspects: tuple[str, ...]) -> tuple[Named, ...]:
    """The places of these aspects, those of the first aspect first."""
    return tuple(
        sorted((p for p in places if p.aspect in aspects), key=lambda p: aspects.index(p.aspect))
    )
