"""The dot plot of CUDA time over Triton time, one dot a case, with intervals from the rounds."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator
from matplotlib.transforms import blended_transform_factory

from harness import plot_style
from harness.compare import ComparisonRefused, compare_sides
from harness.results import Run, varying

MAX_DOTS = 150  # more rows than this no reader scans; the caption counts the rest
_TICKS = (0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
_ROW_INCHES = 0.165


def speedup_figure(run: Run, gpu: str) -> Figure | str:
    """Return the figure, or the reason why there is none."""
    try:
        rows = compare_sides(run, "cuda", "triton").rows
    except ComparisonRefused as refusal:
        return str(refusal)
    timed = rows[rows["ratio"].notna()]
    if timed.empty:
        return "no case with an ok headline row on both sides"
    shown = _selected(timed)
    n_slots = len(shown) + shown["op"].nunique()
    height = n_slots * _ROW_INCHES
    figure = plot_style.new_figure(8.0, height + 1.35)
    axes = plot_style.add_axes(figure, 2.5, 0.8, 5.2, height)
    _draw_dots(axes, shown, n_slots)
    axes.set_title(f"CUDA time / Triton time   {gpu}")
    axes.set_xlabel("below 1: CUDA is faster      above 1: Triton is faster")
    notes = [f"{len(rows) - len(timed)} cases without an ok row on both sides"]
    notes += [f"{len(timed) - len(shown)} further cases in bench.csv"]
    text = "not drawn: " + ", ".join(n for n in notes if not n.startswith("0 "))
    plot_style.caption(figure, "" if text.endswith(": ") else text)
    return figure


def _selected(rows: pd.DataFrame) -> pd.DataFrame:
    """Return at most MAX_DOTS rows, the slowest cases of each op, in the order of the file."""
    ordered = rows.sort_values("base_us", ascending=False, kind="stable")
    place = ordered.groupby("op", sort=False).cumcount()
    kept = ordered.assign(place=place).sort_values("place", kind="stable").head(MAX_DOTS)
    ops = {op: i for i, op in enumerate(rows["op"].drop_duplicates())}
    kept = kept.assign(op_place=kept["op"].map(ops))
    result: pd.DataFrame = kept.sort_values(["op_place", "dtype", "base_us"], kind="stable")
    return result


def _draw_dots(axes: Axes, rows: pd.DataFrame, n_slots: int) -> None:
    """Draw the rows downwards, each op under a line with its name."""
    places: list[float] = []
    names: list[str] = []
    at, last_op = 0.0, None
    side = blended_transform_factory(axes.transAxes, axes.transData)
    # A mode or distribution that all of an op's rows share would only push the labels off the page.
    telling = varying(rows, ("math_mode", "distribution"))
    for row in rows.to_dict("records"):
        if row["op"] != last_op:
            axes.text(0.0, at, f" {row['op']}", transform=side, va="center", weight="bold")
            last_op, at = row["op"], at + 1.0
        places.append(at)
        extra = [str(row[c]) for c, ops in telling.items() if row["op"] in ops]
        names.append(" ".join([str(row["case"]), str(row["dtype"]), *extra]))
        shade = {"FASTER": plot_style.COLOURS["cuda"], "SLOWER": plot_style.COLOURS["triton"]}.get(
            row["verdict"], "#595959"
        )
        face = "white" if row["verdict"] == "UNCLEAR" else shade
        if math.isfinite(row["high"]) and row["low"] > 0:
            axes.plot([row["low"], row["high"]], [at, at], color=shade, linewidth=1.2)
        axes.plot([row["ratio"]], [at], "o", color=shade, markerfacecolor=face, markersize=4)
        at += 1.0
    axes.axvline(1.0, color="black", linewidth=0.8, zorder=1.5)
    axes.set_ylim(n_slots - 0.3, -0.7)
    axes.yaxis.set_major_locator(FixedLocator(places))
    axes.set_yticklabels(names, fontsize=7.5)
    _ratio_axis(axes, rows)


def _ratio_axis(axes: Axes, rows: pd.DataFrame) -> None:
    """Make x logarithmic and symmetric about 1: half and twice the time lie equally far."""
    ends = rows[["ratio", "low", "high"]].to_numpy(dtype="float64")
    ends = ends[np.isfinite(ends) & (ends > 0)]
    reach = max(float(np.abs(np.log(ends)).max()) * 1.1, math.log(1.25))
    axes.set_xscale("log")
    axes.set_xlim(math.exp(-reach), math.exp(reach))
    inside = [t for t in _TICKS if abs(math.log(t)) <= reach]
    step = 1 if len(inside) <= 9 else 2
    centre = inside.index(1.0)
    ticks = [t for i, t in enumerate(inside) if (i - centre) % step == 0]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{t:g}" for t in ticks])
