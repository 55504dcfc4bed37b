"""A run's figures, drawn from its files alone: no GPU, no torch, no display.

Byte rates count each distinct byte once (GB/s = 1e9 bytes/s); rows that are not ok are never
drawn, only counted in the caption.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from harness import plot_data, plot_style
from harness.plot_curves import rate_figure, share_figure
from harness.plot_drift import drift_figure
from harness.plot_heat import heat_figure
from harness.plot_launch import launch_figure
from harness.plot_overview import overview_figure
from harness.plot_roofline import roofline_figure
from harness.plot_samples import samples_figure
from harness.plot_speedup import speedup_figure
from harness.plot_style import PlotError
from harness.plot_tradeoff import tradeoff_figure
from harness.results import Run, gpu_names

__all__ = ["FORMATS", "PlotError", "overview_figure", "plot_run", "rate_figure"]

FORMATS = ("png", "svg")


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
    unknown = sorted(set(formats) - set(FORMATS))
    if unknown:
        raise PlotError(f"format {unknown[0]!r} is not one of {', '.join(FORMATS)}")
    out_dir = Path(out_dir)
    written: list[Path] = []
    for name, figure in figures(run, tell):
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


def figures(run: Run, tell: Callable[[str], None]) -> Iterator[tuple[str, Figure]]:
    """Yield each figure with its file's stem, to be saved before the next is asked for.

    `tell` hears why one is not there. Raises PlotError for a run of several GPU models.
    """
    names = gpu_names(run)
    if len(names) > 1:
        raise PlotError(
            f"{run.path} holds {len(names)} GPU models ({', '.join(names)}) in column gpu; keep "
            "the rows of one: their curves are not one curve"
        )
    with plot_style.house_style():
        yield from _figures(run, card_of(run), tell)


def card_of(run: Run) -> str:
    """Return what the second line of every figure begins with: card, day, and cache if one."""
    names = gpu_names(run)
    day = str(run.meta.get("started_utc") or "")[:10] or "date not recorded"
    ok = run.rows[run.rows["status"] == "ok"]
    caches = {
        f"{c} cache, {f} flush" if f else f"{c} cache"
        for c, f in zip(ok["cache"], ok["flush"], strict=True)
    }
    state = f", {caches.pop()}" if len(caches) == 1 and ok["cache"].iloc[0] else ""
    return f"{names[0] if names else 'GPU not recorded'}, {day}{state}"


def _figures(run: Run, card: str, tell: Callable[[str], None]) -> Iterator[tuple[str, Figure]]:
    """Yield each figure with its file's stem; `tell` hears why one is not there."""
    groups = plot_data.groups(run.rows)
    taken: set[str] = set()
    for group in groups:
        figure = rate_figure(group, card)
        if figure is not None:
            yield _free(group.name, taken), figure
    if not taken:
        return
    for op in dict.fromkeys(group.op for group in groups):
        figure = share_figure([g for g in groups if g.op == op], card)
        if figure is not None:
            yield _free(plot_data.stem("roof_share", op), taken), figure
    overview = overview_figure(groups, card)
    if overview is not None:
        yield "overview", overview
    others: dict[str, Callable[[], Figure | str]] = {
        "speedup": lambda: speedup_figure(run, card),
        "heatmap": lambda: heat_figure(run, card),
        "roofline": lambda: roofline_figure(run, card),
        "launch": lambda: launch_figure(run, card),
        "samples": lambda: samples_figure(run, card, tell),
        "drift": lambda: drift_figure(run, card, tell),
        "tradeoff": lambda: tradeoff_figure(run, card),
    }
    for name, draw in others.items():
        drawn = draw()
        if isinstance(drawn, Figure):
            yield name, drawn
        else:
            tell(f"no {name} figure: {drawn}")


def _free(stem: str, taken: set[str]) -> str:
    """Return a stem that no earlier figure of the run has: "a/b" and "a-b" are one file name."""
    number, free = 2, stem
    while free.lower() in taken:
        number, free = number + 1, f"{stem}-{number}"
    taken.add(free.lower())
    return free
