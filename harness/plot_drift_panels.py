"""The drift figure's panels, each drawn at a place given in inches."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from harness import plot_style
from harness.plot_drift_data import MAX_POINTS, Drift, has, reach_pct, windows
from harness.roofs import DRIFT_PCT

# None of a backend's colours: these are the card's.
DARK, PURPLE = "#333333", "#7A5CA8"
_OCHRE, _PALE = "#B8860B", "#8FA3B3"
_ROOF_MARKS = {"copy": (DARK, "o"), "read": (_OCHRE, "s"), "write": (PURPLE, "^")}
LEFT, PANEL = 0.75, 6.5  # inches


def _add(figure: Figure, bottom: float, height: float, title: str) -> Axes:
    axes = plot_style.add_axes(figure, LEFT, bottom, PANEL, height)
    axes.set_title(title, fontsize=8.5)
    return axes


def _legend(axes: Axes) -> None:
    """Put the legend above the panel's right end, where no data can be."""
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles,
        labels,
        loc="lower right",
        bbox_to_anchor=(1.0, 0.98),
        ncol=len(labels),
        fontsize=7.5,
        markerscale=1.5,
        borderaxespad=0.0,
        handletextpad=0.4,
        columnspacing=1.2,
    )


def clock_panel(drift: Drift, figure: Figure, bottom: float, height: float) -> Axes:
    axes = _add(figure, bottom, height, "SM clock, MHz")
    stamps = drift.rounds[drift.rounds["sm_mhz"].notna()]
    if has(drift.watch, "sm_mhz"):
        axes.plot(*_line(drift.watch, "sm_mhz"), color=DARK, linewidth=0.9, label="NVML")
    if len(stamps):
        thin = _thinned(stamps)
        axes.plot(
            thin["minutes"],
            thin["sm_mhz"],
            ".",
            color=_OCHRE,
            markersize=_dot(thin),
            markeredgewidth=0,
            label="a round",
        )
    axes.yaxis.set_major_locator(MaxNLocator(4))
    _legend(axes)
    return axes


def power_panel(watch: pd.DataFrame, figure: Figure, bottom: float, height: float) -> Axes:
    """Draw power from 0 on the left axis and temperature on the right one."""
    both = has(watch, "watts") and has(watch, "celsius")
    title = "Power, W" if has(watch, "watts") else "Temperature, °C"
    axes = _add(figure, bottom, height, title)
    if has(watch, "watts"):
        axes.plot(*_line(watch, "watts"), color=DARK, linewidth=0.9, label="power (left)")
        axes.set_ylim(0.0, float(watch["watts"].max()) * 1.08)
    heat = axes.twinx() if both else axes
    if has(watch, "celsius"):
        heat.plot(
            *_line(watch, "celsius"),
            color=_OCHRE,
            linestyle=(0, (4, 1.5)),
            linewidth=1.1,
            label="temperature, °C (right)" if both else "temperature",
        )
        heat.yaxis.set_major_locator(MaxNLocator(4, integer=True, min_n_ticks=2))
    if both:
        heat.grid(False)
        heat.spines["right"].set_visible(True)
        heat.tick_params(labelsize=8)
        # One legend for both axes.
        axes.plot([], [], color=_OCHRE, linestyle=(0, (4, 1.5)), label="temperature, °C (right)")
        _legend(axes)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    return axes


def deviations_panel(drift: Drift, figure: Figure, bottom: float, height: float) -> Axes:
    axes = _add(figure, bottom, height, "Round means against their row's own mean, %")
    dots = drift.rounds[drift.rounds["deviation_pct"].notna()]
    reach = reach_pct(dots["deviation_pct"])
    shown = _thinned(dots)
    inside = shown["deviation_pct"].abs() <= reach
    axes.plot(
        shown["minutes"][inside],
        shown["deviation_pct"][inside],
        ".",
        color=_PALE,
        markersize=_dot(shown),
        markeredgewidth=0,
        label="a round of a row",
    )
    for sign, marker in ((1, "^"), (-1, "v")):
        out = dots[sign * dots["deviation_pct"] > reach]
        axes.plot(
            out["minutes"],
            np.full(len(out), sign * reach * 0.97),
            marker,
            color=PURPLE,
            markersize=3,
        )
    running = windows(dots)
    if len(running) > 2:
        x, low, high = running["minutes"], running["low"], running["high"]
        axes.fill_between(x, low, high, color=_OCHRE, alpha=0.3, linewidth=0, label="p20 to p80")
        axes.plot(x, running["median"], color=DARK, linewidth=1.3, label="running median")
    axes.axhline(0.0, color="black", linewidth=0.6, zorder=1.5)
    axes.set_ylim(-reach, reach)
    _legend(axes)
    return axes


def roofs_panel(roofs: pd.DataFrame, figure: Figure, bottom: float, height: float) -> Axes:
    """Draw one mark a point of a curve over its bytes, and the matrix rates beside them."""
    curves = roofs[roofs["bytes"].notna()]
    matrix = roofs[roofs["bytes"].isna()]
    beside = 0.55 * len(matrix) + 0.25 if len(matrix) and len(curves) else 0.0
    reach = max(float(roofs["pct"].abs().max()) * 1.15, DRIFT_PCT * 1.25)
    axes = plot_style.add_axes(figure, LEFT, bottom, PANEL - beside, height)
    axes.set_title("Roofs, end over start, %", fontsize=8.5)
    all_axes = [axes]
    if len(curves):
        for kind, part in curves.groupby("kind", sort=False):
            shade, marker = _ROOF_MARKS[str(kind)]
            for within, some in part.groupby("small"):
                face = "white" if within else shade
                axes.plot(
                    some["bytes"], some["pct"], marker, color=shade, markerfacecolor=face, ms=4
                )
            axes.plot([], [], marker, color=shade, ms=4, label=str(kind))
        plot_style.size_axis(axes, [float(b) for b in curves["bytes"]], True)
        axes.set_xlabel("bytes read and written", fontsize=8)
    if len(matrix):
        at = axes
        if len(curves):
            left = LEFT + PANEL - beside + 0.25
            at = plot_style.add_axes(figure, left, bottom, beside - 0.25, height)
            at.tick_params(labelleft=False)
            all_axes.append(at)
        at.plot(range(len(matrix)), matrix["pct"], "D", color=DARK, ms=4)
        at.set_xlim(-0.6, len(matrix) - 0.4)
        at.set_xticks(range(len(matrix)), [k.partition(" ")[2] for k in matrix["kind"]])
        at.set_xlabel("matrix rate", fontsize=8)
    for each in all_axes:
        each.set_ylim(-reach, reach)
        each.axhspan(-DRIFT_PCT, DRIFT_PCT, color="#F2F2F2", zorder=0.5)
        each.axhline(0.0, color="black", linewidth=0.6, zorder=1.5)
        each.tick_params(labelsize=8)
    if len(curves):
        _legend(axes)
    return axes


def _line(table: pd.DataFrame, column: str) -> tuple[pd.Series[float], pd.Series[float]]:
    """Return minutes and values of a line; of too many, each stretch's least and greatest."""
    known = table[table[column].notna()]
    if len(known) > MAX_POINTS:
        stretch = np.arange(len(known)) // (2 * -(-len(known) // MAX_POINTS))
        ends = known.reset_index(drop=True).groupby(stretch)[column]
        places = sorted({*ends.idxmin(), *ends.idxmax()})
        known = known.iloc[places]
    return known["minutes"], known[column]


def _thinned(table: pd.DataFrame) -> pd.DataFrame:
    every: pd.DataFrame = table.iloc[:: -(-len(table) // MAX_POINTS) or 1]
    return every


def _dot(table: pd.DataFrame) -> float:
    """Return the dots' size in points: few dots must be seen, many must not hide each other."""
    return 5.0 if len(table) < 500 else 3.0
