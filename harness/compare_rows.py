"""The table behind a comparison: two sides joined, judged and marked, whole columns at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from harness import stats
from harness.schema import FAILED, POWER_LIMITED

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
) -> None:
    """Add ratio, low, high, band, verdict, lost and failed to `rows`."""
    ok_base, ok_new = rows["base_status"] == "ok", rows["new_status"] == "ok"
    both = (ok_base & ok_new).to_numpy()
    sides = []
    for name, table in zip(("base", "new"), rounds, strict=True):
        ids = rows[f"{name}_row"].to_numpy()
        n_rows = int(max(ids.max(initial=-1), table["row"].max() if len(table) else -1)) + 1
        every = stats.moments(table, n_rows + 1, tick_us)  # the last entry stands for id -1
        sides.append(stats.Moments(*(values[ids] for values in every)))
    ratio, low, high = (np.where(both, v, np.nan) for v in stats.welch(sides[0], sides[1]))
    rows["ratio"], rows["low"], rows["high"] = ratio, low, high
    times = rows["base_us"].to_numpy(dtype="float64")
    limited = sum(rows[f"{s}_warnings"].str.contains(POWER_LIMITED) for s in ("base", "new")) > 0
    bands = [floor.of(times, limited) for floor in floors or [stats.NoiseFloor()]]
    rows["band"] = np.maximum(np.max(bands, axis=0), least_effect)
    one_side = (ok_base | ok_new).to_numpy() & ~both
    called = np.where(both, stats.verdicts(low, high, rows["band"].to_numpy()), "")
    rows["verdict"] = np.where(one_side, "MISSING", called)
    rows["failed"] = rows["base_status"].isin(["ok", "untimed"]) & rows["new_status"].isin(FAILED)
    rows["lost"] = ok_base & ~ok_new & ~rows["failed"]


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
