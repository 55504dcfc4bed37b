"""Outputs broken on purpose fail: every mutant, op, dtype and case that the spec does not omit."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from harness.check import Problem
from harness.mutants import MUTANTS, keys_to_omit, reason_to_omit, right_output, survives
from harness.registry import Registry
from harness.spec import ITEMSIZE, Case, OpSpec
from harness.verdict import compare

REGISTRY = Registry()
SPECS = [REGISTRY.spec(stem) for stem in REGISTRY.stems]
TARGETS = [
    pytest.param(
        spec,
        dtype,
        case,
        which,
        id=f"{spec.stem}-{dtype}-{case.name}" + f"-{output.name}" * bool(which),
    )
    for spec in SPECS
    for dtype in spec.dtypes
    for case in spec.mutant_cases
    for which, output in enumerate(spec.outputs)
]
STATED = (
    "zeros", "dropped_last", "shifted_by_one", "scaled_by_1_percent", "zeroed_tile",
    "swapped_rows", "low_precision", "unwritten",
)  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize(("spec", "dtype", "case", "which"), TARGETS)
def test_no_mutant_survives(spec: OpSpec, dtype: str, case: Case, which: int, mutant: str):
    if not reason_to_omit(spec, dtype, case, mutant, which):
        assert survives(spec, dtype, case, mutant, which) == ""


@pytest.mark.parametrize("spec", SPECS, ids=REGISTRY.stems)
def test_mutants_are_tried_on_a_small_and_on_an_odd_case(spec: OpSpec):
    sizes = [largest_operand(spec, case) for case in spec.mutant_cases]
    assert len(sizes) >= 3
    assert min(sizes) <= 256 < 4000 <= max(sizes)
    free = [dim for dim in spec.mutant_cases[0].dims if spec.extents.get(dim, (0, 1))[1] % 2]
    assert any(all(case.dims[dim] % 2 for dim in free) for case in spec.mutant_cases)


def largest_operand(spec: OpSpec, case: Case) -> int:
    inputs = spec.make_inputs(case, spec.dtypes[0], "cpu", 0)
    return max(spec.n_output_elements(case), *(tensor.numel() for tensor in inputs.values()))


@pytest.mark.parametrize("spec", SPECS, ids=REGISTRY.stems)
def test_what_is_omitted_exists_and_has_a_reason(spec: OpSpec):
    known = {
        key
        for mutant in MUTANTS
        for case in spec.mutant_cases
        for dtype in spec.dtypes
        for which in range(len(spec.outputs))
        for key in keys_to_omit(spec, dtype, case, mutant, which)
    }
    assert set(spec.omitted_mutants) <= known
    assert all(len(reason.split()) >= 5 for reason in spec.omitted_mutants.values())


@pytest.mark.parametrize("spec", SPECS, ids=REGISTRY.stems)
def test_every_dtype_refuses_each_stated_mutant_somewhere_or_says_why_never(spec: OpSpec):
    for dtype in spec.dtypes:
        for mutant in STATED:
            reasons = [reason_to_omit(spec, dtype, case, mutant) for case in spec.mutant_cases]
            everywhere = {mutant, f"{mutant}:{dtype}"} & set(spec.omitted_mutants)
            assert everywhere or sum(not reason for reason in reasons) >= 2


def test_a_surviving_mutant_is_found(monkeypatch):
    spec, case = REGISTRY.spec("vector_add"), Case({"N": 33})
    monkeypatch.setitem(MUTANTS, "none", lambda right, _, __: right)
    monkeypatch.setitem(MUTANTS, "harmless", one_step_where_there_is_room)
    assert "equals the right output" in survives(spec, "f32", case, "none")
    assert survives(REGISTRY.spec("softmax"), "f32", Case({"M": 3, "N": 31}), "harmless") == (
        "seed 0: passes for right"
    )


def one_step_where_there_is_room(right: torch.Tensor, _: Problem, __: int) -> torch.Tensor:
    right.view(-1)[0] = torch.nextafter(right.view(-1)[0], torch.tensor(0.0))
    return right


def rounded_outputs() -> list:
    """Outputs that round to fewer bits than float32 has, unless the spec says that none is cut."""
    return [
        pytest.param(spec, dtype, which, id=f"{spec.stem}-{dtype}-{output.name}")
        for spec in SPECS
        for dtype in spec.dtypes
        for which, output in enumerate(spec.outputs)
        if ITEMSIZE[output.dtype or dtype] < 4
        and not reason_to_omit(spec, dtype, spec.mutant_cases[0], "truncated", which)
    ]


@pytest.mark.parametrize(("spec", "dtype", "which"), rounded_outputs())
def test_truncation_that_every_element_may_have_is_still_a_bias(
    spec: OpSpec, dtype: str, which: int
):
    """Within an ulp of the truth everywhere, but always on one side; also with both signs."""
    problem = Problem(spec, spec.mutant_cases[0], dtype, "cpu", 0)
    truncated = MUTANTS["truncated"](right_output(problem, which), problem, which)
    info, answer = torch.finfo(truncated.dtype), problem.answers[which]
    one_ulp = info.eps * answer.reference.abs().clamp(min=info.smallest_normal)
    bias_ulps = answer.output.tolerances[dtype].bias_ulps
    assert "biased" in compare(truncated, answer.reference, one_ulp, bias_ulps).reason
