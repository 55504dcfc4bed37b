"""How each row's samples are distributed: one small panel a case, one cumulative curve a row."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from harness import plot_style
from harness.plot_text import fit
from harness.results import Run, varying
from harness.schema import SAMPLES_NAME

MAX_PANELS = 48  # cases; the caption counts the rest
MAX_STEPS = 400  # more than a panel has pixels
_COLUMNS, _WIDTH, _PITCH = 4, 10.0, 1.78  # inches
_CASE = ["op", "case", "dims", "dtype", "math_mode", "distribution"]
_BLOCK_BYTES = 1 << 25  # what is parsed at a time
_TICKS = [m * 10.0**p for p in range(0, 9) for m in (1, 2, 5)]  # %
_CUT = 0.005  # the share of samples at each end that a panel may leave out


def samples_figure(run: Run, card: str, tell: Callable[[str], None]) -> Figure | str:
    """Return the figure, or the reason why there is none.

    `tell` hears of a file that cannot be read to its end: what could be is drawn.
    """
    if not (run.path / SAMPLES_NAME).exists():
        return f"{run.path} has no {SAMPLES_NAME}"
    ok = run.rows[run.rows["status"] == "ok"]
    cases, left = _selected(ok)
    samples = _read(run, {int(row) for rows in cases for row in rows.index}, tell)
    cases = [c for c in cases if any(int(row) in samples for row in c.index)]
    if not cases:
        return f"{SAMPLES_NAME} has no sample of an ok row"
    seen = [str(b) for rows in cases for b in rows["backend"]]
    n_columns = min(len(cases), _COLUMNS)
    n_rows = -(-len(cases) // n_columns)
    note = f"each panel leaves out at most {100 * _CUT:g} % of a row's samples at either end" + (
        f"; {left} further cases, in {SAMPLES_NAME}" if left else ""
    )
    foot = plot_style.foot(note, _WIDTH)
    total = plot_style.HEAD + plot_style.KEY + _PITCH * n_rows + foot
    figure = plot_style.new_figure(_WIDTH, total)
    telling = varying(run.rows, ("math_mode", "distribution"))
    pitch = _WIDTH / _COLUMNS
    for i, rows in enumerate(cases):
        row, column = divmod(i, n_columns)
        bottom = foot + _PITCH * (n_rows - 1 - row) + 0.45
        axes = plot_style.add_axes(figure, pitch * column + 0.5, bottom, pitch - 0.66, 1.1)
        _draw(axes, rows, samples)
        first = rows.iloc[0]
        extra = [str(first[c]) for c, ops in telling.items() if first["op"] in ops]
        name = " ".join([str(first["op"]), str(first["case"]), str(first["dtype"]), *extra])
        # A title begins above the axis' labels and may go to the next panel.
        axes.set_title(fit(name, pitch - 0.66, 7.5), fontsize=7.5)
        if column == 0:
            axes.set_ylabel("samples, %", fontsize=7.5)
    title = "Distribution of the samples: share at most so far from the median"
    plot_style.header(
        figure, title, f"{card}   ·   one curve a row; steep is steady, steps are modes"
    )
    words = plot_style.backends_key(figure, seen, marker="", linewidth=1.2)
    plot_style.key(figure, words, 0.6)
    plot_style.caption(figure, note)
    return figure


def _selected(ok: pd.DataFrame) -> tuple[list[pd.DataFrame], int]:
    """Return the rows of at most MAX_PANELS cases, the longest of each op; how many are left."""
    cases = [part for _, part in ok.groupby(_CASE, sort=False)]
    table = pd.DataFrame(
        {
            "op": [str(c["op"].iloc[0]) for c in cases],
            "time": [float(c["time_us_p50"].min()) for c in cases],
        }
    )
    place = table.sort_values("time", ascending=False).groupby("op").cumcount()
    kept = sorted(place.sort_values(kind="stable").index[:MAX_PANELS])
    return [cases[i] for i in kept], len(cases) - len(kept)


def _read(
    run: Run, wanted: set[int], tell: Callable[[str], None]
) -> dict[int, NDArray[np.float64]]:
    """Return the samples of the wanted rows, µs, sorted; what is no positive number is dropped."""
    parts: list[pd.DataFrame] = []
    for text in _blocks(run.path / SAMPLES_NAME, tell):
        block = pd.read_csv(
            io.BytesIO(text),
            header=None,
            names=["row", "round", "time_us"],
            usecols=["row", "time_us"],
            on_bad_lines="skip",
            low_memory=False,
        ).apply(pd.to_numeric, errors="coerce")
        good = block["row"].isin(wanted) & np.isfinite(block["time_us"]) & (block["time_us"] > 0)
        parts.append(block[good])
    if not parts:
        return {}
    return {
        int(str(row).partition(".")[0]): np.sort(part["time_us"].to_numpy(dtype="float64"))
        for row, part in pd.concat(parts).groupby("row")
    }


def _blocks(path: Path, tell: Callable[[str], None]) -> Iterator[bytes]:
    """Yield the file's whole lines, many at a time, up to where it cannot be read any more."""
    text = b""
    try:
        with gzip.open(path) as file:
            while piece := file.read1(1 << 20):
                text += piece
                if len(text) > _BLOCK_BYTES:
                    whole, _, text = text.rpartition(b"\n")
                    yield whole
    except (OSError, EOFError, zlib.error) as error:
        tell(f"the samples figure lacks what cannot be read of {path}: {error}")
    if b"\n" in text:
        yield text.rpartition(b"\n")[0]


def _draw(axes: Axes, rows: pd.DataFrame, samples: dict[int, NDArray[np.float64]]) -> None:
    """Draw a case's curves over the stretch that holds nearly all samples of each."""
    low, high = np.inf, -np.inf
    for index, row in rows.iterrows():
        values = samples.get(int(str(index)))
        if values is None:
            continue
        values = 100.0 * (values / np.median(values) - 1.0)
        shares = np.linspace(0.0, 1.0, min(len(values), MAX_STEPS))
        at = np.quantile(values, shares, method="inverted_cdf")
        headline = bool(row["headline"]) if not pd.isna(row["headline"]) else False
        marks = plot_style.marks(str(row["backend"]), headline or not row["variant"])
        marks |= {"marker": "", "linewidth": 1.2 if marks["linewidth"] > 1 else 0.6}
        axes.step(at, 100.0 * shares, where="post", **marks)
        first, last = np.quantile(values, [_CUT, 1.0 - _CUT])
        low, high = min(low, float(first)), max(high, float(last))
    # Both ends alike, so that the medians lie under each other; at least 1 % to each side.
    reach = max(-low, high, 1.0) * 1.05
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-3.0, 103.0)
    axes.set_yticks([0, 50, 100])
    axes.tick_params(labelsize=7, length=2)
    axes.set_xlabel("% off the row's own median", fontsize=7.5, labelpad=1)
    axes.axvline(0.0, color="black", linewidth=0.6, zorder=1.5)
    tick = next(t for t in _TICKS if 2.4 * t > reach or t == _TICKS[-1])
    ticks = [t for t in (-2 * tick, -tick, 0.0, tick, 2 * tick) if abs(t) <= reach]
    axes.set_xticks(ticks, [f"{t:+g}" if t else "0" for t in ticks])
