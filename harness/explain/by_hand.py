"""Who does what: by hand, by the compiler, or nobody, for each pair, with the evidence.

A source can say that its author named a thing, machine code that a thing is there. RULES states
once for each row which of the two decides; docs/explain.md says what each word may claim.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..registry import Registry
from . import seen
from .reach import LAUNCHES, SWIZZLE, Named, SourceUses, source_uses
from .seen import Seen
from .timed import SIDES, TimedPair, TimedSide

BY_HAND = "by hand"
BY_COMPILER = "by the compiler"
ABSENT = "absent"
UNKNOWN = "unknown"
MISSING = "missing"  # the run has no such side

# Concepts that count, by side, and the instruction that each must have left in the code that ran
# (SASS; "" where it leaves none of its own). Of a helper's several branches only those that were
# compiled in have left theirs.
Concepts = Mapping[str, Mapping[str, str]]


def _named(*concepts: str, **traced: str) -> Mapping[str, str]:
    return dict.fromkeys(concepts, "") | {
        name.replace("_", ".", 1): t for name, t in traced.items()
    }


@dataclass(frozen=True)
class Rule:
    """One row. aspect: of effort/concepts.py, whose concepts decide. by_hand: those that name the
    thing itself. asked: those that ask the compiler for it, or for what it makes the thing from.
    look: what in the machine code shows it; None where nothing can, for the reason in `untold`, and
    the source decides alone. needs: what must be in the machine code before there can be any.
    unnamed: the answer, by side, where the source decides and names nothing. beside: a fact that is
    shown and decides nothing."""

    row: str
    about: str
    aspect: str
    by_hand: Concepts
    asked: Concepts = field(default_factory=dict)
    look: Callable[[TimedSide], Seen] | None = None
    untold: str = ""
    needs: Callable[[TimedSide], Seen] | None = None
    unnamed: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(SIDES, ABSENT))
    beside: Callable[[TimedSide], str] | None = None


RULES = (
    Rule(
        "vector width",
        "global accesses of several elements at once",
        "vector width",
        by_hand={"cuda": _named("cuda.vector_type", "cuda.vector_asm", "cuda.alignment")},
        # A hint tells what is aligned, never how wide to load.
        asked={"triton": _named("triton.divisibility")},
        look=seen.vector_width,
    ),
    Rule(
        "coalescing",
        "which lane takes which element, so that a warp's accesses share lines",
        "element index",
        by_hand={"cuda": _named("cuda.thread_index", "cuda.lane_arithmetic")},
        asked={"triton": _named("triton.arange")},
        untold="not visible in the machine code: it follows from who deals elements to lanes",
        unnamed=dict.fromkeys(SIDES, UNKNOWN),
    ),
    Rule(
        "shared staging",
        "data that pass through shared memory, be it a tile or the scratch of a reduction",
        "shared memory",
        by_hand={"cuda": _named("cuda.static_shared", "cuda.dynamic_shared")},
        look=seen.shared_memory,
    ),
    Rule(
        "swizzle",
        "an order of shared memory that avoids conflicts between banks",
        SWIZZLE,
        by_hand={"cuda": _named(SWIZZLE)},
        untold="not told by the machine code: an address's bits do not show in counts",
        needs=seen.shared_memory,
        unnamed={"cuda": ABSENT, "triton": UNKNOWN},  # Triton lays shared memory out unasked
    ),
    Rule(
        "pipelining",
        "asynchronous copies into shared memory; loads that are only issued early do not count",
        "pipelining",
        by_hand={"cuda": _named(cuda_async_copy="LDGSTS", cuda_bulk_copy="UBLKCP|UTMALDG")},
        asked={"triton": _named("triton.num_stages", "triton.loop_options")},
        look=seen.async_copies,
    ),
    Rule(
        "matrix unit",
        "products on the tensor cores",
        "matrix unit",
        by_hand={"cuda": _named("cuda.matrix_unit")},
        # tl.dot names a product; the compiler chooses the instruction.
        asked={"triton": _named("triton.dot")},
        look=seen.matrix_unit,
    ),
    Rule(
        "barriers",
        "waiting for the other threads of a block, warp or cluster",
        "barrier",
        by_hand={
            "cuda": _named(
                cuda_block_barrier="BAR",
                cuda_cluster_barrier=r"UCGABAR_\w+",
                cuda_warp_barrier="WARPSYNC",
            ),
            "triton": _named(triton_barrier="BAR"),
        },
        look=seen.barriers,
    ),
    Rule(
        "reduction tree",
        "partial results combined between the lanes of a warp",
        "reduction",
        by_hand={"cuda": _named(cuda_shuffle="SHFL", cuda_vote="C?REDUX")},
        asked={"triton": _named("triton.reduction")},  # tl.sum names the sum, not the tree
        look=seen.shuffles,
    ),
    Rule(
        "boundary handling",
        "no access beyond the end: a condition in CUDA, a mask in Triton",
        "boundary",
        by_hand={
            "cuda": _named("cuda.guard"),
            "triton": _named("triton.mask", "triton.guard"),
        },
        untold="not told by the machine code: predicates are not counted",
    ),
    Rule(
        "tile-to-SM mapping",
        "which block or program owns which part of the work",
        "program index",
        by_hand={
            "cuda": _named("cuda.block_index", "cuda.cluster_index", *LAUNCHES["cuda"]),
            "triton": _named("triton.program_id", *LAUNCHES["triton"]),
        },
        untold="the grid alone does not show it",
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
