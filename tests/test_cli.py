"""The command line: speed of --help, filters, refusals in one line, no GPU and wrong GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from harness.plan import Filters, PlanError, estimate_s, matches, plan
from harness.registry import REPOSITORY, Registry
from harness.spec import Case


def harness(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness", *arguments],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=os.environ | environment,
    )


def without(modules: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """The command line in a process that cannot import `modules`."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({modules.split()!r}))\n"
        f"from harness.cli import main; sys.exit(main({arguments!r}))"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY
    )


def test_help_is_quick_and_imports_neither_torch_nor_triton():
    start = time.perf_counter()
    done = without("torch triton", ["--help"])
    assert done.returncode == 0, done.stderr
    assert time.perf_counter() - start < 0.3


def test_list_works_without_torch():
    done = without("torch triton", ["list"])
    assert done.returncode == 0, done.stderr
    assert "softmax 32768x4096 bf16" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bench", "--op", "nope"], ["'nope'", "vector_add"]),
        (["list", "--dtype", "f64"], ["'f64'", "bf16"]),
        (["list", "--case", "N>>3"], ["N>>3", "N>=4096"]),
        (["list", "--case", "N>2^40"], ["nothing matches"]),
        (["bench", "--resume"], ["--out"]),
        (["bench", "--resume", "--out", "/nonexistent"], ["/nonexistent", "no run"]),
        (["compare", "a", "b", "--side", "cuda"], ["--side"]),
        (["compare", "/tmp", "--side", "cuda", "--vs", "cuda"], ["--side cuda --vs triton"]),
        (["plot", "/nonexistent"], ["/nonexistent"]),
        (["compare", "/nonexistent", "/nonexistent"], ["/nonexistent"]),
        (["list", "--kernels", "/nonexistent"], ["/nonexistent", "specs"]),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments, words):
    done = harness(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["bench", "--timeout", "-5"],
        ["compare", "a", "b", "--noise-floor", "nan"],
        ["compare", "a", "b", "--least-effect", "-1"],
    ],
)
def test_numbers_out_of_range_are_usage_errors(arguments):
    done = harness(*arguments)
    assert done.returncode == 2
    assert "wanted a" in done.stderr.splitlines()[-1]


def test_a_missing_package_is_one_line():
    done = without("scipy", ["compare", "a", "b"])
    assert done.returncode == 2
    assert done.stderr.startswith("error: scipy")
    assert done.stderr.count("\n") == 1


def test_a_missing_gpu_is_refused_and_leaves_nothing(tmp_path):
    pytest.importorskip("torch")
    done = harness("bench", "--out", str(tmp_path / "run"), CUDA_VISIBLE_DEVICES="7")
    assert done.returncode == 2
    assert "CUDA_VISIBLE_DEVICES" in done.stderr
    assert not (tmp_path / "run").exists()


def test_dry_run_says_what_and_how_long_and_runs_nothing(tmp_path):
    done = harness(
        "bench",
        "--dry-run",
        "--op",
        "softmax",
        "--dtype",
        "bf16",
        "--quick",
        "--out",
        str(tmp_path / "run"),
    )
    assert done.returncode == 0
    assert "2 cases" in done.stdout
    assert "nothing was run" in done.stdout
    assert not (tmp_path / "run").exists()


def test_bench_without_a_gpu_checks_and_times_nothing(tmp_path):
    pytest.importorskip("triton")
    out = tmp_path / "run"
    done = harness(
        "bench",
        "--op",
        "vector_add",
        "--case",
        "N<=1023",
        "--out",
        str(out),
        CUDA_VISIBLE_DEVICES="",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOTHING WAS TIMED" in done.stdout.splitlines()[-1]
    from harness.results import read_run

    rows = read_run(out).rows
    assert set(rows.status) <= {"untimed", "unsupported"}
    assert rows.time_us_p50.isna().all()
    triton_f32 = rows[(rows.backend == "triton") & (rows.dtype == "f32")]
    assert set(triton_f32.status) == {"untimed"}


def test_a_used_folder_is_refused_and_resumed_without_repeating_a_row(tmp_path):
    pytest.importorskip("triton")
    arguments = ["bench", "--op", "vector_add", "--case", "N<=31", "--backend", "cuda"]
    arguments += ["--no-plots", "--out", str(tmp_path / "run")]
    assert harness(*arguments, CUDA_VISIBLE_DEVICES="").returncode == 0
    before = (tmp_path / "run" / "bench.csv").read_text()
    again = harness(*arguments, CUDA_VISIBLE_DEVICES="")
    assert again.returncode == 2
    assert "--resume" in again.stderr
    resumed = harness(*arguments, "--resume", CUDA_VISIBLE_DEVICES="")
    assert resumed.returncode == 0, resumed.stderr
    assert (tmp_path / "run" / "bench.csv").read_text() == before


def test_without_a_gpu_the_flush_is_recorded_and_kept_by_a_resume(tmp_path):
    pytest.importorskip("triton")
    out = tmp_path / "run"
    arguments = ["bench", "--op", "vector_add", "--case", "N<=31", "--backend", "cuda"]
    arguments += ["--no-plots", "--out", str(out), "--flush", "write"]
    assert harness(*arguments, CUDA_VISIBLE_DEVICES="").returncode == 0
    written = {path.name: path.read_bytes() for path in out.iterdir()}
    meta = json.loads(written["meta.json"])
    assert (meta["flush"], meta["settings"], meta["device"]) == ("write", "default", 0)
    other = harness(*arguments[:-1], "none", "--resume", CUDA_VISIBLE_DEVICES="")
    assert other.returncode == 2
    assert other.stderr.count("\n") == 1
    assert "flush 'write', this is 'none'" in other.stderr
    assert {path.name: path.read_bytes() for path in out.iterdir()} == written


def test_the_resume_command_repeats_what_was_asked(monkeypatch, tmp_path):
    from harness.commands import _resume_command

    given = ["harness", "bench", "--quick", "--case", "N>=4096", "--out", "x", "--resume"]
    monkeypatch.setattr("sys.argv", given)
    assert _resume_command(tmp_path) == (
        f"python -m harness bench --quick --case 'N>=4096' --resume --out {tmp_path}"
    )


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("N>=4096", True),
        ("N>4096", False),
        ("N=2^12", True),
        ("N==4096,M<3", True),
        ("N!=4096", False),
        ("K>1", False),
        ("2x*", True),
        ("3x*", False),
    ],
)
def test_case_expressions(expression, expected):
    assert matches(Case({"M": 2, "N": 4096}), [expression]) is expected


def test_levels_nest_and_estimates_grow():
    registry = Registry()
    sizes = {}
    for level in ("quick", "default", "full"):
        units = plan(registry, Filters(), level)
        sizes[level] = {unit.label for unit in units}
        assert estimate_s(units, level) > 0
    assert sizes["quick"] < sizes["default"] < sizes["full"]


def test_absent_backends_are_planned_so_that_their_reason_becomes_a_row():
    units = plan(Registry(), Filters(ops=["softmax"]), "full")
    assert all("library" in [c.backend for c in unit.contenders] for unit in units)


def test_a_filter_for_nothing_is_an_error():
    with pytest.raises(PlanError, match="nothing matches"):
        plan(Registry(), Filters(cases=["N>2^40"]), "full")
