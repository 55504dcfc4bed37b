"""The heat map of CUDA time over Triton time: a line an op and dtype, a column a size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from harness import plot_dots, plot_style
from harness.plot_data import work
from harness.plot_speedup import side_ratios
from harness.plot_text import fit, widest
from harness.results import Run, varying

_CELL_W, _CELL_H = 0.62, 0.34  # inches
_RIGHT, _ABOVE, _BELOW, _BAR = 0.25, 0.02, 0.45, 0.6
_LEAST_WIDTH = 7.0
_CASE = ["op", "case", "dims", "distribution", "dtype", "math_mode"]
_LEAST_REACH, _MOST_REACH = math.log(1.25), math.log(4.0)  # beyond it colours no longer differ
# Blue to vermilion tell apart for the colour-blind; both are the faster side's own colour.
_MAP = LinearSegmentedColormap.from_list(
    "cuda-triton", [plot_style.COLOURS["cuda"], "#F7F7F7", plot_style.COLOURS["triton"]]
)


@dataclass(frozen=True, eq=False)
class Heat:
    """ratio, low, high, n (cases with a ratio), cases: by name and power of two of bytes moved."""

    cells: pd.DataFrame
    names: list[str]
    powers: list[int]


def heat_figure(run: Run, card: str) -> Figure | str:
    """Return the figure, or the reason why there is none."""
    rows = side_ratios(run)
    if isinstance(rows, str):
        return rows
    heat = _heat(run, rows)
    if heat is None:
        return "no case with a size and an ok headline row on both sides"
    note = (
        "size: bytes read and written, to the next power of two; a cell of several cases has their "
        "geometric mean, and below it the least and the greatest; hatched: no such case; failed: "
        "no ok row on both sides"
    )
    room = min(widest(heat.names, 8.0), 3.0)
    height = _CELL_H * len(heat.names)
    width = max(room + 0.3 + _CELL_W * len(heat.powers) + _RIGHT, _LEAST_WIDTH)
    foot = plot_style.foot(note, width)
    total = plot_style.HEAD + _ABOVE + height + _BELOW + _BAR + foot
    figure = plot_style.new_figure(width, total)
    axes = plot_style.add_axes(
        figure, room + 0.3, foot + _BAR + _BELOW, _CELL_W * len(heat.powers), height
    )
    norm = _norm(heat.cells["ratio"])
    _draw(axes, heat, norm, room)
    _colour_bar(figure, norm, (room + 0.3, foot + 0.42, min(3.2, width - room - 0.6), 0.12))
    sub = f"{card}   ·   below 1, blue: CUDA is faster"
    plot_style.header(figure, "CUDA time over Triton time by op and size", sub)
    plot_style.caption(figure, note)
    return figure


def _heat(run: Run, rows: pd.DataFrame) -> Heat | None:
    """Return the cells; None where no case has both a size and a ratio."""
    sized = run.rows[_CASE].assign(size=work(run.rows, False))
    rows = rows.merge(sized.groupby(_CASE, sort=False)["size"].max().reset_index(), "left", _CASE)
    telling = varying(rows, ("math_mode", "distribution"))
    name = rows["op"] + " " + rows["dtype"]
    for column, ops in telling.items():
        name = name + np.where(rows["op"].isin(ops), " " + rows[column], "")
    table = pd.DataFrame({"name": name, "ratio": rows["ratio"]})
    table["ratio"] = table["ratio"].where((table["ratio"] > 0) & np.isfinite(table["ratio"]))
    # 2^28 - 1 elements belong to 2^28.
    table["power"] = np.ceil(np.log2(rows["size"].to_numpy(dtype="float64")) - 0.02)
    table = table[table["power"].notna()]
    if table["ratio"].notna().sum() == 0:
        return None
    logs = np.log(table["ratio"]).groupby([table["name"], table["power"]], sort=False)
    cells = pd.DataFrame(
        {
            "ratio": np.exp(logs.mean()),
            "low": np.exp(logs.min()),
            "high": np.exp(logs.max()),
            "n": logs.count(),
        }
    ).reset_index()
    names = list(dict.fromkeys(table["name"]))
    return Heat(cells, names, sorted({int(p) for p in table["power"]}))


def _norm(ratios: pd.Series[float]) -> Normalize:
    """Return the scale of log ratios: symmetric, so that 1 is always the middle."""
    reach = float(np.abs(np.log(ratios.dropna())).max())
    reach = min(max(reach, _LEAST_REACH), _MOST_REACH)
    return Normalize(-reach, reach, clip=True)


def _draw(axes: Axes, heat: Heat, norm: Normalize, room: float) -> None:
    """Draw the cells with their numbers; what is not there is hatched."""
    rows = {name: i for i, name in enumerate(heat.names)}
    columns = {power: i for i, power in enumerate(heat.powers)}
    for row in rows.values():
        for column in columns.values():
            _hatched(axes, (row, column), "#E2E2E2")
    for cell in heat.cells.to_dict("records"):
        at = rows[cell["name"]], columns[int(cell["power"])]
        if cell["n"]:
            _cell(axes, at, cell, norm)
        else:
            _hatched(axes, at, "#A0A0A0")
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
            axes.text(at[1], at[0], "failed", ha="center", va="center", fontsize=6.5, bbox=box)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(False)
    axes.set_xticks(range(len(columns)), [plot_style.binary_size(p, True) for p in heat.powers])
    axes.set_yticks(range(len(rows)), [fit(name, room, 8.0) for name in heat.names])
    axes.tick_params(length=0, labelsize=8)
    axes.set_xlabel("bytes read and written", fontsize=8)


def _hatched(axes: Axes, at: tuple[int, int], shade: str) -> None:
    row, column = at
    place = (column - 0.5, row - 0.5)
    axes.add_patch(
        Rectangle(place, 1, 1, facecolor="white", edgecolor=shade, hatch="////", linewidth=0.5)
    )


def _cell(axes: Axes, at: tuple[int, int], cell: dict[Any, Any], norm: Normalize) -> None:
    row, column = at
    shade = _MAP(float(norm(math.log(cell["ratio"]))))
    luminance = 0.3 * shade[0] + 0.59 * shade[1] + 0.11 * shade[2]
    ink = "white" if luminance < 0.5 else "black"
    axes.add_patch(
        Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=shade, edgecolor="white", linewidth=1)
    )
    several = cell["n"] > 1
    axes.text(
        column,
        row - (0.16 if several else 0.0),
        _short(cell["ratio"]),
        ha="center",
        va="center",
        fontsize=8,
        color=ink,
    )
    if several:
        text = f"{_short(cell['low'])}-{_short(cell['high'])}"
        axes.text(column, row + 0.24, text, ha="center", va="center", fontsize=5.5, color=ink)


def _short(ratio: float) -> str:
    """Return the ratio in at most five characters."""
    if 0.005 <= ratio < 100:
        return f"{ratio:.2f}"
    return (
        f"{ratio:.0f}"
        if 100 <= ratio < 1e5
        else f"{ratio:.0e}".replace("e-0", "e-").replace("e+0", "e")
    )


def _colour_bar(figure: Figure, norm: Normalize, place: tuple[float, float, float, float]) -> None:
    axes = plot_style.add_axes(figure, *place)
    bar = figure.colorbar(ScalarMappable(norm, _MAP), cax=axes, orientation="horizontal")
    reach = float(norm.vmax or 0.0)
    ticks = plot_dots.ratio_ticks(reach * 1.001, place[2])
    bar.set_ticks([math.log(t) for t in ticks], labels=[plot_style.number(t) for t in ticks])
    axes.tick_params(labelsize=7, length=2)
    axes.set_xlabel("CUDA time / Triton time", fontsize=8, labelpad=1)
