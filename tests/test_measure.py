"""The measuring logic against clocks that behave, drift, tie, stall and lie."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator

import pytest

from harness.clock import Batch
from harness.fake_clock import FakeClock
from harness.measure import Measurement, Settings, measure


class Kernel:
    """A launch whose durations come from `times_us`."""

    def __init__(self, times_us: Iterator[float], hidden: bool = True) -> None:
        self._times_us = times_us
        self.hidden = hidden
        self.launches = 0

    def next_us(self) -> float:
        self.launches += 1
        return next(self._times_us)


def noisy(center_us: float, share: float, seed: int) -> Iterator[float]:
    generator = random.Random(seed)
    return (center_us * (1 + generator.gauss(0, share)) for _ in itertools.count())


def constant(time_us: float) -> Iterator[float]:
    return itertools.repeat(time_us)


FAST = Settings(warm_min_s=0.0, warm_max_s=0.01, cap_s=10.0)


def test_quiet_kernels_stop_at_the_least_number_of_rounds():
    measured = measure({"a": Kernel(constant(50.0))}, FakeClock(), FAST, seed=1)
    assert len(measured["a"].rounds) == FAST.min_rounds
    mean, half_width = measured["a"].half_width(0.95, 0.001)
    assert mean == pytest.approx(50.0)
    assert half_width == pytest.approx(0.001), "never narrower than one tick"


def test_noise_costs_rounds_until_the_precision_is_reached():
    settings = Settings(warm_min_s=0.0, warm_max_s=0.01, cap_s=100.0, max_rounds=400)
    measured = measure({"a": Kernel(noisy(50.0, 0.05, 3))}, FakeClock(), settings, seed=1)
    mean, half_width = measured["a"].half_width(0.95, 0.001)
    assert len(measured["a"].rounds) > settings.min_rounds
    assert half_width <= settings.precision * mean * 1.1  # one more round follows the stop


def test_the_cap_ends_a_measurement_that_never_gets_precise():
    settings = Settings(warm_min_s=0.0, warm_max_s=0.0, cap_s=0.02, max_rounds=100000)
    clock = FakeClock()
    measured = measure({"a": Kernel(noisy(500.0, 0.5, 5))}, clock, settings, seed=1)
    assert clock.now_s() < 0.2
    assert len(measured["a"].rounds) >= 2


def test_drift_hits_all_contenders_alike():
    """The card slows by 20 % over the run; two equal kernels must still come out equal."""
    started = itertools.count()

    def drifting() -> Iterator[float]:
        while True:
            yield 100.0 * (1 + 0.2 * min(next(started) / 2000, 1.0))

    measured = measure({"a": Kernel(drifting()), "b": Kernel(drifting())}, FakeClock(), FAST, 7)
    a, b = (measured[key].half_width(0.95, 0.001)[0] for key in "ab")
    assert a == pytest.approx(b, rel=0.01)


def test_order_is_reshuffled_by_the_seed_and_does_not_pick_the_winner():
    def ratio(order: str, seed: int) -> float:
        times = {"slow": 103.0, "fast": 100.0}
        kernels = {key: Kernel(noisy(times[key], 0.01, len(key))) for key in order.split()}
        measured = measure(kernels, FakeClock(), FAST, seed)
        return (
            measured["slow"].half_width(0.95, 0.001)[0]
            / (measured["fast"].half_width(0.95, 0.001)[0])
        )

    for seed in range(5):
        assert ratio("slow fast", seed) > 1.01
        assert ratio("fast slow", seed) > 1.01


@pytest.mark.parametrize("lie", [0.0, -1.0, math.nan, math.inf])
def test_a_lying_timer_gives_no_usable_sample_and_harms_no_other_row(lie: float):
    measured = measure(
        {"liar": Kernel(constant(lie)), "honest": Kernel(constant(20.0))}, FakeClock(), FAST, 1
    )
    assert measured["liar"].rounds == []
    assert measured["liar"].rejected
    assert measured["honest"].half_width(0.95, 0.001)[0] == pytest.approx(20.0)


def test_outliers_are_kept():
    times = itertools.cycle([10.0] * 9 + [1000.0])
    measured = measure({"a": Kernel(times)}, FakeClock(), FAST, 1)
    assert 1000.0 in measured["a"].samples_us
    assert measured["a"].half_width(0.95, 0.001)[0] == pytest.approx(10.0, rel=0.01)


def test_a_clock_that_stops_half_way_still_ends():
    class Stops(FakeClock):
        def now_s(self) -> float:
            return min(super().now_s(), 0.02)

    noisy_one = Kernel(noisy(50.0, 0.3, 11))
    measured = measure({"a": noisy_one}, Stops(), FAST, 1)
    assert len(measured["a"].rounds) == FAST.max_rounds + 1


def test_a_clock_limited_kernel_is_watched_for_a_while_even_if_it_looks_precise():
    settings = Settings(warm_min_s=0.0, warm_max_s=0.01, limited_span_s=0.5)

    def spent_s(sm_mhz: float) -> float:
        kernel = Kernel(constant(500.0))
        kernel.sm_mhz = sm_mhz
        clock = FakeClock(max_sm_mhz=2000.0)
        measure({"a": kernel}, clock, settings, seed=1)
        return clock.now_s()

    assert spent_s(1990.0) < 0.2
    assert 0.5 < spent_s(1600.0) < 0.6


def test_every_round_knows_when_it_ended_and_at_which_clock():
    kernel = Kernel(constant(50.0))
    kernel.sm_mhz = 1500.0
    rounds = measure({"a": kernel}, FakeClock(), FAST, 1)["a"].rounds
    assert {batch.sm_mhz for batch in rounds} == {1500.0}
    times = [batch.utc_s for batch in rounds]
    assert times == sorted(set(times))


def test_quantised_ties_have_an_interval_of_one_tick():
    measured = measure({"a": Kernel(constant(3.2))}, FakeClock(tick_us=0.032), FAST, 1)
    assert measured["a"].half_width(0.95, 0.032) == (pytest.approx(3.2), pytest.approx(0.032))


def test_unhidden_launches_are_reported():
    measured = measure({"a": Kernel(constant(5.0), hidden=False)}, FakeClock(), FAST, 1)
    assert not measured["a"].hidden


def test_inputs_are_renewed_once_before_one_last_round():
    seen: list[int] = []
    kernel = Kernel(constant(50.0))
    measured = measure({"a": kernel}, FakeClock(), FAST, 1, lambda: seen.append(kernel.launches))
    last_round = len(measured["a"].rounds[-1].samples_us)
    assert seen == [kernel.launches - last_round]


def test_a_clock_that_stalls_in_warm_up_still_ends():
    class Stalled(FakeClock):
        def now_s(self) -> float:
            return 0.0

    measured = measure({"a": Kernel(constant(5.0))}, Stalled(), FAST, 1)
    assert measured["a"].rounds


def test_rejected_samples_are_set_apart_one_by_one():
    measurement = Measurement()
    measurement.add(Batch((1.0, 0.0, 2.0), hidden=True))
    assert [batch.samples_us for batch in measurement.rounds] == [(1.0, 2.0)]
    assert measurement.rejected == [0.0]


def test_a_gigabyte_in_a_millisecond_is_a_thousand_gbps(gigabyte_row: Callable[[], float]):
    assert gigabyte_row() == pytest.approx(1000.0)


@pytest.fixture
def gigabyte_row() -> Callable[[], float]:
    from harness.plan import Unit
    from harness.protocol import Contender
    from harness.registry import Registry
    from harness.roofs import Roofs
    from harness.rows import RowMaker
    from harness.spec import Case

    def gbps() -> float:
        registry = Registry()
        # 250 million bf16 elements read and written: exactly 1e9 bytes.
        case = Case({"M": 250_000, "N": 1000})
        unit = Unit(registry.spec("softmax"), case, "bf16", (Contender("cuda"),))
        curves = {kind: [(1e6, 1.0), (1e9, 500.0)] for kind in ("copy", "read", "write")}
        roofs = Roofs(curves, {}, 1.0, 1.0, 0.03, 1, "test")
        row = {"backend": "cuda", "variant": "", "status": "ok", "time_us_p50": 1000.0}
        answered = [{"row": row, "rounds": [], "samples": []}]
        events = RowMaker(registry, {"name": "g"}, 0, roofs).complete(unit, answered)
        return float(events[0]["row"]["gbps"])

    return gbps
