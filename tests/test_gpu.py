"""What only a GPU shows of the kernels: both sides on every test case, streams, large sizes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from gpu_problems import bound_problem

from harness.backends import bind
from harness.check import Problem
from harness.registry import Registry
from harness.spec import Case

pytestmark = pytest.mark.gpu

REGISTRY = Registry()
SIDES = ("cuda", "triton")
ROW_OPS = ("softmax", "rms_norm", "add_rms_norm")  # rows shared by clusters and by programs
LAYER_NORMS = ("layer_norm", "layer_norm_backward")
PRODUCTS = ("matmul", "matmul_bias_relu", "matmul_bias_gelu")
CROSS_ENTROPIES = ("cross_entropy", "cross_entropy_dlogits")
CASES = [
    pytest.param(stem, case, dtype, side, id=f"{stem}-{case.name}-{dtype}-{side}")
    for stem in REGISTRY.stems
    for case in REGISTRY.spec(stem).test_cases
    for dtype in REGISTRY.spec(stem).dtypes
    for side in SIDES
]


def run_and_judge(problem: Problem, call) -> None:
    problem.poison()
    call()
    torch.cuda.synchronize()
    verdict = problem.judge(problem.produced)
    assert verdict.ok, verdict.reason


@pytest.mark.parametrize(("stem", "case", "dtype", "side"), CASES)
def test_every_side_is_right_on_every_test_case(stem, case, dtype, side):
    problem, bound = bound_problem(stem, case, dtype, side)
    run_and_judge(problem, bound.call)
    problem.reseed(12)
    run_and_judge(problem, bound.call)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("stem", REGISTRY.stems)
def test_every_tuning_candidate_is_right(stem, side):
    spec = REGISTRY.spec(stem)
    # One of the cases with more than one tile that no candidate divides.
    case = {
        **dict.fromkeys(ROW_OPS, Case({"M": 67, "N": 1000})),
        **dict.fromkeys(("vector_add", "axpby"), Case({"N": 70001})),
        # Strided rows; the other tests have them back to back.
        **dict.fromkeys(("swiglu", "swiglu_backward"), Case({"M": 67, "I": 1000}, layout="packed")),
        **dict.fromkeys(PRODUCTS, Case({"M": 300, "N": 520, "K": 136})),
        # 16 MB and a tail: the candidates for long vectors.
        "reduce_sum": Case({"N": (1 << 23) + 5}),
        "squared_norm": Case({"N": (1 << 23) + 5}),
        "column_sum": Case({"M": 1001, "N": 1000}),
        **dict.fromkeys(("cross_entropy", "cross_entropy_dlogits"), Case({"M": 67, "V": 8191})),
    }.get(stem, max(spec.mutant_cases, key=spec.n_output_elements))
    dtype = spec.dtypes[0]
    problem = Problem(spec, case, dtype, "cuda", 3)
    for config in spec.tuning[side](case, dtype):
        bound = bind(REGISTRY, problem, side, "", config, "")
        run_and_judge(problem, bound.call)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("stem", REGISTRY.stems)
def test_a_launch_follows_the_current_stream(stem, side):
    """Inputs are written on a side stream behind a delay; a launch on another stream is early."""
    spec = REGISTRY.spec(stem)
    case = spec.test_cases[-1]
    problem, bound = bound_problem(stem, case, spec.dtypes[0], side)
    run_and_judge(problem, bound.call)
    kept = {name: tensor.clone() for name, tensor in problem.tensors.items()}
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for tensor in problem.tensors.values():
            tensor.zero_()
        problem.poison()
        torch.cuda._sleep(20_000_000)
        for name, tensor in problem.tensors.items():
            tensor.copy_(kept[name])
        bound.call()
        assert torch.cuda.current_stream() == stream
    stream.synchronize()
    verdict = problem.judge(problem.produced)
    assert verdict.ok, verdict.reason


@pytest.mark.parametrize("side", SIDES)
def test_the_call_after_an_empty_one_succeeds(side):
    for n in (0, 33):
        problem, bound = bound_problem("vector_add", Case({"N": n}), "f32", side)
        run_and_judge(problem, bound.call)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_softmax_keeps_nan_and_infinity_like_torch(side, dtype):
    problem, bound = bound_problem("softmax", Case({"M": 6, "N": 257}), dtype, side)
    x = problem.tensors["x"]
    x[0, 5] = float("nan")
    x[1, 7] = float("inf")
    x[2, 9] = float("-inf")
    x[3, :] = float("-inf")
    x[4, :] = 3.0
    bound.call()
    want = x.double().softmax(-1)
    assert torch.equal(problem.out.isnan(), want.isnan())
    finite = ~want.isnan()
    torch.testing.assert_close(problem.out.double()[finite], want[finite], rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize(
    ("stem", "n_cols"),
    [
        *((s, n) for s in (*ROW_OPS, *LAYER_NORMS) for n in (4096, 40000, 131072)),
        *((s, n) for s in CROSS_ENTROPIES for n in (50257, 131072)),
    ],
)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_candidates_are_right_on_wide_rows(stem, side, dtype, n_cols):
    """More rows than groups of programs or clusters; 40000 columns leave the last part short, and
    50257 begin rows at any element."""
    spec = REGISTRY.spec(stem)
    case = Case({"M": 300, spec.sweep_dim: n_cols})
    problem = Problem(spec, case, dtype, "cuda", 3)
    for config in ({}, *spec.tuning[side](case, dtype)):
        run_and_judge(problem, bind(REGISTRY, problem, side, "", config, "").call)


@pytest.mark.parametrize("stem", ROW_OPS)
def test_programs_that_share_rows_can_be_launched_again_and_in_graphs(stem):
    problem = Problem(REGISTRY.spec(stem), Case({"M": 300, "N": 40000}), "bf16", "cuda", 3)
    shared_rows = {"BLOCK_N": 8192, "num_warps": 8, "RESIDENT": 3}
    bound = bind(REGISTRY, problem, "triton", "", shared_rows, "")
    for _ in range(3):
        run_and_judge(problem, bound.call)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        bound.call()
        bound.call()
    for _ in range(3):
        run_and_judge(problem, graph.replay)
    run_and_judge(problem, bound.call)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_relu_keeps_nan(side, dtype):
    problem, bound = bound_problem(
        "matmul_bias_relu", Case({"M": 64, "N": 64, "K": 64}), dtype, side
    )
    problem.tensors["x"][3, 4] = float("nan")
    bound.call()
    assert bool(problem.out[3].isnan().all())
    assert not bool(problem.out[2].isnan().any())


@pytest.mark.parametrize("side", SIDES)
def test_both_sides_refuse_alike(side):
    problem, bound = bound_problem("softmax", Case({"M": 8, "N": 64}), "f32", side)
    launcher = bound.call.func
    x, out = problem.tensors["x"], problem.out
    with pytest.raises(ValueError, match=r"softmax: x has last-dimension stride 8, wanted 1"):
        launcher(x.t().contiguous().t(), out)
    with pytest.raises(TypeError, match=r"softmax: x has dtype torch.float64"):
        launcher(x.double(), out.double())
    with pytest.raises(ValueError, match=r"softmax: out is on cpu, wanted"):
        launcher(x, out.cpu())


@pytest.mark.parametrize("side", SIDES)
def test_more_than_two_to_the_31_elements(side):
    n = (1 << 31) + 4097
    free_bytes, _ = torch.cuda.mem_get_info()
    if free_bytes < 8 * n * 2:
        pytest.skip(f"needs {16 * n / 1e9:.0f} GB")
    x = torch.randint(-8, 8, (n,), device="cuda", dtype=torch.int8).to(torch.bfloat16)
    out = torch.full_like(x, float("nan"))
    if side == "cuda":
        from harness import _cuda

        _cuda.vector_add(x, x, out)
    else:
        REGISTRY.triton_module("vector_add").vector_add(x, x, out)
    # Small integers add exactly in bf16.
    assert torch.equal(out, x * 2)
