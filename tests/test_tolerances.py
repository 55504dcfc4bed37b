"""Each allowance is used by right implementations, grows with what it should, and has a reason."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from harness.check import Problem, bias_allowance, compare
from harness.mutants import right_output
from harness.registry import Registry
from harness.spec import ITEMSIZE, Case, OpSpec, SpecialValues
from harness.verdict import Comparison

REGISTRY = Registry()
SPECS = [REGISTRY.spec(stem) for stem in REGISTRY.stems]
PAIRS = [(spec, dtype) for spec in SPECS for dtype in spec.dtypes]
PAIR_IDS = [f"{spec.stem}-{dtype}" for spec, dtype in PAIRS]
SMALLEST_SHARE = 0.25  # softmax in f32 leaves room for the GPU's approximate exp2


def float32_softmax(x: torch.Tensor) -> torch.Tensor:
    """As the kernels compute it: exp2 of a product rounded to float32."""
    numerator = ((x - x.amax(-1, keepdim=True)) * math.log2(math.e)).exp2()
    return numerator * (1 / numerator.sum(-1, keepdim=True))


def float32_once_rounded(problem: Problem) -> tuple[torch.Tensor, ...]:
    """The best that can be expected: float32 inside, one rounding to each output's dtype."""
    spec = problem.spec
    function = float32_softmax if spec.stem == "softmax" else spec.eager
    inputs = [problem.tensors[name] for name in spec.arguments]
    produced = function(*(t.float() if t.is_floating_point() else t for t in inputs))
    parts = produced if isinstance(produced, tuple) else (produced,)
    return tuple(part.to(out.dtype) for part, out in zip(parts, problem.outs, strict=True))


@pytest.mark.parametrize(("spec", "dtype"), PAIRS, ids=PAIR_IDS)
def test_right_implementations_pass_on_50_seeds(spec: OpSpec, dtype: str):
    small = min(spec.mutant_cases, key=spec.n_output_elements)
    for seed in range(50):
        problem = Problem(spec, small, dtype, "cpu", seed)
        verdict = problem.judge(float32_once_rounded(problem))
        assert verdict.ok, f"seed {seed}: {verdict.reason}"
        rounded = tuple(right_output(problem, which) for which in range(len(problem.outs)))
        assert problem.judge(rounded).ok, f"seed {seed}: the float64 answer, rounded"


@pytest.mark.parametrize(("spec", "dtype"), PAIRS, ids=PAIR_IDS)
def test_torch_passes_with_its_roundings_between_kernels(spec: OpSpec, dtype: str):
    for case in spec.mutant_cases:
        problem = Problem(spec, case, dtype, "cpu", 1)
        for inputs in ("as made", "nudged"):
            produced = spec.eager(*(problem.tensors[name] for name in spec.arguments))
            verdict = problem.judge(produced, unfused=True)
            assert verdict.ok, f"{case.name}, {inputs}: {verdict.reason}"
            for answer in problem.answers:
                assert bool(((answer.allowed >= 0) | answer.reference.isnan()).all())
            problem.nudge(2)  # any input of any sign, as before the check after timing


@pytest.mark.parametrize(("spec", "dtype"), PAIRS, ids=PAIR_IDS)
def test_an_allowance_is_used_and_four_times_the_error_is_not_allowed(spec: OpSpec, dtype: str):
    problem, produced = nearest_to_its_limit(spec, dtype)
    for answer, best in zip(problem.answers, produced, strict=True):
        if answer.output.tolerances[dtype].output_ulps == 0.0:
            assert bool((best.double() == answer.reference).all())  # nothing is rounded
            continue
        if spec.family == "reduction" and best.itemsize > ITEMSIZE[dtype]:
            continue  # sums of narrow terms may be exact; those of wide ones are allowed as much
        limit = bias_allowance(spec, dtype, problem.case, answer.output)
        used = Comparison(best, answer.reference, answer.allowed, limit)
        assert float(used.share.max()) > SMALLEST_SHARE
        worse = answer.reference + 4 * (best.double() - answer.reference)
        verdict = compare(worse.float(), answer.reference, answer.allowed, limit)
        assert "above the allowance" in verdict.reason


def nearest_to_its_limit(spec: OpSpec, dtype: str) -> tuple[Problem, tuple[torch.Tensor, ...]]:
    """A problem and its best outputs: of one seed, or of the seed on which they err most where the
    outputs are so few that one says little."""
    case = spec.mutant_cases[0]
    seeds = range(3, 4 if spec.n_output_elements(case) >= 64 else 67)
    problems = [Problem(spec, case, dtype, "cpu", seed) for seed in seeds]
    runs = [(problem, float32_once_rounded(problem)) for problem in problems]
    return max(runs, key=lambda run: run[0].explain(run[1])["worst"]["share"])


@pytest.mark.parametrize("spec", SPECS, ids=REGISTRY.stems)
def test_allowances_follow_the_dtype(spec: OpSpec):
    for dtype in spec.dtypes:
        problem = Problem(spec, spec.mutant_cases[0], dtype, "cpu", 0)
        for answer, out in zip(problem.answers, problem.outs, strict=True):
            if answer.output.tolerances[dtype].output_ulps == 0.0:
                continue
            live = answer.reference != 0
            share = (answer.allowed / answer.reference.abs())[live].median()
            typical = float(share) / torch.finfo(out.dtype).eps
            assert 0.4 < typical < 12
            # Half an ulp of the output and little else where float32 is finer than that by far.
            assert typical < 0.8 or out.dtype == torch.float32


@pytest.mark.parametrize("spec", SPECS, ids=REGISTRY.stems)
def test_allowances_follow_the_length_of_a_reduction(spec: OpSpec):
    assert bool(spec.reduced_dim) == (spec.family not in ("elementwise", "movement"))
    if not spec.reduced_dim:
        return
    relative, drift = [], []
    for length in (16, 4096):
        dims = dict.fromkeys(spec.mutant_cases[0].dims, 32) | {spec.reduced_dim: length}
        tensors = spec.make_inputs(Case(dims), spec.dtypes[0], "cpu", 0)
        # The same value everywhere: no magnitude but the reduction's own length.
        ones = {name: torch.ones_like(tensor) for name, tensor in tensors.items()}
        reference = spec.reference(ones)
        # All ones may cancel, and what is relative in a sum is absolute in its logarithm.
        absolute = spec.stem == "cross_entropy"
        size = 1.0 if absolute else reference.where(reference != 0, 1.0)
        relative.append(float((spec.accumulation(ones, reference) / size).mean()))
        drift.append(spec.drift(Case(dims)))
    assert relative[1] > 1.2 * relative[0]
    assert drift[1] > 1.2 * drift[0]


@pytest.mark.parametrize(("spec", "dtype"), PAIRS, ids=PAIR_IDS)
def test_a_tolerance_says_where_both_of_its_numbers_come_from(spec: OpSpec, dtype: str):
    for output in spec.outputs:
        tolerance = output.tolerances[dtype]
        for number in (tolerance.output_ulps, tolerance.bias_ulps):
            assert f"{number:g}:" in tolerance.reason
        assert len(tolerance.reason.split()) > 15
        # Rounding to nearest errs by half a spacing, and truncation must stay far out of reach.
        assert tolerance.output_ulps == (0.0 if spec.family == "movement" else 0.5)
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


@pytest.mark.parametrize("stem", ["softmax", "matmul", "matmul_bias_relu", "matmul_bias_gelu"])
def test_nan_replaced_by_zero_fails(stem: str):
    spec = REGISTRY.spec(stem)
    case = next(case for case in spec.test_cases if case.layout == "special")
    problem = Problem(spec, case, "f16", "cpu", 0)
    right = problem.reference.half()
    assert problem.judge(right).ok
    assert not problem.judge(torch.where(right.isnan(), 0.0, right)).ok
