"""`check --explain`: what it prints of right and wrong rows, and how it travels to the parent."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

from harness.check import Problem
from harness.cli import main
from harness.explanation_view import lines, take_lines
from harness.mutants import right_output
from harness.registry import Registry
from harness.results import read_run
from harness.spec import Case

REGISTRY = Registry()


def special_problem() -> Problem:
    spec = REGISTRY.spec("softmax")
    return Problem(spec, Case({"M": 11, "N": 257}, "special"), "f32", "cpu", 0)


def printed(problem: Problem, produced: torch.Tensor) -> list[str]:
    row = {"backend": "triton", **problem.judge(produced).columns()}
    explanation = json.loads(json.dumps(problem.explain(produced)))  # as from another process
    return lines("softmax 11x257:special f32", row, explanation)


def test_a_right_row_shows_its_worst_element_masks_and_bias():
    problem = special_problem()
    text = printed(problem, right_output(problem))
    assert text[0] == "softmax 11x257:special f32 triton: right"
    assert text[1].startswith("  worst      (")
    assert "% of the" in text[1]
    n_nan = int(problem.reference.isnan().sum())
    assert f"  NaN        expected {n_nan}, got {n_nan}, misplaced 0" in text
    assert sum(line.startswith("  bias ") for line in text) == 2
    assert not any("bad" in line for line in text)


def test_a_wrong_row_shows_masks_apart_and_the_first_five_bad_elements():
    problem = special_problem()
    wrong = right_output(problem)
    wrong[10, 3:20] *= 1.5
    wrong[10, 30] = float("inf")
    wrong[0, 0] = 7.0  # NaN in the reference
    text = printed(problem, wrong)
    assert text[0].startswith("softmax 11x257:special f32 triton: mismatch: NaN where")
    n_nan = int(problem.reference.isnan().sum())
    assert f"  NaN        expected {n_nan}, got {n_nan - 1}, misplaced 1" in text
    assert "  +Inf       expected 0, got 1, misplaced 1" in text
    assert f"  bad        19 of {11 * 257} elements" in text
    at = next(i for i, line in enumerate(text) if line.split()[0] == "index")
    assert text[at].split() == ["index", "got", "expected", "error", "allowed"]
    shown = [line.split("(")[1].split(")")[0] for line in text[at + 1 :]]
    assert shown == ["0, 0", "10, 3", "10, 4", "10, 5", "10, 6"]
    assert text[at + 1].split(")")[1].split()[:2] == ["7", "nan"]


def test_zeros_of_the_wrong_sign_are_counted():
    problem = special_problem()
    wrong = right_output(problem)
    zeros = wrong == 0
    assert bool(zeros.any())
    wrong[zeros] = -0.0
    assert f"  zeros      {int(zeros.sum())} of the wrong sign" in printed(problem, wrong)


def test_a_row_without_numbers_is_one_line_and_loses_nothing():
    row = {"backend": "cuda", "status": "error", "reason": "no luck", "explanation": {}}
    assert take_lines("op case f32", row) == ["op case f32 cuda: error: no luck"]
    assert "explanation" not in row
    empty = {"backend": "cuda", "status": "untimed", "reason": ""}
    assert take_lines("op 0 f32", empty) == ["op 0 f32 cuda: right, without an element to compare"]


def test_the_command_prints_it_and_keeps_it_out_of_the_run(tmp_path, monkeypatch, capfd):
    pytest.importorskip("triton")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("harness.nogpu.compile_offline", lambda *_: [])
    wanted = ["--op", "vector_add", "--dtype", "f32", "--case", "N=33", "--backend", "triton"]
    if torch.cuda.is_available():
        pytest.skip("a GPU is visible: check writes no run there")
    assert main(["check", "--explain", *wanted, "--out", str(tmp_path / "run")]) == 0
    out = capfd.readouterr().out
    assert "vector_add 33 f32 triton: right\n  worst      (" in out
    assert "explanation" not in read_run(tmp_path / "run").rows.columns
