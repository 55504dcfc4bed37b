"""The README's table holds the run's numbers and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures import synthetic_run as synthetic

from harness import readme
from harness.readme import BEGIN, END, MAX_ROWS, check_readme, results_table, update_readme
from harness.results import ResultsError


def cells(line: str) -> list[str]:
    return [part.strip() for part in line.strip("|").split("|")]


def test_the_table_shows_the_largest_cases_of_each_op(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readme, "MAX_ROWS", 21)  # one less than the synthetic run has
    table = results_table(synthetic.write(tmp_path, synthetic.rows())).splitlines()
    body = [cells(line) for line in table[2:-2]]
    assert len(body) == 21
    assert [row[1] for row in body if row[0] == "`scale`"] == [
        "67108864",
        "16777216",
        "4194304",
        "1048576",
        "262144",
        "65536",
        "16384",
        "4096",
    ]
    assert {row[0] for row in body} == {"`scale`", "`copy`", "`matmul`"}
    time = synthetic.base_time_us("scale", 1 << 26)
    assert body[0][3:] == [
        f"{time:.1f}",
        f"{time * 1.05:.1f}",
        f"{time * 1.6:.1f}",
        "–",  # no library row
        "0.95",
        "93",
        "89",
    ]
    assert table[-1] == (
        "SYNTHETIC GPU, driver 1.0, torch 2.0.0, Triton 3.0.0, CUDA 13.0, 2000-01-01T00:00:00Z. "
        "Median of cold-cache launches. 1 further case is in bench.csv."
    )


def test_what_is_not_known_is_not_invented(tmp_path: Path) -> None:
    table = [
        synthetic.row("copy", 64, "cuda", 0.0004, roof_us=None),
        synthetic.row("copy", 64, "triton", 1.0, status="mismatch", time_us_p50=None),
        synthetic.row("scale", 64, "torch", 1.0),
    ]
    lines = results_table(synthetic.write(tmp_path, table, {})).splitlines()
    assert cells(lines[2]) == ["`copy`", "64", "f32", "0.0004", "mismatch", *"–" * 5]
    assert len(lines) == 5
    assert lines[-1].startswith(
        "SYNTHETIC GPU, driver not recorded, torch not recorded, Triton not recorded, "
        "CUDA not recorded, date not recorded"
    )


def test_every_op_gets_a_line_before_any_gets_two(tmp_path: Path) -> None:
    table = [
        synthetic.row(f"op{i}", n, backend, 5.0)
        for i in range(15)
        for n in (64, 128)
        for backend in ("cuda", "triton")
    ]
    lines = results_table(synthetic.write(tmp_path, table)).splitlines()[2:-2]
    assert len(lines) == MAX_ROWS
    assert len({cells(line)[0] for line in lines}) == 15


def test_update_then_check(tmp_path: Path) -> None:
    run = synthetic.write(tmp_path / "run", synthetic.rows())
    readme = tmp_path / "README.md"
    readme.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nafter\n", encoding="utf-8")
    assert not check_readme(readme, run)
    update_readme(readme, run)
    assert check_readme(readme, run)
    text = readme.read_text(encoding="utf-8")
    assert text.startswith("# Title\n\n")
    assert text.endswith("\n\nafter\n")
    other = synthetic.write(tmp_path / "other", synthetic.rows(), slower=lambda cells: 2.0)
    assert not check_readme(readme, other)
    readme.write_text(text.replace("0.95", "0.59"), encoding="utf-8")
    assert not check_readme(readme, run)


@pytest.mark.parametrize("text", ["", BEGIN, f"{END}{BEGIN}", f"{BEGIN}{BEGIN}{END}"])
def test_missing_markers_are_named(tmp_path: Path, text: str) -> None:
    run = synthetic.write(tmp_path / "run", [])
    (tmp_path / "README.md").write_text(text)
    with pytest.raises(ResultsError, match="results:begin"):
        update_readme(tmp_path / "README.md", run)
    with pytest.raises(ResultsError, match=r"NONE\.md"):
        check_readme(tmp_path / "NONE.md", run)


def test_a_part_of_a_run_is_not_published(tmp_path: Path) -> None:
    run = synthetic.write(tmp_path / "run", synthetic.rows())
    readme = tmp_path / "README.md"
    readme.write_text(f"{BEGIN}\n{END}\n")
    run.meta["complete"] = False
    with pytest.raises(ResultsError, match="not complete"):
        update_readme(readme, run)
    assert readme.read_text() == f"{BEGIN}\n{END}\n"
