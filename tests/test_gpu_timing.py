"""What only a GPU shows of the timing: it cannot be fooled by launchers, caches, streams, order."""

from __future__ import annotations

import itertools
import statistics
import time

import pytest

torch = pytest.importorskip("torch")

from gpu_problems import bound_problem

from harness import measure as measuring
from harness.backends import bind, watch_compilations
from harness.check import Problem
from harness.other_times import graph_us
from harness.registry import Registry
from harness.spec import Case
from harness.stream_order import EARLY, LATE, leaves_the_stream

pytestmark = pytest.mark.gpu

REGISTRY = Registry()
SIDES = ("cuda", "triton")


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
    monkeypatch.setattr(clock, "flush_mode", "none")
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
    from harness import measure_roofs

    kernels, _ = measure_roofs._roof_kernels(clock)
    total = 1 << 30
    own_us, _ = measure_roofs._best(clock, kernels("copy", total))
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
            assert graph_us(clock, bound.call) > 0
            torch.cuda.synchronize()
            assert problem.judge(problem.out).ok


def test_swapping_the_order_of_contenders_keeps_the_winner(clock):
    settings = measuring.SETTINGS["quick"]
    x = torch.ones(1 << 24, device="cuda", dtype=torch.float32)
    y = torch.empty_like(x)
    launches = {"small": lambda: y[: 1 << 23].copy_(x[: 1 << 23]), "large": lambda: y.copy_(x)}
    for order in (("small", "large"), ("large", "small")):
        measured = measuring.measure({k: launches[k] for k in order}, clock, settings, 5)
        means = {k: m.half_width(0.95, clock.tick_us)[0] for k, m in measured.items()}
        assert means["small"] < means["large"]
        clock.forget()


def leaves(clock, problem: Problem, launch) -> str:
    launch()
    torch.cuda.synchronize()
    return leaves_the_stream(clock, problem.out, problem.poison, launch)


@pytest.mark.parametrize("n", [1, 4096, 1 << 24])
@pytest.mark.parametrize("side", SIDES)
def test_an_honest_launch_stays_on_its_stream(clock, own_stream, side, n):
    problem, bound = bound_problem("vector_add", Case({"N": n}), "f32", side)
    assert leaves(clock, problem, bound.call) == ""


@pytest.mark.parametrize("n", [4096, 1 << 24, 1 << 28])
def test_work_on_a_stream_that_waits_for_nothing_is_caught(clock, own_stream, n):
    problem, bound = bound_problem("vector_add", Case({"N": n}), "f32", "cuda")
    rogue = torch.cuda.Stream()

    def launch() -> None:
        with torch.cuda.stream(rogue):
            bound.call()

    assert leaves(clock, problem, launch) == EARLY


def forked_and_left(bound):
    """A launch whose work runs on a stream that nobody waits for."""
    rogue = torch.cuda.Stream()

    def launch() -> None:
        rogue.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(rogue):
            bound.call()

    return launch


@pytest.mark.parametrize("n", [1, 4096, 1 << 24, 1 << 28])
def test_work_that_nobody_waits_for_is_caught(clock, own_stream, n):
    problem, bound = bound_problem("vector_add", Case({"N": n}), "f32", "cuda")
    launch = forked_and_left(bound)
    assert leaves(clock, problem, launch) == LATE


def test_a_side_stream_that_forks_and_joins_is_honest(clock, own_stream):
    problem, bound = bound_problem("vector_add", Case({"N": 1 << 24}), "f32", "cuda")
    side = torch.cuda.Stream()

    def launch() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            bound.call()
        torch.cuda.current_stream().wait_stream(side)

    assert leaves(clock, problem, launch) == ""


def test_a_graph_that_captured_nothing_is_refused(clock, own_stream):
    with pytest.raises(RuntimeError, match="no work"):
        graph_us(clock, lambda: None)


def test_a_graph_with_unjoined_work_is_refused_and_the_next_one_works(clock, own_stream):
    problem, bound = bound_problem("vector_add", Case({"N": 1 << 20}), "f32", "cuda")
    launch = forked_and_left(bound)
    with pytest.raises(RuntimeError, match="unjoined"):
        graph_us(clock, launch)
    torch.cuda.synchronize()
    assert graph_us(clock, bound.call) > 0


def test_who_comes_first_does_not_matter(clock, own_stream):
    """CUDA first and Triton first give the same ratio within 1 %."""
    settings = measuring.SETTINGS["default"]
    problem, cuda = bound_problem("softmax", Case({"M": 8192, "N": 4096}), "bf16", "cuda")
    triton = bind(REGISTRY, problem, "triton", "", None, "nvidia-h200")
    launches = {"cuda": cuda.call, "triton": triton.call}
    ratios = []
    for order in (("cuda", "triton"), ("triton", "cuda")):
        for launch in launches.values():
            launch()
        torch.cuda.synchronize()
        measured = measuring.measure({k: launches[k] for k in order}, clock, settings, 5)
        means = {k: m.half_width(0.95, clock.tick_us)[0] for k, m in measured.items()}
        ratios.append(means["cuda"] / means["triton"])
    assert ratios[0] == pytest.approx(ratios[1], rel=0.01)


def test_a_dirty_flush_slows_a_read_and_a_warm_cache_speeds_it(own_stream):
    from harness.clock import CudaEventClock

    source = torch.ones(1 << 22, device="cuda")  # 16 MiB: fits in L2
    target = torch.empty_like(source)
    times = {}
    for mode in ("clean", "write", "none"):
        clock = CudaEventClock(mode)
        clock.batch(lambda: target.copy_(source), 20)
        times[mode] = statistics.median(clock.batch(lambda: target.copy_(source), 100).samples_us)
    assert times["none"] < times["clean"] < times["write"]


def test_the_stamps_read_a_plausible_clock_and_the_batch_its_time(clock, own_stream):
    x = torch.ones(1 << 26, device="cuda")
    batch = clock.batch(lambda: x.add_(1), 20)
    # torch.cuda.clock_rate needs NVML; the property is in kHz and may be missing.
    khz = getattr(torch.cuda.get_device_properties(0), "clock_rate", 0)
    assert batch.sm_mhz is not None
    assert 200 < batch.sm_mhz < (1.05 * khz / 1e3 if khz else 4000)
    assert abs(batch.utc_s - time.time()) < 5


def test_a_sample_costs_little_beyond_its_kernel_and_flush(clock, own_stream):
    """Wall time of full batches less what the device spent on kernels and flushes, a sample."""
    problem, bound = bound_problem("vector_add", Case({"N": 1 << 20}), "f32", "cuda")
    n = 30
    clock.batch(bound.call, n)
    flush_us = statistics.median(clock.batch(clock.flush, n).samples_us)
    walls, kernels = [], []
    for _ in range(20):
        start = time.perf_counter()
        batch = clock.batch(bound.call, n)
        walls.append((time.perf_counter() - start) * 1e6 / n)
        kernels.append(statistics.median(batch.samples_us))
    beyond = statistics.median(walls) - statistics.median(kernels) - flush_us
    assert beyond < 15.0


def test_equal_kernels_come_out_equal_in_one_run(clock, own_stream):
    """A/A inside one process: two closures of one kernel differ by less than 1 %."""
    problem, bound = bound_problem("softmax", Case({"M": 8192, "N": 4096}), "bf16", "cuda")
    twins = {name: (lambda: bound.call()) for name in "abcd"}
    measured = measuring.measure(twins, clock, measuring.SETTINGS["default"], 9)
    means = [m.half_width(0.95, clock.tick_us)[0] for m in measured.values()]
    for a, b in itertools.combinations(means, 2):
        assert a == pytest.approx(b, rel=0.01)


def test_a_short_queue_and_one_spin_for_every_three_samples_time_alike(clock, own_stream):
    """The two ways to keep the host ahead differ by no more than two timers may."""
    from harness import _cuda

    medians = {}
    for per_spin in (0, 3):
        samples = []
        for _ in range(5):
            clock._timer.enqueue(_cuda.empty, 30, "clean", 200_000, per_spin)
            torch.cuda.synchronize()
            samples += clock._timer.samples_us()
        medians[per_spin] = statistics.median(samples)
    assert medians[0] == pytest.approx(medians[3], abs=0.3)


def test_kernels_of_one_closure_cost_the_same_each(clock, own_stream):
    """A closure of many kernels fills the queue: its interval must not take a step for that."""
    from harness import _cuda

    def closure(n_kernels: int):
        def launch() -> None:
            for _ in range(n_kernels):
                _cuda.empty()

        return launch

    counts = (1, 4, 8, 16)
    times = {n: statistics.median(clock.batch(closure(n), 30).samples_us) for n in counts}
    times = {n: statistics.median(clock.batch(closure(n), 30).samples_us) for n in counts}
    each = [(times[b] - times[a]) / (b - a) for a, b in itertools.pairwise(counts)]
    assert max(each) < 1.3 * min(each), times
    again = statistics.median(clock.batch(_cuda.empty, 30).samples_us)
    assert again == pytest.approx(times[1], abs=0.15)
