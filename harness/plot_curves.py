"""Curves over size: an op's rate with its roof, and its share of the roof; labels at the ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from harness import plot_data, plot_style
from harness.plot_text import fit, widest

_WIDTH, _LEFT = 8.0, 0.8  # inches
_LABELS = (1.0, 3.2)  # inches for the labels, at least and at most
_BELOW, _ABOVE = 0.55, 0.3  # inches for a panel's axis label and its title
_ROOF_WORDS = "#6E6E6E"
ROOF_FACTOR = 4.0


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes: curves and a roof, named `roof_name` with its value at the largest size."""

    title: str
    x_label: str
    y_label: str
    bytes_axis: bool
    curves: list[plot_data.Curve]
    roof_name: str
    roof_x: list[float]
    roof_y: list[float]


def rate_figure(group: plot_data.Group, card: str) -> Figure | None:
    """Return one op's GB/s or TFLOP/s over its size, a panel a sweep; None without data."""
    sweeps, off_sweep = plot_data.sweeps(group)
    panels = [p for s in sweeps if (p := rate_panel(group, s, ""))]
    what = "Throughput" if group.compute else "Bandwidth"
    title = " ".join(p for p in (group.op, group.dtype, group.suffix.replace("_", " ")) if p)
    return _figure(f"{what} over size: {title}", card, panels, plot_data.left_out(group, off_sweep))


def share_figure(groups: Sequence[plot_data.Group], card: str) -> Figure | None:
    """Return the percent of the roof of one op's groups over size, a panel each; None if empty."""
    panels, notes = [], []
    for group in groups:
        name = " ".join(p for p in (group.dtype, group.suffix.replace("_", " ")) if p)
        sweeps, off_sweep = plot_data.sweeps(group)
        found = [p for s in sweeps if (p := _share_panel(group, s, name))]
        panels += found
        note = plot_data.left_out(group, off_sweep)
        notes += [f"{name}: {note}"] if note and found else []
    if not panels:
        return None
    note = "; ".join(["above 100: faster than the best rate of the roof", *notes])
    return _figure(f"Share of the measured roof over size: {groups[0].op}", card, panels, note)


def rate_panel(group: plot_data.Group, sweep: plot_data.Sweep, title: str) -> Panel | None:
    """Return the rates along a sweep, None where there is none."""
    curves = list(plot_data.curves(group, sweep))
    if not curves:
        return None
    name, x, rate = plot_data.roof(group, sweep)
    unit = "TFLOP/s" if group.compute else "GB/s"
    words = f"roof {rate[-1]:.0f} {unit}" + (f" ({name})" if name else "") if x else ""
    return Panel(title, _size_label(sweep), unit, sweep.bytes_axis, curves, words, x, rate)


def _share_panel(group: plot_data.Group, sweep: plot_data.Sweep, title: str) -> Panel | None:
    curves = list(plot_data.curves(group, sweep, share=True))
    if not curves:
        return None
    name, x, _ = plot_data.roof(group, sweep)
    words = f"roof ({name})" if name else "roof"
    level = [100.0] * len(x)
    return Panel(title, _size_label(sweep), "% of roof", sweep.bytes_axis, curves, words, x, level)


def _size_label(sweep: plot_data.Sweep) -> str:
    return sweep.label if sweep.bytes_axis else f"{sweep.label}, elements"


def _figure(title: str, card: str, panels: Sequence[Panel], note: str) -> Figure | None:
    """Stack the panels; each is as high as its labels need, all are as wide as labels let them."""
    if not panels:
        return None
    names = [c.name for p in panels for c in p.curves] + [p.roof_name for p in panels]
    wanted = widest(names, plot_style.LABEL_PT) + plot_style.LEADER + 0.15
    room = min(max(wanted, _LABELS[0]), _LABELS[1])
    heights = [_panel_inches(panel) for panel in panels]
    pitches = [
        h + _BELOW + (_ABOVE if p.title else 0.12) for h, p in zip(heights, panels, strict=True)
    ]
    foot = plot_style.foot(note, _WIDTH)
    total = plot_style.HEAD + sum(pitches) + foot
    figure = plot_style.new_figure(_WIDTH, total)
    bottom = total - plot_style.HEAD
    for panel, height, pitch in zip(panels, heights, pitches, strict=True):
        bottom -= pitch
        axes = plot_style.add_axes(figure, _LEFT, bottom + _BELOW, _WIDTH - _LEFT - room, height)
        draw_curves(axes, panel)
        if panel.title:
            axes.set_title(fit(panel.title, _WIDTH - _LEFT - room, 9.0), fontsize=9)
        axes.set_xlabel(fit(panel.x_label, _WIDTH - _LEFT - room, 9.0))
        _label_curves(axes, panel, room)
    plot_style.header(figure, title, f"{card}   ·   median; band: p20 to p80 of the samples")
    plot_style.caption(figure, note)
    return figure


def _panel_inches(panel: Panel) -> float:
    lines = len(panel.curves) + 1
    return max(2.1 if panel.title else 2.7, lines * plot_style.LABEL_PT * 1.25 / 72.0)


def draw_curves(axes: Axes, panel: Panel, headroom: float = 1.08) -> None:
    """Draw curves, bands and roof of a panel, with both axes."""
    top = 0.0
    for curve in panel.curves:
        axes.plot(curve.x, curve.rate, **plot_style.marks(curve.backend, curve.headline))
        top = max(top, *curve.rate)
        if curve.headline:
            shade = plot_style.colour(curve.backend)
            axes.fill_between(curve.x, curve.low, curve.high, color=shade, alpha=0.18, linewidth=0)
            top = max(top, *curve.high)
    if panel.roof_x:
        axes.plot(
            panel.roof_x,
            panel.roof_y,
            color=plot_style.ROOF_COLOUR,
            linestyle=plot_style.ROOF_LINE,
            # One size makes no line.
            marker="_" if len(panel.roof_x) == 1 else None,
            markersize=14,
            zorder=1.5,
        )
        # A roof far above all curves would press them on the axis: it goes beyond the top.
        top = max(top, *(min(y, ROOF_FACTOR * top) for y in panel.roof_y))
    plot_style.size_axis(axes, [x for c in panel.curves for x in c.x], panel.bytes_axis)
    axes.set_ylim(0.0, top * headroom)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: plot_style.number(value)))
    axes.set_ylabel(panel.y_label)


def _label_curves(axes: Axes, panel: Panel, room: float) -> None:
    ends = [(c.x[-1], c.rate[-1], c.name, plot_style.colour(c.backend)) for c in panel.curves]
    if panel.roof_x:
        y, top = panel.roof_y[-1], axes.get_ylim()[1]
        name = panel.roof_name + (", beyond this axis" if y > top else "")
        ends.append((panel.roof_x[-1], min(y, top), name, _ROOF_WORDS))
    plot_style.label_ends(axes, ends, room)
