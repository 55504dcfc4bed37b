"""By hand, by the compiler, absent or unknown: each word exactly where its evidence is."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fixtures import synthetic_run as synthetic
from fixtures.timed_pairs import launch, pair, side

from harness import cli
from harness.effort import syntax
from harness.effort.concepts import concepts
from harness.explain import by_hand_view, seen, units
from harness.explain.by_hand import MISSING, ByHand, Cell, by_hand, table
from harness.explain.fact_file import row_key
from harness.explain.facts import Instructions
from harness.explain.hand_rules import ABSENT, BY_COMPILER, BY_HAND, RULES, UNKNOWN
from harness.explain.reach import LAUNCHES, SWIZZLE, Named, SourceUses, source_uses
from harness.explain.timed import Facts, TimedSide, facts_of, timed_pair
from harness.machine import source_hash
from harness.registry import REPOSITORY, Registry
from harness.report import render
from harness.results import read_run
from harness.sides import SIDES

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


def uses(*concepts: str) -> SourceUses:
    """A source that names these, each on a line of its own."""
    return SourceUses(tuple(Named("f", n, c, c) for n, c in enumerate(concepts, start=1)))


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
    "cuda.vector_type",
    "cuda.thread_index",
    "cuda.static_shared",
    SWIZZLE,
    "cuda.async_copy",
    "cuda.matrix_unit",
    "cuda.block_barrier",
    "cuda.shuffle",
    "cuda.guard",
    "cuda.block_index",
    "cuda.launch",
)
ASKED = (
    "triton.divisibility",
    "triton.arange",
    "triton.num_stages",
    "triton.dot",
    "triton.barrier",
    "triton.reduction",
    "triton.mask",
    "triton.program_id",
)


def test_the_rules_name_concepts_of_the_list_and_of_their_aspect() -> None:
    known = {c.id: c for side in SIDES for c in concepts(side)}
    for rule in RULES:
        for by_side in (rule.by_hand, rule.asked):
            for side_name, ids in by_side.items():
                for name in set(ids) - {SWIZZLE}:
                    assert known[name].side == side_name
                    if name not in LAUNCHES[side_name]:
                        assert known[name].aspect == rule.aspect, name


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
    assert found["pipelining"].note == "named in the source, not in the code that ran"
    assert found["pipelining"].source[0].line == 5
    assert found["vector width"].machine == "LDG.32 × 1, STG.32 × 1"
    assert found["swizzle"].machine == "no shared memory"


def test_triton_asks_and_the_compiler_makes() -> None:
    found = cells(side("triton", launch("k", EVERYTHING)), uses(*ASKED))
    assert {row: cell.state for row, cell in found.items()} == dict.fromkeys(ROWS, BY_COMPILER) | {
        "swizzle": UNKNOWN,
        "barriers": BY_HAND,  # tl.debug_barrier is one
        "boundary handling": BY_HAND,
        "tile-to-SM mapping": BY_HAND,
    }
    assert [p.concept for p in found["matrix unit"].source] == ["triton.dot"]
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
        "f:1 cuda.vector_type; LDG.128 × 2, LDG.32 × 1, STG.32 × 3, LDGSTS.128 × 6"
    )
    assert found["shared staging"].machine == "2048 B a block, LDS × 4, LDGSTS × 6"
    assert found["pipelining"].machine == "LDGSTS.128 × 6"
    assert found["matrix unit"].machine == "HMMA × 8"
    assert found["reduction tree"].machine == "SHFL × 5"
    assert found["tile-to-SM mapping"].machine == "grid 40 × 1 × 1, 2.50 waves"
    assert [p.line for p in found["tile-to-SM mapping"].source] == [10, 11]
    assert "not visible in the machine code" in found["coalescing"].note


def test_a_concept_whose_instruction_is_not_there_was_not_compiled_in() -> None:
    both = uses("cuda.cluster_barrier", "cuda.block_barrier")
    found = cells(side("cuda", launch("k", EVERYTHING)), both)["barriers"]
    assert [p.concept for p in found.source] == ["cuda.block_barrier"]
    cluster = cells(side("cuda", launch("k", EVERYTHING)), uses("cuda.cluster_barrier"))["barriers"]
    assert (cluster.state, cluster.source) == (BY_COMPILER, ())
    votes = Instructions(mix={"SHFL": 1})
    ballot = states(side("cuda", launch("k", votes)), uses("cuda.vote"))
    assert ballot["reduction tree"] == BY_COMPILER


def test_two_concepts_on_a_line_are_one_place() -> None:
    line = (Named("f", 3, "threadIdx.x % 32", "cuda.lane_arithmetic"),)
    source = SourceUses((*line, Named("f", 3, "threadIdx", "cuda.thread_index")))
    found = cells(side("cuda", launch("k", EVERYTHING)), source)["coalescing"]
    assert [(p.line, p.concept) for p in found.source] == [(3, "cuda.thread_index")]


def test_launching_code_counts_for_the_mapping_alone() -> None:
    host = SourceUses((), uses("cuda.launch").device)
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


CUDA = """
#include "common/tile.cuh"
template <typename T>
__global__ void other_kernel(T* x) { __syncthreads(); }

// threadIdx in a comment, and "blockIdx" in a string, are nothing.
template <typename T, int kWide>
__global__ void __launch_bounds__(256) scale_kernel(T* x, int64_t n) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) {
    x[i] = twice(x[i]);
  }
}

cudaError_t scale(float* x, int64_t n, cudaStream_t stream) {
  other_kernel<float><<<1, 256, 0, stream>>>(x);
  scale_kernel<float, 4><<<n / 256, 256, 0, stream>>>(x, n);
  return cudaGetLastError();
}
"""
TILE = """
struct Tile {
  __device__ int slot(int row, int chunk) { return row * 8 + (chunk ^ (row & 7)); }
};
__device__ float twice(float v) {
  __shared__ __align__(16) float s_tile[64];
  return s_tile[Tile().slot(1, 2)] + v;
}
"""
UNUSED = """
__device__ float twice(float v) { return __shfl_xor_sync(~0u, v, 1); }
"""
TRITON = '''
import triton
import triton.language as tl


@triton.jit
def other_kernel(x_ptr):
    tl.debug_barrier()


@triton.jit
def helper(x):
    return tl.sum(x, axis=0)


@triton.jit
def scale_kernel(x_ptr, n, BLOCK_SIZE: tl.constexpr):
    """tl.dot in a docstring is nothing."""
    offs = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(x_ptr + offs, helper(x), mask=offs < n)


def scale(x):
    if x.ndim == 2:
        other_kernel[(1,)](x, num_stages=4)
    else:
        scale_kernel[(4,)](x, x.numel(), BLOCK_SIZE=64)
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Another root with one op; nothing in it is imported."""
    files = {
        "harness/specs/scale.py": "",
        "csrc/scale.cu": CUDA,
        "csrc/common/tile.cuh": TILE,
        "csrc/common/unused.cuh": UNUSED,
        "triton_kernels/scale.py": TRITON,
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def sources(root: Path, backend: str, kernel: str = "scale_kernel") -> SourceUses:
    registry = Registry((root,))
    row = {"kernel_hash": source_hash(registry.kernel_files("scale", backend))}
    return source_uses(registry, "scale", backend, row, [kernel])


def places(found: SourceUses) -> set[tuple[str, int, str]]:
    return {(p.path, p.line, p.concept) for p in found.device + found.host}


def line_of(text: str, words: str) -> int:
    (line,) = (n for n, line in enumerate(text.split("\n"), start=1) if words in line)
    return line


def test_only_what_the_kernel_reaches_is_evidence_in_cuda(root: Path) -> None:
    found = places(sources(root, "cuda"))
    at = line_of(CUDA, "blockIdx.x * 256")
    assert ("csrc/scale.cu", at, "cuda.block_index") in found
    assert ("csrc/scale.cu", at, "cuda.thread_index") in found
    assert ("csrc/scale.cu", at + 1, "cuda.guard") in found
    assert ("csrc/common/tile.cuh", line_of(TILE, "s_tile[64]"), "cuda.static_shared") in found
    assert ("csrc/common/tile.cuh", line_of(TILE, "row & 7"), SWIZZLE) in found
    launches = {line for path, line, concept in found if concept == "cuda.launch"}
    assert launches == {line_of(CUDA, "scale_kernel<float, 4>")}
    concepts_found = {concept for _, _, concept in found}
    assert not concepts_found & {"cuda.block_barrier", "cuda.shuffle", "cuda.alignment"}
    other = places(sources(root, "cuda", "other_kernel"))
    assert "cuda.block_barrier" in {concept for _, _, concept in other}


def test_only_what_the_kernel_reaches_is_evidence_in_triton(root: Path) -> None:
    found = places(sources(root, "triton"))
    lines = {concept: line for _, line, concept in found}
    assert lines["triton.reduction"] == line_of(TRITON, "tl.sum(x")
    assert lines["triton.launch"] == line_of(TRITON, "scale_kernel[(4,)]")
    assert not lines.keys() & {"triton.barrier", "triton.dot", "triton.num_stages"}


def test_stages_of_a_launch_belong_to_its_kernel_where_it_is_the_only_one(root: Path) -> None:
    file = root / "triton_kernels" / "scale.py"
    alone = TRITON.replace("other_kernel[(1,)](x, num_stages=4)", "pass")
    file.write_text(alone.replace("BLOCK_SIZE=64)", "BLOCK_SIZE=64, num_stages=3)"))
    assert "triton.num_stages" in {concept for _, _, concept in places(sources(root, "triton"))}


def test_sources_that_are_not_the_runs_are_no_evidence(root: Path) -> None:
    registry = Registry((root,))
    changed = source_uses(registry, "scale", "cuda", {"kernel_hash": "0"}, ["scale_kernel"])
    assert changed == SourceUses(problem="the source has changed since this run")
    gone = source_uses(registry, "gone", "cuda", {"kernel_hash": "0"}, ["gone_kernel"])
    assert gone == SourceUses(problem="the source is not in this checkout")
    assert sources(root, "cuda", "missing_kernel").problem == (
        "no function missing_kernel is in the source"
    )


def test_a_source_that_does_not_parse_costs_a_line(root: Path) -> None:
    (root / "csrc" / "scale.cu").write_text(CUDA + "}}} int (")
    problem = sources(root, "cuda").problem
    assert problem.startswith("csrc/scale.cu, line ") and "does not parse" in problem


@pytest.mark.parametrize(
    ("code", "n"),
    [
        ("int f(int r, int c) { return r * 8 + (c ^ (r & 7)); }", 1),
        ("int f(int r, int c) { return (r ^ c) + 4; }", 1),
        ("unsigned f(unsigned a, unsigned k) { return a ^ k; }", 0),
        ("void f(int& turn) { turn ^= 1; }", 0),
        ("int f(int a) { return a + 1; } // b + (a ^ c)", 0),
    ],
)
def test_the_form_of_a_swizzled_address(code: str, n: int) -> None:
    assert len(list(units.swizzles(syntax.parse("cuda", code)))) == n


def reference_table(op: str) -> ByHand:
    found = timed_pair(RUN, FACTS, op)
    assert found is not None
    return by_hand(Registry(), found)


@pytest.mark.parametrize("op", OPS)
def test_every_pair_of_the_reference_has_a_table_with_evidence(op: str) -> None:
    found = reference_table(op)
    assert found.notes == ()
    assert [rule.row for rule, _ in found.lines] == ROWS
    for rule, both in found.lines:
        for one, cell in zip(found.pair.sides, both, strict=True):
            assert cell.state in (BY_HAND, BY_COMPILER, ABSENT, UNKNOWN)
            assert by_hand_view.evidence(cell), rule.row
            if cell.state == BY_HAND:
                assert cell.source
            if cell.state == BY_COMPILER:
                assert cell.machine or cell.source
            for place in cell.source:
                text = (REPOSITORY / place.path).read_text().split("\n")[place.line - 1]
                assert place.whole == text
                first = place.text.split()[0]
                assert first in text, place
            assert cell.state != UNKNOWN or (rule.row, one.backend) == ("swizzle", "triton")


def known_states(op: str) -> dict[str, tuple[str, str]]:
    return {rule.row: (a.state, b.state) for rule, (a, b) in reference_table(op).lines}


def test_the_product_of_the_reference() -> None:
    found = known_states("matmul_bias_relu")
    for row in ("coalescing", "shared staging", "pipelining", "matrix unit", "barriers"):
        assert found[row] == (BY_HAND, BY_COMPILER), row
    # Tiles come by TMA, which swizzles as the tensor map says: no thread loads or swizzles them.
    assert found["vector width"] == (ABSENT, ABSENT)
    assert found["swizzle"] == (ABSENT, UNKNOWN)
    assert found["reduction tree"] == (ABSENT, ABSENT)
    assert found["boundary handling"] == found["tile-to-SM mapping"] == (BY_HAND, BY_HAND)


def test_the_softmax_of_the_reference() -> None:
    found = known_states("softmax")
    assert found["reduction tree"] == found["barriers"] == (BY_HAND, BY_COMPILER)
    assert found["pipelining"] == (BY_HAND, ABSENT)  # one stage was chosen
    assert found["matrix unit"] == (ABSENT, ABSENT)


def test_the_page_links_the_lines_that_it_shows(tmp_path: Path) -> None:
    page = render(RUN, figures=[])
    links = re.findall(r'<a href="#(op-\d+-(?:cuda|triton)\d+-\d+)">([\w/.]+):(\d+)</a>', page)
    assert len({anchor.rsplit("-", 2)[0] for anchor, _, _ in links}) == len(OPS)
    files = {path for _, path, _ in links}
    assert {"csrc/softmax.cu", "csrc/common/merge.cuh", "triton_kernels/softmax.py"} <= files
    for anchor, _, line in links:
        assert anchor.endswith(f"-{line}")
        assert page.count(f'id="{anchor}"') == 1
    assert page.count('<svg class="drawing"') == page.count('<table class="made">') == len(OPS)
    assert page == render(read_run(REFERENCE), figures=[])


def test_a_run_without_facts_says_so_in_a_line(tmp_path: Path) -> None:
    table = [synthetic.row("scale", 1024, side, 9.0) for side in ("cuda", "triton")]
    page = render(synthetic.write(tmp_path / "run", table))
    assert "CUDA and Triton: the run has no facts.json." in page
    assert '<svg class="drawing"' not in page and '<table class="made">' not in page
    only = render(synthetic.write(tmp_path / "one", table[:1]))
    assert "Triton: the run has no Triton row of this case." in only


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "1.0", "kernels": 3}', '{"schema": "9"}'])
def test_facts_that_cannot_be_read_cost_a_line(tmp_path: Path, text: str) -> None:
    table = [synthetic.row("scale", 1024, side, 9.0) for side in ("cuda", "triton")]
    run = synthetic.write(tmp_path / "run", table)
    (run.path / "facts.json").write_text(text)
    assert facts_of(run).problem == "facts.json cannot be read; run the benchmark again"
    assert str(tmp_path) not in render(run)


@pytest.mark.parametrize(
    "entry",
    [3, {}, {"launches": 3}, {"launches": [3]}, {"launches": [{"symbol": "k", "grid": [1, 2]}]}],
)
def test_an_entry_that_cannot_be_read_is_unknown(tmp_path: Path, entry: object) -> None:
    run = synthetic.write(tmp_path, [synthetic.row("scale", 1024, "cuda", 9.0)])
    (row,) = run.rows.to_dict("records")
    if isinstance(entry, dict):
        entry = {"kernel_hash": row["kernel_hash"], "config": row["config"]} | entry
    found = timed_pair(run, Facts(rows={row_key(row): entry}), "scale")
    assert found is not None
    assert found.sides[0].launches == () and found.sides[0].unknown.startswith("facts.json")


def test_facts_of_other_sources_are_not_this_rows(tmp_path: Path) -> None:
    run = synthetic.write(tmp_path, [synthetic.row("scale", 1024, "cuda", 9.0)])
    (row,) = run.rows.to_dict("records")
    entry = {"launches": [{"symbol": "k"}], "kernel_hash": "other", "config": row["config"]}
    found = timed_pair(run, Facts(rows={row_key(row): entry}), "scale")
    assert found is not None and "is of other sources" in found.sides[0].unknown


def test_the_largest_case_of_the_first_dtype_is_shown(tmp_path: Path) -> None:
    rows = [
        synthetic.row("scale", n, side, 9.0, dtype=dtype)
        for n, dtype in ((1024, "f16"), (4096, "f16"), (65536, "f32"))
        for side in ("cuda", "triton")
    ]
    rows[2]["status"] = rows[3]["status"] = "mismatch"
    run = synthetic.write(tmp_path, rows)
    found = timed_pair(run, Facts(), "scale")
    assert found is not None and (found.case, found.dtype) == ("1024", "f16")


def test_without_tree_sitter_the_page_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [m for m in sys.modules if m.startswith("tree_sitter")]:
        monkeypatch.setitem(sys.modules, name, None)
    reading = ["harness.explain.units"]
    reading += [f"harness.effort.{name}" for name in ("syntax", "units", "names", "shapes")]
    for name in reading:
        monkeypatch.delitem(sys.modules, name, raising=False)
    found = reference_table("softmax")
    (note,) = found.notes
    assert re.fullmatch(r"CUDA and Triton: the source is not read: tree_sitter\w* .*", note)
    assert {c.state for rule, both in found.lines for c in both} == {UNKNOWN, ABSENT}


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["explain", "--by-hand", *arguments]) == 0
    return capsys.readouterr().out


def test_the_command_prints_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "softmax")
    assert text.startswith("softmax 8192x32768 bf16\n  vector width        CUDA    by hand")
    assert "triton_kernels/softmax.py:" in text and "vector_add" not in text
    cuda = printed(capsys, "softmax", "--side", "cuda", "--run", str(REFERENCE))
    assert "CUDA" in cuda and "Triton" not in cuda
    assert all(op in printed(capsys) for op in OPS)


def test_what_the_command_cannot_do_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for wrong in (["nothing"], ["--run", str(tmp_path / "none")], ["--json"]):
        assert cli.main(["explain", "--by-hand", *wrong]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 3 and all(line.startswith("error: ") for line in errors)
