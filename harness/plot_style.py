"""How every figure looks, and how it is saved so that the same run gives the same bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from harness.plot_text import fit, wrap

COLOURS = {
    "cuda": "#0072B2",
    "triton": "#D55E00",
    "torch": "#595959",
    "compile": "#009E73",
    "library": "#CC79A7",
}
ROOF_COLOUR = "#999999"
GREY = "#595959"  # of all words that are no data
ROOF_LINE = (0, (4, 2))
HEAD, KEY = 0.66, 0.26  # inches that the two lines of header() take, and the line of key()
_PEER_COLOUR = "#7A6A00"
_MARKERS = {"cuda": "o", "triton": "s", "torch": "^", "compile": "D", "library": "v"}
_LINES = {"cuda": "-", "triton": "--", "torch": ":", "compile": "-.", "library": (0, (6, 1, 1, 1))}
LABEL_PT = 8.0
LEADER = 0.2  # inches from the axes to their labels
_CAPTION_PT, _CAPTION_LINE = 7.0, 0.118  # points; inches
_TICK_INCHES = 0.66  # what "128 MiB" and its distance to the next take
_DPI = 160


class PlotError(Exception):
    """Figures cannot be drawn from this; the text is one line that says what to do."""


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
    "text.parse_math": False,  # a case's name may hold a dollar sign
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
        # The circle shows around the square that lies on it where both sides are equally fast.
        "markersize": (5.5 if backend == "cuda" else 3.8) if headline else 2.5,
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


def header(figure: Figure, title: str, sub: str) -> None:
    """Write what is measured, and below it on what, when and how; HEAD inches, cut to fit."""
    width, height = figure.get_size_inches()
    for text, down, size, shade in ((title, 0.2, 11.0, "black"), (sub, 0.43, 8.0, GREY)):
        figure.text(
            0.12 / width,
            1.0 - down / height,
            fit(text, width - 0.24, size),
            fontsize=size,
            color=shade,
            va="center",
        )


def key(figure: Figure, handles: Sequence[Line2D], gap: float = 0.3) -> None:
    """Write the legend of all axes in one line under the header; KEY inches, or more lines.

    `gap`: between a mark and its word, in letters.
    """
    width, height = figure.get_size_inches()
    figure.legend(
        handles=list(handles),
        loc="upper left",
        bbox_to_anchor=(0.12 / width, 1.0 - (HEAD - 0.07) / height),
        ncol=len(handles),
        fontsize=8,
        borderaxespad=0.0,
        borderpad=0.0,
        handletextpad=gap,
        columnspacing=1.4,
    )


def backends_key(figure: Figure, backends: Iterable[str], **changes: Any) -> list[Line2D]:
    """Return a legend's handles for these backends, in the house's order; `changes` to marks."""
    seen = set(backends)
    order = [b for b in COLOURS if b in seen]
    order += sorted(seen - set(order))
    axes = figure.axes[0]
    return [axes.plot([], [], label=b, **marks(b, True) | changes)[0] for b in order]


def caption(figure: Figure, text: str) -> None:
    """Put small grey text at the bottom left, wrapped to the figure's width."""
    if text:
        width, height = figure.get_size_inches()
        lines = wrap(text, width - 0.24, _CAPTION_PT)
        figure.text(0.12 / width, 0.07 / height, "\n".join(lines), fontsize=_CAPTION_PT, color=GREY)


def foot(text: str, width: float) -> float:
    """Return the inches that the caption `text` takes in a figure `width` inches wide."""
    return 0.06 + _CAPTION_LINE * len(wrap(text, width - 0.24, _CAPTION_PT)) if text else 0.0


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


def label_ends(
    axes: Axes, ends: Sequence[tuple[float, float, str, str]], room: float = 2.0
) -> None:
    """Write each (x, y, text, colour) right of the axes, joined to its point, without overlaps.

    `room`: inches from the axes to the figure's right edge; longer texts are cut to fit.
    """
    box = axes.get_window_extent()
    dpi = axes.figure.dpi
    gap = LABEL_PT * 1.25 / (box.height / dpi * 72.0)
    points = axes.transData.transform([(x, y) for x, y, _, _ in ends])
    heights = spread([float(y - box.y0) / box.height for _, y in points], gap)
    for (x, y, text, shade), height in zip(ends, heights, strict=True):
        axes.annotate(
            fit(text, room - LEADER - 0.06, LABEL_PT),
            xy=(x, y),
            xytext=(1.0 + LEADER * dpi / box.width, height),
            textcoords="axes fraction",
            va="center",
            fontsize=LABEL_PT,
            color=shade,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": shade,
                "lw": 0.5,
                "alpha": 0.6,
                "shrinkB": 3,
                "relpos": (0.0, 0.5),  # else the leader aims at the text's middle, over others
            },
        )


def size_axis(axes: Axes, values: Sequence[float], is_bytes: bool) -> None:
    """Make x a log2 axis over `values`, with ticks at powers of two in binary units."""
    low = math.floor(math.log2(min(values)) + 0.02)
    high = max(math.ceil(math.log2(max(values)) - 0.02), low + 1)
    width = axes.get_window_extent().width / axes.figure.dpi
    n_ticks = max(2, int(width / _TICK_INCHES))
    step = max(1, math.ceil((high - low) / n_ticks))
    powers = range(low, high + 1, step)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator([2.0**p for p in powers]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([binary_size(p, is_bytes) for p in powers])
    pad = 2.0 ** (0.03 * (high - low))
    axes.set_xlim(2.0**low / pad, 2.0**high * pad)


def drawable(value: float) -> bool:
    """Return whether a log axis can hold the value: finite, above 0, within 24 decades."""
    return 1e-12 <= value <= 1e12


def number(value: float) -> str:
    """Return a tick's number with at most three digits, in at most seven characters."""
    short = f"{value:.3g}"
    if "e" not in short or 1e-4 <= abs(value) < 1e5:
        return f"{float(short):g}"
    digits, _, power = short.partition("e")
    return f"{digits}e{int(power)}"


def binary_size(power: int, is_bytes: bool) -> str:
    """Return 2^power as "16 KiB" for bytes, as "4096" or "64 Ki" for a count."""
    if not is_bytes and power <= 13:
        return f"{2.0**power:g}"
    units = ("B", "KiB", "MiB", "GiB", "TiB") if is_bytes else ("", "Ki", "Mi", "Gi", "Ti")
    unit = min(max(power, 0) // 10, len(units) - 1)
    return f"{2.0 ** (power - 10 * unit):g} {units[unit]}".strip()
