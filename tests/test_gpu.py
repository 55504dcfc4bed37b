"""What only a GPU shows: both sides on every test case, streams, timing that cannot be fooled."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")

from harness import measure as measuring
from harness.backends import bind, unavailable, watch_compilations
from harness.check import Problem
from harness.registry import Registry
from harness.spec import Case, torch_dtype

pytestmark = pytest.mark.gpu

REGISTRY = Registry()
SIDES = ("cuda", "triton")
CASES = [
    pytest.param(stem, case, dtype, side, id=f"{stem}-{case.name}-{dtype}-{side}")
    for stem in REGISTRY.stems
    for case in REGISTRY.spec(stem).test_cases
    for dtype in REGISTRY.spec(stem).dtypes
    for side in SIDES
]


def bound_problem(stem: str, case: Case, dtype: str, side: str, seed: int = 11):
    reason = unavailable(side)
    if reason:
        pytest.fail(f"{side} cannot run here: {reason}")
    problem = Problem(REGISTRY.spec(stem), case, dtype, "cuda", seed)
    return problem, bind(REGISTRY, problem, side, "", None, "nvidia-h200")


def run_and_judge(problem: Problem, call) -> None:
    problem.poison()
    call()
    torch.cuda.synchronize()
    verdict = problem.judge(problem.out)
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
        "vector_add": Case({"N": 70001}),
        "softmax": Case({"M": 67, "N": 1000}),
        "matmul_bias_relu": Case({"M": 300, "N": 520, "K": 136}),
    }[stem]
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
    verdict = problem.judge(problem.out)
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


@pytest.fixture(scope="module")
def clock():
    from harness.clock import CudaEventClock

    made = CudaEventClock()
    made.calibrate()
    return made


def mid(samples) -> float:
    from harness.stats import mid_mean

    return mid_mean(samples)


def test_a_slow_launcher_does_not_slow_the_kernel(clock):
    problem, bound = bound_problem("softmax", Case({"M": 8192, "N": 4096}), "bf16", "cuda")

    def sleepy() -> None:
        time.sleep(0.002)
        bound.call()

    clock.batch(bound.call, 20)
    plain = mid([s for _ in range(5) for s in clock.batch(bound.call, 20).samples_us])
    batches = [clock.batch(sleepy, 20) for _ in range(5)]
    assert batches[-1].hidden
    slow = mid([s for batch in batches for s in batch.samples_us])
    assert slow == pytest.approx(plain, rel=0.02)


def test_the_flush_is_outside_the_interval(clock, monkeypatch):
    from harness import _cuda

    empty = _cuda.empty
    with_flush = mid(clock.batch(empty, 50).samples_us)
    flush_us = mid(clock.batch(clock.flush, 20).samples_us)
    monkeypatch.setattr(clock, "flush", lambda: None)
    without = mid(clock.batch(empty, 50).samples_us)
    assert flush_us > 20.0
    assert abs(with_flush - without) < 0.05 * flush_us


def test_a_synchronising_closure_is_measured_unhidden_and_does_not_hang(clock):
    x = torch.ones(1024, device="cuda")

    def synchronising() -> None:
        x.add_(1)
        torch.cuda.synchronize()

    batch = clock.batch(synchronising, 5)
    assert not batch.hidden
    assert all(sample > 0 for sample in batch.samples_us)


def test_no_compilation_inside_timed_sections(clock):
    for n in (1, 15, 16, 17, 4096, 4097):
        problem, bound = bound_problem("vector_add", Case({"N": n}), "f32", "triton")
        bound.call()
        torch.cuda.synchronize()
        with watch_compilations() as compiled:
            clock.batch(bound.call, 20)
        assert compiled.count == 0
        clock.forget()


def test_an_injected_copy_reaches_the_copy_roof(clock):
    """Timing by events of torch's own copy lies within 3 % of the harness's copy roof."""
    from harness import roofs

    kernels, _ = roofs._roof_kernels(clock)
    total = 1 << 30
    own_us = roofs._best_us(clock, kernels, "copy", total)
    source = torch.ones(total // 8, device="cuda")
    target = torch.empty_like(source)
    clock.batch(lambda: target.copy_(source), 10)
    torch_us = mid(clock.batch(lambda: target.copy_(source), 20).samples_us)
    assert own_us < 1.03 * torch_us


def test_the_graph_of_a_launch_replays_right(clock):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for side in SIDES:
            problem, bound = bound_problem("vector_add", Case({"N": 1 << 20}), "f32", side)
            bound.call()
            problem.poison()
            assert clock.graph_us(bound.call) > 0
            torch.cuda.synchronize()
            assert problem.judge(problem.out).ok


def test_swapping_the_order_of_contenders_keeps_the_winner(clock):
    settings = measuring.SETTINGS["quick"]
    x = torch.ones(1 << 24, device="cuda", dtype=torch_dtype("f32"))
    y = torch.empty_like(x)
    launches = {"small": lambda: y[: 1 << 23].copy_(x[: 1 << 23]), "large": lambda: y.copy_(x)}
    for order in (("small", "large"), ("large", "small")):
        measured = measuring.measure({k: launches[k] for k in order}, clock, settings, 5)
        means = {k: m.half_width(0.95, clock.tick_us)[0] for k, m in measured.items()}
        assert means["small"] < means["large"]
        clock.forget()
