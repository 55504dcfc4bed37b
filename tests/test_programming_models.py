"""docs/programming-models.md: every quote stands where it says, and no concept is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness import doc_facts, doc_quotes
from harness.doc_facts import FactsError, with_facts
from harness.registry import REPOSITORY

PAGE = REPOSITORY / "docs" / "programming-models.md"
TEXT = PAGE.read_text(encoding="utf-8")
HEADING = "## Every concept, and where it is"

# Row of the last table -> what its two cells name. A row that is left out or loses its point fails.
CONCEPTS = {
    "Eager mode: a kernel an operation": ("x @ w + b", ""),
    "DRAM traffic of a fused op": ("Bytes", "bytes"),
    "Fused matmul, bias and relu": ("v <= 0.0f", "tl.maximum("),
    "Ahead-of-time extension": ("CUDAExtension", "nothing"),
    "Binding to Python": ("m.def(", "def matmul_bias_relu("),
    "Mark of a kernel: @triton.jit": ("__global__", "@triton.jit"),
    "Unit of programming: thread, program instance": ("threadIdx", "tl.program_id"),
    "Block-centric model": ("body.load", "stream_tile"),
    "Grid and launch": ("<<<", "matmul_kernel[("),
    "Block index: tl.program_id": ("blockIdx", "tl.program_id"),
    "Element index: tl.arange": ("threadIdx", "tl.arange"),
    "Size of a tile: a constant of the kernel": ("template", "tl.constexpr"),
    "Pointer arithmetic and pointer blocks": ("load_pack(in[i] + p)", "+ offsets"),
    "Vectorised operations on blocks": ("in[0] + in[1]", "x + y"),
    "Step 1, program_id: where my part starts": ("blockDim", "tl.program_id"),
    "Step 2, arange: the offsets in it": ("threadIdx", "tl.arange"),
    "Step 3, masked load": ("p < split.n_packs", "tl.load(x_ptrs, mask=mask)"),
    "Step 4, masked store": ("store_pack", "mask=mask"),
    "tl.load": ("load_pack", "tl.load("),
    "tl.store": ("store_pack", "tl.store("),
    "Mask safety: if (i < n)": ("if (threadIdx.x <", "mask ="),
    "What a masked lane holds": ("fill", "other="),
    "Edges of a matrix": ("async_copy_16", "% M"),
    "Memory coalescing": ("neighbouring threads", "nothing"),
    "Width of an access": ("uint4", "tl.multiple_of"),
    "Shared memory management": ("__shared__", "nothing"),
    "Bank conflicts": ("^", "nothing"),
    "Copies ahead: cp.async, num_stages": ("cp.async", "num_stages"),
    "Thread synchronisation": ("__syncthreads", "nothing"),
    "Reduction: tl.max": ("__shfl_xor_sync", "tl.max("),
    "Reduction: tl.sum": ("__shfl_xor_sync", "tl.sum("),
    "Tensor core: tl.dot": ("mma_16x8x16", "tl.dot("),
    "Operands of the tensor core: ldmatrix": ("load_matrix_x4", "nothing"),
    "Partition over SMs (author's)": ("in_band", "tile_m"),
    "Kernel instance on an SM": ("n_tiles_m", "n_tiles_m"),
    "Tile and shared memory": ("kStages", "BLOCK_M, BLOCK_N"),
    "Micro tile and warp": ("kWarpM", "num_warps"),
    "Nano tile, lane and SIMD units": ("lane", "nothing"),
    "Scheduling inside an SM": ("start_copy", "nothing"),
    "Tile sizes and their choice (author's)": ("MmaTile", "for config in"),
    "Facts the compiler cannot see (author's)": ("__launch_bounds__", "VEC * VEC"),
}


def table() -> dict[str, tuple[str, str]]:
    """The last table: concept -> its two cells as written."""
    rows = re.findall(r"^\|(.*)\|$", TEXT.partition(HEADING)[2], re.MULTILINE)
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)] for row in rows[2:]]
    assert all(len(row) == 3 for row in cells), "a bar inside a cell is written \\|"
    return {concept: (cuda, triton) for concept, cuda, triton in cells}


def test_no_concept_is_missing_and_none_is_unknown():
    assert list(table()) == list(CONCEPTS)


@pytest.mark.parametrize("concept", CONCEPTS)
def test_each_cell_quotes_a_line_or_says_why_there_is_none(concept):
    for side, cell, wanted in zip(
        ("csrc", "triton_kernels"), table()[concept], CONCEPTS[concept], strict=True
    ):
        assert wanted in cell
        quoted = doc_quotes.quotes(cell)
        assert quoted or cell.startswith(("nothing: ", "the same line: ")), cell
        homes = (f"../{side}/", "../setup.py", "../harness/specs/")
        assert all(quote.path.startswith(homes) for quote in quoted), cell


def test_what_a_side_does_not_name_is_not_in_its_trees():
    pytest.importorskip("tree_sitter_cuda", reason="the [effort] extra is not installed")
    from harness.effort.concepts import concepts, uses

    def named(side: str, *files: str) -> set[str]:
        aspect = {concept.id: concept.aspect for concept in concepts(side)}
        texts = [(REPOSITORY / file).read_text() for file in files]
        return {aspect[use.concept] for text in texts for use in uses(text, side)}

    compilers = {"shared memory", "barrier", "inline assembly"}
    own = [f"triton_kernels/{stem}.py" for stem in ("vector_add", "_stream", "softmax")]
    triton = named("triton", *own, "triton_kernels/_matmul.py", "triton_kernels/_matmul_launch.py")
    headers = ("matmul_mma", "matmul_tile", "mma", "merge")
    cuda = named("cuda", *(f"csrc/common/{name}.cuh" for name in headers))
    assert not compilers & triton and compilers <= cuda
    wanted = {"program index", "element index", "boundary", "global access", "vector width"}
    assert wanted | {"pipelining", "matrix unit", "reduction", "threads", "mapping"} <= triton
    # The one barrier that the page speaks of.
    assert "barrier" in named("triton", "triton_kernels/_row_exchange.py")


def test_every_quote_stands_where_the_page_says():
    found = doc_quotes.problems(PAGE)
    assert not found, "\n".join(found)
    assert sum(quote.is_block for quote in doc_quotes.quotes(TEXT)) > 25
    # A block of code that no link holds would be nobody's.
    blocks = re.findall(r"^```(?:python|cpp)$", TEXT, re.MULTILINE)
    assert len(blocks) == sum(quote.is_block for quote in doc_quotes.quotes(TEXT))


def test_other_documents_quote_rightly_too():
    assert doc_quotes.main([], lambda line: None) == 0


def test_the_page_shows_no_figures_but_those_of_the_reference_run():
    """Numbers of machine code and times stand in the generated table only."""
    prose = re.sub(
        r"<!-- facts.*?<!-- /facts -->|```.*?```|`[^`\n]*`|\]\([^)]*\)", "", TEXT, flags=re.S
    )
    prose = prose.partition(HEADING)[0]
    assert not re.search(r"\d(?:[.,]\d+)?\s*(?:%|µs|us\b|ms\b|GB|TFLOP|registers|KB|KiB)", prose)
    asked = re.search(r"<!-- facts: (.*?) -->", TEXT)
    assert asked is not None and "matmul_bias_relu 8192x8192x8192 bf16" in asked[1]
    three = re.search(r"^\| matmul_bias_relu \S+ bf16 \| torch \| (\d+) ", TEXT, re.MULTILINE)
    assert three is not None and three[1] == "3" and "It launches three kernels" in TEXT


def test_files_that_the_page_names_exist():
    for name in re.findall(r"`([a-z_]+/[\w/]*(?:\.\w+)?)`", TEXT):
        assert (REPOSITORY / name).exists(), name
    for name in ("vector_add", "softmax", "matmul_bias_relu"):
        assert "cannot do" in (REPOSITORY / "triton_kernels" / f"{name}.py").read_text()


SOURCE = "first\n  int a = b | c;\n  int d;\n\nlast <tag>\n"
DOCUMENT = """# Page

| row | [s.cu:2](s.cu#L2) `int a = b \\| c;` |

[s.cu:2-3](s.cu#L2-L3)

```cpp
int a = b | c;
int d;
```
"""


def page(folder: Path, source: str = SOURCE, document: str = DOCUMENT) -> Path:
    (folder / "s.cu").write_text(source)
    (folder / "page.md").write_text(document)
    return folder / "page.md"


def test_a_moved_line_is_named_with_its_place_and_put_right(tmp_path):
    assert doc_quotes.problems(page(tmp_path)) == []
    moved = page(tmp_path, "one more\n" + SOURCE)
    cell, block = doc_quotes.problems(moved)
    assert cell.startswith("page.md:3: s.cu#L2: 'int a = b | c;' is on line 3 now; `python -m")
    assert block.startswith("page.md:5: s.cu#L2: ") and "is on line 3 now" in block
    said: list[str] = []
    assert doc_quotes.main([str(moved), "--write"], said.append) == 0 and "put right" in said[0]
    assert moved.read_text() == DOCUMENT.replace("2-L3", "3-L4").replace("2-3", "3-4").replace(
        "[s.cu:2](s.cu#L2)", "[s.cu:3](s.cu#L3)"
    ).replace("#L2-", "#L3-")
    assert not doc_quotes.write(moved)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (SOURCE.replace("b | c", "b + c"), "no line is 'int a = b | c;' any more"),
        (SOURCE.replace("int d", "long d"), "no line is 'int a = b | c;' any more"),
        (SOURCE + SOURCE, "is on the lines 2, 7; quote more"),
    ],
)
def test_changed_words_and_two_places_are_never_put_right(tmp_path, source, said):
    changed = page(tmp_path, source)
    before = changed.read_text()
    assert doc_quotes.main([str(changed), "--write"], lambda line: None) == 1
    assert changed.read_text() == before
    assert any(said in line for line in doc_quotes.problems(changed))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("[s.cu:2](s.cu#L2)\n", "nothing says what the line holds"),
        ("[s.cu:2](s.cu#L2)\n\nA paragraph.\n", "nothing says what the line holds"),
        ("[t.cu:2](t.cu#L2) `x`\n", "no such file"),
        ("[s.cu:7](s.cu#L1) `first`\n", "another line number than the link"),
        ("<!-- facts: softmax -->\n<!-- /facts -->\n", "wanted <op> <case> <dtype>"),
        ("<!-- facts: softmax 1x1 f64 -->\n<!-- /facts -->\n", "has no softmax 1x1 f64"),
    ],
)
def test_what_a_document_says_wrongly_is_one_line(tmp_path, document, said):
    (line,) = doc_quotes.problems(page(tmp_path, document=document))
    assert said in line and "\n" not in line


def test_a_table_of_facts_is_made_of_the_run(tmp_path):
    asked = "<!-- facts: vector_add 2^28 f32 -->\n| old |\n<!-- /facts -->\n"
    made = with_facts(asked)
    assert "| old |" not in made and "| vector_add 2^28 f32 | cuda | 1 | " in made
    assert with_facts(made) == made and with_facts("no table") == "no table"
    stale = page(tmp_path, document=asked)
    assert "is not that of the reference run" in doc_quotes.problems(stale)[0]
    with pytest.raises(FactsError, match=r"facts\.json"):
        with_facts(asked, tmp_path)


def test_what_is_not_known_is_not_nought():
    launch = {"symbol": "k", "grid": [2, 3, 1], "block": [64, 2, 1], "dynamic_shared_bytes": 8}
    line = doc_facts._line("op case f32", "cuda", [launch], {})
    assert line == "| op case f32 | cuda | 1 | 6 | 128 | – | – | – | – | – |\n"
