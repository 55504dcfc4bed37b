"""The table behind a comparison: two sides joined and marked, whole columns at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

_CARRIED = ("status", "warnings", "cache", "flush", "time_us_p50", "kernel_hash", "config", "bound")
# What only a run's own tables have.
_CARRIED_IF_THERE = ("family", "distribution", "reason", "n_runs")


def join_rows(base: pd.DataFrame, new: pd.DataFrame, on: Sequence[str]) -> pd.DataFrame:
    """Outer-join two tables' rows; base_row and new_row are row ids, -1 where a side lacks it."""
    sides = []
    for name, table in (("base", base), ("new", new)):
        extra = [c for c in (*_CARRIED, *_CARRIED_IF_THERE) if c in table and c not in on]
        part = table[[*on, *extra]].copy()
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
    for column in ("cache", "bound", "family", "distribution"):
        if column not in rows and f"new_{column}" in rows:
            latest = rows[f"new_{column}"]
            rows[column] = latest.where(latest != "", rows[f"base_{column}"])
    return rows


def differ(rows: pd.DataFrame, column: str) -> pd.Series[bool]:
    """Return where both sides record `column` and record different values."""
    before, now = rows[f"base_{column}"], rows[f"new_{column}"]
    return (before != now) & (before != "") & (now != "")


def marked(texts: pd.Series[str], pattern: str) -> pd.Series[bool]:
    """Return where `pattern` occurs; the few different texts of a long column are searched once."""
    found = {text: bool(re.search(pattern, text)) for text in texts.unique()}
    return texts.map(found).astype(bool)


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
