"""A problem's guards, poison and refusals; NaN and infinity only where the reference has them."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from harness.check import Problem, compare
from harness.mutants import right_output
from harness.registry import Registry
from harness.spec import Case
from harness.verdict import Comparison

REGISTRY = Registry()
GUARD_ELEMENTS = 16 << 10  # float32 values in an input's guard


def vector_problem(layout: str = "contiguous", n: int = 100) -> Problem:
    return Problem(REGISTRY.spec("vector_add"), Case({"N": n}, layout), "f32", "cpu", 0)


def row_problem(layout: str) -> Problem:
    return Problem(REGISTRY.spec("softmax"), Case({"M": 5, "N": 37}, layout), "f32", "cpu", 0)


def beyond(tensor: torch.Tensor, start: int, count: int) -> torch.Tensor:
    """`count` elements of the storage from `start` elements after the tensor's first on."""
    return tensor.as_strided((count,), (1,), tensor.storage_offset() + start)


@pytest.mark.parametrize(
    ("produced", "reference"),
    [
        ([math.nan, math.nan], [1.0, 2.0]),
        ([1.0, 2.0], [math.nan, 2.0]),
        ([math.nan, 1.0], [1.0, math.nan]),
        ([math.inf, 1.0], [-math.inf, 1.0]),
        ([1e30, 1.0], [math.inf, 1.0]),
        ([0.0, 1.0], [math.nan, 1.0]),
        ([3.4e38, 1.0], [1e39, 1.0]),
    ],
)
def test_nan_and_infinity_count_only_where_the_reference_has_them(produced, reference):
    want = torch.tensor(reference, dtype=torch.float64)
    assert not compare(torch.tensor(produced), want, torch.full((2,), 1e-6).double(), 1.0).ok


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_special_values_at_the_same_place_pass(value: float):
    want = torch.tensor([value, 1.0], dtype=torch.float64)
    assert compare(torch.tensor([value, 1.0]), want, torch.full((2,), 1e-6).double(), 1.0).ok


def test_a_reference_beyond_the_dtype_is_infinity():
    want = torch.tensor([1e39, 1.0], dtype=torch.float64)
    assert compare(torch.tensor([math.inf, 1.0]), want, want * 1e-6, 1.0).ok


@pytest.mark.parametrize(("got", "want"), [(-0.0, 0.0), (0.0, -0.0)])
def test_the_sign_of_zero_counts_where_the_op_keeps_it(got: float, want: float):
    reference = torch.tensor([want, 1.0], dtype=torch.float64)
    produced, allowed = torch.tensor([got, 1.0]), torch.full((2,), 1e-6).double()
    assert compare(produced, reference, allowed, 1.0).ok
    assert "wrong sign" in compare(produced, reference, allowed, 1.0, signed_zeros=True).reason


def test_a_wrong_shape_fails():
    want = torch.zeros(4, dtype=torch.float64)
    assert "shape" in compare(torch.zeros(2, 2), want, want + 1, 1.0).reason


def test_an_empty_output_is_right_in_its_shape_and_dtype_only():
    problem = vector_problem(n=0)
    assert problem.judge(problem.out).ok
    assert "shape" in problem.judge(torch.empty(0, 3)).reason
    assert "dtype" in problem.judge(torch.empty(0, dtype=torch.float64)).reason
    assert problem.explain(problem.out) == {}


def test_a_bias_of_either_kind_shows_whatever_the_signs():
    generator = torch.Generator().manual_seed(0)
    reference = torch.randn(20000, generator=generator, dtype=torch.float64)
    eps = torch.finfo(torch.float32).eps
    for shift, direction in ((reference.sign(), "away from zero"), (1.0, "upwards")):
        produced = (reference + 2 * eps * reference.abs() * shift).float()
        verdict = compare(produced, reference, 4 * eps * reference.abs(), 0.1)
        assert f"biased {direction}" in verdict.reason


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("seed", range(10))
def test_rows_that_repeat_are_one_sample_of_rounding(dtype: str, seed: int):
    """M rows of gelu(b) of 8 values: their rounding errors do not average out."""
    case = Case({"M": 256, "N": 8, "K": 0})
    problem = Problem(REGISTRY.spec("matmul_bias_gelu"), case, dtype, "cpu", seed)
    assert problem.judge(right_output(problem)).ok


def test_the_noise_of_repeated_values_is_that_of_the_distinct_ones():
    generator = torch.Generator().manual_seed(0)
    few = torch.randn(8, generator=generator, dtype=torch.float64)
    allowances = []
    for reference in (few, few.expand(256, 8), -few.expand(256, 8)):
        produced = reference.float()
        comparison = Comparison(produced, reference, reference.abs(), 0.0)
        allowances.append(comparison.biases()[0].allowed)
    many = torch.randn(2048, generator=generator, dtype=torch.float64)
    independent = Comparison(many.float(), many, many.abs(), 0.0).biases()[0].allowed
    assert allowances == pytest.approx([allowances[0]] * 3)
    assert allowances[0] > 10 * independent


def test_a_bias_of_repeated_values_that_is_no_noise_is_refused():
    reference = torch.linspace(1, 2, 1000, dtype=torch.float64).expand(64, 1000)
    eps = torch.finfo(torch.float32).eps
    produced = (reference + eps * reference).float()
    assert "biased" in compare(produced, reference, 4 * eps * reference, 0.1).reason


def test_the_worst_element_is_the_one_that_uses_most_of_its_allowance():
    reference = torch.tensor([1.0, 100.0], dtype=torch.float64)
    allowed = torch.tensor([0.1, 10.0], dtype=torch.float64)
    comparison = Comparison(torch.tensor([1.0625, 101.0]), reference, allowed, 1e9)
    verdict = comparison.verdict()
    assert (verdict.ok, verdict.max_abs_err, verdict.tolerance) == (True, 1.0, 0.1)
    assert comparison.explanation()["worst"]["index"] == [0]


# inputs


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
    reason = problem.judge(right_output(problem)).reason
    assert reason == "input x, y was changed"
    assert problem.judge(right_output(problem)).ok


def test_a_change_that_compares_equal_is_a_change():
    problem = Problem(REGISTRY.spec("vector_add"), Case({"N": 1025}, "special"), "f32", "cpu", 0)
    x = problem.tensors["x"]
    assert (float(x[8]), math.copysign(1, float(x[8]))) == (0.0, -1.0)
    x[8] = 0.0
    assert problem.judge(right_output(problem)).reason == "input x was changed"


@pytest.mark.parametrize("layout", ["contiguous", "offset1", "mixed1"])
def test_nan_lies_before_and_behind_inputs(layout: str):
    for tensor in vector_problem(layout).tensors.values():
        assert beyond(tensor, -GUARD_ELEMENTS, GUARD_ELEMENTS).isnan().all()
        assert beyond(tensor, 100, GUARD_ELEMENTS).isnan().all()
        assert not tensor.isnan().any()


def test_nan_lies_between_the_rows_of_a_strided_input():
    x = row_problem("padded").tensors["x"]
    assert x.stride() == (40, 1)
    rows = beyond(x, 0, 160).view(4, 40)
    assert rows[:, 37:].isnan().all()
    assert not x.isnan().any()


@pytest.mark.parametrize(("layout", "starts"), [("contiguous", 0), ("offset1", 4)])
def test_inputs_and_output_keep_the_alignment_that_the_case_asks_for(layout: str, starts: int):
    problem = vector_problem(layout)
    for tensor in (*problem.tensors.values(), problem.out):
        assert tensor.data_ptr() % 256 == starts


def sum_that_reads_one_too_far(problem: Problem) -> None:
    """A row's sum whose loop runs to n instead of n - 1."""
    x = problem.tensors["x"]
    rows = beyond(x, 0, 5 * x.stride(0)).view(5, -1) if x.stride(0) > 37 else x
    wide = rows[:, :38] if x.stride(0) > 37 else beyond(x, 1, 5 * 37).view(5, 37)
    problem.out.copy_(x.exp() / wide.exp().sum(-1, keepdim=True))


@pytest.mark.parametrize("layout", ["contiguous", "padded"])
def test_a_read_past_an_input_poisons_the_result(layout: str):
    problem = row_problem(layout)
    sum_that_reads_one_too_far(problem)
    assert problem.judge(problem.out).reason.startswith("NaN where the reference has none")


@pytest.mark.parametrize("at", [-1, 100, 100 + GUARD_ELEMENTS - 1, -GUARD_ELEMENTS])
def test_a_write_into_an_inputs_guards_fails_and_is_undone(at: int):
    problem = vector_problem()
    beyond(problem.tensors["y"], at, 1).fill_(0.0)
    assert problem.judge(right_output(problem)).reason == "wrote into the guards around input y"
    assert beyond(problem.tensors["y"], at, 1).isnan().all()
    assert problem.judge(right_output(problem)).ok


@pytest.mark.parametrize("layout", ["contiguous", "offset1"])
def test_reseeding_keeps_pointers_and_guards_and_changes_answers(layout: str):
    problem = vector_problem(layout)
    pointer, answer = problem.tensors["x"].data_ptr(), problem.reference.clone()
    problem.reseed(99)
    assert problem.tensors["x"].data_ptr() == pointer
    assert not torch.equal(problem.reference, answer)
    assert problem.judge(right_output(problem)).ok
    assert beyond(problem.tensors["x"], 100, GUARD_ELEMENTS).isnan().all()


# outputs


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: p.reference, "dtype torch.float64, wanted torch.float32"),
        (lambda p: None, "returned a NoneType"),
        (lambda p: right_output(p).to("meta"), "output on meta, wanted cpu"),
        (lambda p: torch.empty(200)[::2].copy_(p.reference), "strides (2,), wanted (1,)"),
        (lambda p: p.tensors["x"].copy_(p.tensors["x"]), "returned the memory of input x"),
        (lambda p: p.tensors["y"][:50], "returned the memory of input y"),
    ],
)
def test_an_output_of_another_kind_fails(make, words: str):
    problem = vector_problem()
    assert words in problem.judge(make(problem)).reason


def test_a_transposed_output_is_other_memory_traffic():
    problem = row_problem("contiguous")
    transposed = right_output(problem).t().contiguous().t()
    assert "strides (1, 5), wanted (37, 1)" in problem.judge(transposed).reason


@pytest.mark.parametrize(("at", "side"), [(-1, "before"), (100, "behind"), (1000, "behind")])
def test_a_write_outside_the_output_fails(at: int, side: str):
    problem = vector_problem()
    problem.poison()
    problem.out.copy_(right_output(problem))
    assert problem.judge(problem.out).ok
    beyond(problem.out, at, 1).fill_(0.0)
    assert side in problem.judge(problem.out).reason


def test_a_write_beside_an_empty_output_fails():
    problem = vector_problem(n=0)
    beyond(problem.out, 0, 1).fill_(0.0)
    assert "behind" in problem.judge(problem.out).reason


def test_an_unwritten_output_fails_after_poison():
    problem = vector_problem()
    problem.out.copy_(right_output(problem))
    problem.poison()
    assert not problem.judge(problem.out).ok
