"""By hand, by the compiler, absent or unknown: each word exactly where its evidence is."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fixtures import synthetic_run as synthetic
from fixtures.timed_pairs import launch, pair, side

from harness import cli
from harness.explain import by_hand_view, seen
from harness.explain.by_hand import (
    ABSENT,
    BY_COMPILER,
    BY_HAND,
    MISSING,
    RULES,
    UNKNOWN,
    ByHand,
    Cell,
    by_hand,
    table,
)
from harness.explain.facts import Instructions
from harness.explain.reach import SWIZZLE, Named, SourceUses, source_uses
from harness.explain.timed import Facts, TimedSide, facts_of, timed_pair
from harness.machine import source_hash
from harness.registry import REPOSITORY, Registry
from harness.report import render
from harness.results import read_run

REFERENCE = REPOSITORY / "results" / "nvidia-h200" / "reference"
RUN = read_run(REFERENCE)
FACTS = facts_of(RUN)
OPS = [str(op) for op in RUN.rows["op"].drop_duplicates()]
ROWS = [rule.row for rule in RULES]
NONE = SourceUses()
UNREAD = SourceUses(problem="the source has changed since this run")

EVERYTHING = Instructions(
    loads={4: 1, 16: 2},
    stores={4: 3},
    async_copy=("cp.async",),
    async_bytes={16: 6},
    matrix=("mma",),
    mix={
        "BAR": 2,
        "HMMA": 8,
        "LDG": 3,
        "LDGDEPBAR": 1,
        "LDGSTS": 6,
        "LDS": 4,
        "SHFL": 5,
        "STG": 3,
        "VOTE": 7,
    },
)
NOTHING = Instructions(loads={4: 1}, stores={4: 1}, mix={"LDG": 1, "STG": 1, "VOTE": 1})


def uses(*aspects: str) -> SourceUses:
    """A source that names these, each on a line of its own."""
    return SourceUses(tuple(Named("f", n, a, a, a) for n, a in enumerate(aspects, start=1)))


def states(one: TimedSide, source: SourceUses) -> dict[str, str]:
    return {row: cell.state for row, cell in cells(one, source).items()}


def cells(one: TimedSide, source: SourceUses) -> dict[str, Cell]:
    other = TimedSide("triton" if one.backend == "cuda" else "cuda", unknown="no row")
    both = [(one, source), (other, NONE)]
    if one.backend == "triton":
        both.reverse()
    found = table(pair(both[0][0], both[1][0]), [source for _, source in both])
    place = 0 if one.backend == "cuda" else 1
    return {rule.row: row[place] for rule, row in found.lines}


def test_the_rows_are_those_that_the_page_promises() -> None:
    assert ROWS == [
        "vector width",
        "coalescing",
        "shared staging",
        "swizzle",
        "pipelining",
        "matrix unit",
        "barriers",
        "reduction tree",
        "boundary handling",
        "tile-to-SM mapping",
    ]


ALL = (
    "vector width",
    "element index",
    "shared memory",
    SWIZZLE,
    "pipelining",
    "matrix unit",
    "barrier",
    "reduction",
    "boundary",
    "program index",
    "mapping",
)


def test_cuda_names_what_it_has() -> None:
    found = states(side("cuda", launch("k", EVERYTHING)), uses(*ALL))
    assert found == dict.fromkeys(ROWS, BY_HAND)


def test_what_cuda_has_and_does_not_name_is_the_compilers() -> None:
    found = states(side("cuda", launch("k", EVERYTHING)), NONE)
    assert found == dict.fromkeys(ROWS, BY_COMPILER) | {
        "coalescing": UNKNOWN,
        "swizzle": ABSENT,
        "boundary handling": ABSENT,
        "tile-to-SM mapping": ABSENT,
    }


def test_what_is_named_and_not_in_the_code_that_ran_is_absent() -> None:
    bare = side("cuda", launch("k", NOTHING, dynamic_shared_bytes=0))
    found = cells(bare, uses(*ALL))
    assert {row: cell.state for row, cell in found.items()} == dict.fromkeys(ROWS, ABSENT) | {
        "coalescing": BY_HAND,
        "boundary handling": BY_HAND,
        "tile-to-SM mapping": BY_HAND,
    }
    assert found["pipelining"].note == "named in the source, but not in the code that ran"
    assert found["pipelining"].source[0].line == 5
    assert found["vector width"].machine == "LDG.32 × 1, STG.32 × 1"
    assert found["swizzle"].machine == "no shared memory"


def test_triton_asks_and_the_compiler_makes() -> None:
    found = cells(side("triton", launch("k", EVERYTHING)), uses(*ALL))
    assert {row: cell.state for row, cell in found.items()} == dict.fromkeys(ROWS, BY_COMPILER) | {
        "swizzle": UNKNOWN,
        "barriers": BY_HAND,  # tl.debug_barrier is one
        "boundary handling": BY_HAND,
        "tile-to-SM mapping": BY_HAND,
    }
    assert [p.aspect for p in found["matrix unit"].source] == ["matrix unit"]
    assert found["shared staging"].source == ()


def test_triton_without_any_named_concept() -> None:
    found = states(side("triton", launch("k", EVERYTHING)), NONE)
    assert found == dict.fromkeys(ROWS, BY_COMPILER) | {
        "coalescing": UNKNOWN,
        "swizzle": UNKNOWN,
        "boundary handling": ABSENT,
        "tile-to-SM mapping": ABSENT,
    }


def test_a_source_that_has_changed_tells_nothing() -> None:
    found = cells(side("cuda", launch("k", EVERYTHING)), UNREAD)
    assert {row: cell.state for row, cell in found.items()} == dict.fromkeys(ROWS, UNKNOWN)
    assert found["barriers"].machine == "BAR × 2"
    assert found["barriers"].note == "whose work it is, only the source tells"
    without = states(side("cuda", launch("k", NOTHING, dynamic_shared_bytes=0)), UNREAD)
    assert without["barriers"] == without["swizzle"] == without["vector width"] == ABSENT


def test_without_facts_of_the_machine_code_nothing_is_claimed_that_it_must_show() -> None:
    found = cells(side("cuda", launch("k", dynamic_shared_bytes=None)), uses(*ALL))
    assert {row: cell.state for row, cell in found.items()} == dict.fromkeys(ROWS, UNKNOWN) | {
        "coalescing": BY_HAND,
        "swizzle": BY_HAND,
        "boundary handling": BY_HAND,
        "tile-to-SM mapping": BY_HAND,
    }
    assert found["matrix unit"].machine == "no facts of the machine code"


def test_a_missing_side_is_missing_and_one_that_was_not_timed_unknown() -> None:
    missing = TimedSide("triton", unknown="the run has no Triton row of this case")
    failed = TimedSide("cuda", {"status": "mismatch"}, (), "it was not timed: mismatch")
    found = table(pair(failed, missing), [UNREAD, UNREAD])
    assert {(cuda.state, triton.state) for _, (cuda, triton) in found.lines} == {(UNKNOWN, MISSING)}
    assert found.notes == (
        "CUDA: it was not timed: mismatch.",
        "Triton: the run has no Triton row of this case.",
    )


def test_evidence_is_the_place_and_the_instruction() -> None:
    found = cells(side("cuda", launch("k", EVERYTHING)), uses(*ALL))
    assert by_hand_view.evidence(found["vector width"]) == (
        "f:1 vector width; LDG.128 × 2, LDG.32 × 1, STG.32 × 3, LDGSTS.128 × 6"
    )
    assert found["shared staging"].machine == "2048 B a block, LDS × 4, LDGSTS × 6"
    assert found["pipelining"].machine == "LDGSTS.128 × 6"
    assert found["matrix unit"].machine == "HMMA × 8"
    assert found["reduction tree"].machine == "SHFL × 5"
    assert found["tile-to-SM mapping"].machine == "grid 40 × 1 × 1, 2.50 waves"
    assert [p.line for p in found["tile-to-SM mapping"].source] == [10, 11]
    assert "not visible in counts" in found["coalescing"].note


def test_launching_code_counts_for_the_mapping_alone() -> None:
    host = SourceUses((), uses("mapping", "boundary").device)
    found = states(side("cuda", launch("k", EVERYTHING)), host)
    assert found["tile-to-SM mapping"] == BY_HAND and found["boundary handling"] == ABSENT


@pytest.mark.parametrize(
    ("loads", "stores", "there"),
    [
        ({16: 1}, {}, True),
        ({}, {32: 1}, True),
        ({8: 6}, {8: 4}, True),
        ({8: 1, 2: 1}, {4: 1}, None),  # perhaps a label of 64 bits
        ({4: 8}, {4: 8}, False),
        ({}, {}, False),
    ],
)
def test_a_width_that_may_be_one_element_is_not_told(
    loads: dict[int, int], stores: dict[int, int], there: bool | None
) -> None:
    counts = Instructions(loads=loads, stores=stores, mix={"EXIT": 1})
    assert seen.vector_width(side("cuda", launch("k", counts))).there is there


def test_an_opcode_is_matched_whole() -> None:
    near = Instructions(mix={"LDGDEPBAR": 1, "DEPBAR": 1, "LDG": 1, "HMNMX2": 4, "SHF": 3})
    one = side("cuda", launch("k", near, dynamic_shared_bytes=0))
    for look in (seen.async_copies, seen.matrix_unit, seen.barriers, seen.shuffles):
        assert look(one).there is False
    assert seen.shared_memory(one).there is False


def test_ptx_is_read_and_marked() -> None:
    mix = {"cp.async": 3, "bar.sync": 2, "mma.sync": 4, "shfl.sync": 5, "ld.shared": 1}
    one = side("triton", launch("k", Instructions(loads={16: 1}, mix=mix, source="ptx")))
    assert seen.vector_width(one) == seen.Seen(True, "PTX: ld.global.128 × 1")
    assert seen.barriers(one) == seen.Seen(True, "PTX: bar.sync × 2")
    for look in (seen.async_copies, seen.matrix_unit, seen.shuffles):
        assert look(one).there


def test_one_launch_of_several_is_enough_and_named() -> None:
    two = side("cuda", launch("a<1>", NOTHING), launch("b", EVERYTHING))
    assert seen.barriers(two) == seen.Seen(True, "b: BAR × 2")
    half = side("cuda", launch("a", NOTHING), launch("b"))
    assert seen.barriers(half).there is None


LOOKS = {
    "barriers": seen.barriers,
    "shuffles": seen.shuffles,
    "matrix": seen.matrix_unit,
    "async_copy": seen.async_copies,
}


@pytest.mark.parametrize("kind", LOOKS)
def test_what_is_seen_agrees_with_the_facts_own_classes(kind: str) -> None:
    for kernel in FACTS.kernels.values():
        counts = kernel.instructions
        assert counts is not None
        there = LOOKS[kind](side("cuda", replace(launch(kernel.name), kernel=kernel))).there
        votes = sum(counts.mix.get(o, 0) for o in ("VOTE", "VOTEU", "MATCH"))
        known = counts.shuffles - votes if kind == "shuffles" else getattr(counts, kind)
        assert there is bool(known), kernel.name
