"""Intervals and verdicts: pure arithmetic, checked against SciPy and against simulated noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fixtures import one_row
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from harness import pooling, stats


def test_mid_mean_ignores_both_tails() -> None:
    assert stats.mid_mean([1, 2, 3, 1000]) == 2.5
    assert stats.mid_mean([7.0]) == 7.0
    assert math.isnan(stats.mid_mean([]))


def test_mean_interval() -> None:
    means = [10.0, 11.0, 12.0]
    mean, half = stats.mean_interval(means, 0.99)
    low, high = scipy_stats.t.interval(0.99, 2, loc=11.0, scale=scipy_stats.sem(means))
    assert (mean - half, mean + half) == pytest.approx((low, high), rel=1e-4)
    assert stats.mean_interval([5.0] * 10, tick=0.032) == (5.0, 0.032)
    assert stats.mean_interval([5.0]) == (5.0, math.inf)
    assert math.isnan(stats.mean_interval([])[0])


def test_ratio_interval_against_scipy() -> None:
    rng = np.random.default_rng(0)
    base, new = rng.normal(10, 0.1, 12), rng.normal(12, 0.3, 15)
    got = one_row.ratio_interval(base, new)
    exact = scipy_stats.ttest_ind(np.log(new), np.log(base), equal_var=False)
    low, high = np.exp(exact.confidence_interval(0.99))
    assert (got.low, got.high) == pytest.approx((low, high), rel=1e-6)
    assert got.ratio == pytest.approx(1.2, rel=0.02)


def test_swapping_sides_gives_the_reciprocal() -> None:
    one, two = [1.0, 1.1, 1.2], [2.0, 2.1, 2.3, 2.2]
    there, back = one_row.ratio_interval(one, two), one_row.ratio_interval(two, one)
    assert there.ratio * back.ratio == pytest.approx(1.0)
    assert there.low * back.high == pytest.approx(1.0)


def test_ties_few_rounds_and_bad_times() -> None:
    tied = one_row.ratio_interval([4.0] * 5, [4.0] * 5, tick_us=0.04)
    assert (tied.low, tied.high) == pytest.approx((math.exp(-0.01), math.exp(0.01)))
    lone = one_row.ratio_interval([1.0], [2.0])
    assert (lone.ratio, lone.low, lone.high) == (2.0, 0.0, math.inf)
    assert one_row.verdict(lone, 0.01, 0.02) == "UNCLEAR"
    assert math.isnan(one_row.ratio_interval([0.0, 1.0], [1.0, 1.0]).ratio)
    assert math.isnan(one_row.ratio_interval([], [1.0, 1.0]).ratio)


@pytest.mark.parametrize(
    ("low", "high", "want"),
    [
        (1.03, 1.2, "SLOWER"),
        (1.01, 1.2, "UNCLEAR"),
        (0.99, 1.01, "SAME"),
        (0.9, 1.1, "UNCLEAR"),
        (0.8, 0.97, "FASTER"),
        (0.8, 0.99, "UNCLEAR"),
        (math.nan, math.nan, "UNCLEAR"),
    ],
)
def test_verdict(low: float, high: float, want: str) -> None:
    assert one_row.verdict(one_row.Ratio(1.0, low, high), 0.01, 0.02) == want
    assert one_row.verdict(one_row.Ratio(1.0, low, high), 0.02, 0.0) == want


@given(st.floats(0.01, 100), st.floats(1.0, 2.0), st.floats(1.0, 2.0), st.floats(0.0, 0.5))
def test_verdict_is_symmetric(ratio: float, down: float, up: float, band: float) -> None:
    swap = {"FASTER": "SLOWER", "SLOWER": "FASTER"}
    there = one_row.verdict(one_row.Ratio(ratio, ratio / down, ratio * up), band, 0.0)
    back = one_row.verdict(
        one_row.Ratio(1 / ratio, 1 / (ratio * up), 1 / (ratio / down)), band, 0.0
    )
    assert {there, back} != {"FASTER"}
    assert {there, back} != {"SLOWER"}
    if there in swap and abs(math.log(ratio)) > band + 1.0:
        assert back == swap[there]


def test_identical_builds_are_called_less_than_once_in_a_thousand() -> None:
    # Each run shifts every row by its own placement noise, as fresh processes do; the floor is
    # that noise's 99th percentile, as the A/A record gives it.
    rng = np.random.default_rng(1)
    n_rows, n_rounds, shift = 20_000, 12, 0.003
    table = []
    for _ in range(2):
        centre = rng.normal(0, shift, (n_rows, 1))
        logs = centre + rng.normal(0, 0.004, (n_rows, n_rounds))
        row = np.repeat(np.arange(n_rows), n_rounds)
        table.append(stats.moments({"row": row, "mean_us": np.exp(logs).ravel()}, n_rows))
    found = one_row.between(*table)
    called = stats.verdicts(found.low, found.high, 2.576 * shift * math.sqrt(2))
    assert np.isin(called, ["FASTER", "SLOWER"]).mean() <= 0.001


def test_rounds_are_judged_in_blocks_of_neighbours() -> None:
    swing = np.sin(np.arange(400) / 30)  # a power controller that hunts
    blocks = stats.block_means(swing)
    assert blocks.size == stats.MOST_BLOCKS
    assert blocks[0] == pytest.approx(swing[:20].mean())
    _, half_width = stats.mean_interval(swing)
    _, as_if_independent = stats.mean_interval(swing[:: 400 // stats.MOST_BLOCKS])
    naive = swing.std(ddof=1) / 20 * 2.59
    assert half_width > 3 * naive
    assert half_width == pytest.approx(as_if_independent, rel=0.2)


def test_a_table_of_rounds_is_cut_into_the_same_blocks() -> None:
    rng = np.random.default_rng(3)
    lengths = [1, 7, 20, 21, 57, 400]
    row = np.repeat(np.arange(len(lengths)), lengths)
    logs = rng.normal(3, 0.1, row.size)
    found = stats.moments({"row": row, "mean_us": np.exp(logs)}, len(lengths))
    for number in range(len(lengths)):
        blocks = stats.block_means(logs[row == number])
        assert found.n_rounds[number] == blocks.size
        assert found.mean[number] == pytest.approx(blocks.mean())
        if blocks.size > 1:
            assert found.variance[number] == pytest.approx(blocks.var(ddof=1))


def test_outliers_are_counted_by_their_distance_from_the_median() -> None:
    samples = [10.0, 10.1, 9.9, 10.05, 9.95] * 10
    assert stats.count_outliers(samples) == 0
    assert stats.count_outliers([*samples, 15.0, 5.0, 10.3]) == 2
    assert stats.count_outliers([]) == 0


def test_one_tick_away_from_ties_is_no_outlier() -> None:
    ties = [3.2] * 50
    assert stats.count_outliers([*ties, 3.232], tick=0.032) == 0
    assert stats.count_outliers([*ties, 3.232]) == 1, "without a tick any distance is infinite"
    assert stats.count_outliers([*ties, 3.2 + 15 * 0.032], tick=0.032) == 1


def test_noise_floors_by_duration() -> None:
    times = [1.0, 10.0, 99.0, 100.0, math.nan]
    floor = stats.NoiseFloor()
    assert floor.of(times, False, False).tolist() == [0.05, 0.02, 0.02, 0.01, 0.05]
    assert floor.of(times[3:4], True, False).tolist() == [stats.DEFAULT_LIMITED_FLOOR]
    assert floor.of(times[3:4], True, True).tolist() == [stats.DEFAULT_EQUAL_CLOCK_FLOOR]


def test_paired_rounds_against_scipy() -> None:
    rng = np.random.default_rng(4)
    drift = rng.normal(1.0, 0.05, 15)
    base, new = drift * rng.normal(10, 0.01, 15), drift * rng.normal(12, 0.01, 15)
    found = stats.moments({"row": np.zeros(15, dtype=int), "mean_us": new / base}, 1)
    mean, spread = pooling.pooled([found])
    ratio, low, high, _ = (float(v[0]) for v in pooling.interval(mean, [spread], np.zeros(1)))
    exact = scipy_stats.ttest_rel(np.log(new), np.log(base)).confidence_interval(0.99)
    assert (low, high) == pytest.approx(tuple(np.exp(exact)), rel=1e-6)
    assert ratio == pytest.approx(1.2, rel=0.002)
    unpaired = one_row.ratio_interval(base, new)
    assert unpaired.high - unpaired.low > 20 * (high - low)


def test_a_paired_interval_is_no_narrower_than_a_tick_and_open_for_one_round() -> None:
    def interval(ratios: list[float]) -> tuple[float, ...]:
        table = {"row": np.zeros(len(ratios), dtype=int), "mean_us": np.asarray(ratios)}
        mean, spread = pooling.pooled([stats.moments(table, 1)])
        found = pooling.interval(mean, [spread], np.array([0.01]))
        return tuple(float(v[0]) for v in found[:3])

    assert interval([1.0, 1.0, 1.0]) == pytest.approx((1.0, math.exp(-0.01), math.exp(0.01)))
    assert interval([2.0]) == (pytest.approx(2.0), 0.0, math.inf)
    assert all(math.isnan(value) for value in interval([]))


def test_geometric_mean() -> None:
    assert stats.geometric_mean([2.0, 0.5, math.nan, 0.0]) == pytest.approx(1.0)
    assert math.isnan(stats.geometric_mean([]))
