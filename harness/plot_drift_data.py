"""What a run's drift figure draws: every stamp on one time axis, deviations, trend and roofs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from harness.results import Run
from harness.roofs import CURVES, DRIFT_FROM_US

# A gap that no case in progress explains: the run was stopped and went on later.
PAUSE_S = 120.0
MAX_POINTS = 4000  # more than a panel has pixels
_CASE = ["op", "case", "distribution", "dtype", "math_mode"]
_CONFIDENCE = 0.99


@dataclass(frozen=True)
class Trend:
    """Change of the round means from a case's first round to its last, %, with its interval."""

    pct: float
    low_pct: float
    high_pct: float


@dataclass(frozen=True, eq=False)
class Drift:
    """All that is drawn, on the run's own time: minutes since its first round, pauses cut out.

    rounds: row, minutes, sm_mhz (NaN unknown), deviation_pct from the row's own mean (NaN for
    rows that are launch-bound or not ok). watch: read_watch's columns and minutes, between the
    first and the last round. pauses: minute and cut out seconds of each. roofs: kind, bytes (NaN
    for a matrix rate), pct (rate at the end over the start), small (shorter than
    DRIFT_FROM_US: latency, not a rate).
    """

    rounds: pd.DataFrame
    watch: pd.DataFrame
    pauses: list[tuple[float, float]]
    roofs: pd.DataFrame
    trend: Trend | None


def drift_of(run: Run, watch: pd.DataFrame) -> Drift | str:
    """Return the drift of `run`, or the reason why its time is unknown; watch: of read_watch."""
    rounds = run.rounds[np.isfinite(run.rounds["utc_s"])].sort_values("utc_s", kind="stable")
    if rounds.empty:
        return f"rounds.csv of schema {run.meta.get('schema')} tells no round's time (utc_s)"
    first, last = rounds["utc_s"].iloc[0], rounds["utc_s"].iloc[-1]
    watch = watch[watch["utc_s"].between(first, last)]
    stamps = np.unique(np.concatenate([rounds["utc_s"], watch["utc_s"]]))
    steps = np.diff(stamps)
    kept = np.where(steps > PAUSE_S, 0.0, steps)
    minutes = np.concatenate([[0.0], np.cumsum(kept)]) / 60.0
    pauses = [(float(minutes[i]), float(steps[i])) for i in np.flatnonzero(steps > PAUSE_S)]
    rounds = rounds.assign(minutes=np.interp(rounds["utc_s"], stamps, minutes))
    rounds["deviation_pct"] = _deviations(run, rounds)
    watch = watch.assign(minutes=np.interp(watch["utc_s"], stamps, minutes))
    return Drift(rounds, watch, pauses, _roofs(run.meta), _trend(run, rounds))


def launch_bound(run: Run) -> int:
    """Return how many ok rows are launch-bound, whose time tells more of the host."""
    return int(((run.rows["status"] == "ok") & (run.rows["bound"] == "launch")).sum())


def has(table: pd.DataFrame, column: str) -> bool:
    """Return whether any cell of the column is known."""
    return column in table and bool(table[column].notna().any())


def reach_pct(deviations: pd.Series[float]) -> float:
    """Return the axis' half height: one wild round must not flatten all others."""
    return max(1.3 * float(deviations.abs().quantile(0.99)), 0.05)


def windows(values: pd.DataFrame) -> pd.DataFrame:
    """Return minutes, low, median, high (p20, p50, p80 of deviation_pct), one line a window.

    Windows hold equally many of the rounds, which are in order of time; at least 5, at most 80.
    """
    length = max(5, math.ceil(len(values) / 80))
    number = np.arange(len(values)) // length
    parts = values.groupby(number)
    table = pd.DataFrame({"minutes": parts["minutes"].median()})
    for name, share in (("low", 0.2), ("median", 0.5), ("high", 0.8)):
        table[name] = parts["deviation_pct"].quantile(share)
    whole: pd.DataFrame = table[parts.size() == length]
    return whole


def _deviations(run: Run, rounds: pd.DataFrame) -> pd.Series[float]:
    judged = run.rows.index[(run.rows["status"] == "ok") & (run.rows["bound"] != "launch")]
    own = rounds.groupby("row")["mean_us"].transform("mean")
    percent: pd.Series[float] = 100.0 * (rounds["mean_us"] / own - 1.0)
    known: pd.Series[float] = percent.where(rounds["row"].isin(judged) & np.isfinite(percent))
    return known


def _trend(run: Run, rounds: pd.DataFrame) -> Trend | None:
    """Return the slope within cases, None when there are too few rounds.

    Each row is measured within seconds, so its own mean takes out what drifts between cases, and
    only what moves within one is left. Contenders share their rounds and what disturbs these: the
    independent unit is a case's round, not a row's.
    """
    table = rounds[rounds["deviation_pct"].notna()]
    table = table.join(run.rows[_CASE], on="row")
    case = table.groupby(_CASE, sort=False)
    spans = case["utc_s"].transform("max") - case["utc_s"].transform("min")
    table = table.assign(place=(table["utc_s"] - case["utc_s"].transform("min")) / spans)
    table = table[spans > 0]
    table["place"] -= table.groupby("row")["place"].transform("mean")
    units = table.groupby([*_CASE, "round"], sort=False)[["place", "deviation_pct"]].mean()
    free = len(units) - table.groupby(_CASE).ngroups - 1
    if free < 5 or units["place"].nunique() < 3:
        return None
    line = stats.linregress(units["place"], units["deviation_pct"])
    # Each case's own mean was taken out before: linregress counts those degrees as free.
    error = line.stderr * math.sqrt((len(units) - 2) / free)
    half = float(stats.t.ppf(0.5 + _CONFIDENCE / 2, free)) * error
    return Trend(float(line.slope), float(line.slope) - half, float(line.slope) + half)


def _roofs(meta: Mapping[str, Any]) -> pd.DataFrame:
    """Return the roofs' change from start to end; empty where the end was not measured."""
    start, end = meta.get("roofs") or {}, meta.get("roofs_end") or {}
    lines: list[tuple[str, float, float, bool]] = []
    before, after = (roofs.get("curves_us") or {} for roofs in (start, end))
    for kind in CURVES:
        later = {float(size): time for size, time in after.get(kind, [])}
        for size, time_us in before.get(kind, []):
            end_us = later.get(float(size))
            if end_us:
                percent = 100.0 * (time_us / end_us - 1.0)
                lines.append((kind, float(size), percent, time_us < DRIFT_FROM_US))
    rates_after = end.get("matrix_tflops") or {}
    for dtype, rate in (start.get("matrix_tflops") or {}).items():
        if dtype in rates_after:
            percent = 100.0 * (rates_after[dtype] / rate - 1.0)
            lines.append((f"matrix {dtype}", math.nan, percent, False))
    table: pd.DataFrame = pd.DataFrame(lines, columns=["kind", "bytes", "pct", "small"])
    return table
