"""The report: one page, complete in itself, the same bytes each time, no file believed."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from fixtures import synthetic_run as synthetic

from harness import cli, report, report_command, report_ops
from harness.compare import ComparisonRefused, compare_sides
from harness.machine import source_hash
from harness.plots import plot_run
from harness.registry import REPOSITORY, Registry
from harness.report import render, write_report
from harness.report_ladders import ladders
from harness.report_map import side_map, summary
from harness.results import KEY, Run, read_run

REFERENCE = REPOSITORY / "results" / "nvidia-h200" / "reference"
EVIL = "<script>alert(1)</script>\"'&"


class Page(HTMLParser):
    """What tests ask of a page: tags with their attributes, and headings' levels."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def reference_page() -> str:
    return render(read_run(REFERENCE))


def small(**changes: Any) -> list[dict[str, Any]]:
    """Return three cases of one op on both sides."""
    return [
        synthetic.row("scale", n, side, 10.0 * speed, **changes)
        for n in (1024, 4096, 16384)
        for side, speed in (("cuda", 1.0), ("triton", 1.3))
    ]


def test_the_page_is_complete_in_itself(reference_page: str) -> None:
    page = Page(reference_page)
    assert len(reference_page) < 10e6
    for tag, attributes in page.tags:
        for name in ("src", "href"):
            target = attributes.get(name)
            assert target is None or target.startswith(("data:", "#")), (tag, target)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    links = {str(a["href"]).removeprefix("#") for a in page.all("a")}
    assert len(ids) == len(set(ids)) and links <= set(ids)
    assert "@import" not in reference_page and "url(" not in reference_page
    policy = next(m for m in page.all("meta") if m.get("http-equiv"))["content"]
    assert policy is not None and policy.startswith("default-src 'none'")


def test_every_row_and_its_ratio_are_in_the_page(reference_page: str) -> None:
    run = read_run(REFERENCE)
    page = Page(reference_page)
    cell = r'<td class="">(cuda|triton|torch|compile|library)(:\w+)?</td>'
    assert len(re.findall(cell, reference_page)) == len(run.rows)
    for ratio in compare_sides(run).rows["ratio"].dropna():
        assert f"{ratio:.3f}" in page.text
    images = page.all("img")
    assert len(images) > 10 and all(len(i["alt"] or "") > 40 for i in images)


def test_a_ratio_stands_at_its_own_case(tmp_path: Path) -> None:
    run = read_run(REFERENCE)
    sides = side_map(run)
    wanted = {
        tuple(str(row[c]) for c in KEY if c not in ("backend", "variant")): f"{row['ratio']:.3f}"
        for row in sides.rows.to_dict("records")
    }
    for op in run.rows["op"].unique():
        lines, _ = report_ops.table(run, op, sides, 1000)
        rows = run.rows[run.rows["op"] == op].to_dict("records")
        for row, line in zip(rows, lines, strict=True):
            key = tuple(str(row[c]) for c in KEY if c not in ("backend", "variant"))
            headline = row["backend"] == "cuda" and not row["variant"]
            assert line[7].text == (wanted[key] if headline else "")


def test_the_same_files_give_the_same_bytes_wherever_they_lie(tmp_path: Path) -> None:
    run = synthetic.write(tmp_path / "run", synthetic.rows())
    shutil.copytree(tmp_path / "run", tmp_path / "elsewhere")
    first = render(run)
    assert first == render(read_run(tmp_path / "elsewhere"))
    assert first == render(run, None, plot_run(run, tmp_path / "plots"))
    assert str(tmp_path) not in first


def test_text_of_a_file_is_never_markup(tmp_path: Path) -> None:
    table = small(case=EVIL, form=EVIL, config=EVIL, warnings=EVIL, roof_name=EVIL)
    table = [row | {"op": f"{EVIL}{n}"} for n, row in enumerate(table)]
    failed = {"status": "error", "reason": EVIL, "time_us_p50": None, "time_us_p20": None}
    table.append(table[0] | failed | {"time_us_p80": None, "case": "failed"})
    facts = synthetic.meta(command=EVIL, started_utc=EVIL, git_commit=EVIL, os=EVIL)
    facts["roof_drift"] = {"worst_pct": 1.0, "at": EVIL, "above_2_pct": [EVIL]}
    page = render(synthetic.write(tmp_path / "run", table, facts))
    assert "<script>alert" not in page
    assert len(Page(page).all("script")) == 1
    assert "&lt;script&gt;alert(1)" in page


def test_the_summary_is_made_of_the_runs_numbers(tmp_path: Path) -> None:
    run = synthetic.write(tmp_path, small())
    text = " ".join(summary(run, side_map(run)))
    assert "3 cases" in text and "CUDA in 3" in text and "Triton is faster in 0" in text
    assert "1.30×" in text and "6 of 6 rows passed" in text
    sentence = report_ops.sentence(run, "scale", side_map(run))
    assert sentence.startswith("CUDA and Triton are within 1 % on 0 of 3 cases; CUDA is faster")


def test_each_mark_of_the_schema_has_words() -> None:
    text = (REPOSITORY / "docs" / "results-schema.md").read_text()
    marks = re.search(r"`warnings` \| text \| marks separated by `;`: (.*) \|", text)
    assert marks is not None
    names = re.findall(r"[a-z]+(?:_[a-z]+)+", marks.group(1))
    assert names and set(names) <= set(report_ops.WARNINGS)


def test_a_run_in_which_everything_failed_has_a_page(tmp_path: Path) -> None:
    nothing = {f"time_us_p{q}": None for q in (20, 50, 80)} | {"n_rounds": None}
    table = small(status="mismatch", reason="the answer is wrong", roof_us=None, **nothing)
    page = Page(render(synthetic.write(tmp_path, table)))
    assert "not compared" in page.text and "the answer is wrong" in page.text
    assert not page.all("img")


@pytest.mark.parametrize("facts", [{}, {"roofs": None, "gpu_health": None, "noise_floor": None}])
def test_a_run_that_records_nothing_has_a_page(tmp_path: Path, facts: dict[str, Any]) -> None:
    page = Page(render(synthetic.write(tmp_path, small(), facts)))
    assert "not recorded" in page.text


def test_a_run_of_schema_1_0_has_a_page(tmp_path: Path) -> None:
    run = synthetic.write(tmp_path, small())
    later = {"bench.csv": ("flush", "n_outliers"), "rounds.csv": ("utc_s", "sm_mhz")}
    for name, columns in later.items():
        lines = [line.split(",") for line in (run.path / name).read_text().splitlines()]
        kept = [i for i, column in enumerate(lines[0]) if column not in columns]
        text = "\n".join(",".join(line[i] for i in kept) for line in lines)
        (run.path / name).write_text(text + "\n")
    meta = json.loads((run.path / "meta.json").read_text())
    (run.path / "meta.json").write_text(json.dumps(meta | {"schema": "1.0"}))
    for name in ("samples.csv.gz", "watch.csv"):
        (run.path / name).unlink(missing_ok=True)
    page = Page(render(read_run(tmp_path)))
    assert "schema 1.0" in page.text and "not here" in page.text


def test_compiler_facts_appear_only_where_there_are_any(tmp_path: Path) -> None:
    without = synthetic.write(tmp_path / "a", small())
    assert "Compiler facts" not in render(without)
    known = synthetic.write(tmp_path / "b", small(registers=40, kernel_symbol="scale_kernel"))
    page = Page(render(known))
    assert "Compiler facts" in page.text and "scale_kernel" in page.text


def with_hashes(folder: Path, **changes: str) -> Run:
    registry = Registry()
    sides = ("cuda", "triton")
    hashes = {side: source_hash(registry.kernel_files("softmax", side)) for side in sides} | changes
    table = [
        synthetic.row("softmax", n, side, 10.0, kernel_hash=hashes[side])
        for n in (1024, 4096)
        for side in sides
    ]
    return synthetic.write(folder, table)


def test_sources_are_shown_only_when_they_are_those_of_the_run(tmp_path: Path) -> None:
    both = Page(render(with_hashes(tmp_path / "same")))
    files = [str(p["aria-label"]) for p in both.all("pre")]
    assert [f for f in files if "common/" not in f and "/_" not in f] == [
        "csrc/softmax.cu",
        "triton_kernels/softmax.py",
    ]
    # What both sides keep in files that ops share.
    assert {"csrc/common/merge.cuh", "triton_kernels/_row_exchange.py"} < set(files)
    shown = " ".join(both.words)
    assert "softmax_kernel" in shown
    other = Page(render(with_hashes(tmp_path / "other", cuda="0" * 16)))
    assert all(str(p["aria-label"]).startswith("triton_kernels/") for p in other.all("pre"))
    assert "CUDA: the source has changed since this run." in other.text


def test_a_base_brings_its_own_section(tmp_path: Path) -> None:
    base = synthetic.write(tmp_path / "base", small())
    new = synthetic.write(tmp_path / "new", small(), seed=1, slower=lambda row: 1.5)
    page = Page(render(new, base))
    assert "6 SLOWER" in page.text and "Compared with an earlier run" in page.text
    assert "1.5" in page.text
    other = synthetic.write(tmp_path / "other", [r | {"op": "copy"} for r in small()])
    with pytest.raises(ComparisonRefused, match="no common row"):
        render(new, other)


def test_a_large_run_stays_below_ten_megabytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_ops, "MAX_ROWS", 4)
    page = Page(render(synthetic.write(tmp_path, small())))
    assert "2 further rows are not shown" in page.text


def test_the_command_writes_whole_files_and_says_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = synthetic.write(tmp_path / "run", small())
    assert cli.main(["report", str(run.path)]) == 0
    assert capsys.readouterr().out.startswith(str(run.path / "report.html"))
    assert {p.name for p in run.path.glob("report*")} == {"report.html"}
    assert cli.main(["report", str(tmp_path / "missing")]) == 2
    assert cli.main(["report", str(run.path), "--out", str(run.path / "meta.json" / "x")]) == 2
    assert cli.main(["report", str(run.path), "--base", str(tmp_path / "none")]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 3 and all(line.startswith("error: ") for line in errors)


def test_a_page_that_cannot_be_written_is_refused_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = synthetic.write(tmp_path / "run", small())
    monkeypatch.setattr(report, "render", lambda *_: pytest.fail("the page was made"))
    assert cli.main(["report", str(run.path), "--out", str(run.path / "meta.json" / "x")]) == 2
    assert "choose another --out" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "warned"), [("{", True), (None, False)])
def test_damaged_facts_cost_the_command_a_warning(
    text: str | None, warned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = synthetic.write(tmp_path / "run", small())
    if text is not None:
        (run.path / "facts.json").write_text(text)
    assert cli.main(["report", str(run.path)]) == 0
    said = capsys.readouterr().err
    assert (said.startswith("warning: ") and "facts.json cannot be read" in said) is warned


def test_what_is_not_installed_costs_bench_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = synthetic.write(tmp_path / "run", small())
    found = report_command.importlib.util.find_spec
    monkeypatch.setattr(
        report_command.importlib.util,
        "find_spec",
        lambda name, *more: None if name in ("jinja2", "pygments") else found(name, *more),
    )
    report_command.report_after(run.path)
    said = capsys.readouterr().out
    assert "jinja2 and pygments are not installed; pip install" in said.replace("\n", " ")
    assert cli.main(["report", str(run.path)]) == 2
    assert "no report: jinja2" in capsys.readouterr().err
    assert not (run.path / "report.html").exists()


def test_bench_leaves_a_report_from_the_figures_it_drew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = synthetic.write(tmp_path / "run", small())
    report_command.report_after(run.path, figures=plot_run(run, run.path / "plots"))
    assert "report: " in capsys.readouterr().out
    again = write_report(run, tmp_path / "again.html")
    assert (run.path / "report.html").read_bytes() == again.read_bytes()


RUNGS = [{"name": "naive", "step": "one element a thread"}, {"name": "tiled", "step": EVIL}]


def test_a_ladder_shows_what_each_step_gained(tmp_path):
    rows = [
        synthetic.row("scale", 1024, "cuda", us, variant=name, headline=not name)
        for name, us in (("naive", 40.0), ("tiled", 20.0), ("", 16.0))
    ]
    rows.append(synthetic.row("scale", 1024, "triton", 16.0))
    meta = {"ladders": {"scale": {"cuda": RUNGS, "triton": RUNGS}}}
    run = synthetic.write(tmp_path / "run", rows, meta)
    (ladder,) = ladders(run, "scale")
    assert ladder.title.startswith("cuda, 1024")
    assert [(line[0], line[2], line[3]) for line in ladder.lines] == [
        ("naive", "40.00", ""),
        ("tiled", "20.00", "2.00"),
        ("headline", "16.00", "1.25"),
    ]
    page = render(run)
    assert "what each step by hand gains" in page
    assert EVIL not in page


@pytest.mark.parametrize(
    "wrong", [3, {"scale": 3}, {"scale": {"cuda": 3}}, {"scale": {"cuda": [3]}}]
)
def test_a_ladder_that_is_none_is_not_shown(tmp_path, wrong):
    run = synthetic.write(tmp_path / "run", small(), {"ladders": wrong})
    assert ladders(run, "scale") == []
