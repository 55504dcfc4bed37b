"""The checker refuses wrong outputs: every listed mutant of every op, NaN tricks, guards."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from harness.check import MUTANTS, Problem, compare
from harness.registry import Registry
from harness.spec import Case, OpSpec, torch_dtype

REGISTRY = Registry()
SPECS = [REGISTRY.spec(stem) for stem in REGISTRY.stems]
# Large enough for tiles, small enough for float64 on a CPU.
MUTANT_CASES = {
    "vector_add": Case({"N": 4096}),
    "softmax": Case({"M": 64, "N": 1000}),
    "matmul_bias_relu": Case({"M": 96, "N": 104, "K": 1024}),
}
PAIRS = [(spec, dtype) for spec in SPECS for dtype in spec.dtypes]
PAIR_IDS = [f"{spec.stem}-{dtype}" for spec, dtype in PAIRS]


def right_output(problem: Problem) -> torch.Tensor:
    return problem.reference.to(torch_dtype(problem.dtype))


def problem_with_live_last_element(spec: OpSpec, dtype: str) -> Problem:
    """Dropping the last element must change something: relu may have zeroed it."""
    for seed in range(20):
        problem = Problem(spec, MUTANT_CASES[spec.stem], dtype, "cpu", seed)
        if float(problem.reference.flatten()[-1]) != 0.0:
            return problem
    raise AssertionError("no seed with a non-zero last element")


@pytest.mark.parametrize(("spec", "dtype"), PAIRS, ids=PAIR_IDS)
def test_the_correctly_rounded_answer_passes(spec: OpSpec, dtype: str):
    for seed in range(5):
        problem = Problem(spec, MUTANT_CASES[spec.stem], dtype, "cpu", seed)
        verdict = problem.judge(right_output(problem))
        assert verdict.ok, verdict.reason


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize(("spec", "dtype"), PAIRS, ids=PAIR_IDS)
def test_mutants_fail(spec: OpSpec, dtype: str, mutant: str):
    if mutant in spec.omitted_mutants:
        assert spec.omitted_mutants[mutant], "an omission states its reason"
        return
    problem = problem_with_live_last_element(spec, dtype)
    verdict = problem.judge(MUTANTS[mutant](right_output(problem)))
    assert not verdict.ok
    assert verdict.reason


@pytest.mark.parametrize(("spec", "dtype"), PAIRS, ids=PAIR_IDS)
def test_accumulation_in_the_output_dtype_fails(spec: OpSpec, dtype: str):
    if "low_precision" in spec.omitted_mutants or f"low_precision:{dtype}" in spec.omitted_mutants:
        return
    assert spec.low_precision is not None, "give low_precision or the reason for its omission"
    problem = Problem(spec, MUTANT_CASES[spec.stem], dtype, "cpu", 0)
    assert not problem.judge(spec.low_precision(problem.tensors)).ok


@pytest.mark.parametrize(("spec", "dtype"), PAIRS, ids=PAIR_IDS)
def test_truncation_instead_of_rounding_is_a_bias(spec: OpSpec, dtype: str):
    """Truncating stays within an ulp of the truth everywhere, but always on one side."""
    if dtype == "f32":
        return  # float64 to float32 truncation is within the float32 arithmetic's own error
    problem = Problem(spec, MUTANT_CASES[spec.stem], dtype, "cpu", 0)
    rounded = right_output(problem)
    # In float64, keep the sign: a sum of random signs has no bias, a sum of magnitudes has.
    away_from_zero = rounded.double().abs() > problem.reference.abs()
    truncated = (rounded.view(torch.int16) - away_from_zero.to(torch.int16)).view(rounded.dtype)
    sign = problem.reference.sign()
    one_ulp = torch.finfo(rounded.dtype).eps * problem.reference.abs() + 1e-6
    verdict = compare(
        (truncated.double() * sign).to(rounded.dtype),
        problem.reference * sign,
        one_ulp,
        spec.tolerances[dtype].bias_ulps,
    )
    assert "biased" in verdict.reason


@pytest.mark.parametrize(
    ("produced", "reference"),
    [
        ([math.nan, math.nan], [1.0, 2.0]),
        ([1.0, 2.0], [math.nan, 2.0]),
        ([math.nan, 1.0], [1.0, math.nan]),
        ([math.inf, 1.0], [-math.inf, 1.0]),
        ([1e30, 1.0], [math.inf, 1.0]),
    ],
)
def test_nan_and_infinity_count_only_where_the_reference_has_them(produced, reference):
    want = torch.tensor(reference, dtype=torch.float64)
    assert not compare(torch.tensor(produced), want, torch.full((2,), 1e-6).double(), 1.0).ok


def test_nan_at_the_same_place_passes():
    want = torch.tensor([math.nan, 1.0], dtype=torch.float64)
    assert compare(torch.tensor([math.nan, 1.0]), want, torch.full((2,), 1e-6).double(), 1.0).ok


def test_a_wrong_shape_fails():
    want = torch.zeros(4, dtype=torch.float64)
    assert "shape" in compare(torch.zeros(2, 2), want, want + 1, 1.0).reason


def vector_problem() -> Problem:
    return Problem(REGISTRY.spec("vector_add"), Case({"N": 100}), "f32", "cpu", 0)


def test_a_changed_input_fails_and_is_restored():
    problem = vector_problem()
    before = problem.tensors["x"].clone()
    problem.tensors["x"][3] += 1
    assert problem.judge(right_output(problem)).reason == "input x was changed"
    assert torch.equal(problem.tensors["x"], before)


def test_all_changed_inputs_are_restored_for_the_next_implementation():
    problem = vector_problem()
    for tensor in problem.tensors.values():
        tensor.zero_()
    assert "x, y" in problem.judge(right_output(problem)).reason
    assert problem.judge(right_output(problem)).ok


def test_another_dtype_fails():
    problem = vector_problem()
    assert "dtype" in problem.judge(problem.reference).reason


@pytest.mark.parametrize(("offset", "side"), [(-1, "before"), (100, "behind")])
def test_a_write_outside_the_output_fails(offset: int, side: str):
    problem = vector_problem()
    problem.poison()
    problem.out.copy_(right_output(problem))
    whole = problem._guarded
    start = problem.out.data_ptr() - whole.data_ptr()
    whole[start + 4 * offset] = 0
    assert side in problem.judge(problem.out).reason


def test_an_unwritten_output_fails_after_poison():
    problem = vector_problem()
    problem.out.copy_(right_output(problem))
    problem.poison()
    assert not problem.judge(problem.out).ok


def test_reseeding_keeps_pointers_and_changes_answers():
    problem = vector_problem()
    pointer, answer = problem.tensors["x"].data_ptr(), problem.reference.clone()
    problem.reseed(99)
    assert problem.tensors["x"].data_ptr() == pointer
    assert not torch.equal(problem.reference, answer)


def test_the_output_is_aligned_unless_the_case_asks_otherwise():
    aligned = vector_problem()
    start = aligned.out.data_ptr() - aligned._guarded.data_ptr()
    assert start == 256
    spec = REGISTRY.spec("vector_add")
    shifted = Problem(spec, Case({"N": 100}, layout="offset1"), "f32", "cpu", 0)
    assert shifted.out.data_ptr() - shifted._guarded.data_ptr() == 260
