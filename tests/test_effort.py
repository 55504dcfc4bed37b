"""What a pair cost to write: counts that follow the code and nothing else."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("lizard")
pytest.importorskip("tree_sitter_cuda")
pytest.importorskip("tree_sitter_python")

from hypothesis import given, settings
from hypothesis import strategies as st

from harness import cli
from harness.effort import rows
from harness.effort.closure import SIDES, rungs
from harness.effort.concepts import ASPECTS, Use, concepts, matches, uses
from harness.effort.counts import Counts, count_text, effort_of, versions
from harness.effort.syntax import SyntaxNotReadError, parse, walk
from harness.registry import REPOSITORY, Registry

CUDA = """\
#include "common/pack.cuh"

namespace cuda_vs_triton {

constexpr int kThreads = 128;

template <typename T>
__global__ void __launch_bounds__(kThreads) scale_kernel(const T* x, T* out, float a, int n) {
  __shared__ float s_factor[1];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x == 0) s_factor[0] = a;
  __syncthreads();
  if (i < n) {
    out[i] = x[i] * s_factor[0];
  }
}

}  // namespace cuda_vs_triton
"""
# By hand. constexpr int kThreads = 128 ;                                             6
# template < typename T >                                                             5
# __global__ void __launch_bounds__ ( kThreads ) scale_kernel                         7
# ( const T * x , T * out , float a , int n ) {                                      17
# __shared__ float s_factor [ 1 ] ;                                                   7
# const int i = blockIdx . x * blockDim . x + threadIdx . x ;                        16
# if ( threadIdx . x == 0 ) s_factor [ 0 ] = a ;                                     15
# __syncthreads ( ) ;                                                                 4
# if ( i < n ) {                                                                      7
# out [ i ] = x [ i ] * s_factor [ 0 ] ;                                             15
# } }                                                                                 2
CUDA_TOKENS = 6 + 5 + 7 + 17 + 7 + 16 + 15 + 4 + 7 + 15 + 2
CUDA_USES = {
    "cuda.block_index": 1,
    "cuda.thread_index": 3,  # blockDim and threadIdx twice
    "cuda.static_shared": 1,
    "cuda.block_barrier": 1,
    "cuda.guard": 1,  # == 0 is no limit
    "cuda.launch_bounds": 1,
}

TRITON = '''\
"""Scales."""

import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, out_ptr, a, n, BLOCK: tl.constexpr):
    """One block a program."""
    offsets = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    if n > 0:
        tl.store(out_ptr + offsets, x * a, mask=mask)


def scale(x, out, a):
    scale_kernel[(x.numel() // 128,)](x, out, a, x.numel(), BLOCK=128, num_warps=4)
'''
# By hand. @ triton . jit                                                             4
# def scale_kernel ( x_ptr , out_ptr , a , n , BLOCK : tl . constexpr ) :            18
# offsets = tl . program_id ( axis = 0 ) * BLOCK + tl . arange ( 0 , BLOCK )         21
# mask = offsets < n                                                                  5
# x = tl . load ( x_ptr + offsets , mask = mask , other = 0.0 )                      18
# if n > 0 :                                                                          5
# tl . store ( out_ptr + offsets , x * a , mask = mask )                             16
# def scale ( x , out , a ) :                                                        10
# scale_kernel [ ( x . numel ( ) // 128 , ) ]                                        13
# ( x , out , a , x . numel ( ) , BLOCK = 128 , num_warps = 4 )                      21
TRITON_TOKENS = 4 + 18 + 21 + 5 + 18 + 5 + 16 + 10 + 13 + 21
TRITON_USES = {
    "triton.program_id": 1,
    "triton.arange": 1,
    "triton.load_store": 2,
    "triton.mask": 2,
    "triton.other": 1,
    "triton.launch": 1,
    "triton.num_warps": 1,
}
GOLDEN = {"cuda": CUDA, "triton": TRITON}


def used(text: str, side: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for use in uses(text, side):
        found[use.concept] = found.get(use.concept, 0) + 1
    return found


def size(counts: Counts) -> tuple[object, ...]:
    """What layout and names must not change."""
    return (
        counts.tokens,
        counts.ccn,
        counts.ccn_max,
        counts.functions,
        counts.halstead_volume,
        counts.concepts,
        counts.concept_uses,
    )


# --- golden kernels ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("side", "tokens", "lines", "ccn", "functions", "concepts_used"),
    [
        # CCN: two ifs and 1; lines: all between the namespace's own, the constant among them
        ("cuda", CUDA_TOKENS, 11, 3, 1, CUDA_USES),
        # CCN: one if and 1, and 1 of the launcher
        ("triton", TRITON_TOKENS, 9, 3, 2, TRITON_USES),
    ],
)
def test_golden_kernels_have_the_counts_of_a_hand(
    side, tokens, lines, ccn, functions, concepts_used
):
    counts = count_text(GOLDEN[side], side)
    assert (counts.tokens, counts.lines) == (tokens, lines)
    assert (counts.ccn, counts.functions) == (ccn, functions)
    assert used(GOLDEN[side], side) == concepts_used
    assert counts.concept_uses == sum(concepts_used.values())
    assert counts.concepts == set(concepts_used)


def test_halstead_of_a_function_by_hand():
    # Behind the name: ( float v ) { return v / 2 ; }, 11 words of which 10 are distinct.
    counts = count_text("float half(float v) { return v / 2; }", "cuda")
    assert counts.halstead_volume == pytest.approx(11 * math.log2(10), abs=0.01)


# --- P1: layout and comments ---------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.data())
@pytest.mark.parametrize("side", SIDES)
def test_comments_and_blank_lines_change_no_count(side, data):
    lines = GOLDEN[side].splitlines()
    mark = "//" if side == "cuda" else "#"
    words = st.text(st.sampled_from("abz _()<>{}=;\"'"), max_size=12)
    for at in sorted(data.draw(st.sets(st.integers(0, len(lines)))), reverse=True):
        added = data.draw(st.sampled_from(["", f"  {mark} {data.draw(words)}", "", "   "]))
        # Not in the docstring's line, which is one.
        lines.insert(at, added.rstrip("\\"))
    text = "\n".join(lines) + "\n"
    assert size(count_text(text, side)) == size(count_text(GOLDEN[side], side))
    assert count_text(text, side).lines == count_text(GOLDEN[side], side).lines


@settings(max_examples=40, deadline=None)
@given(st.data())
@pytest.mark.parametrize("side", SIDES)
def test_lines_broken_inside_brackets_change_no_count(side, data):
    places = [m.start() + 1 for m in re.finditer(r"[(,]", GOLDEN[side])]
    text = GOLDEN[side]
    for at in sorted(data.draw(st.sets(st.sampled_from(places))), reverse=True):
        text = text[:at] + "\n        " + text[at:]
    assert size(count_text(text, side)) == size(count_text(GOLDEN[side], side))


@settings(max_examples=20, deadline=None)
@given(words=st.text(st.sampled_from("ab ()<>{}=;tl.load"), max_size=40), module=st.booleans())
def test_docstrings_change_no_count(words, module):
    old = '"""Scales."""' if module else '"""One block a program."""'
    text = TRITON.replace(old, f'"""{words} \n    __syncthreads() tl.dot """')
    assert size(count_text(text, "triton")) == size(count_text(TRITON, "triton"))
    without = TRITON.replace(f"    {old}\n" if not module else f"{old}\n", "")
    assert size(count_text(without, "triton")) == size(count_text(TRITON, "triton"))


def test_a_block_comment_in_a_statement_changes_no_count():
    text = CUDA.replace("x[i] * s", "x[i] /* __syncthreads(); */ * // tl\n s")
    assert size(count_text(text, "cuda")) == size(count_text(CUDA, "cuda"))


# --- P2: names -----------------------------------------------------------------------------------

_OWN = {
    "cuda": ("scale_kernel", "s_factor", "kThreads", "out", "T", "i", "n", "a"),
    "triton": ("scale_kernel", "x_ptr", "out_ptr", "offsets", "BLOCK", "scale", "n", "a"),
}
_RESERVED = {"if", "in", "is", "as", "do", "or", "tl", "x", "asm", "int", "and", "def", "for"}


@settings(max_examples=40, deadline=None)
@given(st.data())
@pytest.mark.parametrize("side", SIDES)
def test_renaming_changes_no_count(side, data):
    name = st.from_regex(r"[a-z][a-z0-9_]{0,8}q", fullmatch=True)
    new = data.draw(st.lists(name, min_size=8, max_size=8, unique=True))
    text = GOLDEN[side]
    for old, renamed in zip(_OWN[side], new, strict=True):
        text = re.sub(rf"\b{old}\b", renamed, text)
    # The words of a docstring may be renamed too: they do not count.
    assert size(count_text(text, side)) == size(count_text(GOLDEN[side], side))


# --- P4: comments, strings, macros ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("void f() { /* __syncthreads(); */ }  // __syncthreads()", 0),
        ('const char* s = "__syncthreads()";', 0),
        ('const char* s = R"(__syncthreads();)";', 0),
        ("__device__ void f() { __syncthreads(); }", 1),
        ("#define SYNC() __syncthreads()\n__device__ void f() { SYNC(); SYNC(); }", 1),
        ("#define SYNC() \\\n  do { __syncthreads(); \\\n  } while (0)\n", 1),
        ("__device__ void f() { my__syncthreads(); __syncthreads_or_not(); }", 1),
    ],
)
def test_a_barrier_counts_where_code_names_it(text, wanted):
    assert used(text, "cuda").get("cuda.block_barrier", 0) == wanted


def test_a_use_in_a_macro_has_its_own_place():
    text = "\n#define SYNC() \\\n  __syncthreads()\n"
    assert uses(text, "cuda") == [Use("cuda.block_barrier", 3, 2, 15, "__syncthreads")]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("# tl.dot(a, b)\n", 0),
        ('s = "tl.dot(a, b)"\n', 0),
        ("import triton.language as tl\nx = tl.dot(a, b)\n", 1),
        ("from triton import language\nx = language.dot(a, b)\n", 1),
        ("from triton.language import dot as product\nx = product(a, b)\n", 1),
        ("import numpy as tl\nx = tl.dot(a, b)\n", 0),
        ("x = a.dot(b)\n", 0),
    ],
)
def test_a_dot_counts_by_what_its_name_was_imported_as(text, wanted):
    assert used(text, "triton").get("triton.dot", 0) == wanted


def test_instructions_count_in_an_asm_statement_alone():
    text = """
const char* s = "mma.sync.aligned.m16n8k16";
__device__ void f(unsigned a) {
  asm volatile("{\\n .reg .pred p;\\n setp.ne.b32 p, %0, 0;\\n"
               "@p cp.async.cg.shared.global [%0], [%0], 16;\\n}" ::"r"(a), "mma.sync"(a));
  asm("bar.sync 0;");
}
"""
    assert used(text, "cuda") == {
        "cuda.inline_asm": 2,
        "cuda.async_copy": 1,
        "cuda.block_barrier": 1,
    }


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ("if (i < n) x = 1;", 1),
        ("x = i >= n ? 0 : 1;", 1),
        ("if (i < n && j < n) x = 1;", 1),
        ("if (i == n) x = 1;", 0),
        ("if constexpr (kN > 4) x = 1;", 0),
        ("if (i < kN) x = 1;", 0),
        ("if (n > 0) x = 1;", 0),
    ],
)
def test_a_guard_compares_with_a_limit_of_run_time(statement, wanted):
    text = f"template <int kN> __device__ void f(int i, int n) {{ {statement} }}"
    assert used(text, "cuda").get("cuda.guard", 0) == wanted
    host = f"template <int kN> void f(int i, int n) {{ {statement} }}"
    assert used(host, "cuda").get("cuda.guard", 0) == 0


def test_a_launch_counts_block_memory_and_stream():
    text = "void f(dim3 g, cudaStream_t s) { k<1><<<g, 256, 0, s>>>(); k<2><<<g, 128, 64>>>(); }"
    assert used(text, "cuda") == {
        "cuda.launch": 2,
        "cuda.block_size": 2,
        "cuda.dynamic_shared": 1,
        "cuda.grid_shape": 1,
        "cuda.stream": 1,
    }


# --- the list ------------------------------------------------------------------------------------


def test_the_list_is_whole_and_its_patterns_compile():
    for side in SIDES:
        found = concepts(side)
        assert len({c.id for c in found}) == len(found)
        assert {c.aspect for c in found} <= set(ASPECTS)
        assert all(c.id.startswith(f"{side}.") and c.side == side for c in found)
        ways = {"leaf", "asm", "pragma", "launch", "name", "argument", "tree"}
        for _, match in matches(side):
            (way,) = ways & set(match)
            if way not in ("launch", "tree"):
                re.compile(match[way])
    assert {c.aspect for side in SIDES for c in concepts(side)} == set(ASPECTS)


def test_uses_name_the_text_that_they_stand_for():
    for file in sorted((REPOSITORY / "csrc").rglob("*.cu*")):
        lines = file.read_text().split("\n")
        for use in uses(file.read_text(), "cuda"):
            assert lines[use.line - 1][use.column : use.end_column] == use.text != ""


def test_columns_count_characters():
    (use,) = uses('__device__ void f() { g("µ×µ"); __syncthreads(); }', "cuda")
    assert (use.column, use.text) == (32, "__syncthreads")


# --- the repository's own pairs ------------------------------------------------------------------


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry()


def test_every_pair_of_the_repository_is_counted(registry):
    for op in registry.stems:
        for side in SIDES:
            found = effort_of(registry, op, side)
            assert found.missing == ""
            assert found.device.tokens > 0 and found.host.tokens > 0 and found.device.ccn > 0
            assert not any("lizard" in problem for problem in found.problems)
            assert found.knobs > 0 and found.configurations > 1
            assert found.shared == found.shared_device + found.shared_host
    assert effort_of(registry, op, "triton").build.tokens == 0
    assert effort_of(registry, op, "cuda").build.tokens > 0


def test_lizard_sees_each_function_that_the_tree_has(registry):
    text = (REPOSITORY / "csrc" / "softmax.cu").read_text()
    root = parse("cuda", text)
    of_tree = sum(node.type == "function_definition" for node in walk(root))
    assert count_text(text, "cuda").functions == of_tree


def test_reading_the_specs_takes_no_torch():
    code = (
        "import sys; from harness.registry import Registry; from harness.effort.counts import *\n"
        "found = effort_of(Registry(), 'softmax', 'triton')\n"
        "assert found.configurations, found\n"
        "print({'torch', 'triton'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY
    )
    assert done.stdout.strip() == "set()", done.stderr


def test_a_shared_helper_is_apart_and_one_op_s_own_is_not(registry):
    from harness.effort.closure import reached

    found = reached(registry, "matmul_bias_relu", "cuda")
    own = {name for unit in found.device for name in unit.names}
    apart = {name for unit in found.shared_device for name in unit.names}
    # A kernel that ops have in common is each one's own, with what only they reach.
    assert {"BiasRelu", "matmul_mma_kernel", "TileCopy"} <= own
    assert "shared_address" in apart
    # pack.cuh is included, and this function of it is never named
    assert "pack" not in own | apart
    glue = {name for unit in found.host for name in unit.names}
    assert {"matmul_bias_relu", "def matmul_bias_relu"} <= glue
    assert not {"def softmax", "softmax"} & glue


def test_a_rung_is_counted_by_its_own_file(registry):
    assert rungs(registry, "softmax", "cuda") == ("naive", "online")
    naive = effort_of(registry, "softmax", "cuda", "naive")
    assert 0 < naive.device.tokens < effort_of(registry, "softmax", "cuda").device.tokens
    assert naive.knobs is None


# --- the command ---------------------------------------------------------------------------------


def test_an_op_may_be_named_as_bench_names_it(capsys):
    for call in (["vector_add", "axpby"], ["vector_add", "--op", "axpby"]):
        assert cli.main(["effort", *call, "--csv", "-"]) == 0
        found = csv.DictReader(io.StringIO(capsys.readouterr().out))
        assert {row["op"] for row in found} == {"vector_add", "axpby"}


def test_csv_and_json_hold_the_versions_and_every_scope(capsys):
    assert cli.main(["effort", "vector_add", "--csv", "-"]) == 0
    found = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {(row["side"], row["scope"]) for row in found} == {
        (side, scope) for side in SIDES for scope in rows.ALL_SCOPES
    }
    # P9: one tool and version for both sides
    assert len({row["tools"] for row in found}) == 1
    for name, version in versions().items():
        assert f"{name} {version}" in found[0]["tools"]
    assert cli.main(["effort", "vector_add", "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["tools"] == versions() and told["threats"] and told["rules"]
    by_side = {side["side"]: side for side in told["sides"]}
    for row in found:
        numbers = by_side[row["side"]]["scopes"][row["scope"]]
        assert str(numbers["tokens"]) == row["tokens"]
        assert str(numbers["concept_uses"]) == row["concept_uses"]


def test_the_table_has_ratios_rules_and_threats(capsys, registry):
    assert cli.main(["effort", "softmax"]) == 0
    out = capsys.readouterr().out
    cuda, triton = (effort_of(registry, "softmax", side).device.tokens for side in SIDES)
    assert f"{cuda} / {triton} = {cuda / triton:.2f}" in out
    for text in (*rows.RULES, *rows.THREATS):
        assert text in " ".join(out.split())
    assert "naive" in out


def test_an_unknown_op_is_one_line(capsys):
    assert cli.main(["effort", "nope"]) == 2
    assert "unknown op 'nope'; known ops: adamw" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_one_line(tmp_path, capsys):
    assert cli.main(["effort", "axpby", "--csv", str(tmp_path / "no" / "a.csv")]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: cannot write") and err.count("\n") == 1


# --- another root: moved code, missing sides, broken files ---------------------------------------


def root_with(folder: Path, *ops: str) -> Path:
    """A root of copies of `axpby` under other names, which its spec has too."""
    for part in ("harness/specs", "csrc", "triton_kernels"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    spec = (REPOSITORY / "harness/specs/axpby.py").read_text()
    for op in ops:
        (folder / "harness/specs" / f"{op}.py").write_text(spec.replace('"axpby"', f'"{op}"'))
        (folder / "csrc" / f"{op}.cu").write_text(CUDA.replace("scale", op))
        (folder / "triton_kernels" / f"{op}.py").write_text(TRITON.replace("scale", op))
    return folder


def counts_of(folder: Path, op: str) -> dict[str, tuple[object, ...]]:
    registry = Registry((folder,))
    found = {side: effort_of(registry, op, side) for side in SIDES}
    assert not any(e.missing for e in found.values()), found
    return {side: (size(e.device), size(e.host), e.shared.tokens) for side, e in found.items()}


def test_code_that_moves_to_a_helper_of_one_op_costs_the_same(tmp_path):
    folder = root_with(tmp_path, "scaled_a")
    before = counts_of(folder, "scaled_a")
    cu, py = folder / "csrc/scaled_a.cu", folder / "triton_kernels/scaled_a.py"
    start, end = CUDA.index("template"), CUDA.index("}  // namespace")
    moved = CUDA[start:end].replace("scale", "scaled_a")
    (folder / "csrc/common").mkdir()
    (folder / "csrc/common/scaled.cuh").write_text(f"#pragma once\nnamespace n {{\n{moved}}}\n")
    kept = cu.read_text().replace(moved, "").replace("common/pack.cuh", "common/scaled.cuh")
    # Something of the op's own file must name what moved, as a launcher does.
    launcher = "void scaled_a() { n::scaled_a_kernel<float><<<1, kThreads>>>(0, 0, 0, 0); }\n"
    cu.write_text(cu.read_text() + launcher)
    before["cuda"] = counts_of(folder, "scaled_a")["cuda"]
    cu.write_text(kept + launcher)
    text = py.read_text()
    kernel = text[text.index("@triton.jit") : text.index("def scaled_a(")]
    head = "import triton\nimport triton.language as tl\n\n\n"
    (folder / "triton_kernels/_scaled.py").write_text(head + kernel)
    py.write_text(text.replace(kernel, "from ._scaled import scaled_a_kernel\n\n\n"))
    assert counts_of(folder, "scaled_a") == before


def test_what_two_ops_reach_is_shared_and_what_none_reaches_is_not(tmp_path):
    folder = root_with(tmp_path, "scaled_a", "scaled_b")
    (folder / "triton_kernels/_both.py").write_text(
        "def helper(x):\n    return x\n\n\ndef unused(x):\n    return x + 1\n"
    )
    for op in ("scaled_a", "scaled_b"):
        file = folder / "triton_kernels" / f"{op}.py"
        file.write_text(file.read_text() + "\n\nfrom ._both import helper\n\nA = helper(1)\n")
    found = effort_of(Registry((folder,)), "scaled_a", "triton")
    # def helper ( x ) : return x
    assert found.shared_host.tokens == 8
    assert found.shared_device.tokens == 0


def test_a_missing_side_is_missing_and_has_no_ratio(tmp_path, capsys):
    folder = root_with(tmp_path, "scaled_a")
    (folder / "triton_kernels/scaled_a.py").unlink()
    registry = Registry((folder,))
    cuda, triton = (effort_of(registry, "scaled_a", side) for side in SIDES)
    # P5: the other side alone is counted, and never as nothing
    assert cuda.device.tokens > 0 and cuda.device.ccn > 0
    assert triton.device is None and triton.missing == "missing: no triton_kernels/scaled_a.py"
    for cell in rows.cells(cuda, triton, "device"):
        assert cell.ratio is None and cell.words().endswith("/ –")
    assert cli.main(["effort", "scaled_a", "--kernels", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "scaled_a, triton: missing: no triton_kernels/scaled_a.py" in out
    assert "inf" not in out.split("How it was counted")[0]
    assert cli.main(["effort", "scaled_a", "--kernels", str(folder), "--csv", "-"]) == 0
    told = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    (row,) = [row for row in told if row["side"] == "triton"]
    assert row["tokens"] == "" and row["missing"].startswith("missing")


@pytest.mark.parametrize("side", SIDES)
def test_a_file_that_does_not_parse_says_so_and_others_stay(tmp_path, capsys, side):
    folder = root_with(tmp_path, "scaled_a", "scaled_b")
    files = {"cuda": folder / "csrc/scaled_a.cu", "triton": folder / "triton_kernels/scaled_a.py"}
    broken = files[side].read_text().replace("scaled_a_kernel(", "scaled_a_kernel((", 1)
    before = counts_of(folder, "scaled_b")
    files[side].write_text(broken)
    registry = Registry((folder,))
    found = effort_of(registry, "scaled_a", side)
    assert found.device is None and "does not parse" in found.missing
    assert files[side].name in found.missing and ", line " in found.missing
    other = "triton" if side == "cuda" else "cuda"
    assert effort_of(registry, "scaled_a", other).device.tokens > 0
    assert counts_of(folder, "scaled_b") == before
    command = ["effort", "scaled_a", "scaled_b", "--kernels", str(folder)]
    assert cli.main(command) == 1
    assert "does not parse" in capsys.readouterr().out


def test_a_helper_that_does_not_parse_stops_only_those_that_use_it(tmp_path):
    folder = root_with(tmp_path, "scaled_a", "scaled_b")
    (folder / "triton_kernels/_bad.py").write_text("def helper(:\n")
    file = folder / "triton_kernels/scaled_a.py"
    file.write_text(file.read_text() + "\n\nfrom ._bad import helper\n\nA = helper(1)\n")
    registry = Registry((folder,))
    assert "_bad.py, line 1" in effort_of(registry, "scaled_a", "triton").missing
    assert effort_of(registry, "scaled_b", "triton").missing == ""


def test_an_edit_is_seen_at_once(tmp_path):
    folder = root_with(tmp_path, "scaled_a")
    registry = Registry((folder,))
    before = effort_of(registry, "scaled_a", "cuda").device.tokens
    file = folder / "csrc/scaled_a.cu"
    file.write_text(file.read_text().replace("__syncthreads();", "__syncthreads(); __syncwarp();"))
    assert effort_of(registry, "scaled_a", "cuda").device.tokens == before + 4


@pytest.mark.parametrize("text", ["int f( {", "void f() { } }", "struct A {", "= 3;"])
def test_broken_cuda_is_refused(text):
    with pytest.raises(SyntaxNotReadError, match="does not parse"):
        count_text(text, "cuda")


def test_what_the_grammar_lacks_is_not_broken():
    text = """
__global__ void k() { extern __shared__ __align__(16) float4 s[]; }
template <int... kN>
bool f(int n) {
  return ((n <= kN && (g<int, kN>(n), true)) || ...);
}
"""
    counts = count_text(text, "cuda")
    # __global__ void k ( ) { extern __shared__ __align__ ( 16 ) float4 s [ ] ; }
    # template < int ... kN > bool f ( int n ) { return
    # ( ( n <= kN && ( g < int , kN > ( n ) , true ) ) || ... ) ; }
    assert counts.tokens == 18 + 14 + 25
    assert "cuda.alignment" in counts.concepts


# --- without the tools ---------------------------------------------------------------------------


def test_without_the_tools_the_command_names_one(tmp_path):
    code = (
        "import sys; sys.modules['tree_sitter_cuda'] = None\n"
        "from harness.cli import main; sys.exit(main(['effort', 'axpby']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: tree_sitter_cuda is not installed: pip install")


def test_copies_need_no_checkout_around_them(tmp_path):
    """What an op is made of does not depend on the folder that holds it."""
    for name in ("csrc", "triton_kernels"):
        shutil.copytree(REPOSITORY / name, tmp_path / "a" / name)
    (tmp_path / "a/harness/specs").mkdir(parents=True)
    spec = (REPOSITORY / "harness/specs/axpby.py").read_text()
    for suffix, folder in ((".cu", "csrc"), (".py", "triton_kernels")):
        text = (REPOSITORY / folder / f"axpby{suffix}").read_text()
        (tmp_path / "a" / folder / f"axpbz{suffix}").write_text(text)
    (tmp_path / "a/harness/specs/axpbz.py").write_text(spec.replace('"axpby"', '"axpbz"'))
    registry = Registry((tmp_path / "a",))
    for side in SIDES:
        copied, original = (effort_of(registry, op, side) for op in ("axpbz", "axpby"))
        # In the copy one op alone uses the helpers, so they are its own.
        assert copied.shared.tokens == 0 < original.shared.tokens
        whole = original.device + original.shared_device
        assert size(copied.device)[:5] == pytest.approx(size(whole)[:5])
        assert copied.device.concept_uses == whole.concept_uses
