"""Rows of ratio dots with intervals: what speedup and compare figures share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator
from matplotlib.transforms import blended_transform_factory

from harness import plot_style
from harness.plot_text import fit

ROW_INCHES = 0.165
NAME_PT = 7.5
_NEAR = (0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
_FAR = tuple(10.0**p for p in (-9, -6, -4, -3, -2, 2, 3, 4, 6, 9))
_TICK_INCHES = 0.42
# verdict -> colour, marker, face: never told apart by colour alone.
Marks = dict[str, tuple[str, str, str]]


def places_of(ops: Sequence[str]) -> tuple[list[float], list[tuple[float, str]], int]:
    """Return each row's height, (height, op) of the headings between, and how many slots.

    Rows of one op follow each other; each op has a slot for its name above its rows.
    """
    places: list[float] = []
    headings: list[tuple[float, str]] = []
    at = 0
    for i, op in enumerate(ops):
        if i == 0 or op != ops[i - 1]:
            headings.append((float(at), op))
            at += 1
        places.append(float(at))
        at += 1
    return places, headings, at


def name_rows(
    axes: Axes, places: Sequence[float], names: Sequence[str], room: float, n_slots: int
) -> None:
    """Make y the axis of rows, downwards, with names cut to `room` inches."""
    axes.set_ylim(n_slots - 0.3, -0.7)
    axes.yaxis.set_major_locator(FixedLocator(list(places)))
    axes.set_yticklabels([fit(n, room, NAME_PT) for n in names], fontsize=NAME_PT)
    axes.tick_params(axis="y", length=2)


def name_ops(axes: Axes, headings: Sequence[tuple[float, str]], room: float) -> None:
    """Write each op's name at the left edge of its slot."""
    side = blended_transform_factory(axes.transAxes, axes.transData)
    for at, op in headings:
        text = fit(op, room, 9.0, bold=True)
        axes.text(
            0.012,
            at,
            text,
            transform=side,
            va="center",
            weight="bold",
            fontsize=9.0,
            # Lines across all rows must not strike it through.
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4},
        )


def draw_ratios(axes: Axes, rows: pd.DataFrame, places: Sequence[float], marks: Marks) -> None:
    """Draw ratio, low, high, verdict of each row; intervals beyond the axis end at its edge."""
    reach = _reach(rows)
    low_end, high_end = math.exp(-reach), math.exp(reach)
    axes.axvline(1.0, color="black", linewidth=0.8, zorder=1.5)
    for row, at in zip(rows.to_dict("records"), places, strict=True):
        shade, marker, face = marks.get(row["verdict"], (plot_style.GREY, "o", plot_style.GREY))
        if not plot_style.drawable(row["ratio"]):
            continue
        if not (math.isnan(row["low"]) or math.isnan(row["high"])):
            ends = [max(row["low"], low_end), min(row["high"], high_end)]
            axes.plot(ends, [at, at], color=shade, linewidth=1.2)
        axes.plot([row["ratio"]], [at], marker, color=shade, markerfacecolor=face, markersize=4.2)
    _ratio_axis(axes, reach)


def key(figure: Figure, marks: Marks, words: dict[str, str]) -> None:
    """Write the marks' meaning in one line under the header: words by verdict."""
    lines = []
    for verdict, text in words.items():
        shade, marker, face = marks[verdict]
        look: dict[str, Any] = {"color": shade, "markerfacecolor": face, "markersize": 4.2}
        lines += figure.axes[0].plot([], [], marker, label=text, **look)
    plot_style.key(figure, lines, 0.0)


def _reach(rows: pd.DataFrame) -> float:
    """Return the axis' half width in log: all ratios, and intervals as far as that allows."""
    table = rows[["ratio", "low", "high"]].to_numpy(dtype="float64")
    logs = np.abs(np.log(np.where((table >= 1e-12) & (table <= 1e12), table, 1.0)))
    ratios = max(float(logs[:, 0].max(initial=0.0)), math.log(1.2))
    return min(max(float(logs.max(initial=0.0)), ratios), 1.6 * ratios) * 1.1


def ratio_ticks(reach: float, inches: float) -> list[float]:
    """Return ratios to write on an axis of 1 in its middle and exp(reach) at its end."""
    apart = _TICK_INCHES * 2.0 * reach / inches
    ticks = [1.0]
    above = sorted(t for t in (*_NEAR, *_FAR) if t > 1.0)
    below = sorted((t for t in (*_NEAR, *_FAR) if t < 1.0), reverse=True)
    for side in (above, below):
        last = 0.0
        for tick in side:
            place = abs(math.log(tick))
            if place <= reach and place - last >= apart:
                ticks.append(tick)
                last = place
    return sorted(ticks)


def _ratio_axis(axes: Axes, reach: float) -> None:
    """Make x logarithmic and symmetric about 1: half and twice the time lie equally far."""
    ticks = ratio_ticks(reach, axes.get_window_extent().width / axes.figure.dpi)
    axes.set_xscale("log")
    axes.set_xlim(math.exp(-reach), math.exp(reach))
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([plot_style.number(t) for t in ticks])
