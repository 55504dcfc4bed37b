"""Why each row has its verdict, in words; whole columns at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.compare_rows import marked

# What every SAME row says; a table for people leaves it out.
SAME_REASON = "interval within the band"
_TELLING_CLOCK = 0.01
# Marks of a row that make its time less certain than its interval says.
_DOUBTS = {
    "gpu_shared": "measured beside another process",
    "launch_not_hidden": "launch not hidden: host time is in it",
}

Row = Mapping[Any, Any]


def add_reasons(rows: pd.DataFrame, n_runs: tuple[int, int], sides: tuple[str, ...] = ()) -> None:
    """Add `reason` to rows that `call` has judged.

    n_runs: runs of base and of new. sides: their names where they are backends of one run.
    """
    names = sides or ("base", "new")
    reason = _plain(rows)
    _add(reason, (rows["verdict"] == "MISSING") | rows["failed"], rows, _fate(n_runs, names))
    untimed = (rows["verdict"] == "") & ~rows["failed"]
    _add(reason, untimed, rows, _fate(n_runs, names))
    for mask, words in _remarks(rows, names):
        _add(reason, mask, rows, words)
    rows["reason"] = reason


def _plain(rows: pd.DataFrame) -> NDArray[np.object_]:
    """What the interval says of the band, for rows timed on both sides."""
    low, high = (rows[c].to_numpy(dtype="float64") for c in ("low", "high"))
    edge = 1.0 + rows["band"].to_numpy(dtype="float64")
    unclear = (rows["verdict"] == "UNCLEAR").to_numpy()
    apart = (rows["clock_ratio"] - 1.0).abs() > _TELLING_CLOCK
    by_time = rows["limited"] & ~rows["at_equal_clock"] & ~rows["paired"]
    by_clock = (by_time & apart).to_numpy()
    choices = [
        (rows["verdict"] == "SAME").to_numpy(),
        (rows["verdict"] == "SLOWER").to_numpy(),
        (rows["verdict"] == "FASTER").to_numpy(),
        unclear & ~np.isfinite(high),
        unclear & by_clock,
        unclear & (low < 1.0 / edge) & (high > edge),
        unclear,
    ]
    words = [
        SAME_REASON,
        "whole interval above the band",
        "whole interval below the band",
        "too few rounds for an interval",
        "the clocks alone may explain it",
        "interval wider than the band",
        "interval reaches into the band",
    ]
    return np.select(choices, np.array(words, dtype=object), "").astype(object)


Remark = tuple["pd.Series[bool]", str | Callable[[Row], str]]


def _remarks(rows: pd.DataFrame, names: tuple[str, ...]) -> list[Remark]:
    """What else a reader of a row should know: (which rows, words or what makes them)."""
    timed = rows["ratio"].notna()
    called = rows["verdict"].isin(["SLOWER", "FASTER"])
    remarks = [
        *_clock_remarks(rows, names),
        (rows["by_runs"], _units),
        (called & (rows["bound"] == "launch"), "launch-bound: launches are compared, not kernels"),
    ]
    if "backend" in rows:
        # Autotuning inside torch.compile is seen by no hash and no configuration of ours.
        compiled = called & ~rows["by_runs"] & (rows["backend"] == "compile")
        remarks.append((compiled, "torch.compile may choose another configuration in each process"))
    else:
        remarks.append((timed & ~rows["paired"], "not timed in the same rounds"))
    for mark, words in _DOUBTS.items():
        for side, name in zip(("base", "new"), names, strict=True):
            doubtful = timed & marked(rows[f"{side}_warnings"], mark)
            remarks.append((doubtful, f"{name} {words}"))
    return remarks


def _clock_remarks(rows: pd.DataFrame, names: tuple[str, ...]) -> list[Remark]:
    base, new = names
    equal = rows["at_equal_clock"]
    telling = rows["limited"] & ~equal & ((rows["clock_ratio"] - 1.0).abs() > _TELLING_CLOCK)

    def ratio(row: Row) -> str:
        return f"{new} ran at {row['clock_ratio']:.3f} of {base}'s"

    return [
        (equal, lambda row: f"clock held down: compared at equal clock ({ratio(row)})"),
        (
            rows["ratio"].notna() & telling & ~rows["paired"],
            lambda row: f"clock held down ({ratio(row)} clock)",
        ),
    ]


def _units(row: Row) -> str:
    n_runs = f"{row['new_runs']}" if row["paired"] else f"{row['base_runs']} and {row['new_runs']}"
    return f"means of {n_runs} runs are its units"


def _fate(n_runs: tuple[int, int], names: tuple[str, ...]) -> Callable[[Row], str]:
    """What became of a row that lacks a time: the status on either side, and why."""

    def fate(row: Row) -> str:
        statuses = [row["base_status"] or "no row", row["new_status"] or "no row"]
        text = statuses[0] if statuses[0] == statuses[1] else " -> ".join(statuses)
        told = [
            (side, name, total)
            for side, name, total in zip(("base", "new"), names, n_runs, strict=True)
            if row[f"{side}_status"] not in ("ok", "")
        ]
        for side, name, total in reversed(told):
            if 0 < row[f"{side}_n_runs"] < total:
                text += f" in {row[f'{side}_n_runs']:.0f} of {total} runs of {name}"
            if why := str(row[f"{side}_reason"]):
                text += f": {why}"
                break
        return f"newly incorrect: {text}" if row["failed"] else text

    return fate


def _add(
    reason: NDArray[np.object_],
    mask: pd.Series[bool],
    rows: pd.DataFrame,
    words: str | Callable[[Row], str],
) -> None:
    """Append words to the reasons of some rows. Few rows carry numbers: those are made singly."""
    places = np.flatnonzero(mask.to_numpy(dtype=np.bool_))
    if not len(places):
        return
    texts = (
        [words] * len(places)
        if isinstance(words, str)
        else [words(row) for row in rows.iloc[places].to_dict("records")]
    )
    for place, text in zip(places, texts, strict=True):
        reason[place] = f"{reason[place]}; {text}" if reason[place] else text
