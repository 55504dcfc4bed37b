"""The README's picture: one small panel an op, headlines only, readable at 1000 pixels."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness import plot_data, plot_style
from harness.plot_curves import Panel, draw_curves, rate_panel
from harness.plot_text import fit

_DTYPES = ("bf16", "f16", "f32", "f8e4m3")
_COLUMNS = 4
_WIDTH, _PITCH = 10.0, 3.0  # inches


def overview_figure(groups: list[plot_data.Group], card: str) -> Figure | None:
    """Return the figure; None if no group has anything to draw."""
    panels: list[Panel] = []
    for group in _one_an_op(groups):
        sweeps, _ = plot_data.sweeps(group)
        panel = rate_panel(group, sweeps[0], f"{group.op} {group.dtype}") if sweeps else None
        if panel and any(c.headline for c in panel.curves):
            panel.curves[:] = [c for c in panel.curves if c.headline]
            panels.append(panel)
    if not panels:
        return None
    n_columns = min(len(panels), _COLUMNS)
    n_rows = -(-len(panels) // n_columns)
    width = _WIDTH / n_columns
    height = _PITCH * n_rows + plot_style.HEAD + plot_style.KEY - 0.1
    figure = plot_style.new_figure(_WIDTH, height)
    for i, panel in enumerate(panels):
        row, column = divmod(i, n_columns)
        bottom = _PITCH * (n_rows - 1 - row) + 0.52
        axes = plot_style.add_axes(figure, width * column + 0.74, bottom, width - 1.04, 2.0)
        draw_curves(axes, panel)
        axes.set_xlabel(fit(panel.x_label, width - 1.04, 8.0), fontsize=8)
        _titles(axes, panel, width - 1.04)
    title = "CUDA and Triton: rate over size, against the measured roof"
    plot_style.header(figure, title, f"{card}   ·   median; band: p20 to p80 of the samples")
    lines = plot_style.backends_key(figure, (c.backend for p in panels for c in p.curves))
    lines += figure.axes[0].plot(
        [], [], label="roof", color=plot_style.ROOF_COLOUR, linestyle=plot_style.ROOF_LINE
    )
    plot_style.key(figure, lines, 0.6)
    return figure


def _titles(axes: Axes, panel: Panel, room: float) -> None:
    """Write the op over the panel, and under it what its roof is worth at the largest size."""
    axes.set_title(fit(panel.title, room, 9.5), fontsize=9.5, pad=17 if panel.roof_name else 6)
    axes.annotate(
        fit(panel.roof_name.partition(" (")[0], room, 7.5),
        xy=(0.0, 1.0),
        xycoords="axes fraction",
        xytext=(0, 5),
        textcoords="offset points",
        fontsize=7.5,
        color=plot_style.GREY,
    )


def _one_an_op(groups: list[plot_data.Group]) -> list[plot_data.Group]:
    """Return one group an op: most ok rows first, then the commoner dtype; memory ops lead."""

    def rank(group: plot_data.Group) -> tuple[int, int]:
        order = (*_DTYPES, group.dtype)
        return -int((group.rows["status"] == "ok").sum()), order.index(group.dtype)

    best: dict[str, plot_data.Group] = {}
    for group in groups:
        if group.op not in best or rank(group) < rank(best[group.op]):
            best[group.op] = group
    return sorted(best.values(), key=lambda g: g.compute)
