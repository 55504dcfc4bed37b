"""The table behind a comparison: two sides joined, judged and marked, whole columns at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from harness import stats
from harness.schema import CLOCK_LIMITED, FAILED

_SIDES = ("base", "new")
# What these rows wait for does not run at the SM clock.
_NOT_BY_CLOCK = ("memory", "launch", "class")
_CARRIED = ("status", "warnings", "cache", "flush", "time_us_p50", "kernel_hash", "config", "bound")


def join_rows(base: pd.DataFrame, new: pd.DataFrame, on: Sequence[str]) -> pd.DataFrame:
    """Outer-join two tables' rows; base_row and new_row are row ids, -1 where a side lacks it."""
    sides = []
    for name, table in (("base", base), ("new", new)):
        part = table[[*on, *(c for c in _CARRIED if c not in on)]].copy()
        part["row"] = table.index
        sides.append(part.rename(columns={c: f"{name}_{c}" for c in part if c not in on}))
    rows: pd.DataFrame = sides[0].merge(sides[1], on=list(on), how="outer", sort=False)
    for name in ("base", "new"):
        for column in rows.columns:
            if column.startswith(f"{name}_") and not pd.api.types.is_numeric_dtype(rows[column]):
                rows[column] = rows[column].fillna("")
        rows[f"{name}_row"] = rows[f"{name}_row"].fillna(-1).astype("int64")
        rows = rows.rename(columns={f"{name}_time_us_p50": f"{name}_us"})
    # The order of the files, which is that of the specs, whatever the merge made of it.
    place = rows["base_row"].where(rows["base_row"] >= 0, len(base) + rows["new_row"])
    rows = rows.iloc[np.argsort(place.to_numpy(), kind="stable")].reset_index(drop=True)
    if "cache" not in rows:
        rows["cache"] = rows["new_cache"].where(rows["new_cache"] != "", rows["base_cache"])
    rows["bound"] = rows["new_bound"].where(rows["new_bound"] != "", rows["base_bound"])
    return rows


def differ(rows: pd.DataFrame, column: str) -> pd.Series[bool]:
    """Return where both sides record `column` and record different values."""
    before, now = rows[f"base_{column}"], rows[f"new_{column}"]
    return (before != now) & (before != "") & (now != "")


def judge(
    rows: pd.DataFrame,
    rounds: tuple[pd.DataFrame, pd.DataFrame],
    floors: Sequence[stats.NoiseFloor],
    least_effect: float,
    tick_us: float,
    same_rounds: bool = False,
) -> None:
    """Add ratio, low, high, at_equal_clock, clock_ratio, band, verdict, lost and failed to `rows`.

    same_rounds: both sides took turns in the same rounds, so ratios are taken round by round.
    Otherwise a row whose SM clock was held down on either side, and that no roof of memory binds,
    is compared at equal clock: ratio, low and high are of cycles (time x SM clock). A kernel's
    cycles repeat within parts of a percent while the power limit moves its time by several.
    clock_ratio: SM clock new/base, NaN where unknown.
    """
    ok_base, ok_new = rows["base_status"] == "ok", rows["new_status"] == "ok"
    both = (ok_base & ok_new).to_numpy()
    tables = dict(zip(_SIDES, rounds, strict=True))
    times = [_moments(rows, name, tables[name], tick_us) for name in _SIDES]
    cycles = [_cycles(rows, name, tables[name], t) for name, t in zip(_SIDES, times, strict=True)]
    marks = [rows[f"{name}_warnings"].str.contains(CLOCK_LIMITED) for name in _SIDES]
    limited = (marks[0] | marks[1]).to_numpy()
    known = np.isfinite(cycles[0].mean) & np.isfinite(cycles[1].mean)
    equal = both & known & limited & ~rows["bound"].isin(_NOT_BY_CLOCK).to_numpy()
    if same_rounds:
        equal &= False
        interval = stats.paired(_ratios(rows, rounds), np.maximum(times[0].tick, times[1].tick))
    else:
        by_time, by_cycles = stats.welch(times[0], times[1]), stats.welch(cycles[0], cycles[1])
        interval = tuple(np.where(equal, c, t) for t, c in zip(by_time, by_cycles, strict=True))
    ratio, low, high = (np.where(both, value, np.nan) for value in interval)
    rows["ratio"], rows["low"], rows["high"] = ratio, low, high
    clocks = [np.exp(c.mean - t.mean) for c, t in zip(cycles, times, strict=True)]
    rows["at_equal_clock"], rows["clock_ratio"] = equal, clocks[1] / clocks[0]
    base_us = rows["base_us"].to_numpy(dtype="float64")
    bands = [floor.of(base_us, limited, equal) for floor in floors or [stats.NoiseFloor()]]
    rows["band"] = np.maximum(np.max(bands, axis=0), least_effect)
    one_side = (ok_base | ok_new).to_numpy() & ~both
    called = np.where(both, stats.verdicts(low, high, rows["band"].to_numpy()), "")
    rows["verdict"] = np.where(one_side, "MISSING", called)
    rows["failed"] = rows["base_status"].isin(["ok", "untimed"]) & rows["new_status"].isin(FAILED)
    rows["lost"] = ok_base & ~ok_new & ~rows["failed"]


def _moments(rows: pd.DataFrame, side: str, rounds: pd.DataFrame, tick_us: float) -> stats.Moments:
    """Moments of one side's rounds, aligned with `rows`; NaN where the side has no row."""
    ids = rows[f"{side}_row"].to_numpy()
    n_rows = int(max(ids.max(initial=-1), rounds["row"].max() if len(rounds) else -1)) + 1
    every = stats.moments(rounds, n_rows + 1, tick_us)  # the last entry stands for id -1
    return stats.Moments(*(values[ids] for values in every))


def _cycles(
    rows: pd.DataFrame, side: str, rounds: pd.DataFrame, times: stats.Moments
) -> stats.Moments:
    """The same of time x SM clock; NaN for rows with a round whose clock is unknown."""
    clocks = rounds.get("sm_mhz", np.nan)
    counted = rounds[["row"]].assign(mean_us=rounds["mean_us"] * clocks)
    return _moments(rows, side, counted, 0.0)._replace(tick=times.tick)


def _ratios(rows: pd.DataFrame, rounds: tuple[pd.DataFrame, pd.DataFrame]) -> stats.Moments:
    """Moments of new/base over the rounds that both sides of a row have, aligned with `rows`."""
    sides = []
    for name, table in zip(_SIDES, rounds, strict=True):
        place = pd.Series(np.arange(len(rows)), index=rows[f"{name}_row"])
        place = place[place.index >= 0]
        part = table[table["row"].isin(place.index)]
        sides.append(part.assign(row=place.reindex(part["row"]).to_numpy()))
    joined = sides[0].merge(sides[1], on=["row", "round"], suffixes=("_base", "_new"))
    joined["mean_us"] = joined["mean_us_new"] / joined["mean_us_base"]
    return stats.moments(joined.sort_values(["row", "round"]), len(rows))


def mark_changes(
    rows: pd.DataFrame, both: pd.Series[bool], tools: Mapping[str, bool], cross_device: bool
) -> None:
    """Add `changed`: source, config, tools, gpu with commas; a mark beside the verdict."""
    tool_changed = rows["backend"].map(dict(tools)).fillna(False).astype(bool)
    marks = {
        "source": both & differ(rows, "kernel_hash"),
        "config": both & differ(rows, "config"),
        "tools": both & tool_changed,
        "gpu": both & cross_device,
    }
    text = pd.Series("", index=rows.index)
    for name, mask in marks.items():
        text = text.where(~mask, text + name + ",")
    rows["changed"] = text.str.rstrip(",")
