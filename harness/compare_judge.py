"""Ratio, interval and verdict of every row that two sides share, whole columns at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness import stats
from harness.equal_clock import (
    ClockMoments,
    clock_moments,
    compare_at_equal_clock,
    widened_by_clock,
)
from harness.schema import CLOCK_LIMITED_MARKS, FAILED

Sides = tuple[pd.DataFrame, pd.DataFrame]
_SIDES = ("base", "new")
# Rounds of one process lie closer together; those of a resumed run's two processes do not.
_SAME_ROUND_S = 30.0


def add_ratios(rows: pd.DataFrame, rounds: Sides, tick_us: float, same_rounds: bool) -> None:
    """Add ratio, low, high, limited, at_equal_clock, clock_ratio, paired to `rows`.

    rounds: of base and new, by row id. same_rounds: the sides took turns, so ratios are taken
    round by round where the rounds are those of one process (`paired`). Otherwise a row whose SM
    clock was held down on either side is compared as at equal clock where its rounds tell how
    its time follows the clock (see equal_clock); where they do not, its interval holds all that
    the clocks may explain. clock_ratio: SM clock new/base, NaN where unknown.
    """
    both = ((rows["base_status"] == "ok") & (rows["new_status"] == "ok")).to_numpy()
    times = [_times(rows, name, table, tick_us) for name, table in _named(rounds)]
    clocks = [_clocks(rows, name, table) for name, table in _named(rounds)]
    marks = [rows[f"{name}_warnings"].str.contains(CLOCK_LIMITED_MARKS) for name in _SIDES]
    limited = (marks[0] | marks[1]).to_numpy()
    tick = np.maximum(times[0].tick, times[1].tick)
    interval = stats.welch(times[0], times[1])
    equal = paired = np.zeros(len(rows), dtype=bool)
    clock_ratio = np.exp(clocks[1].f - clocks[0].f)
    if same_rounds:
        ratios, paired = _round_by_round(rows, rounds)
        interval = _choose(paired, stats.paired(ratios, tick), interval)
    else:
        at_equal = compare_at_equal_clock(clocks[0], clocks[1], tick)
        equal = both & limited & at_equal.known
        wide = widened_by_clock(interval[1], interval[2], clock_ratio)
        untold = limited & np.isfinite(clock_ratio)
        interval = _choose(untold, (interval[0], *wide), interval)
        interval = _choose(equal, (at_equal.ratio, at_equal.low, at_equal.high), interval)
    for name, value in zip(("ratio", "low", "high"), interval, strict=True):
        rows[name] = np.where(both, value, np.nan)
    rows["limited"], rows["at_equal_clock"], rows["paired"] = limited, equal, paired & both
    rows["clock_ratio"] = clock_ratio


def call(
    rows: pd.DataFrame,
    floors: Sequence[stats.NoiseFloor],
    least_effect: float,
    paired_floor: float = 0.0,
) -> None:
    """Add band, verdict, lost and failed to `rows` that have ratios.

    The largest of `floors` counts, stats.NoiseFloor() where there is none. For rows compared round
    by round it is `paired_floor`: what differs between processes is the same for both sides.
    """
    ok_base, ok_new = rows["base_status"] == "ok", rows["new_status"] == "ok"
    both = (ok_base & ok_new).to_numpy()
    base_us = rows["base_us"].to_numpy(dtype="float64")
    bands = [
        floor.of(base_us, rows["limited"], rows["at_equal_clock"])
        for floor in floors or [stats.NoiseFloor()]
    ]
    floor = np.where(rows["paired"], paired_floor, np.max(bands, axis=0))
    rows["band"] = np.maximum(floor, least_effect)
    called = stats.verdicts(rows["low"], rows["high"], rows["band"])
    one_side = (ok_base | ok_new).to_numpy() & ~both
    rows["verdict"] = np.where(one_side, "MISSING", np.where(both, called, ""))
    rows["failed"] = rows["base_status"].isin(["ok", "untimed"]) & rows["new_status"].isin(FAILED)
    rows["lost"] = ok_base & ~ok_new & ~rows["failed"]


def _named(rounds: Sides) -> list[tuple[str, pd.DataFrame]]:
    return list(zip(_SIDES, rounds, strict=True))


def _choose(where: NDArray[np.bool_], these: Any, others: Any) -> tuple[stats.Floats, ...]:
    return tuple(np.where(where, a, b) for a, b in zip(these, others, strict=True))


def _times(rows: pd.DataFrame, side: str, rounds: pd.DataFrame, tick_us: float) -> stats.Moments:
    """Moments of one side's rounds, aligned with `rows`; NaN where the side has no row."""
    ids, n_rows = _ids(rows, side, rounds)
    return stats.Moments(*(v[ids] for v in stats.moments(rounds, n_rows, tick_us)))


def _clocks(rows: pd.DataFrame, side: str, rounds: pd.DataFrame) -> ClockMoments:
    ids, n_rows = _ids(rows, side, rounds)
    return clock_moments(rounds, n_rows).of(ids)


def _ids(rows: pd.DataFrame, side: str, rounds: pd.DataFrame) -> tuple[NDArray[np.int64], int]:
    """Row ids of one side, and how many entries a table by id needs: the last, which has no
    rounds, stands for id -1."""
    ids = rows[f"{side}_row"].to_numpy()
    return ids, int(max(ids.max(initial=-1), rounds["row"].max() if len(rounds) else -1)) + 2


def _round_by_round(rows: pd.DataFrame, rounds: Sides) -> tuple[stats.Moments, NDArray[np.bool_]]:
    """(moments of new/base over the rounds, whether the rounds are those of one process).

    A side that lost a round for want of believable samples has its later ones numbered anew:
    sides with another number of rounds are not paired.
    """
    sides = []
    for name, table in _named(rounds):
        place = pd.Series(np.arange(len(rows)), index=rows[f"{name}_row"])
        place = place[place.index >= 0]
        part = table[table["row"].isin(place.index)]
        sides.append(part.assign(row=place.reindex(part["row"]).to_numpy()))
    joined = sides[0].merge(sides[1], on=["row", "round"], suffixes=("_base", "_new"))
    joined = joined.sort_values(["row", "round"])
    joined["mean_us"] = joined["mean_us_new"] / joined["mean_us_base"]
    n_base, n_new, n_both = (
        np.bincount(part["row"], minlength=len(rows)) for part in (*sides, joined)
    )
    apart = (joined["utc_s_new"] - joined["utc_s_base"]).abs()
    strangers = np.bincount(joined["row"], apart > _SAME_ROUND_S, minlength=len(rows)) > 0
    paired = (n_base == n_new) & (n_both == n_base) & ~strangers
    return stats.moments(joined, len(rows)), paired
