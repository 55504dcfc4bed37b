"""What `compare` writes and how it ends: gates, Markdown, CSV, JSON, figures, pipes."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fixtures import synthetic_run as synthetic
from test_compare import big_run
from test_schema_docs import first_cells

from harness import cli, compare_rerun
from harness.compare_command import write_file
from harness.compare_files import COLUMNS
from harness.compare_gate import Gate, read_gate
from harness.compare_markdown import MAX_ROWS
from harness.options import UsageError
from harness.registry import REPOSITORY
from harness.results import Run

NAMES = ("op", "case", "backend")


def written(folder: Path, seed: int = 0, slower: Callable[..., float] = lambda c: 1.0) -> Run:
    return synthetic.write(folder, synthetic.rows(), seed=seed, slower=slower)


def slow_copy(factor: float) -> Callable[[dict[str, Any]], float]:
    """One kernel's times by a factor."""
    return lambda c: factor if tuple(c[n] for n in NAMES) == ("copy", "65536", "cuda") else 1.0


@pytest.fixture
def slower(tmp_path: Path) -> list[str]:
    """A run, and one in which a kernel got 5 % slower."""
    pair = written(tmp_path / "a", 1), written(tmp_path / "b", 2, slow_copy(1.05))
    return [str(run.path) for run in pair]


@pytest.fixture
def unclear(tmp_path: Path) -> list[str]:
    """A run, and one with a kernel at the edge of its band."""
    pair = written(tmp_path / "a", 1), written(tmp_path / "b", 2, slow_copy(1.029))
    return [str(run.path) for run in pair]


# The gate


@pytest.mark.parametrize(
    ("terms", "code"),
    [
        ([], 1),
        (["--fail-on", "slower:3%"], 1),
        (["--fail-on", "slower:10%"], 0),
        (["--fail-on", "none"], 0),
        (["--fail-on", "none,missing", "--fail-on", "incorrect"], 0),
        (["--fail-on", "none,slower"], 1),
        (["--fail-on", "slower:10%,faster"], 0),
        (["--strict"], 1),
    ],
)
def test_what_fails_is_what_was_asked(slower, capsys, terms, code) -> None:
    assert cli.main(["compare", *slower, *terms]) == code
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"exit code {code}: ")


def test_a_raised_threshold_lets_no_wrong_kernel_through(tmp_path, capsys) -> None:
    table = synthetic.rows()
    base = synthetic.write(tmp_path / "a", table)
    bad = table[0] | {"status": "mismatch", "time_us_p50": None}
    wrong = synthetic.write(tmp_path / "b", [bad, *table[1:]])
    lost = synthetic.write(tmp_path / "c", table[1:])
    both = ["--fail-on", "slower:50%"]
    assert cli.main(["compare", str(base.path), str(wrong.path), *both]) == 1
    assert "exit code 1: 1 incorrect" in capsys.readouterr().out
    assert cli.main(["compare", str(base.path), str(lost.path), *both]) == 1
    assert cli.main(["compare", str(base.path), str(lost.path), "--fail-on", "none,slower"]) == 0


def test_unclear_has_a_code_of_its_own_and_never_hides_a_slower_row(unclear, capsys) -> None:
    assert cli.main(["compare", *unclear]) == 0
    for option in (["--strict"], ["--fail-on", "unclear"]):
        assert cli.main(["compare", *unclear, *option]) == 3
        assert "exit code 3: 1 unclear" in capsys.readouterr().out
    assert cli.main(["compare", *unclear, "--strict", "--fail-on", "faster:0.001%"]) in (1, 3)


def test_faster_can_fail_and_a_count_is_never_a_code(tmp_path) -> None:
    base, new = written(tmp_path / "a", 1), written(tmp_path / "b", 2, lambda c: 0.5)
    assert cli.main(["compare", str(base.path), str(new.path)]) == 0
    assert cli.main(["compare", str(base.path), str(new.path), "--fail-on", "faster:20%"]) == 1
    assert cli.main(["compare", str(new.path), str(base.path)]) == 1


@pytest.mark.parametrize(
    "term",
    [
        "slow",
        "slower:",
        "slower:x%",
        "slower:-3%",
        "slower:3",
        "slower:٣%",
        "missing:3%",
        "",
        "slower=3",
        "any",
    ],
)
def test_a_term_that_is_none_is_refused(term) -> None:
    with pytest.raises(UsageError, match=r"--fail-on .* wanted slower"):
        read_gate([term])


def test_terms_add_to_the_default_and_none_clears_it() -> None:
    assert read_gate([]).terms == Gate().terms
    assert dict(read_gate(["slower:3%"]).terms) == {"slower": 0.03, "missing": 0, "incorrect": 0}
    assert dict(read_gate(["none,slower:.5%"], strict=True).terms) == {
        "slower": 0.005,
        "unclear": 0,
    }


# Which runs


def test_runs_are_named_by_place_or_by_option(tmp_path, capsys, slower) -> None:
    third = str(written(tmp_path / "c", 3).path)
    assert cli.main(["compare", "--base", slower[0], third, "--new", slower[1]]) == 1
    assert f"base: {slower[0]} + {third}   new: {slower[1]}" in capsys.readouterr().out
    sides = ["--side", "cuda", "--vs", "triton"]
    assert cli.main(["compare", "--base", slower[0], third, *sides]) == 0
    assert f"base: triton   new: cuda   of {slower[0]} + {third}" in capsys.readouterr().out
    for wrong, words in (
        ([slower[0], "--new", third], "were both given"),
        (["--new", third], "no run given"),
        ([], "no run given"),
        (["--base", slower[0], slower[0], "--new", third], "are the same run"),
        ([*slower, "--csv", "-", "--json", "-"], "both go to standard output"),
        (["--csv", slower[0], *slower], "is a folder"),
    ):
        assert cli.main(["compare", *wrong]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1


# What to run again


def test_an_unclear_row_comes_with_the_command_that_measures_it_again(unclear, capsys) -> None:
    cli.main(["compare", *unclear])
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if "UNCLEAR" in line and "copy" in line)
    assert "interval reaches into the band" in row
    (command,) = [line.strip() for line in lines if line.startswith("  python -m harness bench")]
    assert command == (
        "python -m harness bench --op copy --case 65536 --dtype f32 --backend cuda --seed 1"
    )
    parser = cli._parser()
    asked = parser.parse_args(shlex.split(command)[3:])
    assert (asked.op, asked.case, asked.backend) == (["copy"], ["65536"], ["cuda"])


def test_two_sides_of_one_run_come_with_a_command_that_names_both(capsys) -> None:
    """Their rows have no column that names a backend."""
    rows = pd.DataFrame({"dtype": ["f32"], "verdict": ["UNCLEAR"]})
    command = compare_rerun._command("copy", "65536", rows, ("triton", "cuda"), [])
    assert command.endswith("--dtype f32 --backend triton --backend cuda")
    with_a_peer = compare_rerun._command("copy", "65536", rows, ("liger", "cuda"), [])
    assert with_a_peer.endswith("--backend liger --backend cuda --full")
    reference = REPOSITORY / "results" / "nvidia-h200" / "reference"
    code = cli.main(["compare", str(reference), "--side", "cuda", "--vs", "triton"])
    assert code in (0, 1)
    assert "SLOWER" in capsys.readouterr().out


# Files


def test_csv_has_every_row_and_json_everything(tmp_path, capsys, slower) -> None:
    table, facts = tmp_path / "new folder" / "c.csv", tmp_path / "c.json"
    assert cli.main(["compare", *slower, "--csv", str(table), "--json", str(facts)]) == 1
    assert "exit code 1: 1 slower" in capsys.readouterr().out
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(COLUMNS)
    assert len(rows) == len(synthetic.rows())
    (row,) = [r for r in rows if r["verdict"] == "SLOWER"]
    assert [row[n] for n in NAMES] == ["copy", "65536", "cuda"]
    assert row["reason"] == "whole interval above the band"
    found = json.loads(facts.read_text())
    assert (found["exit_code"], found["counts"]["SLOWER"], found["gate"]["slower"]) == (1, 1, 1)
    assert found["base"][0]["driver"] == "1.0"
    assert [m["name"] for m in found["means"] if m["level"] == "family"] == [
        "family elementwise",
        "family matmul",
    ]
    assert found["labels"] == []
    same = next(r for r in found["rows"] if r["verdict"] == "SLOWER")
    assert float(row["ratio"]) == pytest.approx(same["ratio"], abs=1e-14)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c.json", "new folder"]


def test_columns_and_keys_are_documented(slower, capsys) -> None:
    heading = "compare --csv and --json"
    assert first_cells(heading) == list(COLUMNS)
    cli.main(["compare", *slower, "--json", "-"])
    found = json.loads(capsys.readouterr().out)
    assert set(first_cells(heading, 1)) == set(found)
    assert list(found["rows"][0]) == list(COLUMNS)
    for mean in found["means"]:
        assert set(mean) <= {"level", "name", "ratio", "n_rows", "left_out", "at_equal_clock"}


@pytest.mark.parametrize("option", ["--csv", "--json", "--markdown"])
def test_standard_output_holds_the_document_alone(slower, capsys, option) -> None:
    assert cli.main(["compare", *slower, option, "-"]) == 1
    out = capsys.readouterr().out
    if option == "--json":
        assert json.loads(out)["exit_code"] == 1
    elif option == "--csv":
        assert len(list(csv.DictReader(io.StringIO(out)))) == len(synthetic.rows())
    else:
        assert out.startswith("**1 SLOWER")
        cli.main(["compare", *slower, "--markdown"])
        assert capsys.readouterr().out == out


def test_a_file_is_written_whole_or_not_at_all(tmp_path, capsys, monkeypatch, slower) -> None:
    kept = tmp_path / "kept.csv"
    kept.write_text("earlier")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    assert cli.main(["compare", *slower, "--csv", str(kept)]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert kept.read_text() == "earlier"
    assert not list(tmp_path.glob("*.tmp"))
    with pytest.raises(UsageError, match=r"--csv .*cannot be written"):
        write_file("--csv", kept / "below" / "a.csv", "")


def test_markdown_escapes_and_folds(tmp_path, capsys) -> None:
    table = [synthetic.row("copy", n, "cuda", 50.0, case=f"a|b<{n}>_*") for n in range(1, 31)]
    base = synthetic.write(tmp_path / "a", table, seed=1)
    new = synthetic.write(
        tmp_path / "b", table, seed=2, slower=lambda c: 1.5 if c["dims"] < "N=3" else 1.0
    )
    assert cli.main(["compare", str(base.path), str(new.path), "--markdown"]) == 1
    text = capsys.readouterr().out
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {13}
    assert r"a\|b\<1\>\_\*" in text
    n_slower = text.count("| SLOWER |")
    assert n_slower > 20
    assert f"<summary>{n_slower - 20} more rows with a verdict</summary>" in text
    assert f"<summary>{30 - n_slower} rows that are SAME</summary>" in text
    assert text.count("<details>") == text.count("</details>") == 2


def test_long_markdown_fits_a_comment_and_counts_what_it_hides(tmp_path, capsys) -> None:
    table = [synthetic.row("copy", n, "cuda", 50.0) for n in range(1, MAX_ROWS + 51)]
    base = synthetic.write(tmp_path / "a", table, seed=1)
    new = synthetic.write(tmp_path / "b", table, seed=2, slower=lambda c: 1.5)
    cli.main(["compare", str(base.path), str(new.path), "--markdown", "-"])
    text = capsys.readouterr().out
    assert len(text) < 65_536
    assert "50 more rows not shown: 50 SLOWER" in text


def test_the_figure_is_one_file_or_two_in_a_folder(tmp_path, slower) -> None:
    pytest.importorskip("matplotlib")
    assert cli.main(["compare", *slower, "--plot", str(tmp_path / "x" / "one.svg")]) == 1
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["one.svg"]
    assert cli.main(["compare", *slower, "--plot", str(tmp_path / "y")]) == 1
    assert sorted(path.name for path in (tmp_path / "y").iterdir()) == [
        "compare.png",
        "compare.svg",
    ]


@pytest.mark.parametrize("extra", [[], ["--json", "-"], ["--markdown"]])
def test_a_closed_pipe_does_not_change_the_exit_code(tmp_path, extra) -> None:
    big_run(tmp_path / "a", 4000, 1)
    big_run(tmp_path / "b", 4000, 2)
    rounds = tmp_path / "b" / "rounds.csv"
    lines = rounds.read_text().splitlines()
    cells = [line.split(",") for line in lines[1:]]
    slowed = [",".join([*c[:2], str(2 * float(c[2])), *c[3:]]) for c in cells]
    rounds.write_text("\n".join([lines[0], *slowed]) + "\n")
    words = [sys.executable, "-m", "harness", "compare", str(tmp_path / "a"), str(tmp_path / "b")]
    command = f"{shlex.join([*words, *extra])} | head -1 >/dev/null; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True
    )
    assert (done.returncode, done.stderr) == (1, "")
