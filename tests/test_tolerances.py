"""Each allowance is used by right implementations, grows with what it should, and has a reason."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from harness.check import Problem, bias_allowance, compare
from harness.registry import Registry
from harness.spec import Case, OpSpec, SpecialValues, torch_dtype

REGISTRY = Registry()
SPECS = [REGISTRY.spec(stem) for stem in REGISTRY.stems]
PAIRS = [(spec, dtype) for spec in SPECS for dtype in spec.dtypes]
PAIR_IDS = [f"{spec.stem}-{dtype}" for spec, dtype in PAIRS]
SMALLEST_SHARE = 0.25  # softmax in f32 leaves room for the GPU's approximate exp2


def float32_softmax(x: torch.Tensor) -> torch.Tensor:
    """As the kernels compute it: exp2 of a product rounded to float32."""
    numerator = ((x - x.amax(-1, keepdim=True)) * math.log2(math.e)).exp2()
    return numerator * (1 / numerator.sum(-1, keepdim=True))


def float32_once_rounded(problem: Problem) -> torch.Tensor:
    """The best that can be expected: float32 inside, one rounding to the output's dtype."""
    spec = problem.spec
    function = float32_softmax if spec.stem == "softmax" else spec.eager
    return function(*(problem.tensors[name].float() for name in spec.arguments)).to(
        torch_dtype(problem.dtype)
    )


@pytest.mark.parametrize(("spec", "dtype"), PAIRS, ids=PAIR_IDS)
def test_right_implementations_pass_on_50_seeds(spec: OpSpec, dtype: str):
    small = min(spec.mutant_cases, key=lambda case: math.prod(spec.output_shape(case)))
    for seed in range(50):
        problem = Problem(spec, small, dtype, "cpu", seed)
        verdict = problem.judge(float32_once_rounded(problem))
        assert verdict.ok, f"seed {seed}: {verdict.reason}"
        rounded = problem.reference.to(torch_dtype(dtype))
        assert problem.judge(rounded).ok, f"seed {seed}: the float64 answer, rounded"


@pytest.mark.parametrize(("spec", "dtype"), PAIRS, ids=PAIR_IDS)
def test_torch_passes_with_its_roundings_between_kernels(spec: OpSpec, dtype: str):
    for case in spec.mutant_cases:
        problem = Problem(spec, case, dtype, "cpu", 1)
        produced = spec.eager(*(problem.tensors[name] for name in spec.arguments))
        verdict = problem.judge(produced, unfused=True)
        assert verdict.ok, f"{case.name}: {verdict.reason}"


@pytest.mark.parametrize(("spec", "dtype"), PAIRS, ids=PAIR_IDS)
def test_an_allowance_is_used_and_four_times_the_error_is_not_allowed(spec: OpSpec, dtype: str):
    problem = Problem(spec, spec.mutant_cases[0], dtype, "cpu", 3)
    best = float32_once_rounded(problem)
    assert problem.explain(best)["worst"]["share"] > SMALLEST_SHARE
    worse = problem.reference + 4 * (best.double() - problem.reference)
    limit = bias_allowance(spec, dtype, problem.case)
    verdict = compare(worse.float(), problem.reference, problem.allowed, limit)
    assert "above the allowance" in verdict.reason


@pytest.mark.parametrize("spec", SPECS, ids=REGISTRY.stems)
def test_allowances_follow_the_dtype(spec: OpSpec):
    typical = {}
    for dtype in spec.dtypes:
        problem = Problem(spec, spec.mutant_cases[0], dtype, "cpu", 0)
        live = problem.reference != 0
        share = (problem.allowed / problem.reference.abs())[live].median()
        typical[dtype] = float(share) / torch.finfo(torch_dtype(dtype)).eps
        assert 0.4 < typical[dtype] < 12
    # Half an ulp of the output and little else where float32 is finer than that by far.
    assert all(typical[dtype] < 0.8 for dtype in spec.dtypes if dtype != "f32")


@pytest.mark.parametrize("spec", SPECS, ids=REGISTRY.stems)
def test_allowances_follow_the_length_of_a_reduction(spec: OpSpec):
    assert bool(spec.reduced_dim) == (spec.family != "elementwise")
    if not spec.reduced_dim:
        return
    relative, drift = [], []
    for length in (16, 4096):
        dims = dict.fromkeys(spec.mutant_cases[0].dims, 32) | {spec.reduced_dim: length}
        tensors = spec.make_inputs(Case(dims), spec.dtypes[0], "cpu", 0)
        # The same value everywhere: no magnitude but the reduction's own length.
        ones = {name: torch.ones_like(tensor) for name, tensor in tensors.items()}
        reference = spec.reference(ones)
        relative.append(float((spec.accumulation(ones, reference) / reference).mean()))
        drift.append(spec.drift(Case(dims)))
    assert relative[1] > 1.2 * relative[0]
    assert drift[1] > 1.2 * drift[0]


@pytest.mark.parametrize(("spec", "dtype"), PAIRS, ids=PAIR_IDS)
def test_a_tolerance_says_where_both_of_its_numbers_come_from(spec: OpSpec, dtype: str):
    tolerance = spec.tolerances[dtype]
    for number in (tolerance.output_ulps, tolerance.bias_ulps):
        assert f"{number:g}:" in tolerance.reason
    assert len(tolerance.reason.split()) > 15
    # Rounding to nearest errs by half a spacing, and truncation must stay far out of reach.
    assert tolerance.output_ulps == 0.5
    assert tolerance.bias_ulps <= 0.05


@pytest.mark.parametrize("spec", SPECS, ids=REGISTRY.stems)
def test_every_spec_states_its_special_values_and_tests_them(spec: OpSpec):
    assert spec.special_values != SpecialValues()
    for word in ("NaN", "Inf", "ubnormal" if spec.stem != "softmax" else "2^-126", "ero"):
        assert word in spec.special_values.text
    assert any(case.layout == "special" for case in spec.test_cases)


def test_subnormal_sums_are_kept_and_flushing_them_is_refused():
    spec = REGISTRY.spec("vector_add")
    problem = Problem(spec, Case({"N": 1025}, "special"), "f32", "cpu", 0)
    right = problem.reference.float()
    subnormal = (right != 0) & (right.abs() < torch.finfo(torch.float32).smallest_normal)
    assert int(subnormal.sum()) >= 2
    assert problem.judge(right).ok
    assert "above the allowance" in problem.judge(torch.where(subnormal, right * 0, right)).reason


def test_a_policy_of_either_kind_is_judged_as_stated():
    problem = Problem(REGISTRY.spec("vector_add"), Case({"N": 1025}, "special"), "f32", "cpu", 0)
    right = problem.reference.float()
    zeros = right == 0
    assert int((zeros & right.signbit()).sum()) >= 2
    assert "wrong sign" in problem.judge(torch.where(zeros, 0.0, right)).reason
    nan_dropped = right.nan_to_num(0.0, math.inf, -math.inf)
    assert "NaN where the reference" in problem.judge(nan_dropped).reason


@pytest.mark.parametrize("stem", ["softmax", "matmul_bias_relu"])
def test_nan_replaced_by_zero_fails(stem: str):
    spec = REGISTRY.spec(stem)
    case = next(case for case in spec.test_cases if case.layout == "special")
    problem = Problem(spec, case, "f16", "cpu", 0)
    right = problem.reference.half()
    assert problem.judge(right).ok
    assert not problem.judge(torch.where(right.isnan(), 0.0, right)).ok
