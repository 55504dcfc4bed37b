"""Ladders in the documents are those of the reference run, and docs/matmul.md tells every rung."""

from __future__ import annotations

import re

import pytest
from fixtures import synthetic_run as synthetic

from harness import doc_quotes
from harness.doc_facts import FactsError
from harness.doc_ladders import with_ladders
from harness.registry import REPOSITORY
from harness.specs import _matmul_ladder

PAGE = REPOSITORY / "docs" / "matmul.md"
ASKED = "<!-- ladder: matmul 4096x4096x1024 bf16 -->\n| old |\n<!-- /ladder -->\n"
RUNGS = [{"name": name, "step": "a step"} for name in ("left_out", "naive", "tiled", "untimed")]


def run_folder(tmp_path, meta=None):
    rows = [
        synthetic.row("matmul", 1024, side, us, variant=name, headline=not name)
        for side, name, us in (
            ("cuda", "naive", 1600.0),
            ("cuda", "tiled", 400.0),
            ("cuda", "", 50.0),
            ("triton", "", 80.0),
            ("torch", "", 40.0),
        )
    ]
    rows.append(synthetic.row("matmul", 1024, "cuda", 1.0, variant="untimed", status="error"))
    ladders = {"matmul": {"cuda": RUNGS, "triton": RUNGS}} if meta is None else meta
    return synthetic.write(tmp_path / "run", rows, {"ladders": ladders}).path


def test_a_table_holds_the_runs_times_and_what_follows_from_them(tmp_path):
    made = with_ladders(ASKED, run_folder(tmp_path))
    lines = made.splitlines()
    assert "| old |" not in made and lines[0] == ASKED.splitlines()[0]
    # 2 * 4096 * 4096 * 1024 operations: 34.36 G in 1600, 400 and 50 us
    assert lines[3:-1] == [
        "| cuda | `naive` | 1600.0 | – | 21 | 2.5 |",
        "| cuda | `tiled` | 400.0 | 4.00 | 86 | 10.0 |",
        "| cuda | `untimed` | – | – | – | – |",
        "| cuda | headline | 50.0 | – | 687 | 80.0 |",
    ]  # left_out has no row here; triton has timed no rung: no ladder
    assert with_ladders(made, run_folder(tmp_path / "again")) == made


@pytest.mark.parametrize("meta", [{}, {"matmul": {}}, {"softmax": {"cuda": RUNGS}}])
def test_a_case_without_a_ladder_says_so_in_a_line(tmp_path, meta):
    made = with_ladders(ASKED, run_folder(tmp_path, meta)).splitlines()
    assert len(made) == 3
    assert made[1].startswith("The committed reference run has no ladder of `matmul 4096x4096x1024")


def test_what_cannot_be_made_is_one_line(tmp_path):
    with pytest.raises(FactsError, match="wanted <op> <case> <dtype>"):
        with_ladders("<!-- ladder: matmul -->\n<!-- /ladder -->\n", run_folder(tmp_path))
    with pytest.raises(FactsError) as caught:
        with_ladders(ASKED, tmp_path / "nowhere")
    assert "\n" not in str(caught.value)
    assert with_ladders("no table", tmp_path / "nowhere") == "no table"


def test_a_stale_ladder_of_a_page_is_found_and_put_right(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(ASKED)
    (line,) = doc_quotes.problems(page)
    assert "a table is not that of the reference run" in line
    assert doc_quotes.write(page) and doc_quotes.problems(page) == []


def test_the_page_is_true_to_the_reference_run():
    assert doc_quotes.problems(PAGE) == []


@pytest.mark.parametrize(
    ("source", "rungs"),
    [
        (r"csrc/matmul/(\w+)\.cu", _matmul_ladder.CUDA_RUNGS),
        (r"triton_kernels/matmul/(\w+)\.py", _matmul_ladder.TRITON_RUNGS),
    ],
)
def test_the_page_tells_every_rung_in_order_with_its_source(source, rungs):
    text = PAGE.read_text(encoding="utf-8")
    told = re.findall(rf"^\*\*`(\w+)`\*\* \(\[source\]\(\.\./{source}\)", text, re.M)
    assert told == [(rung.name, rung.name) for rung in rungs]
