"""What a user reads after a mistake: one line that says what to do, and an exit code that no
finding of a command shares."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fixtures import synthetic_run as synthetic

from harness import cli, commands, sweep
from harness.meta_checks import whole_roofs
from harness.plan import Filters, plan
from harness.registry import REPOSITORY, Registry
from harness.results import ResultsError, RunWriter
from harness.sweep import SweepOptions

REFERENCE = REPOSITORY / "results" / "nvidia-h200" / "reference"


def line_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line with which a command refuses its arguments."""
    try:
        code = cli.main([str(argument) for argument in arguments])
    except SystemExit as end:
        code = end.code
    error = capsys.readouterr().err
    assert code == 2, error
    assert error.count("\n") == 1, error
    return error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plot", "README.md"], ["README.md is no folder", "run's folder"]),
        (["plot", "docs"], ["docs holds no bench.csv"]),
        (["compare", "README.md", "x"], ["README.md is no folder"]),
        (["readme", "/nonexistent"], ["/nonexistent does not exist"]),
        (["list", "--case", "Q=4"], ["'Q=4'", "dimension 'Q'", "wanted one of N, M"]),
        (["list", "--op", "vector_add", "--case", "N>4,K=8"], ["'K=8'", "vector_add", "N"]),
        (["bench", "--case", "n>4"], ["dimension 'n'"]),
        (["compare", "a", "b", "--least-effect", "abc"], ["'abc'", "share of 1"]),
        (["compare", "a", "b", "--noise-floor", "2"], ["'2'", "share of 1"]),
        (["bench", "--timeout", "abc"], ["'abc'", "number above 0"]),
        (["bench", "--timeout", "inf"], ["'inf'", "number above 0"]),
        (["bench", "--seed", "1.5"], ["'1.5'", "whole number"]),
        (["bench", "--device", "one"], ["'one'", "whole number"]),
        (["bench", "--aa", "--processes", "x"], ["'x'", "whole number"]),
        (["bench", "--flush", "x"], ["'x'", "clean"]),
        (["compare", REFERENCE], ["one run given", "--side cuda --vs triton"]),
        (["compare", REFERENCE, "--side", "cuda"], ["--side cuda without --vs"]),
        (["compare", REFERENCE, "--vs", "cuda"], ["--vs cuda without --side"]),
        (["compare", REFERENCE, "--side", "cuda", "--vs", "cuda"], ["both 'cuda'"]),
        (["compare", REFERENCE, "--side", "x", "--vs", "cuda"], ["--side 'x'", "triton"]),
    ],
)
def test_a_mistake_is_named_in_one_line(capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(REPOSITORY)
    text = line_of(capsys, *arguments)
    for word in words:
        assert word in text


@pytest.mark.parametrize("held", ["", "op,fam"])
def test_an_empty_table_is_said_to_be_empty(tmp_path, capsys, held):
    shutil.copytree(REFERENCE, tmp_path / "run")
    (tmp_path / "run" / "bench.csv").write_text(held)
    for command in (["plot"], ["compare", REFERENCE], ["readme"]):
        text = line_of(capsys, *command, tmp_path / "run")
        assert "bench.csv is empty or was cut" in text


def test_missing_columns_are_not_all_listed(tmp_path, capsys):
    shutil.copytree(REFERENCE, tmp_path / "run")
    (tmp_path / "run" / "bench.csv").write_text("op\nx\n")
    assert "family, case, dims, distribution and 52 more" in line_of(
        capsys, "plot", tmp_path / "run"
    )


# Nothing to plot


@pytest.mark.parametrize("complete", [True, False])
def test_a_run_without_a_time_has_nothing_to_plot_and_keeps_its_figures(tmp_path, capsys, complete):
    table = [row | {"status": "untimed", "time_us_p50": None} for row in synthetic.rows()]
    run = synthetic.write(tmp_path / "run", table)
    if not complete:
        (run.path / "meta.json").write_text(json.dumps(run.meta | {"complete": False}))
    kept = run.path / "plots" / "overview.png"
    kept.parent.mkdir()
    kept.write_bytes(b"earlier")
    text = line_of(capsys, "plot", run.path)
    assert "nothing to plot" in text
    assert f"{len(table)} untimed" in text
    assert [path.read_bytes() for path in kept.parent.iterdir()] == [b"earlier"]
    line_of(capsys, "plot", run.path, "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_plot_without_matplotlib_fails(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in [name for name in sys.modules if name.startswith("harness.plots")]:
        monkeypatch.delitem(sys.modules, name)
    assert "matplotlib is not installed" in line_of(capsys, "plot", REFERENCE)


# Facts that cannot be

CURVE = [[1e3, 5.0], [1e6, 10.0]]


@pytest.mark.parametrize("key", ["roofs", "roofs_end"])
@pytest.mark.parametrize(
    "value",
    [
        "abc",
        5,
        [1],
        {"curves_us": [1]},
        {"curves_us": {"copy": 5}},
        {"curves_us": {"copy": []}},
        {"curves_us": {"copy": [[1e3]]}},
        {"curves_us": {"copy": [[1e3, "x"]]}},
        {"curves_us": {"copy": [[1e3, math.nan], [1e6, 10.0]]}},
        {"curves_us": {"copy": [[1e3, math.inf], [1e6, 10.0]]}},
        {"curves_us": {"copy": [[1e3, 0], [1e6, 10.0]]}},
        {"curves_us": {"copy": CURVE[::-1]}},
        {"matrix_tflops": "x"},
        {"matrix_tflops": {"bf16": "x"}},
        {"matrix_tflops": {"bf16": None}},
        {"matrix_tflops": {"bf16": math.nan}},
        {"tick_us": "x"},
        {"tick_us": -1},
    ],
)
def test_roofs_that_cannot_be_are_refused_in_one_line(tmp_path, capsys, key, value):
    run = synthetic.write(tmp_path / "run", synthetic.rows())
    roofs = {"curves_us": {kind: CURVE for kind in ("copy", "read", "write")}}
    facts = run.meta | {"roofs": roofs, "roofs_end": roofs} | {key: value}
    (run.path / "meta.json").write_text(json.dumps(facts))
    for command in (
        ["plot", run.path],
        ["compare", run.path, run.path],
        ["compare", run.path, "--side", "cuda", "--vs", "triton"],
        ["readme", run.path],
    ):
        text = line_of(capsys, *command)
        assert f"meta.json: {key}" in text
        assert ", want " in text


@pytest.mark.parametrize("value", [None, {}, {"curves_us": None, "matrix_tflops": None}])
def test_roofs_that_are_unknown_are_no_fault(tmp_path, value):
    run = synthetic.write(tmp_path / "run", synthetic.rows())
    facts = run.meta | {"roofs": value, "roofs_end": {"curves_us": {"copy": CURVE}}}
    (run.path / "meta.json").write_text(json.dumps(facts))
    assert cli.main(["plot", str(run.path), "--format", "svg"]) == 0
    assert cli.main(["compare", str(run.path), str(run.path)]) == 0


@pytest.mark.parametrize("value", [{}, {"curves_us": {"copy": CURVE}}, {"curves_us": None}])
def test_a_resume_by_half_a_record_of_roofs_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ResultsError, match="roofs lacks"):
        whole_roofs(tmp_path / "meta.json", value)


def test_a_resume_with_bad_roofs_is_refused_and_loses_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "software_facts", lambda: {"extension": None})
    units = plan(Registry(), Filters(ops=["vector_add"]), "quick")
    meta = sweep.run_meta(Registry(), units, SweepOptions(), {"name": "x"})
    RunWriter.create(tmp_path, meta | {"roofs": "abc"}).close()
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ResultsError, match="roofs is 'abc', want an object"):
        RunWriter.create(tmp_path, meta, resume=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == written


# Errors that no check foresaw


@pytest.mark.parametrize(
    "error",
    [ZeroDivisionError("a\nb"), ModuleNotFoundError("x", name="unheard_of"), OSError(28, "full")],
)
def test_an_unexpected_error_is_not_the_code_of_a_slower_row(capsys, monkeypatch, error):
    def fail(_options: object) -> int:
        raise error

    monkeypatch.setattr(commands, "compare", fail)
    monkeypatch.delenv("CVT_DEBUG", raising=False)
    text = line_of(capsys, "compare", "a", "b")
    assert text.startswith(f"error: unexpected {type(error).__name__}: ")
    assert "test_messages.py, line" in text
    assert "CVT_DEBUG=1" in text
    monkeypatch.setenv("CVT_DEBUG", "1")
    assert cli.main(["compare", "a", "b"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_below_the_output_is_not_the_code_of_a_slower_row():
    command = [sys.executable, "-m", "harness", "compare", str(REFERENCE), str(REFERENCE)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY
        )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr


def test_a_dry_run_of_aa_refuses_a_used_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(commands, "_refuse_missing_device", lambda device: True)
    (tmp_path / "aa.csv").write_text("")
    assert "already holds aa.csv" in line_of(
        capsys, "bench", "--aa", "--dry-run", "--out", tmp_path
    )


def test_a_terminal_of_no_columns_still_shows_the_answer():
    command = [sys.executable, "-m", "harness", "compare", str(REFERENCE), str(REFERENCE)]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=os.environ | {"COLUMNS": "0"}, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "vector_add" in done.stdout


@pytest.mark.parametrize("streams", ["2>/dev/full", ">/dev/full 2>&1", "2>&-"])
def test_an_error_that_cannot_be_said_is_no_finding(streams):
    command = f"{sys.executable} -m harness compare {REFERENCE} /nonexistent {streams}"
    assert subprocess.run(["bash", "-c", command], cwd=REPOSITORY).returncode == 2


def test_an_answer_without_a_standard_output_keeps_its_code():
    command = f"{sys.executable} -m harness compare {REFERENCE} {REFERENCE} >&-"
    done = subprocess.run(["bash", "-c", command], cwd=REPOSITORY, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_table_written_to_a_pipe_leaves_the_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = f"{sys.executable} -m harness compare {REFERENCE} {REFERENCE} --csv {pipe} >/dev/null"
    with subprocess.Popen(
        ["bash", "-c", f"cat {pipe} | head -1"], stdout=subprocess.PIPE
    ) as reader:
        done = subprocess.run(["bash", "-c", command], cwd=REPOSITORY, timeout=60)
        assert reader.communicate(timeout=60)[0].startswith(b"op,")
    assert done.returncode == 0
    assert pipe.is_fifo()
