"""The figure of how steady the card was while a run went on: clock, power, rounds and roofs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness import plot_style
from harness.plot_drift_data import Drift, drift_of, has
from harness.plot_drift_panels import (
    DARK,
    LEFT,
    PURPLE,
    clock_panel,
    deviations_panel,
    power_panel,
    roofs_panel,
)
from harness.plot_drift_text import notes_of, numbers
from harness.plot_text import fit
from harness.results import ResultsError, Run, read_watch
from harness.schema import WATCH_COLUMNS

_WIDTH, _GAP = 8.0, 0.42  # inches
_LINE_CHARACTERS = 118  # what fits under the title

Panel = tuple[float, Callable[[Figure, float, float], Axes]]  # inches high; drawn at a bottom


def drift_figure(run: Run, gpu: str, tell: Callable[[str], None]) -> Figure | str:
    """Return the figure, or the reason why there is none.

    A panel without data is left out. `tell` hears of a watch.csv that cannot be read.
    """
    try:
        watch = read_watch(run)
    except ResultsError as error:
        tell(f"the drift figure lacks what NVML saw: {error}")
        watch = pd.DataFrame(columns=list(WATCH_COLUMNS), dtype="float64")
    drift = drift_of(run, watch)
    if isinstance(drift, str):
        return drift
    timed, roofs = _panels(drift)
    if not timed + roofs:
        return "no row but launch-bound ones, and neither clock, power nor roofs were recorded"
    return _assembled(drift, timed, roofs, f"Drift over the run   {gpu}", notes_of(run, drift))


def _assembled(
    drift: Drift, timed: list[Panel], roofs: list[Panel], title: str, notes: list[str]
) -> Figure:
    """Stack the panels between the title with its numbers and the caption."""
    caption, summary = "; ".join(notes), _rows_of(numbers(drift))
    foot = 0.62 + plot_style.foot(caption, _WIDTH)
    head = 0.62 + 0.16 * len(summary)
    heights = [height for height, _ in timed + roofs]
    between = 0.32 if timed and roofs else 0.0  # for the label of the axis of time
    total = foot + sum(heights) + _GAP * (len(heights) - 1) + between + head
    figure = plot_style.new_figure(_WIDTH, total)
    for i, (used, (height, draw)) in enumerate(
        zip(accumulate(heights), timed + roofs, strict=True)
    ):
        below = between if i >= len(timed) else 0.0
        axes = draw(figure, total - head - used - _GAP * i - below, height)
        if i < len(timed):
            _time_axis(axes, drift, label=i == len(timed) - 1)
    x = LEFT / _WIDTH
    figure.text(x, 1 - 0.2 / total, fit(title, _WIDTH - LEFT - 0.1, 11.0), fontsize=11)
    figure.text(x, 1 - 0.28 / total, "\n".join(summary), fontsize=8, va="top", color=DARK)
    plot_style.caption(figure, caption)
    return figure


def _panels(drift: Drift) -> tuple[list[Panel], list[Panel]]:
    """Return the panels over time that have data, and the roofs' panel if it has."""
    watch, timed = drift.watch, []
    if drift.rounds["sm_mhz"].notna().any() or has(watch, "sm_mhz"):
        timed.append((1.25, lambda *place: clock_panel(drift, *place)))
    if has(watch, "watts") or has(watch, "celsius"):
        timed.append((1.25, lambda *place: power_panel(watch, *place)))
    if drift.rounds["deviation_pct"].notna().any():
        timed.append((1.9, lambda *place: deviations_panel(drift, *place)))
    roofs: list[Panel] = (
        [] if drift.roofs.empty else [(1.3, lambda *p: roofs_panel(drift.roofs, *p))]
    )
    return timed, roofs


def _time_axis(axes: Axes, drift: Drift, label: bool) -> None:
    """Give all panels over time the same axis; only the last one is labelled."""
    end = max(float(drift.rounds["minutes"].max()), 1e-3)
    axes.set_xlim(-0.01 * end, 1.01 * end)
    axes.tick_params(labelsize=8)
    for minute, _ in drift.pauses:
        axes.axvline(minute, color=PURPLE, linewidth=1.0, linestyle=(0, (3, 2)), zorder=1.6)
    if label:
        axes.set_xlabel("minutes since the first round", fontsize=8)
    else:
        axes.tick_params(labelbottom=False)


def _rows_of(pieces: list[str]) -> list[str]:
    """Join the pieces to lines that fit under the title; no piece is broken."""
    rows = [""]
    for piece in pieces:
        longer = f"{rows[-1]}   ·   {piece}" if rows[-1] else piece
        if len(longer) <= _LINE_CHARACTERS:
            rows[-1] = longer
        else:
            rows.append(piece)
    return rows
