"""Where launches cost more than kernels: kernel, graph and host time of the short cases."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from harness import plot_dots, plot_style
from harness.plot_speedup import row_names
from harness.plot_text import widest
from harness.results import Run

SHORT_FLOORS, SHORT_US = 4.0, 10.0  # launch floors; where none was recorded
MAX_ROWS = 150
_WIDTH, _RIGHT, _BELOW = 8.0, 0.25, 0.5  # inches
# column -> marker, filled, words
_TIMES = {
    "time_us_p50": ("o", True, "kernel, cold cache"),
    "graph_us_p50": ("o", False, "graph replay, warm"),
    "host_us_p50": ("|", True, "host time of one call"),
}
_TICKS = [m * 10.0**p for p in range(-3, 8) for m in (1, 2, 5)]


def launch_figure(run: Run, card: str) -> Figure | str:
    """Return the figure, or the reason why there is none."""
    floor = (run.meta.get("roofs") or {}).get("launch_floor_us") or run.meta.get("launch_floor_us")
    floor = float(floor) if floor and math.isfinite(floor) and floor > 0 else math.nan
    limit = SHORT_US if math.isnan(floor) else SHORT_FLOORS * floor
    rows = _short_rows(run.rows, limit)
    if rows.empty:
        return f"no case's fastest kernel takes less than {limit:.3g} us"
    shown = rows.head(MAX_ROWS)
    names = [
        f"{name}  {row['backend']}" + (f":{row['variant']}" if row["variant"] else "")
        for name, row in zip(
            row_names(shown, ("case", "dtype")), shown.to_dict("records"), strict=True
        )
    ]
    note = f"cases whose fastest kernel takes less than {limit:.3g} us"
    note += "" if math.isnan(floor) else f" ({SHORT_FLOORS:g} launch floors)"
    note += f"; {len(rows) - MAX_ROWS} further rows in bench.csv" if len(rows) > MAX_ROWS else ""
    return _figure(shown, names, floor, note, card)


def _figure(rows: pd.DataFrame, names: list[str], floor: float, note: str, card: str) -> Figure:
    places, headings, n_slots = plot_dots.places_of(list(rows["op"]))
    height = n_slots * plot_dots.ROW_INCHES
    foot = plot_style.foot(note, _WIDTH) + _BELOW
    total = plot_style.HEAD + plot_style.KEY + height + foot
    figure = plot_style.new_figure(_WIDTH, total)
    room = min(widest(names, plot_dots.NAME_PT), 3.4)
    panel = _WIDTH - _RIGHT - room - 0.25
    axes = plot_style.add_axes(figure, room + 0.25, foot, panel, height)
    _draw(axes, rows, places, floor)
    plot_dots.name_rows(axes, places, names, room, n_slots)
    plot_dots.name_ops(axes, headings, panel - 0.15)
    sub = f"{card}   ·   medians; where the host's bar is right of the dot, the host is slower"
    plot_style.header(figure, "Kernel, graph and host time of the shortest cases", sub)
    _key(figure, axes, floor)
    plot_style.caption(figure, note)
    return figure


def _short_rows(rows: pd.DataFrame, limit: float) -> pd.DataFrame:
    """Return the ok rows of short cases, op by op, smallest case first."""
    time = rows["time_us_p50"]
    ok = rows[(rows["status"] == "ok") & time.map(plot_style.drawable)]
    case = ["op", "case", "dims", "dtype", "math_mode", "distribution", "cache", "flush"]
    fastest = ok.groupby(case, sort=False)["time_us_p50"].transform("min")
    short = ok.assign(fastest=fastest)[fastest < limit]
    ops = {op: i for i, op in enumerate(rows["op"].drop_duplicates())}
    backends = {b: i for i, b in enumerate(plot_style.COLOURS)}
    short = short.assign(
        op_place=short["op"].map(ops),
        backend_place=short["backend"].map(backends).fillna(len(backends)),
        n_bytes=short["bytes_read"].astype("float64") + short["bytes_written"].astype("float64"),
    )
    order = ["op_place", "n_bytes", "case", "dtype", "backend_place", "variant"]
    result: pd.DataFrame = short.sort_values(order, kind="stable")
    return result


def _draw(axes: Axes, rows: pd.DataFrame, places: list[float], floor: float) -> None:
    """Draw each row's times on one line, joined."""
    values: list[float] = [] if math.isnan(floor) else [floor]
    for row, at in zip(rows.to_dict("records"), places, strict=True):
        shade = plot_style.colour(row["backend"])
        known = {c: row[c] for c in _TIMES if plot_style.drawable(row[c])}
        values += known.values()
        axes.plot([min(known.values()), max(known.values())], [at, at], color=shade, linewidth=0.6)
        for column, value in known.items():
            axes.plot([value], [at], **_mark(column, shade))
    if not math.isnan(floor):
        axes.axvline(
            floor, color=plot_style.ROOF_COLOUR, linestyle=plot_style.ROOF_LINE, zorder=1.5
        )
    low, high = min(values) / 1.3, max(values) * 1.3
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    per_inch = math.log(high / low) / (axes.get_window_extent().width / axes.figure.dpi)
    ticks: list[float] = []
    for tick in _TICKS:
        apart = not ticks or math.log(tick / ticks[-1]) >= 0.35 * per_inch
        if low <= tick <= high and apart:
            ticks.append(tick)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([plot_style.number(t) for t in ticks])
    axes.set_xlabel("time of one launch, µs")


def _mark(column: str, shade: str) -> dict[str, Any]:
    marker, filled, _ = _TIMES[column]
    return {
        "marker": marker,
        "linestyle": "",
        "color": shade,
        "markerfacecolor": shade if filled else "white",
        "markersize": 8 if marker == "|" else 4.2,
        "markeredgewidth": 2.0 if marker == "|" else 1.0,
    }


def _key(figure: Figure, axes: Axes, floor: float) -> None:
    lines = [axes.plot([], [], label=_TIMES[c][2], **_mark(c, "black"))[0] for c in _TIMES]
    if not math.isnan(floor):
        lines += axes.plot(
            [],
            [],
            color=plot_style.ROOF_COLOUR,
            linestyle=plot_style.ROOF_LINE,
            label=f"empty kernel, {floor:.3g} µs",
        )
    plot_style.key(figure, lines)
