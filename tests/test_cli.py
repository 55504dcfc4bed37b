"""The command line: speed of --help, filters, refusals in one line, no GPU and wrong GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.plan import Filters, PlanError, estimate_s, matches, plan
from harness.registry import REPOSITORY, Registry
from harness.run_lock import RunLock
from harness.run_writer import RunWriter
from harness.spec import Case

REFERENCE = str(REPOSITORY / "results" / "nvidia-h200" / "reference")


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
    assert "On a GPU: 1 case, 4 rows, about" in done.stdout
    assert "nothing was run" in done.stdout
    assert not (tmp_path / "run").exists()


def dry_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return harness("bench", "--dry-run", "--op", "softmax", *arguments, CUDA_VISIBLE_DEVICES="")


def test_a_dry_run_without_a_gpu_shows_what_would_run_here(tmp_path):
    pytest.importorskip("torch")
    done = dry_run("--dtype", "bf16", "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    *cases, last = done.stdout.splitlines()
    assert "softmax 32768x4096 bf16" not in done.stdout
    assert f"No GPU is visible: {len(cases)} test cases" in last
    assert "1 compilations for sm_90; nothing would be timed" in last
    assert "On a GPU: " in last and " s; nothing was run" in last
    only_tests = dry_run("--case", "N<=31", "--out", str(tmp_path / "run"))
    assert "On a GPU no bench case matches; nothing was run" in only_tests.stdout
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "1"], "--device 1: no GPU is visible"),
        (["--case", "N>2^40"], "nothing matches"),
        (["--out", "{run}"], "already holds a run"),
        (["--out", "{run}", "--resume", "--seed", "5"], "begun with seed"),
        (["--out", "{run}/bench.csv/x"], "bench.csv is no folder"),
        (["--out", "{cut}", "--resume"], "line 2 has 3 cells, want 57"),
        (["--out", "{held}", "--resume"], "being written by process"),
        (["--aa"], "no GPU is visible"),
    ],
)
def test_a_dry_run_refuses_what_the_run_would(tmp_path, arguments, words):
    pytest.importorskip("torch")
    for name in ("run", "cut", "held"):
        RunWriter.create(tmp_path / name, {"gpu": {"name": "none"}, "seed": 20240117}).close()
    with (tmp_path / "cut" / "bench.csv").open("a") as file:
        file.write("a,b,c\n")
    places = {name: str(tmp_path / name) for name in ("run", "cut", "held")}
    lock = RunLock(tmp_path / "held")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = dry_run(*[text.format(**places) for text in arguments])
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    lock.release()
    assert done.returncode == 2, done.stdout
    assert done.stderr.count("\n") == 1, done.stderr
    assert words in done.stderr


def test_a_dry_run_of_a_resume_leaves_a_torn_run_as_it_is(tmp_path):
    pytest.importorskip("torch")
    RunWriter.create(tmp_path, {"gpu": {"name": "none"}, "seed": 20240117}).close()
    with (tmp_path / "bench.csv").open("a") as file:
        file.write("torn")
    (tmp_path / ".lock").write_text("99\n")  # of a writer that was killed
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    done = dry_run("--out", str(tmp_path), "--resume")
    assert done.returncode == 0, done.stderr
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


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


def test_same_ptxas_gives_triton_the_one_of_nvcc(monkeypatch):
    pytest.importorskip("torch")
    from harness import options
    from harness.preflight import inspect

    nvcc = inspect().nvcc
    if nvcc is None:
        pytest.skip("no nvcc")
    monkeypatch.setenv("TRITON_PTXAS_PATH", "")
    options.share_ptxas()
    chosen = os.environ["TRITON_PTXAS_PATH"]
    knobs = pytest.importorskip("triton").knobs
    assert Path(chosen).parent.parent == Path(nvcc.home)
    assert str(knobs.nvidia.ptxas.path) == chosen


def test_same_ptxas_without_a_compiler_is_one_line(monkeypatch):
    from types import SimpleNamespace

    from harness import options, preflight

    for nvcc in (None, SimpleNamespace(path="/nowhere/bin/nvcc", home="/nowhere")):
        monkeypatch.setattr(preflight, "inspect", lambda nvcc=nvcc: SimpleNamespace(nvcc=nvcc))
        with pytest.raises(options.UsageError, match="leave --same-ptxas out") as refused:
            options.share_ptxas()
        assert "\n" not in str(refused.value)


def test_the_resume_command_repeats_what_was_asked(monkeypatch, tmp_path):
    from harness.options import resume_command

    given = ["harness", "bench", "--quick", "--case", "N>=4096", "--out", "x", "--resume"]
    monkeypatch.setattr("sys.argv", given)
    assert resume_command(tmp_path) == (
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


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["harness", "--help"],
        ["harness", "explain", "--help"],
        ["harness", "list"],
        ["harness", "explain", "--diff", REFERENCE, REFERENCE],
        ["harness.doctor"],
    ],
    ids=" ".join,
)
def test_output_that_cannot_be_written_is_one_line(arguments, unbuffered):
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("error: standard output cannot be written (No space left")


def test_an_error_of_its_own_is_not_blamed_on_the_output(tmp_path, capsys):
    from harness import cli, commands

    def no_room(_options):
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "list_cases", no_room)
        assert cli.main(["list"]) == 2
    assert "error: unexpected OSError: [Errno 28]" in capsys.readouterr().err
