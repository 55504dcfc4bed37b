"""What the report says of the cost of writing, and what compiling costs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("lizard")
pytest.importorskip("tree_sitter_cuda")

from harness import report_effort
from harness.effort import compile_cost, rows
from harness.effort.counts import effort_of
from harness.registry import REPOSITORY, Registry
from harness.results import read_run

REFERENCE = REPOSITORY / "results" / "nvidia-h200" / "reference"


@pytest.fixture(scope="module")
def reference():
    return read_run(REFERENCE).rows


def of_op(rows_of_run, op: str):
    return rows_of_run[rows_of_run["op"] == op].copy()


def test_the_table_is_that_of_the_command(reference):
    registry = Registry()
    cuda, triton = (effort_of(registry, "softmax", side) for side in ("cuda", "triton"))
    found = report_effort.written(of_op(reference, "softmax"), "softmax", registry)
    assert found.reason == ""
    assert found.titles == rows.TITLES
    device = dict(found.lines)["device"]
    assert device[0] == (
        f"{cuda.device.tokens} / {triton.device.tokens}",
        f"{cuda.device.tokens / triton.device.tokens:.2f}",
    )
    # Triton needs no build: nothing, and so no ratio
    assert dict(found.lines)["build, of all ops"][0] == (f"{cuda.build.tokens} / 0", "")
    assert f"CUDA {cuda.knobs} and {cuda.configurations}" in found.notes[-1]


@pytest.mark.parametrize("side", ["cuda", "triton"])
def test_a_source_that_changed_since_the_run_is_not_counted(reference, side):
    rows_of_op = of_op(reference, "softmax")
    rows_of_op.loc[rows_of_op["backend"] == side, "kernel_hash"] = "0" * 16
    found = report_effort.written(rows_of_op, "softmax", Registry())
    assert "has changed since this run" in found.reason and not found.lines
    rows_of_op.loc[rows_of_op["backend"] == side, "kernel_hash"] = ""
    assert "has no hash" in report_effort.written(rows_of_op, "softmax", Registry()).reason


def test_a_rung_s_hash_is_not_the_headline_s(reference):
    rows_of_op = of_op(reference, "softmax")
    rungs = rows_of_op[(rows_of_op["backend"] == "cuda") & ~rows_of_op["headline"].eq(True)]
    if not len(rungs):
        pytest.skip("the reference has no rungs")
    assert set(rungs["kernel_hash"]) - {
        h for h in rows_of_op.loc[rows_of_op["headline"].eq(True), "kernel_hash"]
    }
    assert not report_effort.written(rows_of_op, "softmax", Registry()).reason


def test_an_op_of_another_checkout_is_not_counted(reference):
    found = report_effort.written(of_op(reference, "softmax"), "elsewhere", Registry())
    assert found.reason == "The op is not in this checkout, so nothing is counted."


@pytest.mark.parametrize("module", ["lizard", "tree_sitter", "tree_sitter_cuda"])
def test_without_a_tool_the_page_says_so_in_a_line(module):
    code = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from harness import report_effort, report\n"
        "from harness.registry import Registry\n"
        "from harness.results import read_run\n"
        f"rows = read_run({str(REFERENCE)!r}).rows\n"
        "rows = rows[rows['op'] == 'softmax']\n"
        "print(report_effort.written(rows, 'softmax', Registry()).reason)\n"
        "print(report_effort.method())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr
    reason, method = done.stdout.splitlines()
    assert reason == (
        f'{module} is not installed, so nothing is counted; pip install "cuda-vs-triton[effort]".'
    )
    assert method == "[]"


def test_the_method_names_rules_threats_and_versions():
    told = " ".join(report_effort.method())
    assert all(text in told for text in (*rows.RULES, *rows.THREATS))
    assert re.search(r"tree-sitter-cuda \d", told)


# --- compile cost --------------------------------------------------------------------------------


def fake_run(answers):
    """Stands for subprocess.run of compile_cost; `answers` maps a word of the command to a call."""

    def run(command, folder, environment):
        for word, answer in answers.items():
            if word in command:
                return answer(command, Path(folder), environment)
        raise AssertionError(command)

    return run


def done(stdout: str = "", stderr: str = "", code: int = 0):
    return subprocess.CompletedProcess([], code, stdout, stderr)


def test_triton_is_compiled_twice_in_one_new_cache(monkeypatch):
    caches = []

    def worker(command, folder, environment):
        caches.append(environment["TRITON_CACHE_DIR"])
        assert command[-2:] == ["softmax", "axpby"]
        first = len(caches) == 1
        op = [2, 900.0, 2] if first else [2, 9.0, 0]
        return done(json.dumps({"softmax": op, "axpby": op}))

    monkeypatch.setattr(compile_cost, "_run", fake_run({"harness.effort.compile_worker": worker}))
    found = compile_cost.triton(Registry(), ("softmax", "axpby"))
    assert found[0] == compile_cost.Compiled("softmax", 2, 900.0, 9.0)
    assert len(caches) == 2 and caches[0] == caches[1] and not Path(caches[0]).exists()


def test_a_cache_that_was_not_cold_is_an_error(monkeypatch):
    answer = {"harness.effort.compile_worker": lambda *_: done('{"axpby": [1, 5.0, 0]}')}
    monkeypatch.setattr(compile_cost, "_run", fake_run(answer))
    with pytest.raises(compile_cost.CompileCostError, match="cold and warm cannot be told apart"):
        compile_cost.triton(Registry(), ("axpby",))


def test_the_extension_is_built_in_a_copy(monkeypatch):
    seen = []

    def build(command, folder, environment):
        assert folder != REPOSITORY and (folder / "csrc/softmax.cu").is_file()
        touched = (folder / "csrc/softmax.cu").stat().st_mtime
        seen.append((touched, list((folder / "harness").glob("*.so"))))
        (folder / "harness/_cuda.so").write_text("")
        return done("nvcc           13.0, here\njobs           2\nelse\n")

    monkeypatch.setattr(compile_cost, "_run", fake_run({"setup.py": build}))
    before = sorted((REPOSITORY / "harness").glob("_cuda*.so"))
    found = compile_cost.extension("csrc/softmax.cu")
    assert found.settings == "nvcc 13.0, here, jobs 2"
    assert seen[0][1] == [] and seen[1][0] > seen[0][0]
    assert sorted((REPOSITORY / "harness").glob("_cuda*.so")) == before


def test_a_build_that_fails_says_why_in_a_line(monkeypatch):
    answer = {"setup.py": lambda *_: done("", "cuda-vs-triton: no nvcc was found\n", 1)}
    monkeypatch.setattr(compile_cost, "_run", fake_run(answer))
    with pytest.raises(compile_cost.CompileCostError, match="not built: cuda-vs-triton: no nvcc"):
        compile_cost.extension("csrc/softmax.cu")


@pytest.mark.slow
def test_triton_s_cost_is_measured_here():
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    (found,) = compile_cost.triton(Registry(), ("axpby",))
    assert found.kernels == 1 and 0 < found.warm_ms < found.cold_ms
