"""Two runs side by side: each row's times in both, and their ratio with interval and band."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from harness import plot_dots, plot_style, stats
from harness.plot_speedup import row_names
from harness.plot_style import PlotError
from harness.plot_text import fit, widest

FORMATS = ("png", "svg")
MAX_ROWS = 150  # more rows than this no reader scans; the caption counts the rest
_LEFT_PANEL, _RIGHT_PANEL, _GAP = 2.3, 3.2, 0.25  # inches
_BELOW = 0.5
_BLUE, _RED = plot_style.COLOURS["cuda"], plot_style.COLOURS["triton"]
_MARKS: plot_dots.Marks = {
    "FASTER": (_BLUE, "v", _BLUE),
    "SLOWER": (_RED, "^", _RED),
    "SAME": (plot_style.GREY, "o", plot_style.GREY),
    "UNCLEAR": (plot_style.GREY, "o", "white"),
}
_WORDS = {"FASTER": "faster", "SLOWER": "slower", "SAME": "same", "UNCLEAR": "unclear"}


def draw(
    rows: pd.DataFrame,
    base_name: str,
    new_name: str,
    path: Path | str,
    formats: Sequence[str] = FORMATS,
    card: str = "",
) -> list[Path]:
    """Draw compare.Comparison's `rows` and return the files written.

    path: a name that ends in .png or .svg is that one file, else the stem of one a format. card:
    model and date, for the title's second line. Raises PlotError when there is nothing to draw.
    """
    path = Path(path)
    if path.suffix in (".png", ".svg"):
        path, formats = path.with_suffix(""), (path.suffix[1:],)
    with plot_style.house_style():
        figure = compare_figure(rows, base_name, new_name, card)
        if isinstance(figure, str):
            raise PlotError(f"nothing to draw of {base_name} and {new_name}: {figure}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return plot_style.save(figure, path, formats)
        except OSError as error:
            raise PlotError(
                f"cannot write {path}: {error.strerror or error}; choose another place"
            ) from error


def compare_figure(
    rows: pd.DataFrame, base_name: str, new_name: str, card: str = ""
) -> Figure | str:
    """Return the figure, or the reason why there is none."""
    told = rows[(rows["verdict"] != "") | rows["failed"]]
    if told.empty:
        return "no row was timed on either side"
    shown = _selected(told)
    names = row_names(shown, ("case", "dtype", "backend", "variant"))
    note = _note(len(rows) - len(told), len(told) - len(shown))
    places, headings, n_slots = plot_dots.places_of(list(shown["op"]))
    height = n_slots * plot_dots.ROW_INCHES
    room = min(widest(names, plot_dots.NAME_PT), 3.2)
    left = room + 0.25
    width = left + _LEFT_PANEL + _GAP + _RIGHT_PANEL + 0.25
    foot = plot_style.foot(note, width) + _BELOW
    total = plot_style.HEAD + plot_style.KEY + height + foot
    figure = plot_style.new_figure(width, total)
    times = plot_style.add_axes(figure, left, foot, _LEFT_PANEL, height)
    _draw_times(times, shown, places)
    plot_dots.name_rows(times, places, names, room, n_slots)
    plot_dots.name_ops(times, headings, _LEFT_PANEL - 0.1)
    ratios = plot_style.add_axes(figure, left + _LEFT_PANEL + _GAP, foot, _RIGHT_PANEL, height)
    _draw_ratios(ratios, shown, places, n_slots)
    sub = f"{card}   ·   " if card else ""
    sub += f"base: {base_name}   ·   new: {new_name}"
    plot_style.header(figure, "Two runs: time of new against base", sub)
    seen = set(shown["verdict"])
    plot_dots.key(figure, _MARKS, {v: w for v, w in _WORDS.items() if v in seen})
    plot_style.caption(figure, note)
    return figure


def _note(untimed: int, further: int) -> str:
    notes = [
        "left: hollow is base, filled is new",
        f"right: {100 * stats.CONFIDENCE:g} % intervals; grey: the band within which a row is SAME",
    ]
    notes += [f"{untimed} rows timed in neither"] if untimed else []
    notes += [f"{further} further rows, less changed, only in the table"] if further else []
    return "; ".join(notes)


def _selected(rows: pd.DataFrame) -> pd.DataFrame:
    """Return at most MAX_ROWS rows, what is bad first; in the files' order of ops, slowest last."""
    with np.errstate(divide="ignore", invalid="ignore"):
        effect = np.abs(np.log(rows["ratio"].to_numpy(dtype="float64")))
    effect = np.where(np.isfinite(effect), effect, 0.0)
    bad = rows["failed"] | rows["lost"] | (rows["verdict"] == "SLOWER")
    ranked = rows.assign(effect=effect, bad=bad)
    ranked = ranked.sort_values(["bad", "effect"], ascending=False, kind="stable").head(MAX_ROWS)
    ops = {op: i for i, op in enumerate(rows["op"].drop_duplicates())}
    ranked = ranked.assign(op_place=ranked["op"].map(ops))
    result: pd.DataFrame = ranked.sort_values(["op_place", "ratio"], kind="stable")
    return result


def _draw_times(axes: Axes, rows: pd.DataFrame, places: Sequence[float]) -> None:
    """Draw both medians of each row, joined."""
    values: list[float] = []
    for row, at in zip(rows.to_dict("records"), places, strict=True):
        shade = plot_style.colour(row.get("backend", "cuda"))
        pair = [t for t in (row["base_us"], row["new_us"]) if plot_style.drawable(t)]
        values += pair
        axes.plot(pair, [at] * len(pair), color=shade, linewidth=0.8)
        for time, face in ((row["base_us"], "white"), (row["new_us"], shade)):
            if plot_style.drawable(time):
                axes.plot([time], [at], "o", color=shade, markerfacecolor=face, markersize=4.2)
    low, high = min(values, default=1.0) / 1.4, max(values, default=1.0) * 1.4
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    powers = list(range(first, last + 1, max(1, math.ceil((last - first + 1) / 5))))
    ticks = [10.0**p for p in powers] if len(powers) > 1 else [low * 1.2, high / 1.2]
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([plot_style.number(t) for t in ticks])
    axes.set_xlabel("time, µs")


def _draw_ratios(axes: Axes, rows: pd.DataFrame, places: Sequence[float], n_slots: int) -> None:
    """Draw the ratios on their bands; a row without one says what became of it."""
    plot_dots.draw_ratios(axes, rows, places, _MARKS)
    low, high = axes.get_xlim()
    for row, at in zip(rows.to_dict("records"), places, strict=True):
        if math.isfinite(row["ratio"]):
            band = row["band"] if math.isfinite(row["band"]) else 0.0
            first, last = max(1.0 / (1.0 + band), low), min(1.0 + band, high)
            around = [at - 0.42, at + 0.42]
            axes.fill_betweenx(around, first, last, color="#E9E9E9", linewidth=0, zorder=1.2)
            continue
        words = fit(_fate(row), _RIGHT_PANEL / 2 - 0.1, 7.0)
        shade = _RED if row["failed"] or row["lost"] else plot_style.GREY
        axes.text(1.0, at, f" {words}", va="center", fontsize=7.0, color=shade)
    axes.set_ylim(n_slots - 0.3, -0.7)
    axes.yaxis.set_major_locator(FixedLocator(list(places)))
    axes.tick_params(axis="y", labelleft=False, length=0)
    axes.set_xlabel("time new / time base (right of 1: slower)")


def _fate(row: dict[Any, Any]) -> str:
    base, new = row["base_status"] or "absent from base", row["new_status"] or "absent from new"
    return (
        f"{base}, then {new}"
        if row["base_status"] and row["new_status"]
        else (base if not row["base_status"] else new)
    )
