"""A run's figures, drawn from its files alone: no GPU, no torch, no display.

Byte rates count each distinct byte once (GB/s = 1e9 bytes/s); rows that are not ok are never
drawn, only counted in the caption.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness import plot_data, plot_style
from harness.plot_drift import drift_figure
from harness.plot_speedup import speedup_figure
from harness.results import Run, gpu_names

FORMATS = ("png", "svg")
_OVERVIEW_DTYPES = ("bf16", "f16", "f32", "f8e4m3")
_OVERVIEW_COLUMNS = 4


class PlotError(Exception):
    """Figures cannot be drawn from this run; the text is one line that says what to do."""


def plot_run(
    run: Run,
    out_dir: Path,
    formats: Sequence[str] = FORMATS,
    say: Callable[[str], None] | None = None,
) -> list[Path]:
    """Draw all figures of `run` into `out_dir` and return the files written.

    A run without drawable rows gives no file; `say` (default: standard error) is told why.
    Raises PlotError for a run of several GPU models and for unknown formats.
    """
    tell = say or (lambda text: print(text, file=sys.stderr))
    names = gpu_names(run)
    if len(names) > 1:
        raise PlotError(
            f"{run.path} holds {len(names)} GPU models ({', '.join(names)}) in column gpu; keep "
            "the rows of one: their curves are not one curve"
        )
    unknown = sorted(set(formats) - set(FORMATS))
    if unknown:
        raise PlotError(f"format {unknown[0]!r} is not one of {', '.join(FORMATS)}")
    gpu = names[0] if names else "GPU not recorded"
    out_dir = Path(out_dir)
    written: list[Path] = []
    with plot_style.house_style():
        for name, figure in _figures(run, gpu, tell):
            try:
                out_dir.mkdir(parents=True, exist_ok=True)
                written += plot_style.save(figure, out_dir / name, formats)
            except OSError as error:
                raise PlotError(
                    f"cannot write {out_dir}: {error.strerror or error}; choose another --out"
                ) from error
    if not written:
        statuses = run.rows["status"].value_counts().to_dict()
        counts = ", ".join(f"{n} {s}" for s, n in sorted(statuses.items())) or "it is empty"
        tell(
            f"nothing to plot in {run.path}: no ok row with a time and a size ({counts}); pass a "
            "run that was timed on a GPU"
        )
    return written


def _figures(run: Run, gpu: str, tell: Callable[[str], None]) -> list[tuple[str, Figure]]:
    found = []
    groups = plot_data.groups(run.rows)
    for group in groups:
        figure = rate_figure(group, gpu)
        if figure is not None:
            found.append((group.name, figure))
    speedup = speedup_figure(run, gpu)
    if isinstance(speedup, Figure):
        found.append(("speedup", speedup))
    elif found:
        tell(f"no speedup figure: {speedup}")
    overview = overview_figure(groups, gpu)
    if overview is not None:
        found.append(("overview", overview))
    drift = drift_figure(run, gpu, tell) if found else ""
    if isinstance(drift, Figure):
        found.append(("drift", drift))
    elif found:
        tell(f"no drift figure: {drift}")
    return found


def rate_figure(group: plot_data.Group, gpu: str) -> Figure | None:
    """Return one op's GB/s or TFLOP/s over its size, a panel a sweep; None without data."""
    sweeps, off_sweep = plot_data.sweeps(group)
    drawn = [(s, list(plot_data.curves(group, s))) for s in sweeps]
    drawn = [(s, c) for s, c in drawn if c]
    if not drawn:
        return None
    # Every label gets its line: panels grow with the number of implementations.
    n_labels = max(len(c) for _, c in drawn) + 1
    panel = max(2.7, n_labels * plot_style.LABEL_PT * 1.25 / 72.0)
    pitch = panel + 0.75
    figure = plot_style.new_figure(8.0, pitch * len(drawn) + 0.5)
    for i, (sweep, curves) in enumerate(drawn):
        axes = plot_style.add_axes(figure, 0.75, 0.85 + pitch * (len(drawn) - 1 - i), 5.3, panel)
        y_max = _draw_curves(axes, group, sweep, curves)
        _label_curves(axes, group, sweep, curves, y_max)
        axes.set_xlabel(sweep.label)
    title = " ".join(p for p in (group.op, group.dtype, group.suffix.replace("_", " ")) if p)
    figure.axes[0].set_title(f"{title}   {gpu}")
    plot_style.caption(figure, plot_data.left_out(group, off_sweep))
    return figure


def _draw_curves(
    axes: Axes, group: plot_data.Group, sweep: plot_data.Sweep, curves: list[plot_data.Curve]
) -> float:
    """Draw curves, bands and roof with their axes; return the top of the y axis."""
    top = 0.0
    for curve in curves:
        axes.plot(curve.x, curve.rate, **plot_style.marks(curve.backend, curve.headline))
        top = max(top, *curve.rate)
        if curve.headline:
            axes.fill_between(
                curve.x,
                curve.low,
                curve.high,
                color=plot_style.colour(curve.backend),
                alpha=0.18,
                linewidth=0,
            )
            top = max(top, *curve.high)
    _, roof_x, roof_rate = plot_data.roof(group, sweep)
    if roof_x:
        axes.plot(
            roof_x, roof_rate, color=plot_style.ROOF_COLOUR, linestyle=(0, (4, 2)), zorder=1.5
        )
        top = max(top, *roof_rate)
    plot_style.size_axis(axes, [x for c in curves for x in c.x], sweep.bytes_axis)
    axes.set_ylim(0.0, top * 1.08)
    axes.set_ylabel("TFLOP/s" if group.compute else "GB/s")
    return top * 1.08


def _label_curves(
    axes: Axes,
    group: plot_data.Group,
    sweep: plot_data.Sweep,
    curves: list[plot_data.Curve],
    y_max: float,
) -> None:
    ends = [(c.x[-1], c.rate[-1], c.name, plot_style.colour(c.backend)) for c in curves]
    name, x, rate = plot_data.roof(group, sweep)
    if x:
        ends.append((x[-1], rate[-1], f"{name or 'roof'} {rate[-1]:.0f}", "#6E6E6E"))
    plot_style.label_ends(axes, ends, y_max)


def overview_figure(groups: list[plot_data.Group], gpu: str) -> Figure | None:
    """Return small panels, one an op, headlines only: readable at 1000 pixels; None if empty."""
    panels = []
    for group in _overview_groups(groups):
        sweeps, _ = plot_data.sweeps(group)
        curves = [c for c in plot_data.curves(group, sweeps[0]) if c.headline] if sweeps else []
        if curves:
            panels.append((group, sweeps[0], curves))
    if not panels:
        return None
    n_columns = min(len(panels), _OVERVIEW_COLUMNS)
    n_rows = -(-len(panels) // n_columns)
    width, pitch = 10.0 / n_columns, 2.95
    figure = plot_style.new_figure(10.0, pitch * n_rows + 0.4)
    for i, (group, sweep, curves) in enumerate(panels):
        row, column = divmod(i, n_columns)
        axes = plot_style.add_axes(
            figure, width * column + 0.66, pitch * (n_rows - 1 - row) + 0.55, width - 0.82, 2.0
        )
        _draw_curves(axes, group, sweep, curves)
        plot_style.size_axis(
            axes, [x for c in curves for x in c.x], sweep.bytes_axis, max(3, 12 // n_columns)
        )
        axes.set_xlabel(sweep.label, fontsize=8)
        axes.set_title(f"{group.op} {group.dtype}")
        _value_of_roof(axes, group, sweep)
    _overview_title(figure, gpu, [c.backend for _, _, cs in panels for c in cs])
    return figure


def _overview_groups(groups: list[plot_data.Group]) -> list[plot_data.Group]:
    """Return one group an op: most ok rows first, then the commoner dtype; memory ops lead."""

    def rank(group: plot_data.Group) -> tuple[int, int]:
        order = (*_OVERVIEW_DTYPES, group.dtype)
        return -int((group.rows["status"] == "ok").sum()), order.index(group.dtype)

    best: dict[str, plot_data.Group] = {}
    for group in groups:
        if group.op not in best or rank(group) < rank(best[group.op]):
            best[group.op] = group
    return sorted(best.values(), key=lambda g: g.compute)


def _value_of_roof(axes: Axes, group: plot_data.Group, sweep: plot_data.Sweep) -> None:
    _, x, rate = plot_data.roof(group, sweep)
    if x:
        axes.annotate(
            f"roof {rate[-1]:.0f}",
            xy=(x[-1], rate[-1]),
            xytext=(0, 3),
            textcoords="offset points",
            ha="right",
            fontsize=7.5,
            color="#6E6E6E",
        )


def _overview_title(figure: Figure, gpu: str, backends: list[str]) -> None:
    """Write the title and one legend for all panels."""
    width, height = figure.get_size_inches()
    top = 1.0 - 0.24 / height
    figure.text(0.12 / width, top, f"CUDA and Triton on {gpu}", fontsize=12, va="center")
    order = [b for b in plot_style.COLOURS if b in backends]
    order += sorted(set(backends) - set(order))
    lines = [figure.axes[0].plot([], [], label=b, **plot_style.marks(b, True))[0] for b in order]
    lines += figure.axes[0].plot(
        [], [], label="measured roof", color=plot_style.ROOF_COLOUR, linestyle=(0, (4, 2))
    )
    figure.legend(
        handles=lines, loc="center right", bbox_to_anchor=(1.0, top), ncol=len(lines), fontsize=8.5
    )
