"""The dot plot of CUDA time over Triton time, one dot a case, with intervals from the rounds."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from harness import plot_dots, plot_style, stats
from harness.compare import ComparisonRefused, compare_sides
from harness.plot_text import widest
from harness.results import Run, varying

MAX_DOTS = 150  # more rows than this no reader scans; the caption counts the rest
_WIDTH, _RIGHT, _BELOW = 8.0, 0.25, 0.5  # inches
_CUDA, _TRITON = plot_style.COLOURS["cuda"], plot_style.COLOURS["triton"]
_MARKS: plot_dots.Marks = {
    "FASTER": (_CUDA, "o", _CUDA),
    "SLOWER": (_TRITON, "s", _TRITON),
    "SAME": (plot_style.GREY, "D", plot_style.GREY),
    "UNCLEAR": (plot_style.GREY, "D", "white"),
}
_WORDS = {
    "FASTER": "CUDA faster",
    "SLOWER": "Triton faster",
    "SAME": "same",
    "UNCLEAR": "unclear",
}


def side_ratios(run: Run) -> pd.DataFrame | str:
    """Return compare_sides' rows of cuda over triton, or the reason why there are none."""
    try:
        return compare_sides(run, "cuda", "triton").rows
    except ComparisonRefused as refusal:
        return str(refusal)


def speedup_figure(run: Run, card: str) -> Figure | str:
    """Return the figure, or the reason why there is none."""
    rows = side_ratios(run)
    if isinstance(rows, str):
        return rows
    timed = rows[rows["ratio"].map(plot_style.drawable)]
    if timed.empty:
        return "no case with an ok headline row on both sides"
    shown = _selected(timed)
    names = row_names(shown, ("case", "dtype"))
    places, headings, n_slots = plot_dots.places_of(list(shown["op"]))
    counts = {
        "cases without an ok row on both sides": len(rows) - len(timed),
        "further cases, in bench.csv": len(timed) - len(shown),
    }
    left = ", ".join(f"{n} {what}" for what, n in counts.items() if n)
    note = f"not drawn: {left}" if left else ""
    height = n_slots * plot_dots.ROW_INCHES
    foot = plot_style.foot(note, _WIDTH) + _BELOW
    figure = plot_style.new_figure(_WIDTH, plot_style.HEAD + plot_style.KEY + height + foot)
    room = min(widest(names, plot_dots.NAME_PT), 3.4)
    axes = plot_style.add_axes(figure, room + 0.25, foot, _WIDTH - _RIGHT - room - 0.25, height)
    plot_dots.draw_ratios(axes, shown, places, _MARKS)
    plot_dots.name_rows(axes, places, names, room, n_slots)
    plot_dots.name_ops(axes, headings, _WIDTH - _RIGHT - room - 0.4)
    axes.set_xlabel("CUDA time / Triton time (left of 1: CUDA is faster)")
    percent = f"{100 * stats.CONFIDENCE:g} %"
    sub = f"{card}   ·   paired round by round, {percent} intervals"
    plot_style.header(figure, "CUDA time over Triton time, case by case", sub)
    seen = set(shown["verdict"])
    words = {v: w for v, w in _WORDS.items() if v in seen}
    plot_dots.key(figure, _MARKS, words)
    plot_style.caption(figure, note)
    return figure


def row_names(rows: pd.DataFrame, columns: tuple[str, ...]) -> list[str]:
    """Return each row's name within its op, without a mode or distribution that all share."""
    telling = varying(rows, ("math_mode", "distribution"))
    return [
        " ".join(
            str(row[c])
            for c in (*columns, *(c for c, ops in telling.items() if row["op"] in ops))
            if row[c] != ""
        )
        for row in rows.to_dict("records")
    ]


def _selected(rows: pd.DataFrame) -> pd.DataFrame:
    """Return at most MAX_DOTS rows, the slowest cases of each op; by op, lowest ratio first."""
    ordered = rows.sort_values("base_us", ascending=False, kind="stable")
    place = ordered.groupby("op", sort=False).cumcount()
    kept = ordered.assign(place=place).sort_values("place", kind="stable").head(MAX_DOTS)
    ops = {op: i for i, op in enumerate(rows["op"].drop_duplicates())}
    kept = kept.assign(op_place=kept["op"].map(ops))
    result: pd.DataFrame = kept.sort_values(["op_place", "ratio"], kind="stable")
    return result
