"""Reports of others that only a GPU can answer; test_field_reports.py has the whole table."""

from __future__ import annotations

import os
import statistics

import pytest

torch = pytest.importorskip("torch")

from gpu_problems import bound_problem

from harness.machine import gpu_facts
from harness.other_times import graph_us
from harness.plausible import impossible
from harness.protocol import Contender, Request
from harness.registry import Registry
from harness.spec import Case
from harness.supervisor import Supervisor

pytestmark = pytest.mark.gpu

REGISTRY = Registry()
SIDES = ("cuda", "triton")


def median_us(clock, launch, n: int = 30) -> float:
    clock.batch(launch, n)
    return statistics.median(clock.batch(launch, n).samples_us)


def request(op: str, case: Case, dtype: str, *backends: str, timed: bool = True) -> Request:
    return Request(
        op,
        dict(case.dims),
        case.layout,
        dtype,
        tuple(map(Contender, backends)),
        seed=7,
        timed=timed,
        settings="quick",
    )


def rows_of(supervisor: Supervisor, asked: Request) -> dict[str, dict]:
    return {event["row"]["backend"]: event["row"] for event in supervisor.run(asked)}


def test_copies_of_all_sizes_stay_below_the_peak(clock, own_stream):
    gpu = gpu_facts(0)
    for exponent in range(20, 31):
        source = torch.ones(1 << exponent, device="cuda", dtype=torch.int8)
        target = torch.empty_like(source)
        time_us = median_us(clock, lambda s=source, t=target: t.copy_(s))
        assert impossible(time_us, 2 << exponent, 0, gpu) == ""
        clock.forget()


def test_a_tiny_add_is_launch_bound_and_its_graph_is_shorter(clock, own_stream):
    """The floor explains the time of a launch; back to back the same kernel takes less."""
    floor_us = clock.launch_floor_us()
    for side in SIDES:
        _, bound = bound_problem("vector_add", Case({"N": 1024}), "f32", side)
        bound.call()
        time_us = median_us(clock, bound.call, 100)
        assert floor_us <= time_us <= 2 * floor_us
        assert graph_us(clock, bound.call) < time_us


def test_the_order_of_cases_does_not_matter():
    """The first and the last case of a fresh process, and of another that goes the other way."""
    cases = [
        Case({"M": 8192, "N": 1024}),
        Case({"M": 8192, "N": 8192}),
        Case({"M": 32768, "N": 4096}),
    ]
    found: dict[str, list[float]] = {}
    for order in (cases, cases[::-1]):
        with Supervisor() as supervisor:
            for case in order:
                row = rows_of(supervisor, request("softmax", case, "bf16", "cuda"))["cuda"]
                assert row["status"] == "ok", row
                assert row["first_call_ms"] > 0
                found.setdefault(case.name, []).append(row["time_us_p50"])
    for name, (forward_us, backward_us) in found.items():
        assert forward_us == pytest.approx(backward_us, rel=0.03), name


def test_zeros_are_no_slower_than_the_inputs_that_are_timed(clock, own_stream):
    problem, bound = bound_problem(
        "matmul_bias_relu", Case({"M": 8192, "N": 8192, "K": 8192}), "bf16", "triton"
    )
    assert all(tensor.float().std() > 0 for tensor in problem.tensors.values())
    bound.call()
    random_us = median_us(clock, bound.call)
    for tensor in problem.tensors.values():
        tensor.zero_()
    assert median_us(clock, bound.call) < 1.02 * random_us


@pytest.mark.parametrize("side", SIDES)
def test_f32_is_not_tf32(side):
    """TF32 keeps 10 bits: an f32 row of that precision would be off by 1e-4 and more."""
    problem, bound = bound_problem("softmax", Case({"M": 64, "N": 4096}), "f32", side)
    bound.call()
    want = problem.tensors["x"].double().softmax(-1)
    assert ((problem.out.double() - want).abs() / want).max() < 1e-5


def test_large_f16_values_and_the_kernel_that_ran():
    for side in SIDES:
        problem, bound = bound_problem("softmax", Case({"M": 64, "N": 4096}), "f16", side)
        problem.tensors["x"].mul_(1e4)
        bound.call()
        want = problem.tensors["x"].double().softmax(-1)
        assert bool(problem.out.isfinite().all())
        torch.testing.assert_close(problem.out.double(), want, rtol=2e-3, atol=1e-6)
    asked = request("softmax", Case({"M": 64, "N": 4096}), "f16", "triton", timed=False)
    with Supervisor() as supervisor:
        assert "softmax" in rows_of(supervisor, asked)["triton"]["kernel_symbol"]


@pytest.mark.parametrize("side", SIDES)
def test_inputs_on_the_second_gpu(side):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    problem, bound = bound_problem("vector_add", Case({"N": 4097}), "f32", side, "cuda:1")
    torch.cuda.set_device(0)
    problem.poison()
    bound.call()
    torch.cuda.synchronize(1)
    assert torch.cuda.current_device() == 0
    verdict = problem.judge(problem.out)
    assert verdict.ok, verdict.reason
    x, y = (problem.tensors[name] for name in ("x", "y"))
    with pytest.raises(ValueError, match="vector_add: y is on cuda:0, wanted"):
        bound.call.func(x, y.to("cuda:0"), problem.out)


def test_a_size_that_does_not_fit_costs_its_own_rows():
    fits, too_large = Case({"N": 1 << 20}), Case({"N": 1 << 38})
    with Supervisor() as supervisor:
        before = rows_of(supervisor, request("vector_add", fits, "f32", *SIDES))
        free_bytes = torch.cuda.mem_get_info()[0]
        rows = rows_of(supervisor, request("vector_add", too_large, "f32", *SIDES))
        assert {row["status"] for row in rows.values()} == {"unsupported"}
        assert "needs" in rows["cuda"]["reason"]
        assert "GB are free" in rows["cuda"]["reason"]
        after = rows_of(supervisor, request("vector_add", fits, "f32", *SIDES))
        assert {row["status"] for row in (*before.values(), *after.values())} == {"ok"}
        assert abs(torch.cuda.mem_get_info()[0] - free_bytes) < 64 << 20
        assert supervisor.restarts == 0


def test_without_a_c_compiler_the_cuda_half_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    asked = request("vector_add", Case({"N": 4097}), "f32", *SIDES, timed=False)
    with Supervisor() as supervisor:
        rows = rows_of(supervisor, asked)
    assert rows["cuda"]["status"] == "untimed", rows["cuda"]
    assert rows["triton"]["status"] in ("error", "unsupported")
    assert "compiler" in rows["triton"]["reason"].lower(), rows["triton"]
    assert os.environ["PATH"] == str(tmp_path)
