"""The words of the drift figure: the numbers under its title, and its caption."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from harness.plot_drift_data import MAX_POINTS, Drift, has, launch_bound, reach_pct
from harness.results import Run


def numbers(drift: Drift) -> list[str]:
    """Return the line under the title, piece by piece: %, MHz, W."""
    pieces = []
    if drift.trend:
        low, high = drift.trend.low_pct, drift.trend.high_pct
        pieces.append(
            f"round means {drift.trend.pct:+.2f} % from a case's first to its last "
            f"(99 % interval {low:+.2f} to {high:+.2f})"
        )
    stamps = drift.rounds["sm_mhz"].dropna()
    clocks = stamps if len(stamps) else drift.watch.get("sm_mhz", stamps).dropna()
    if len(clocks):
        low, high = clocks.quantile([0.05, 0.95])
        pieces.append(f"SM clock p5 to p95 {low:.0f} to {high:.0f} MHz")
    if has(drift.watch, "watts"):
        watts = drift.watch["watts"]
        pieces.append(f"power {watts.min():.0f} to {watts.max():.0f} W")
    if len(drift.roofs):
        sure = drift.roofs[~drift.roofs["small"].astype(bool)]
        if sure.empty:
            pieces.append("roofs unchanged")
        else:
            worst = sure.loc[sure["pct"].abs().idxmax()]
            pieces.append(f"roofs at most {worst['pct']:+.1f} % ({worst['kind']})")
    return pieces


def notes_of(run: Run, drift: Drift) -> list[str]:
    """Return the caption's sentences: what is left out, cut out, and seen beside."""
    judged = drift.rounds[drift.rounds["deviation_pct"].notna()]
    notes = []
    if len(judged):
        notes.append(
            f"round means: {judged['row'].nunique()} ok rows, {launch_bound(run)} "
            "launch-bound rows left out; a row is measured within seconds, so its rounds show "
            "drift within a case, and clock and roofs show drift over the run"
        )
        outside = int((judged["deviation_pct"].abs() > reach_pct(judged["deviation_pct"])).sum())
        if outside:
            notes.append(f"triangles: {outside} rounds beyond the axis")
    if len(drift.rounds) > MAX_POINTS:
        notes.append(f"dots: one of {-(-len(drift.rounds) // MAX_POINTS)} rounds")
    if drift.pauses:
        cut = ", ".join(_duration(seconds) for _, seconds in drift.pauses[:4])
        more = ", ..." if len(drift.pauses) > 4 else ""
        notes.append(f"dashed: where the run was stopped, cut out ({cut}{more})")
    if len(drift.roofs):
        notes.append("roofs: above 0 is faster at the end, hollow is latency, below 10 us")
    reasons = drift.watch["reasons"] if "reasons" in drift.watch else pd.Series(dtype="str")
    known = reasons[reasons != ""]
    counts = Counter(name for text in known for name in text.split(";") if name != "none")
    if counts:
        shares = [f"{name} {100 * n / len(known):.0f} %" for name, n in counts.most_common()]
        notes.append(f"slowdown reasons, share of polls: {', '.join(shares)}")
    if has(drift.watch, "other_processes") and drift.watch["other_processes"].max() > 0:
        notes.append(f"up to {drift.watch['other_processes'].max():.0f} other processes on the GPU")
    return notes


def _duration(seconds: float) -> str:
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min"
