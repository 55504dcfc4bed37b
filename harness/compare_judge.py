"""Ratio, interval and verdict of every row that two sides share, whole columns at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness import pooling, stats
from harness.compare_rows import marked
from harness.equal_clock import (
    ClockMoments,
    clock_moments,
    compare_at_equal_clock,
    widened_by_clock,
)
from harness.schema import CLOCK_LIMITED_MARKS, FAILED

Sides = tuple[pd.DataFrame, pd.DataFrame]
# The rounds of one run, and for each row of the comparison its row id there, -1 for none.
RunRounds = tuple[NDArray[np.int64], pd.DataFrame]
_SIDES = ("base", "new")
# Rounds of one process lie closer together; those of a resumed run's two processes do not.
_SAME_ROUND_S = 30.0


def add_ratios(rows: pd.DataFrame, rounds: Sides, tick_us: float, same_rounds: bool) -> None:
    """Add what add_pooled_ratios adds, of one run a side: `rounds` of base and new, by row id."""
    ids = [rows[f"{name}_row"].to_numpy() for name in _SIDES]
    runs = [[(i, table)] for i, table in zip(ids, rounds, strict=True)]
    add_pooled_ratios(rows, runs, tick_us, same_rounds)


def add_pooled_ratios(
    rows: pd.DataFrame, sides: Sequence[Sequence[RunRounds]], tick_us: float, same_rounds: bool
) -> None:
    """Add ratio, low, high, limited, at_equal_clock, clock_ratio, paired, by_runs, base_runs,
    new_runs to `rows`.

    sides: the runs of base and of new. same_rounds: both are the same runs, in which the sides
    took turns, so ratios are taken round by round where the rounds are those of one process
    (`paired`). Otherwise a row whose SM clock was held down on either side is compared as at
    equal clock where its rounds tell how its time follows the clock (see equal_clock); where they
    do not, its interval holds all that the clocks may explain. clock_ratio: SM clock new/base,
    NaN where unknown. by_runs: the runs' means were the units. base_runs, new_runs: how many runs
    have rounds of the row.
    """
    both = ((rows["base_status"] == "ok") & (rows["new_status"] == "ok")).to_numpy()
    times = [[_times(*run, tick_us) for run in runs] for runs in sides]
    clocks = [[_clocks(*run) for run in runs] for runs in sides]
    marks = [marked(rows[f"{name}_warnings"], CLOCK_LIMITED_MARKS) for name in _SIDES]
    limited = (marks[0] | marks[1]).to_numpy()
    tick = np.fmax.reduce([moments.tick for runs in times for moments in runs])
    (base, base_spread), (new, new_spread) = (pooling.pooled(runs) for runs in times)
    found = pooling.interval(new - base, [base_spread, new_spread], tick)
    speeds = [pooling.mean_of_runs(np.array([c.f for c in runs])) for runs in clocks]
    clock_ratio = np.exp(speeds[1] - speeds[0])
    equal = paired = np.zeros(len(rows), dtype=bool)
    if same_rounds:
        found, paired = _in_turns(len(rows), sides, tick, found)
    else:
        found, equal = _without_the_clock(found, clocks, tick, clock_ratio, both & limited)
    for name, value in zip(("ratio", "low", "high"), found[:3], strict=True):
        rows[name] = np.where(both, value, np.nan)
    rows["limited"], rows["at_equal_clock"], rows["paired"] = limited, equal, paired & both
    rows["clock_ratio"], rows["by_runs"] = clock_ratio, found.runs & both
    rows["base_runs"] = base_spread.n_runs.astype("int64")
    rows["new_runs"] = new_spread.n_runs.astype("int64")


def _in_turns(
    n_rows: int,
    sides: Sequence[Sequence[RunRounds]],
    tick: stats.Floats,
    otherwise: pooling.Interval,
) -> tuple[pooling.Interval, NDArray[np.bool_]]:
    """Ratios taken round by round, where all runs' rounds are each those of one process."""
    pairs = [_round_by_round(n_rows, base, new) for base, new in zip(*sides, strict=True)]
    paired = np.all([is_paired for _, is_paired in pairs], axis=0)
    ratio, spread = pooling.pooled([moments for moments, _ in pairs])
    return _choose(paired, pooling.interval(ratio, [spread], tick), otherwise), paired


def _without_the_clock(
    found: pooling.Interval,
    clocks: Sequence[Sequence[ClockMoments]],
    tick: stats.Floats,
    clock_ratio: stats.Floats,
    limited: NDArray[np.bool_],
) -> tuple[pooling.Interval, NDArray[np.bool_]]:
    """The rows whose clock was held down: at equal clock, or widened by what it may explain."""
    at_equal = compare_at_equal_clock(clocks[0], clocks[1], tick)
    equal = limited & at_equal.known
    low, high = widened_by_clock(found.low, found.high, clock_ratio)
    wide = pooling.Interval(found.ratio, low, high, found.runs)
    found = _choose(limited & np.isfinite(clock_ratio), wide, found)
    equalled = pooling.Interval(at_equal.ratio, at_equal.low, at_equal.high, found.runs)
    return _choose(equal, equalled, found), equal


def call(
    rows: pd.DataFrame,
    floors: Sequence[stats.NoiseFloor],
    least_effect: float,
    paired_floor: float = 0.0,
) -> None:
    """Add band, verdict, lost and failed to `rows` that have ratios.

    The largest of `floors` counts, stats.NoiseFloor() where there is none. For rows compared round
    by round it is `paired_floor`: what differs between processes is the same for both sides. A
    floor is of one process against one; where runs are the units, their means differ by less.
    """
    ok_base, ok_new = rows["base_status"] == "ok", rows["new_status"] == "ok"
    both = (ok_base & ok_new).to_numpy()
    base_us = rows["base_us"].to_numpy(dtype="float64")
    bands = [
        floor.of(base_us, rows["limited"], rows["at_equal_clock"])
        for floor in floors or [stats.NoiseFloor()]
    ]
    per_run = [1.0 / rows[f"{name}_runs"].clip(lower=1) for name in _SIDES]
    shrunk = np.where(rows["by_runs"], np.sqrt((per_run[0] + per_run[1]) / 2.0), 1.0)
    floor = np.where(rows["paired"], paired_floor, np.max(bands, axis=0)) * shrunk
    rows["band"] = np.maximum(floor, least_effect)
    called = stats.verdicts(rows["low"], rows["high"], rows["band"])
    one_side = (ok_base | ok_new).to_numpy() & ~both
    rows["verdict"] = np.where(one_side, "MISSING", np.where(both, called, ""))
    rows["failed"] = rows["base_status"].isin(["ok", "untimed"]) & rows["new_status"].isin(FAILED)
    rows["lost"] = ok_base & ~ok_new & ~rows["failed"]


def _choose(
    where: NDArray[np.bool_], these: pooling.Interval, others: pooling.Interval
) -> pooling.Interval:
    return pooling.Interval(*(np.where(where, a, b) for a, b in zip(these, others, strict=True)))


def _times(ids: NDArray[np.int64], rounds: pd.DataFrame, tick_us: float) -> stats.Moments:
    """Moments of one run's rounds, aligned with `ids`; NaN where the run has no row."""
    moments = stats.moments(rounds, _n_entries(ids, rounds), tick_us)
    return stats.Moments(*(values[ids] for values in moments))


def _clocks(ids: NDArray[np.int64], rounds: pd.DataFrame) -> ClockMoments:
    return clock_moments(rounds, _n_entries(ids, rounds)).of(ids)


def _n_entries(ids: NDArray[np.int64], rounds: pd.DataFrame) -> int:
    """How many entries a table by row id needs: the last, without rounds, stands for id -1."""
    return int(max(ids.max(initial=-1), rounds["row"].max() if len(rounds) else -1)) + 2


def _round_by_round(
    n_rows: int, base: RunRounds, new: RunRounds
) -> tuple[stats.Moments, NDArray[np.bool_]]:
    """(moments of new/base over the rounds, whether the rounds are those of one process).

    A side that lost a round for want of believable samples has its later ones numbered anew:
    sides with another number of rounds are not paired.
    """
    sides = []
    for ids, table in (base, new):
        place = np.full(_n_entries(ids, table), -1)
        here = np.flatnonzero(ids >= 0)
        place[ids[here]] = here
        part = table.assign(row=place[table["row"].to_numpy()])
        sides.append(part[part["row"] >= 0])
    joined = sides[0].merge(sides[1], on=["row", "round"], suffixes=("_base", "_new"))
    joined = joined.sort_values(["row", "round"])
    joined["mean_us"] = joined["mean_us_new"] / joined["mean_us_base"]
    n_base, n_new, n_both = (
        np.bincount(part["row"], minlength=n_rows) for part in (*sides, joined)
    )
    apart = (joined["utc_s_new"] - joined["utc_s_base"]).abs()
    strangers = np.bincount(joined["row"], apart > _SAME_ROUND_S, minlength=n_rows) > 0
    paired = (n_base == n_new) & (n_both == n_base) & ~strangers
    return stats.moments(joined, n_rows), paired
