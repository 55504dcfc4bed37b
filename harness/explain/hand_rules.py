"""The rows of the table by hand / by the compiler / absent: for each, what decides between them.

docs/explain.md says what each word may claim; by_hand.py applies these rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..sides import SIDES
from . import seen
from .reach import LAUNCHES, SWIZZLE
from .seen import Seen
from .timed import TimedSide

BY_HAND = "by hand"
BY_COMPILER = "by the compiler"
ABSENT = "absent"
UNKNOWN = "unknown"

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
