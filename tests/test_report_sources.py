"""Sources in the report: the same text again, marks that nest, a legend of what is so."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fixtures import synthetic_run as synthetic
from hypothesis import given
from hypothesis import strategies as st
from pygments.lexers import CudaLexer, PythonLexer

from harness import report_compiled, report_concepts
from harness.effort.concepts import ASPECTS, concepts
from harness.explain.fact_file import row_key
from harness.explain.timed import Facts, facts_of
from harness.machine import source_hash
from harness.registry import REPOSITORY, Registry
from harness.report import render
from harness.report_code import Mark, code_lines, split_lines
from harness.report_sources import NO_TREES, Sources, sources
from harness.results import read_run

EVIL = "</code></pre><script>alert(\"1\")</script><mark class='a0'>&amp;"
CSS = (REPOSITORY / "harness" / "templates" / "report.css").read_text()


class Line(HTMLParser):
    """One line of HTML: its text, and for each character the (class, title) of its mark."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[tuple[str, tuple[str | None, str | None]]] = []
        self.text = ""
        self.marked: list[tuple[str | None, str | None] | None] = []
        self.feed(str(html))  # Markup would escape what is added to it
        self.close()
        assert not self.open, "a tag is left open"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ("mark", "span"), tag
        assert tag != "mark" or not self.open, "a mark lies in another tag"
        given = dict(attrs)
        self.open.append((tag, (given.get("class"), given.get("title"))))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        mark = next((value for tag, value in self.open if tag == "mark"), None)
        self.text += data
        self.marked += [mark] * len(data)


def test_every_source_of_the_repository_comes_back_letter_by_letter():
    for pattern, lexer in (("csrc/**/*.cu*", CudaLexer), ("triton_kernels/*.py", PythonLexer)):
        for file in sorted(REPOSITORY.glob(pattern)):
            text = file.read_text(encoding="utf-8")
            html = code_lines(text, lexer(stripnl=False))
            assert [Line(line).text for line in html] == text.splitlines(), file


BLANKS = ("\n", "\n\n", "\r\n", "\r", "\t", "\f", "\v", "\u2028", "\x00", "\ufeff")
WORDS = (
    "a",
    "int x = 1;",
    '"s',
    "'",
    "/*",
    "*/",
    "// c",
    "#",
    '"""',
    "<",
    ">",
    "&",
    EVIL,
    "é",
    "𝛼",
)
PIECES = st.sampled_from((*BLANKS, *WORDS, "\\", "{%", "}}"))
COLUMNS = st.integers(-2, 40)
MARKS = st.builds(
    Mark, st.integers(1, 9), COLUMNS, COLUMNS, st.sampled_from(["a0", "a1"]), st.just(EVIL)
)


@given(st.lists(PIECES, max_size=12).map("".join), st.lists(MARKS, max_size=6), st.booleans())
def test_any_text_and_any_marks_give_closed_escaped_lines(text, marks, cuda):
    lexer = (CudaLexer if cuda else PythonLexer)(stripnl=False)
    wanted = split_lines(text)
    wanted = wanted[:-1] if wanted[-1] == "" else wanted
    html = code_lines(text, lexer, marks)
    assert len(html) == len(wanted)
    for n, (line, words) in enumerate(zip(html, wanted, strict=True), 1):
        seen = Line(line)
        # A parser of HTML reads NUL as another sign; nothing else may differ.
        assert seen.text.replace("\ufffd", "\x00") == words
        for column, mark in enumerate(seen.marked):
            over = [m for m in marks if m.line == n and m.start <= column < m.end]
            assert (mark is not None) == bool(over)
            assert mark is None or (mark[0] in {m.kind for m in over} and mark[1] == EVIL)


def test_the_narrower_mark_shows_and_one_place_has_both_titles():
    line = "kernel<<<grid, 32>>>(x);"
    marks = [
        Mark(1, 0, 20, "a1", "launch"),
        Mark(1, 9, 13, "a2", "grid"),
        Mark(1, 9, 13, "a3", "shape"),
    ]
    (html,) = code_lines(line, CudaLexer(stripnl=False), marks)
    seen = Line(html)
    assert [m and m[0] for m in seen.marked] == ["a1"] * 9 + ["a2"] * 4 + ["a1"] * 7 + [None] * 4
    assert seen.marked[9] == ("a2", "grid; shape")


CU = """// threadIdx in a comment
#include "common/help.cuh"
#include "common/unused.cuh"
const char* kText = "blockIdx <script>alert(1)</script>";
__global__ void pair_kernel(float* x, int n) {
  __shared__ float s[32];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = doubled(s[threadIdx.x]);
  __syncthreads();
}
"""
CUH = """#pragma once
constexpr int kFactor = 2;
constexpr int kUnused = 3;

// Reads nothing.
__device__ float nobody(float v) { return __shfl_xor_sync(~0u, v, 1); }

// Twice the value
// of v.
__device__ float doubled(float v) {
  return kFactor * __ldg(&v);
}
"""
PY = '''"""pair: tl.arange in a docstring is no use."""
import triton
import triton.language as tl

from ._help import doubled


@triton.jit
def pair_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(x_ptr + offsets, doubled(x), mask=offsets < n)
'''
HELP = """import triton
import triton.language as tl

FACTOR = tl.constexpr(2)


@triton.jit
def nobody(x):
    return tl.sum(x)


@triton.jit
def doubled(x):
    return FACTOR * x
"""


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    files = {
        "harness/specs/pair.py": "",
        "csrc/pair.cu": CU,
        "csrc/common/help.cuh": CUH,
        "csrc/common/unused.cuh": "__device__ int other() { return 0; }\n",
        "csrc/common/not_included.cuh": "__device__ float doubled(int v) { return 0; }\n",
        "triton_kernels/pair.py": PY,
        "triton_kernels/_help.py": HELP,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return Registry((tmp_path,))


def shown(
    registry: Registry,
    sides: tuple[str, ...] = ("cuda", "triton"),
    further: Sequence[dict[str, Any]] = (),
    **more: Any,
) -> Sources:
    rows: list[dict[str, Any]] = [
        {
            "backend": side,
            "variant": "",
            "status": "ok",
            "registers": 40,
            "shared_bytes": 128,
            "kernel_hash": source_hash(registry.kernel_files("pair", side)),
        }
        | more
        for side in sides
    ]
    return sources(pd.DataFrame([*rows, *further]), "pair", registry, "op-7", Facts())


def cell(found: Sources, aspect: str, side: str) -> Any:
    """What the legend says: [(concept, [file:line ...]), ...], or the words for nothing."""
    line = next(line for line in found.legend if line.name == aspect)
    named = [
        (concept.name, [f"{p.file}:{p.line}" for p in concept.places])
        for concept in line.named[side]
    ]
    return named or line.without[side]


def test_the_legend_says_what_each_side_names_and_where(registry):
    found = shown(registry)
    assert cell(found, "program index", "cuda") == [("block index and grid size", [":7"])]
    assert cell(found, "program index", "triton") == [("program id and count", [":10"])]
    assert cell(found, "element index", "cuda")[0] == ("thread index and block size", [":7", ":8"])
    assert cell(found, "element index", "triton") == [("range of element numbers", [":10"])]
    assert cell(found, "boundary", "cuda") == [("guard against the end", [":8"])]
    assert cell(found, "boundary", "triton")[0] == ("mask", [":11", ":12"])
    assert cell(found, "shared memory", "cuda") == [("static shared memory", [":6"])]
    assert cell(found, "shared memory", "triton") == "nothing: the compiler's work"
    assert cell(found, "barrier", "triton") == "not used here"
    assert cell(found, "cache hints", "cuda")[0] == (
        "cache hint or read-only load",
        ["help.cuh:11"],
    )
    # Only an unreached helper of either side reduces anything.
    assert "reduction" in found.unnamed and "matrix unit" in found.unnamed


def test_nothing_is_said_of_a_side_that_is_not_shown(registry):
    found = shown(registry, ("cuda",))
    assert cell(found, "shared memory", "triton") == "its source is not shown"
    changed = shown(registry, kernel_hash="0" * 16)
    assert changed.legend == changed.unnamed == changed.found == []
    assert [line.partition(":")[0] for line in changed.missing] == ["CUDA", "Triton"]


def test_both_sides_mark_an_aspect_alike_and_comments_never(registry):
    marked: dict[str, set[tuple[str, str]]] = {}
    for source in shown(registry).found:
        for line in (line for f in source.files for part in f.parts for line in part.lines):
            seen = Line(line.html)
            for mark in seen.marked:
                if mark is not None:
                    aspect = str(mark[1]).partition(":")[0]
                    marked.setdefault(source.side, set()).add((aspect, str(mark[0])))
                    assert report_concepts.KEYS[aspect] in line.keys
            if "comment" in seen.text or "docstring" in seen.text or "alert" in seen.text:
                assert not any(seen.marked) and not line.keys
    common = marked["CUDA"] & marked["Triton"]
    assert {aspect for aspect, _ in common} >= {"program index", "element index", "boundary"}
    assert len({kind for _, kind in marked["CUDA"]}) == len(marked["CUDA"])


def test_of_shared_files_only_what_is_reached_is_shown_with_its_own_numbers(registry):
    for source in shown(registry).found:
        own, *others = source.files
        (shared,) = others
        assert own.n_shown == own.n_lines
        file = next(
            f
            for f in registry.kernel_files("pair", source.side.lower())[1:]
            if f.name == Path(shared.path).name
        )
        lines = file.read_text().splitlines()
        text = ""
        for part in shared.parts:
            for n, line in enumerate(part.lines, part.before + 1):
                assert Line(line.html).text == lines[n - 1]
                text += lines[n - 1] + "\n"
        assert "doubled" in text and "nobody" not in text and "factor" in text.lower()
        assert "kUnused" not in text
        if source.side == "CUDA":
            assert "// Twice the value\n// of v.\n" in text and "Reads nothing" not in text
            assert shared.path == "csrc/common/help.cuh"


def test_a_source_that_does_not_parse_is_plain_and_nothing_is_said_of_either_side(
    registry, tmp_path
):
    (tmp_path / "csrc" / "pair.cu").write_text("__global__ void f( {{{ blockIdx.x;\n")
    found = shown(registry)
    assert found.unmarked.startswith("Concepts are not marked: ") and "pair.cu" in found.unmarked
    assert found.legend == found.unnamed == [] and len(found.found) == 2
    lines = [line for s in found.found for f in s.files for part in f.parts for line in part.lines]
    assert lines and not any(line.keys or "<mark" in line.html for line in lines)


def test_a_rung_of_a_ladder_is_no_change_of_the_source(registry):
    rung = {"backend": "cuda", "variant": "naive", "status": "ok", "kernel_hash": "0" * 16}
    found = shown(registry, further=[rung | {"registers": 999, "shared_bytes": 0}])
    assert [source.side for source in found.found] == ["CUDA", "Triton"] and not found.missing
    assert "999" not in found.found[0].compiled


def test_hostile_source_text_stays_text(registry, tmp_path):
    for name in ("csrc/pair.cu", "triton_kernels/pair.py"):
        file = tmp_path / name
        comment = "//" if name.endswith("cu") else "#"
        file.write_bytes(f"{comment} {EVIL} \u2028\x0c\r\n".encode() + file.read_bytes())
    found = shown(registry)
    for source in found.found:
        first = source.files[0].parts[0].lines[0]
        assert EVIL in Line(first.html).text and "<script" not in first.html and not first.keys
    # Carriage returns and odd blanks before it do not move a mark from its line.
    assert cell(found, "program index", "cuda") == [("block index and grid size", [":8"])]


def without_tree_sitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tree_sitter", None)
    for name in ("syntax", "shapes", "recognise", "names", "units", "closure", "counts"):
        monkeypatch.delitem(sys.modules, f"harness.effort.{name}", raising=False)


def test_without_tree_sitter_the_sources_are_plain_and_a_line_says_so(
    registry, tmp_path, monkeypatch
):
    without_tree_sitter(monkeypatch)
    found = shown(registry)
    assert found.unmarked == NO_TREES and found.legend == found.unnamed == []
    for source in found.found:
        assert len(source.files) == 1
        html = "\n".join(line.html for line in source.files[0].parts[0].lines)
        assert "<mark" not in html and 'class="k"' in html
    page = render(softmax_run(tmp_path / "run"))
    assert page.count("tree-sitter is not installed") == 1 and "<mark" not in page


def softmax_run(folder: Path, **facts: Any) -> Any:
    registry = Registry()
    rows = [
        synthetic.row(
            "softmax",
            n,
            side,
            10.0,
            kernel_hash=source_hash(registry.kernel_files("softmax", side)),
            **facts,
        )
        for n in (1024, 4096)
        for side in ("cuda", "triton")
    ]
    return synthetic.write(folder, rows)


def test_each_link_of_the_page_has_one_place(tmp_path):
    page = render(softmax_run(tmp_path))
    assert page == render(read_run(tmp_path))
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    links = re.findall(r'href="#([^"]+)"', page)
    assert set(links) <= set(ids)
    lines = [link for link in links if re.fullmatch(r"op-1-(cuda|triton)\d+-\d+", link)]
    assert len(lines) > 30 and any("cuda1-" in link for link in lines)
    assert "Named by neither side:" in page and "nothing: the compiler" in page


def test_each_aspect_has_a_colour_and_a_letter_of_its_own():
    hues = dict(re.findall(r"\.(a\d+) \{ --hue: (\d+); \}", CSS))
    kinds = [report_concepts.kind_of(aspect) for aspect in ASPECTS]
    assert set(kinds) == set(hues) and len(set(hues.values())) == len(ASPECTS)
    assert len(set(report_concepts.KEYS.values())) == len(ASPECTS) <= 26
    assert {concept.aspect for side in ("cuda", "triton") for concept in concepts(side)} <= set(
        ASPECTS
    )
    assert re.search(r"^mark \{.*text-decoration: underline", CSS, re.MULTILINE)


def luminance(red: float, green: float, blue: float) -> float:
    parts = [
        v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in (red, green, blue)
    ]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


@pytest.mark.parametrize("theme", [0, 1, 2], ids=["light", "dark", "print"])
def test_words_on_every_mark_are_readable(theme):
    """WCAG's contrast of at least 4.5 for each colour of a token on each aspect's background."""
    import colorsys

    block = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)[theme]
    values = dict(re.findall(r"--([\w-]+): ([^;]+);", block))
    saturation, lightness = (int(v.rstrip("%")) / 100 for v in values["mark"].split())
    for hue in re.findall(r"--hue: (\d+)", CSS):
        behind = luminance(*colorsys.hls_to_rgb(int(hue) / 360, lightness, saturation))
        for name in ("fg", "k", "s", "m", "n", "p"):
            code = values[name]
            letters = luminance(*(int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)))
            low, high = sorted((behind, letters))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (hue, name)


KERNEL = {
    "name": "k",
    "symbol": "k",
    "side": "cuda",
    "arch": "90",
    "hash": "h",
    "instructions": {
        "loads": {"16": 1},
        "barriers": 1,
        "shuffles": 6,
        "async_copy": ["cp.async"],
    },
}


def compiled(folder: Path, changes: dict[str, Any]) -> str:
    """What is said of a run whose first CUDA row has this entry in facts.json."""
    run = softmax_run(folder, registers=40, shared_bytes=128)
    rows = run.rows[run.rows["backend"] == "cuda"]
    row = {str(k): v for k, v in rows.to_dict("records")[0].items()}
    launch = {"symbol": "k", "hash": "h", "block": [64, 2, 1]}
    entry = {"launches": [launch], "kernel_hash": row["kernel_hash"], "config": row["config"]}
    facts = {"schema": "1.0", "kernels": {"h": KERNEL}, "rows": {row_key(row): entry | changes}}
    (folder / "facts.json").write_text(json.dumps(facts))
    return report_compiled.sentence(rows, facts_of(run))


def test_what_the_compilers_made_of_it_stands_beside_the_source(tmp_path):
    registers = "40 registers a thread, 128 shared bytes a block"
    assert compiled(tmp_path / "a", {}) == (
        f"{registers}, 128 threads a block; in the machine code global loads of 16 bytes, "
        "cp.async, 1 barrier, 6 shuffles"
    )
    # Facts of another source are not this one's, and what is no list of launches tells nothing.
    wrong: tuple[dict[str, Any], ...] = (
        {"kernel_hash": "other"},
        {"config": "other"},
        {"launches": None},
        {"launches": [EVIL, {"symbol": 3}]},
        {"launches": [{"symbol": "k", "block": EVIL}]},
        {"launches": [{"symbol": "k", "block": [1e400, None]}]},
    )
    for n, changes in enumerate(wrong):
        assert compiled(tmp_path / f"b{n}", changes) == registers
    none = softmax_run(tmp_path / "c").rows
    assert report_compiled.sentence(none, Facts()) == ""
