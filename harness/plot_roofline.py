"""The roofline: each row's rate over its arithmetic intensity, under the roofs of its own run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from harness import plot_style
from harness.plot_text import widest
from harness.results import Run
from harness.roofs import CURVES

_WIDTH, _LEFT, _PANEL, _BELOW = 8.0, 0.75, 4.4, 0.55  # inches
_TICK_INCHES = 0.45
MAX_LABELS = 24  # leaders of more cannot be followed


def roofline_figure(run: Run, card: str) -> Figure | str:
    """Return the figure, or the reason why there is none."""
    points = _points(run.rows)
    if points.empty:
        return "no ok row has a time, flops and bytes"
    memory, matrix = _memory_gbps(run.meta), _matrix_tflops(run.meta)
    ends = _ends(points, memory, matrix)
    pitch = plot_style.LABEL_PT * 1.25 / 72.0
    height = max(_PANEL, (len(ends) + 1) * pitch)
    wanted = widest([e[2] for e in ends], plot_style.LABEL_PT) + plot_style.LEADER + 0.15
    room = min(max(wanted, 1.0), 3.0)
    note = _note(run.rows, points, memory)
    foot = plot_style.foot(note, _WIDTH) + _BELOW
    total = plot_style.HEAD + plot_style.KEY + height + foot
    figure = plot_style.new_figure(_WIDTH, total)
    axes = plot_style.add_axes(figure, _LEFT, foot, _WIDTH - _LEFT - room, height)
    _scales(axes, points, memory, matrix)
    _roofs(axes, memory, matrix)
    for (backend, headline), part in points.groupby(["backend", "headline"], sort=False):
        # Hollow, so that equal points are seen through each other.
        look = {"linestyle": "", "markerfacecolor": "none", "alpha": 1.0}
        marks = plot_style.marks(str(backend), bool(headline)) | look
        axes.plot(part["intensity"], part["tflops"], **marks)
    edge = axes.get_xlim()[1]
    ends = [(edge if math.isnan(x) else x, y, text, shade) for x, y, text, shade in ends]
    plot_style.label_ends(axes, ends, room)
    sub = f"{card}   ·   one point a row, variants small; labels: the fastest of each op and dtype"
    plot_style.header(figure, "Roofline: rate over arithmetic intensity, measured roofs", sub)
    hollow = {"linestyle": "", "markerfacecolor": "none"}
    plot_style.key(figure, plot_style.backends_key(figure, points["backend"], **hollow), 0.1)
    plot_style.caption(figure, note)
    return figure


def _points(rows: pd.DataFrame) -> pd.DataFrame:
    """Return op, dtype, backend, headline, intensity (flop/byte) and tflops of drawable rows."""
    headline = rows["headline"].fillna(False).astype(bool) | (
        ~rows["backend"].isin(["cuda", "triton"]) & (rows["variant"] == "")
    )
    rows = rows.assign(headline=headline)
    ok = rows[rows["status"] == "ok"]
    flops = ok["flops"].astype("float64")
    n_bytes = ok["bytes_model"].astype("float64")
    n_bytes = n_bytes.fillna(
        ok["bytes_read"].astype("float64") + ok["bytes_written"].astype("float64")
    )
    table = ok[["op", "dtype", "backend", "headline"]].copy()
    with np.errstate(divide="ignore", invalid="ignore"):
        table["intensity"] = flops / n_bytes
        table["tflops"] = flops / ok["time_us_p50"] / 1e6
    drawable = table[["intensity", "tflops"]].map(plot_style.drawable).all(axis=1)
    known: pd.DataFrame = table[drawable]
    return known


def _memory_gbps(meta: Mapping[str, Any]) -> dict[str, float]:
    """Return each curve's best rate, GB/s; only what was recorded and can be."""
    curves = (meta.get("roofs") or {}).get("curves_us") or {}
    rates = {}
    for kind in CURVES:
        found = [size / time / 1e3 for size, time in curves.get(kind, []) if time and time > 0]
        if found and math.isfinite(max(found)):
            rates[kind] = max(found)
    return rates


def _matrix_tflops(meta: Mapping[str, Any]) -> dict[str, float]:
    recorded = (meta.get("roofs") or {}).get("matrix_tflops") or {}
    return {k: float(v) for k, v in recorded.items() if v and math.isfinite(v) and v > 0}


def _scales(
    axes: Axes, points: pd.DataFrame, memory: Mapping[str, float], matrix: Mapping[str, float]
) -> None:
    """Make both axes logarithmic over points, roofs and ridges, with room for the roofs' names."""
    ridges = [1e3 * rate / gbps for rate in matrix.values() for gbps in memory.values()]
    xs = [*points["intensity"], *ridges]
    ys = [*points["tflops"], *matrix.values()]
    for axis, values, more in (("x", xs, 3.0), ("y", ys, 2.0)):
        low, high = min(values) / 2.0, max(values) * more
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        box = axes.get_window_extent()
        inches = (box.width if axis == "x" else box.height) / axes.figure.dpi
        step = max(1, math.ceil(len(powers) * _TICK_INCHES / inches))
        ticks = [10.0**p for p in powers if p % step == 0 and low <= 10.0**p <= high]
        getattr(axes, f"set_{axis}scale")("log")
        getattr(axes, f"set_{axis}lim")(low, high)
        side = getattr(axes, f"{axis}axis")
        side.set_major_locator(FixedLocator(ticks))
        side.set_minor_locator(NullLocator())
        side.set_ticklabels([plot_style.number(t) for t in ticks])
    axes.set_xlabel("arithmetic intensity, flop/byte (model's bytes)")
    axes.set_ylabel("TFLOP/s")


def _roofs(axes: Axes, memory: Mapping[str, float], matrix: Mapping[str, float]) -> None:
    """Draw the memory roof up to the last ridge, each matrix roof from its own; mark the ridges."""
    x_low, x_high = axes.get_xlim()
    line: dict[str, Any] = {
        "color": plot_style.ROOF_COLOUR,
        "linestyle": plot_style.ROOF_LINE,
        "zorder": 1.5,
    }
    kind, gbps = _memory_roof(memory)
    for rate in matrix.values():
        ridge = 1e3 * rate / gbps if gbps else x_low
        axes.plot([ridge, x_high], [rate, rate], **line)
        if gbps:
            axes.plot([ridge], [rate], "D", color="black", markersize=3.5, zorder=3)
    if gbps:
        last = max((1e3 * rate / gbps for rate in matrix.values()), default=x_high)
        ends = [x_low, min(last, x_high)]
        axes.plot(ends, [x * gbps / 1e3 for x in ends], **line)
        _along(axes, gbps, f"{kind} {gbps:.0f} GB/s")


def _along(axes: Axes, gbps: float, text: str) -> None:
    """Write the memory roof's name along it, above the line, where no point can be."""
    (x_low, x_high), (y_low, y_high) = axes.get_xlim(), axes.get_ylim()
    box = axes.get_window_extent()
    slope = (box.height / math.log(y_high / y_low)) / (box.width / math.log(x_high / x_low))
    # The line may enter the axes through the left side or through the bottom.
    start = max(x_low, y_low * 1e3 / gbps)
    x = start * (x_high / x_low) ** 0.06
    axes.annotate(
        text,
        xy=(x, x * gbps / 1e3),
        xytext=(-5, 5),
        textcoords="offset points",
        rotation=math.degrees(math.atan(slope)),
        rotation_mode="anchor",
        fontsize=7.5,
        color=plot_style.GREY,
    )


def _memory_roof(memory: Mapping[str, float]) -> tuple[str, float]:
    """Return the copy roof's name and GB/s; another's where copies were not measured."""
    kind = "copy" if "copy" in memory else next(iter(memory), "")
    return kind, memory.get(kind, 0.0)


def _ends(
    points: pd.DataFrame, memory: Mapping[str, float], matrix: Mapping[str, float]
) -> list[tuple[float, float, str, str]]:
    """Return the labels right of the axes: the fastest point of each op and dtype, the roofs."""
    best = _labelled(points)
    ends = [
        (row["intensity"], row["tflops"], f"{row['op']} {row['dtype']}", "#333333")
        for row in best.to_dict("records")
    ]
    _, gbps = _memory_roof(memory)
    for dtype, rate in matrix.items():
        ridge = f", ridge {1e3 * rate / gbps:.0f} flop/byte" if gbps else ""
        ends.append((math.nan, rate, f"roof {dtype} {rate:.0f}{ridge}", plot_style.GREY))
    return ends


def _labelled(points: pd.DataFrame) -> pd.DataFrame:
    """Return the fastest point of each op and dtype; of too many, of each op; of too many, some."""
    best = points.loc[points.groupby(["op", "dtype"], sort=False)["tflops"].idxmax()]
    if len(best) > MAX_LABELS:
        best = points.loc[points.groupby("op", sort=False)["tflops"].idxmax()]
    best = best.sort_values("tflops", kind="stable")
    every = np.linspace(0, len(best) - 1, min(len(best), MAX_LABELS)).round().astype(int)
    some: pd.DataFrame = best.iloc[every]
    return some


def _note(rows: pd.DataFrame, points: pd.DataFrame, memory: Mapping[str, float]) -> str:
    kind, _ = _memory_roof(memory)
    others = ", ".join(f"{k} {v:.0f} GB/s" for k, v in memory.items() if k != kind)
    missing = int((rows["status"] == "ok").sum()) - len(points)
    notes = [f"other memory roofs: {others}" if others else ""]
    notes.append("no memory roof was recorded" if not memory else "")
    unnamed = points.groupby(["op", "dtype"]).ngroups - len(_labelled(points))
    notes.append(f"{unnamed} pairs of op and dtype without a label" if unnamed else "")
    notes.append("diamonds: ridge points" if memory else "")
    notes.append(f"{missing} ok rows without usable flops or bytes not drawn" if missing else "")
    return "; ".join(n for n in notes if n)
