"""Several runs a side: what is pooled, what its units are, and how often it calls a difference."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fixtures import synthetic_run as synthetic
from scipy import stats as scipy_stats

from harness import pooling, stats
from harness.compare import ComparisonRefused, compare_runs, compare_sides, exit_code
from harness.compare_judge import add_pooled_ratios, call
from harness.results import Run


def runs(folder: Path, n: int, shift: float = 0.0, seed: int = 0, **facts: object) -> list[Run]:
    """Runs whose times differ from one to the next by 3 % at random, and by `shift` in all."""
    rng = random.Random(seed)
    made = []
    for i in range(n):
        factor = (1 + shift) * rng.gauss(1.0, 0.03)
        made.append(
            synthetic.write(
                folder / f"{i}",
                synthetic.rows(),
                synthetic.meta(**facts),
                seed=100 * seed + i,
                slower=lambda cells, factor=factor: factor,  # type: ignore[misc]
            )
        )
    return made


def test_one_run_a_side_is_welchs_interval() -> None:
    rng = np.random.default_rng(0)
    times = [rng.normal(5.0, 0.05, 12), rng.normal(6.0, 0.1, 15)]
    sides = [stats.moments({"row": np.zeros(len(t), dtype=int), "mean_us": t}, 1) for t in times]
    (base, a), (new, b) = (pooling.pooled([moments]) for moments in sides)
    found = pooling.interval(new - base, [a, b], np.zeros(1))
    base_logs, new_logs = (np.log(t) for t in times)
    exact = scipy_stats.ttest_ind(new_logs, base_logs, equal_var=False).confidence_interval(0.99)
    expected = np.exp([new_logs.mean() - base_logs.mean(), exact.low, exact.high])
    assert (found.ratio[0], found.low[0], found.high[0]) == pytest.approx(tuple(expected))
    assert not found.runs[0]


def test_three_runs_a_side_are_welchs_interval_of_their_means() -> None:
    rng = np.random.default_rng(1)
    logs = [rng.normal(1.0, 0.05, 3), rng.normal(1.1, 0.05, 4)]
    sides = [
        [stats.Moments(*(np.array([v]) for v in (12.0, m, 1e-6, 0.0))) for m in means]
        for means in logs
    ]
    (base, a), (new, b) = map(pooling.pooled, sides)
    found = pooling.interval(new - base, [a, b], np.zeros(1))
    exact = scipy_stats.ttest_ind(logs[1], logs[0], equal_var=False).confidence_interval(0.99)
    assert (found.low[0], found.high[0]) == pytest.approx(tuple(np.exp(exact)), rel=1e-6)
    assert found.runs[0]


def test_runs_that_agree_by_chance_are_known_no_better_than_their_rounds() -> None:
    moments = stats.Moments(*(np.array([v]) for v in (12.0, 1.0, 0.01, 0.0)))
    mean, spread = pooling.pooled([moments] * 3)
    found = pooling.interval(mean - mean, [spread, spread], np.zeros(1))
    assert found.high[0] > 1.05


def test_what_changes_from_run_to_run_is_in_the_interval_of_three(tmp_path: Path) -> None:
    one = compare_runs(*(runs(tmp_path / s, 1, seed=i)[0] for i, s in enumerate("ab")))
    three = compare_runs(*(runs(tmp_path / s, 3, seed=i) for i, s in enumerate("cd", 5)))
    width = [float((c.rows["high"] - c.rows["low"]).median()) for c in (one, three)]
    assert width[1] > 5 * width[0]
    assert three.rows["by_runs"].all()
    assert three.rows["reason"].str.contains("means of 3 and 3 runs are its units").all()
    assert (three.rows["band"] <= one.rows["band"]).all(), "means of three differ by less"
    assert exit_code(three) == 0


def test_two_runs_a_side_keep_rounds_as_units_and_the_whole_floor(tmp_path: Path) -> None:
    two = compare_runs(*(runs(tmp_path / s, 2, seed=i) for i, s in enumerate("ab")))
    assert not two.rows["by_runs"].any()
    assert two.rows["band"].max() == pytest.approx(0.03)
    assert (two.rows["base_runs"] == 2).all()


def test_a_true_slowdown_shows_through_several_runs(tmp_path: Path) -> None:
    base, new = runs(tmp_path / "a", 5, seed=1), runs(tmp_path / "b", 5, shift=0.3, seed=2)
    comparison = compare_runs(base, new)
    assert (comparison.rows["verdict"] == "SLOWER").all()
    assert (compare_runs(new, base).rows["verdict"] == "FASTER").all()


@pytest.mark.parametrize("bimodal", [False, True])
def test_identical_builds_are_called_once_in_a_thousand_at_most(bimodal: bool) -> None:
    """Three processes a side whose means differ by 2 %, or sit in one of two places."""
    rng = np.random.default_rng(3)
    n_rows, n_rounds = 4000, 12
    spread = 0.03 * (rng.random((6, n_rows)) < 0.2) if bimodal else rng.normal(0, 0.02, (6, n_rows))
    ids = np.arange(n_rows)
    sides = []
    for shift in spread:
        logs = np.repeat(shift, n_rounds) + rng.normal(0, 0.004, n_rows * n_rounds)
        columns = {"row": np.repeat(ids, n_rounds), "mean_us": 200 * np.exp(logs), "sm_mhz": 1.0}
        sides.append((ids, pd.DataFrame(columns)))
    statuses = {f"{side}_status": "ok" for side in ("base", "new")}
    rows = pd.DataFrame(statuses | {"base_warnings": "", "new_warnings": ""}, index=ids)
    rows["base_us"] = 200.0
    add_pooled_ratios(rows, [sides[:3], sides[3:]], 0.0, same_rounds=False)
    # The A/A's floor: twice the 99th percentile of one process against another.
    floor = 2 * np.quantile(np.abs(spread[0] - spread[1]), 0.99)
    call(rows, [stats.NoiseFloor(((np.inf, floor),))], least_effect=0.02)
    called = rows["verdict"].isin(["FASTER", "SLOWER"]).sum()
    assert called <= n_rows / 1000


def test_sides_within_several_runs_are_paired_in_each(tmp_path: Path) -> None:
    comparison = compare_sides(runs(tmp_path, 3))
    assert comparison.rows["paired"].all()
    assert comparison.rows["by_runs"].all()
    assert comparison.rows["ratio"].median() == pytest.approx(1 / 1.05, rel=0.01)
    assert comparison.rows["reason"].str.contains("means of 3 runs are its units").all()


def test_runs_of_other_kernels_are_no_side(tmp_path: Path) -> None:
    base = runs(tmp_path / "a", 2)
    table = synthetic.rows()
    table[0] |= {"kernel_hash": "edited"}
    odd = synthetic.write(tmp_path / "odd", table, synthetic.meta(driver="2.0"), seed=9)
    with pytest.raises(ComparisonRefused, match="runs of new hold other kernels: 1 rows"):
        compare_runs(base, [base[0], odd])
    forced = compare_runs(base, [base[0], odd], force=True)
    assert any(label.startswith("OTHER KERNELS POOLED") for label in forced.labels)
    assert "runs of new differ in driver: 1.0, 2.0" in forced.labels
    assert "driver: base 1.0, new 1.0 / 2.0" in forced.labels


def test_a_run_given_twice_is_refused(tmp_path: Path) -> None:
    base, new = runs(tmp_path / "a", 1)[0], runs(tmp_path / "b", 1, seed=1)[0]
    copied = Run(tmp_path / "elsewhere", base.rows, base.rounds, base.meta)
    for twice in (base, copied):
        with pytest.raises(ComparisonRefused, match="are the same run"):
            compare_runs([base, twice], new, force=True)


def test_a_failure_in_one_run_is_the_sides_and_a_gap_is_not(tmp_path: Path) -> None:
    base = runs(tmp_path / "a", 3)
    table = synthetic.rows()
    bad = {"status": "mismatch", "time_us_p50": None, "reason": "max error"}
    broken = synthetic.write(tmp_path / "bad", [table[0] | bad, *table[1:-1]], seed=7)
    new = [*runs(tmp_path / "b", 2, seed=1), broken]
    comparison = compare_runs(base, new)
    first, last = (comparison.rows.iloc[i] for i in (0, -1))
    assert first["failed"]
    assert first["reason"] == ("newly incorrect: ok -> mismatch in 1 of 3 runs of new: max error")
    assert last["verdict"] != "MISSING"
    assert (last["new_runs"], bool(last["by_runs"])) == (2, False)
    assert (comparison.newly_incorrect, exit_code(comparison)) == (1, 1)
