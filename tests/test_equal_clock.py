"""Rows whose clock was held down, and sides of one run: what the clock does is taken out."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fixtures import synthetic_run as synthetic
from rich.console import Console

from harness.compare import Comparison, compare_runs, compare_sides, exit_code, render
from harness.compare_judge import add_ratios, call
from harness.compare_rows import join_rows
from harness.equal_clock import clock_moments, compare_at_equal_clock
from harness.registry import REPOSITORY
from harness.results import Run, read_run
from harness.schema import KEY

N_ROUNDS = 40


def text_of(comparison: Comparison) -> str:
    stream = io.StringIO()
    render(comparison, Console(file=stream, width=60, no_color=True))
    return stream.getvalue()


def rounds_at(
    mhz: float, exponent: float, scale: float = 1.0, seed: int = 0, swing: float = 0.03
) -> pd.DataFrame:
    """Rounds of a kernel of 100 us at 1500 MHz whose time follows the clock by `exponent`."""
    rng = np.random.default_rng(seed)
    clocks = mhz * (1 + swing * np.sin(np.arange(N_ROUNDS) / 3 + seed))
    times = scale * 100.0 * (clocks / 1500.0) ** exponent * rng.normal(1.0, 0.001, N_ROUNDS)
    columns = {"row": 0, "round": np.arange(N_ROUNDS), "mean_us": times}
    return pd.DataFrame(columns | {"utc_s": 1e9 + 0.01 * np.arange(N_ROUNDS), "sm_mhz": clocks})


def held_down(folder: Path, rounds: pd.DataFrame, **changes: object) -> Run:
    """A run of one row whose SM clock was held down, with these rounds."""
    cells = {"warnings": "clock_limited", "n_rounds": N_ROUNDS} | changes
    row = synthetic.row("matmul", 1024, "cuda", float(rounds["mean_us"].median()), **cells)
    run = synthetic.write(folder, [row])
    return Run(run.path, run.rows, rounds, run.meta)


def only_row(base: Run, new: Run) -> dict[str, object]:
    (row,) = compare_runs(base, new).rows.to_dict("records")
    return row


@pytest.mark.parametrize("exponent", [-1.0, -0.6, -0.3, 0.0])
def test_a_card_at_another_clock_is_no_other_kernel(tmp_path: Path, exponent: float) -> None:
    base = held_down(tmp_path / "base", rounds_at(1500.0, exponent))
    new = held_down(tmp_path / "new", rounds_at(1410.0, exponent, seed=1))
    row = only_row(base, new)
    assert (row["verdict"], row["at_equal_clock"]) == ("SAME", True)
    assert row["ratio"] == pytest.approx(1.0, abs=0.005)
    assert row["clock_ratio"] == pytest.approx(0.94, abs=0.005)
    text = text_of(compare_runs(base, new))
    assert "compared at equal clock (new ran at 0.9" in text
    assert ", 1 at equal clock)" in text


@pytest.mark.parametrize("exponent", [-1.0, -0.6])
def test_a_slower_kernel_shows_through_a_faster_clock(tmp_path: Path, exponent: float) -> None:
    base = held_down(tmp_path / "base", rounds_at(1500.0, exponent))
    new = held_down(tmp_path / "new", rounds_at(1600.0, exponent, scale=1.05, seed=1))
    assert only_row(base, new)["verdict"] == "SLOWER"
    assert only_row(base, new)["ratio"] == pytest.approx(1.05, rel=0.005)
    assert only_row(new, base)["verdict"] == "FASTER"


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    held, n_trials = 0, 400
    for _ in range(n_trials):
        sides = []
        for mhz in (1500.0, 1450.0):
            f = np.log(mhz) + rng.normal(0, 0.02, 12)
            t = 4.0 - 0.8 * f + rng.normal(0, 0.004, 12)
            table = pd.DataFrame({"row": 0, "mean_us": np.exp(t), "sm_mhz": np.exp(f)})
            sides.append([clock_moments(table, 1)])
        found = compare_at_equal_clock(*sides, np.zeros(1), confidence=0.9)
        assert found.known[0]
        held += found.low[0] <= 1.0 <= found.high[0]
    assert held / n_trials == pytest.approx(0.9, abs=0.04)


def test_a_steady_clock_tells_nothing_and_leaves_times_to_compare(tmp_path: Path) -> None:
    """Two runs at two fixed clocks: how time follows the clock is not known."""
    base = held_down(tmp_path / "base", rounds_at(1500.0, -1.0, swing=0.0))
    new = held_down(tmp_path / "new", rounds_at(1440.0, -1.0, swing=0.0))
    row = only_row(base, new)
    assert (row["at_equal_clock"], row["verdict"]) == (False, "SAME")
    assert row["ratio"] == pytest.approx(1500 / 1440, rel=0.002)
    assert row["band"] == pytest.approx(0.05), "its time is known no better than that"


def test_what_the_clocks_alone_may_explain_is_unclear(tmp_path: Path) -> None:
    base = held_down(tmp_path / "base", rounds_at(1500.0, -1.0, swing=0.0))
    new = held_down(tmp_path / "new", rounds_at(1350.0, -1.0, swing=0.0))
    row = only_row(base, new)
    assert row["verdict"] == "UNCLEAR"
    assert row["low"] == pytest.approx(1.0, abs=0.005)
    assert row["high"] == pytest.approx(1500 / 1350, rel=0.005)
    assert row["reason"].startswith("the clocks alone may explain it; clock held down")  # type: ignore[attr-defined]
    assert "(new ran at 0.900 of base's clock)" in text_of(compare_runs(base, new))
    slower = held_down(tmp_path / "slower", rounds_at(1350.0, -1.0, scale=1.1, swing=0.0))
    assert only_row(base, slower)["verdict"] == "SLOWER", "more than the clock can explain"


def test_no_exponent_is_carried_far_beyond_the_clocks_that_were_seen(tmp_path: Path) -> None:
    base = held_down(tmp_path / "base", rounds_at(1500.0, -0.6))
    new = held_down(tmp_path / "new", rounds_at(1200.0, -1.0, seed=1))
    row = only_row(base, new)
    assert (row["at_equal_clock"], row["verdict"]) == (False, "UNCLEAR")


@pytest.mark.parametrize("clock", [math.nan, 0.0])
def test_a_clock_unknown_in_one_run_leaves_times_to_compare(tmp_path: Path, clock: float) -> None:
    base = held_down(tmp_path / "base", rounds_at(1500.0, -1.0))
    new = held_down(tmp_path / "new", rounds_at(1500.0, -1.0).assign(sm_mhz=clock))
    row = only_row(base, new)
    assert (row["verdict"], row["at_equal_clock"]) == ("SAME", False)
    assert math.isnan(row["clock_ratio"])  # type: ignore[arg-type]


def test_rows_at_full_clock_are_compared_by_time(tmp_path: Path) -> None:
    base = held_down(tmp_path / "base", rounds_at(1500.0, -1.0, swing=0.005), warnings="")
    new = held_down(tmp_path / "new", rounds_at(1450.0, -1.0, swing=0.005), warnings="")
    row = only_row(base, new)
    assert (row["at_equal_clock"], row["verdict"]) == (False, "SLOWER")


def test_the_first_name_of_the_mark_and_of_its_floor_still_count(tmp_path: Path) -> None:
    rounds = rounds_at(1500.0, -1.0, swing=0.0)
    base = held_down(tmp_path / "base", rounds, warnings="above_roof;power_limited")
    new = held_down(tmp_path / "new", rounds.assign(mean_us=rounds["mean_us"] * 1.04))
    for run in (base, new):
        run.meta["noise_floor"] |= {"power_limited": {"floor": 0.08}}
    row = only_row(base, new)
    assert (row["band"], row["verdict"]) == (pytest.approx(0.08), "SAME")


def test_the_committed_reference_is_itself_at_equal_clock() -> None:
    run = read_run(next((REPOSITORY / "results").glob("*/reference")))
    comparison = compare_runs(run, run)
    rows = comparison.rows
    assert rows["at_equal_clock"].any()
    assert set(rows["verdict"]) <= {"SAME", "UNCLEAR", ""}
    assert exit_code(comparison) == 0


def test_halves_of_a_run_by_clock_are_the_same_kernels() -> None:
    """The rounds at low clock as one run, those at high clock as another: never called."""
    run = read_run(next((REPOSITORY / "results").glob("*/reference")))
    middle = run.rounds.groupby("row")["sm_mhz"].transform("median")
    is_low = run.rounds["sm_mhz"] <= middle
    rows = join_rows(run.rows, run.rows, [*KEY, "dims"])
    add_ratios(rows, (run.rounds[is_low], run.rounds[~is_low]), 0.032, same_rounds=False)
    call(rows, [], least_effect=0.02)
    equal = rows[rows["at_equal_clock"]]
    assert len(equal) > 5
    assert equal["clock_ratio"].max() > 1.04
    assert not equal["verdict"].isin(["FASTER", "SLOWER"]).any()


# Sides of one run


def two_sides(folder: Path, cuda: pd.DataFrame, triton: pd.DataFrame, **meta: object) -> Run:
    table = [
        synthetic.row("matmul", 1024, side, 100.0, n_rounds=len(part), warnings="clock_limited")
        for side, part in (("cuda", cuda), ("triton", triton))
    ]
    run = synthetic.write(folder, table, synthetic.meta(**meta))
    rounds = pd.concat([cuda.assign(row=0), triton.assign(row=1)], ignore_index=True)
    return Run(run.path, run.rows, rounds, run.meta)


def test_drift_that_both_sides_share_widens_no_interval(tmp_path: Path) -> None:
    cuda, triton = rounds_at(1500.0, -1.0), rounds_at(1500.0, -1.0, scale=1.03)
    (row,) = compare_sides(two_sides(tmp_path, cuda, triton)).rows.to_dict("records")
    assert (row["verdict"], row["paired"], row["at_equal_clock"]) == ("FASTER", True, False)
    assert row["ratio"] == pytest.approx(1 / 1.03, rel=0.002)
    assert row["high"] - row["low"] < 0.002
    assert row["band"] == pytest.approx(0.02)


def test_a_lost_round_of_one_side_is_not_paired_with_another(tmp_path: Path) -> None:
    cuda = rounds_at(1500.0, -1.0, swing=0.06)
    lost = cuda.drop(index=3).reset_index(drop=True)
    lost["round"] = np.arange(N_ROUNDS - 1)
    comparison = compare_sides(two_sides(tmp_path, cuda, lost))
    (row,) = comparison.rows.to_dict("records")
    assert not row["paired"]
    assert row["band"] >= 0.05, "the floor of times under a clock that is held down"
    assert "1 of 1 rows were not timed in the same rounds" in comparison.labels[0]


def test_sides_of_two_processes_are_not_paired(tmp_path: Path) -> None:
    cuda, later = rounds_at(1500.0, -1.0), rounds_at(1500.0, -1.0)
    later["utc_s"] += 3600
    comparison = compare_sides(two_sides(tmp_path, cuda, later))
    assert not comparison.rows["paired"].any()
    assert comparison.labels
    given = compare_sides(two_sides(tmp_path / "again", cuda, later), noise_floor=0.03)
    assert given.rows["band"].tolist() == [pytest.approx(0.03)]
