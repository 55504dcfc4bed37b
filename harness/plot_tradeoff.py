"""The trade-off: share of the roof over how much code it takes, an arrow from CUDA to Triton."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from harness import plot_style
from harness.plot_text import widest
from harness.plot_tradeoff_data import Arrow, EffortOf, Path, Point, TradeOff, trade_off
from harness.report_text import listing
from harness.results import Run
from harness.sides import NAMES

LEVEL_POINTS = 2.0  # of the roof: nearer than that, an arrow is called level
_WIDTH, _LEFT, _PANEL, _LADDERS, _BELOW, _BETWEEN = 9.0, 0.72, 4.2, 2.6, 0.55, 0.75  # inches
_PITCH = plot_style.LABEL_PT * 1.25 / 72.0  # from a label to the next
_RUNGS = ("o", "D", "^", "s", "v", "P")  # a marker a ladder: their lines cross
Label = tuple[float, float, str, str]  # x, y, text, colour
# What becomes of the share of the roof from CUDA to Triton: colour, line, words.
_WAYS = {
    "up": (plot_style.COLOURS["triton"], "-", "arrow up: Triton nearer its roof"),
    "level": (plot_style.GREY, (0, (1, 1.5)), f"level within {LEVEL_POINTS:g} points"),
    "down": (plot_style.COLOURS["cuda"], (0, (5, 2)), "arrow down: CUDA nearer"),
}


def tradeoff_figure(run: Run, card: str, effort_of: EffortOf | None = None) -> Figure | str:
    """Return the figure, or the reason why there is none. effort_of: as of trade_off."""
    found = trade_off(run, effort_of)
    if isinstance(found, str):
        return found
    if not found.arrows:
        return f"no op can be counted: {listing(found.left_out, 3) or 'none was timed'}"
    room = min(_room(_labels(found)), 3.4)
    panel = max(_PANEL, (len(found.arrows) + 1) * _PITCH)
    note = _note(found)
    foot = plot_style.foot(note, _WIDTH) + _BELOW
    n_rungs = sum(len(path.points) for path in found.paths)
    ladder = max(_LADDERS, (n_rungs + 1) * _PITCH)
    ladders = ladder + _BETWEEN if found.paths else 0.0
    total = plot_style.HEAD + plot_style.KEY + 2 * panel + _BETWEEN + ladders + foot
    figure = plot_style.new_figure(_WIDTH, total)
    bottom = foot + ladders
    for kind, at in (("concepts", bottom + panel + _BETWEEN), ("tokens", bottom)):
        axes = plot_style.add_axes(figure, _LEFT, at, _WIDTH - _LEFT - room, panel)
        ends = [point for arrow in found.arrows for point in (arrow.cuda, arrow.triton)]
        _axes(axes, ends, kind)
        _draw_arrows(axes, found.arrows, kind)
        plot_style.label_ends(axes, _labels(found, kind), room)
    if found.paths:
        _ladder_panels(figure, found.paths, foot, ladder)
    sub = f"{card}   ·   an arrow an op, from CUDA to Triton, at its largest case"
    plot_style.header(figure, "What the roof costs: share of the roof over code to write", sub)
    plot_style.key(figure, _key(figure.axes[0], bool(found.paths)))
    plot_style.caption(figure, note)
    return figure


def way(arrow: Arrow) -> str:
    """Return which of _WAYS the arrow goes."""
    gained = arrow.triton.pct_roof - arrow.cuda.pct_roof
    if abs(gained) <= LEVEL_POINTS:
        return "level"
    return "up" if gained > 0 else "down"


def _amount(point: Point, kind: str) -> float:
    return float(point.concepts if kind == "concepts" else point.tokens)


def _labels(found: TradeOff, kind: str = "concepts") -> list[Label]:
    """Return an arrow's label each, at the end of it that lies right."""
    labels = []
    for arrow in found.arrows:
        end = max(arrow.cuda, arrow.triton, key=lambda p: _amount(p, kind))
        text = f"{arrow.op} {arrow.cuda.pct_roof:.0f} → {arrow.triton.pct_roof:.0f} %"
        labels.append((_amount(end, kind), end.pct_roof, text, _WAYS[way(arrow)][0]))
    return labels


def _room(labels: Sequence[Label]) -> float:
    texts = [label[2] for label in labels]
    return widest(texts, plot_style.LABEL_PT) + plot_style.LEADER + 0.15


def _draw_arrows(axes: Axes, arrows: Sequence[Arrow], kind: str) -> None:
    for arrow in arrows:
        start, end = ((_amount(p, kind), p.pct_roof) for p in (arrow.cuda, arrow.triton))
        shade, line, _ = _WAYS[way(arrow)]
        look: dict[str, Any] = {"arrowstyle": "-|>", "color": shade, "linestyle": line}
        look |= {"lw": 1.1, "shrinkA": 3, "shrinkB": 3, "alpha": 0.85}
        axes.annotate("", xy=end, xytext=start, arrowprops=look)
        for side, place in (("cuda", start), ("triton", end)):
            marks = plot_style.marks(side, True) | {"linestyle": "", "zorder": 3}
            axes.plot([place[0]], [place[1]], **marks)


def _ladder_panels(figure: Figure, paths: Sequence[Path], foot: float, height: float) -> None:
    """Draw the ladders apart, side by side over both amounts: their lowest rungs lie far down."""
    labels = {kind: _rungs(paths, kind) for kind in ("concepts", "tokens")}
    room = min(_room(labels["concepts"]), 2.2)
    half = _WIDTH / 2
    points = [point for path in paths for point in path.points]
    for column, kind in enumerate(labels):
        left = _LEFT + half * column
        axes = plot_style.add_axes(figure, left, foot, half - _LEFT - room, height)
        _axes(axes, points, kind)
        for i, path in enumerate(paths):
            xs = [_amount(point, kind) for point in path.points]
            ys = [point.pct_roof for point in path.points]
            axes.plot(xs, ys, **_ladder_look(path.side, _RUNGS[i % len(_RUNGS)]))
        plot_style.label_ends(axes, labels[kind], room)


def _rungs(paths: Sequence[Path], kind: str) -> list[Label]:
    return [
        (
            _amount(point, kind),
            point.pct_roof,
            f"{path.op}{':' if point.name else ''}{point.name} {point.pct_roof:.0f} %",
            plot_style.colour(path.side),
        )
        for path in paths
        for point in path.points
    ]


def _ladder_look(side: str, marker: str) -> dict[str, Any]:
    look = plot_style.marks(side, True) | {"markersize": 4.5, "markerfacecolor": "white"}
    return look | {"linewidth": 1.0, "linestyle": (0, (1, 1)), "marker": marker}


def _axes(axes: Axes, points: Sequence[Point], kind: str) -> None:
    _share_axis(axes, [point.pct_roof for point in points])
    if kind == "concepts":
        _concept_axis(axes, [point.concepts for point in points])
    else:
        _token_axis(axes, [point.tokens for point in points])


def _share_axis(axes: Axes, shares: Sequence[float]) -> None:
    low, high = min(shares), max(shares)
    pad = max(0.04 * (high - low), 1.0)
    axes.set_ylim(max(low - pad, 0.0), high + pad)
    axes.yaxis.set_major_locator(MaxNLocator(8))
    if low <= 100.0 <= high:
        axes.axhline(
            100.0, color=plot_style.ROOF_COLOUR, linestyle=plot_style.ROOF_LINE, zorder=1.5
        )
    axes.set_ylabel("% of the measured roof")


def _concept_axis(axes: Axes, concepts: Sequence[int]) -> None:
    axes.set_xlim(0.0, max(concepts) * 1.06 + 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("distinct concepts that the code names")


def _token_axis(axes: Axes, tokens: Sequence[int]) -> None:
    """Logarithmic: half and twice the code lie equally far."""
    low, high = min(tokens) / 1.15, max(tokens) * 1.15
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [m * 10.0**p for p in powers for m in (1, 2, 3, 5, 7) if low <= m * 10.0**p <= high]
    inches = axes.get_window_extent().width / axes.figure.dpi
    while len(ticks) > 2 and len(ticks) * 0.5 > inches:
        ticks = ticks[::2]
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{tick:.0f}" for tick in ticks])
    axes.set_xlabel("tokens of the code, with what is shared")


def _key(axes: Axes, with_paths: bool) -> list[Line2D]:
    lines = [
        axes.plot([], [], label=NAMES[side], **plot_style.marks(side, True) | {"linestyle": ""})[0]
        for side in ("cuda", "triton")
    ]
    lines += [
        axes.plot([], [], color=shade, linestyle=line, label=words)[0]
        for shade, line, words in _WAYS.values()
    ]
    if with_paths:
        lines += axes.plot([], [], label="ladder, rung by rung", **_ladder_look("cuda", _RUNGS[0]))
    return lines


def _note(found: TradeOff) -> str:
    """Return what is needed to read it: cases, ladders' cases, and what is left out and why."""
    cases = ", ".join(f"{arrow.op} {arrow.case}" for arrow in found.arrows)
    notes = [
        "code: device, host, and helpers that other ops share, each whole; the build is not in it",
        f"cases: {cases}",
    ]
    if found.paths:
        ladders = ", ".join(f"{NAMES[p.side]} {p.op} {p.case}" for p in found.paths)
        notes.append(f"ladders, simplest form first, at their own case: {ladders}")
    if found.left_out:
        notes.append(f"left out: {'; '.join(found.left_out)}")
    return ". ".join(notes)
