"""How every figure looks, and how it is saved so that the same run gives the same bytes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

COLOURS = {
    "cuda": "#0072B2",
    "triton": "#D55E00",
    "torch": "#595959",
    "compile": "#009E73",
    "library": "#CC79A7",
}
ROOF_COLOUR = "#999999"
_PEER_COLOUR = "#7A6A00"
_MARKERS = {"cuda": "o", "triton": "s", "torch": "^", "compile": "D", "library": "v"}
_LINES = {"cuda": "-", "triton": "--", "torch": ":", "compile": "-.", "library": (0, (6, 1, 1, 1))}
LABEL_PT = 8.0
_DPI = 160

# A fixed salt makes SVG ids repeat; DejaVu ships with matplotlib, so no machine's fonts matter.
_STYLE: dict[str, Any] = {
    "svg.hashsalt": "cuda-vs-triton",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.titlesize": 10.0,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "figure.facecolor": "white",
    "path.simplify": False,
}


@contextmanager
def house_style() -> Iterator[None]:
    """Draw with this style alone, whatever the user's matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        cast(Any, matplotlib.rcParams).update(_STYLE)  # its stubs want literal names
        yield


def colour(backend: str) -> str:
    """Return the backend's colour; peers without one of their own share one."""
    return COLOURS.get(backend, _PEER_COLOUR)


def marks(backend: str, headline: bool) -> dict[str, Any]:
    """Return the line's keywords: colour is never the only difference between backends."""
    return {
        "color": colour(backend),
        "linestyle": _LINES.get(backend, "-"),
        "marker": _MARKERS.get(backend, "P"),
        "markersize": 4.0 if headline else 2.5,
        "linewidth": 1.6 if headline else 0.7,
        "alpha": 1.0 if headline else 0.75,
    }


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure in inches, outside pyplot's global list."""
    figure = Figure(figsize=(width, height), dpi=_DPI)
    FigureCanvasAgg(figure)
    return figure


def add_axes(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Return axes at a place given in inches, so that label spacing is known before drawing."""
    total_w, total_h = figure.get_size_inches()
    return figure.add_axes((left / total_w, bottom / total_h, width / total_w, height / total_h))


def save(figure: Figure, stem: Path, formats: Sequence[str]) -> list[Path]:
    """Write `stem`.<format> for each format, without dates or version strings."""
    written = []
    for kind in formats:
        path = stem.with_name(f"{stem.name}.{kind}")
        metadata: dict[str, Any] = {"Software": None} if kind == "png" else {"Date": None}
        if kind == "svg":
            metadata["Creator"] = None
        figure.savefig(path, format=kind, metadata=metadata)
        written.append(path)
    return written


def caption(figure: Figure, text: str) -> None:
    """Put small grey text at the bottom left, wrapped to the figure's width."""
    if text:
        width, height = figure.get_size_inches()
        lines = textwrap.wrap(text, max(int(width * 17), 20))
        figure.text(0.1 / width, 0.07 / height, "\n".join(lines), fontsize=7, color="#595959")


def spread(wanted: Sequence[float], gap: float, top: float = 1.0) -> list[float]:
    """Return label heights near `wanted`, at least `gap` apart and at most `top`, same order."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = [0.0] * len(wanted)
    floor = -math.inf
    for i in order:
        floor = placed[i] = max(wanted[i], floor + gap)
    ceiling = top + gap
    for i in reversed(order):
        ceiling = placed[i] = min(placed[i], ceiling - gap)
    return placed


def label_ends(axes: Axes, ends: Sequence[tuple[float, float, str, str]], y_max: float) -> None:
    """Write each (x, y, text, colour) at the right edge, joined to its point, without overlaps."""
    height_pt = axes.bbox.height / axes.figure.dpi * 72.0
    heights = spread([y / y_max for _, y, _, _ in ends], LABEL_PT * 1.25 / height_pt)
    for (x, y, text, shade), height in zip(ends, heights, strict=True):
        axes.annotate(
            text,
            xy=(x, y),
            xytext=(1.03, height),
            textcoords="axes fraction",
            va="center",
            fontsize=LABEL_PT,
            color=shade,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": shade, "lw": 0.5, "alpha": 0.6, "shrinkB": 3},
        )


def size_axis(axes: Axes, values: Sequence[float], is_bytes: bool, n_ticks: int = 8) -> None:
    """Make x a log2 axis over `values`, with ticks at powers of two in binary units."""
    low = math.floor(math.log2(min(values)) + 0.02)
    high = max(math.ceil(math.log2(max(values)) - 0.02), low + 1)
    step = max(1, math.ceil((high - low) / (n_ticks - 1)))
    powers = range(low, high + 1, step)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator([2.0**p for p in powers]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([binary_size(p, is_bytes) for p in powers])
    pad = 2.0 ** (0.03 * (high - low))
    axes.set_xlim(2.0**low / pad, 2.0**high * pad)


def binary_size(power: int, is_bytes: bool) -> str:
    """Return 2^power as "16 KiB" for bytes, as "4096" or "64 Ki" for a count."""
    if not is_bytes and power <= 13:
        return f"{2.0**power:g}"
    units = ("B", "KiB", "MiB", "GiB", "TiB") if is_bytes else ("", "Ki", "Mi", "Gi", "Ti")
    unit = min(max(power, 0) // 10, len(units) - 1)
    return f"{2.0 ** (power - 10 * unit):g} {units[unit]}".strip()
