"""The run's figures inside the page: data URIs, and what each one shows in words."""

from __future__ import annotations

import base64
import contextlib
import math
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from harness import plot_data, plot_style, plot_tradeoff_data, plots, stats
from harness.report_machine import drift
from harness.report_map import SideMap, summary
from harness.report_text import count, listing, mapping, number
from harness.results import Run

# An SVG of every sample or poll is several times the size of its picture.
_LARGEST_SVG = 250_000
_ROOM = 3_500_000  # bytes of all figures: the page stays below 10 MB
_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}


@dataclass(frozen=True)
class Picture:
    """One figure: `uri` holds it whole, `alt` says what is to be seen in it."""

    name: str
    uri: str
    alt: str
    caption: str


@dataclass(frozen=True)
class Pictures:
    """Figures by the op they belong to ("" for those of the whole run), and what is missing."""

    by_op: dict[str, list[Picture]]
    missing: list[str]


def draw(run: Run, folder: Path) -> list[Path]:
    """Draw the run's figures into `folder`; none of a run of several GPU models.

    A PNG only where the SVG is too large: drawing is what takes a report's time.
    """
    files: list[Path] = []
    # `plot` says why a figure is not there; the page says only that it is not.
    with contextlib.suppress(plots.PlotError):
        for name, figure in plots.figures(run, lambda _: None):
            files += plot_style.save(figure, folder / name, ("svg",))
            if files[-1].stat().st_size > _LARGEST_SVG:
                files += plot_style.save(figure, folder / name, ("png",))
    return files


def pictures(run: Run, sides: SideMap, files: Sequence[Path] | None = None) -> Pictures:
    """Return the run's figures, drawn now where no `files` of them are given."""
    if files is not None:
        return _collect(run, sides, files)
    with tempfile.TemporaryDirectory() as folder:
        return _collect(run, sides, draw(run, Path(folder)))


def _collect(run: Run, sides: SideMap, files: Iterable[Path]) -> Pictures:
    groups = plot_data.groups(run.rows)
    ops = {group.name: group.op for group in groups}
    ops |= {plot_data.stem("roof_share", group.op): group.op for group in groups}
    by_op: dict[str, list[Picture]] = {}
    used = 0
    kinds_of = _kinds(files)
    absent = [name for name in _CAPTIONS if name not in kinds_of]
    missing = [f"{', '.join(absent)}: not drawn for want of data; make plots says why"]
    missing = missing if absent else []
    for stem, kinds in kinds_of.items():
        path = _smaller(kinds)
        used += path.stat().st_size
        if used > _ROOM:
            missing.append(f"{stem} is left out: the page would be too large; see plots/")
            continue
        op = ops.get(stem, "")
        alt = _alt(run, sides, stem, op)
        picture = Picture(stem, data_uri(path), alt, _CAPTIONS.get(stem, ""))
        by_op.setdefault(op, []).append(picture)
    return Pictures(by_op, missing)


def _kinds(files: Iterable[Path]) -> dict[str, dict[str, Path]]:
    kinds: dict[str, dict[str, Path]] = {}
    for path in files:
        kinds.setdefault(path.stem, {})[path.suffix] = path
    return kinds


def _smaller(kinds: dict[str, Path]) -> Path:
    """Return the SVG, which stays sharp, unless it is large and there is a PNG."""
    svg = kinds.get(".svg")
    if svg is None or (".png" in kinds and svg.stat().st_size > _LARGEST_SVG):
        return kinds[".png"]
    return svg


def data_uri(path: Path) -> str:
    """Return a figure's file as a URI that needs no request."""
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f"data:{_TYPES[path.suffix]};base64,{data}"


_CAPTIONS = {
    "overview": "Rates of every op over size, against the measured roof.",
    "speedup": "CUDA time over Triton time, case by case, with 99 % intervals.",
    "heatmap": "CUDA time over Triton time by op and size.",
    "roofline": "Rates against arithmetic intensity, under the roofs measured in this run.",
    "launch": "Kernel, graph and host time of the short cases.",
    "samples": "Every sample of selected rows.",
    "drift": "Clock, power, temperature, round means and roofs over the run's time.",
    "tradeoff": "Share of the roof over the code that it takes, from CUDA to Triton.",
}


def _alt(run: Run, sides: SideMap, stem: str, op: str) -> str:
    """Return the figure's finding; one whose kind is not known here gets what the run says."""
    if op:
        part = run.rows[(run.rows["op"] == op) & (run.rows["status"] == "ok")]
        if stem.startswith("roof_share"):
            return f"Share of the measured roof in {op}: {_ranges(part, 'pct_roof', '%')}."
        group = next(g for g in plot_data.groups(run.rows) if g.name == stem)
        rows = group.rows[group.rows["status"] == "ok"]
        column, unit = ("tflops", "TFLOP/s") if group.compute else ("gbps", "GB/s")
        return f"Rate of {op} in {group.dtype} over size: {_ranges(rows, column, unit)}."
    found = _FINDINGS.get(stem)
    text = found(run) if found else ""
    if stem == "heatmap" and not sides.refused:
        text = f"CUDA time over Triton time by op and size: {_means(sides.rows)}."
    return text or f"{_CAPTIONS.get(stem, stem)} " + " ".join(summary(run, sides)[1:3])


def _means(rows: pd.DataFrame) -> str:
    timed = rows[rows["ratio"].notna()]
    means = [
        f"{op} {stats.geometric_mean(part['ratio']):.3f}"
        for op, part in timed.groupby("op", sort=False)
    ]
    return f"geometric means {listing(means)}" if means else "no case was timed on both sides"


def _ranges(rows: pd.DataFrame, column: str, unit: str) -> str:
    texts = []
    for backend, part in rows.groupby("backend", sort=False):
        values = part[column].dropna()
        if len(values):
            texts.append(f"{backend} {values.min():.0f} to {values.max():.0f} {unit}")
    return ", ".join(texts) or "no rate is recorded"


def _launch(run: Run) -> str:
    bound = int((run.rows["bound"] == "launch").sum())
    floor = number(mapping(run.meta.get("roofs")).get("launch_floor_us"))
    known = f" of {floor:.2f} µs" if math.isfinite(floor) else ""
    return (
        f"Kernel, graph and host time of the short cases: {count(bound, 'row')} of the run lie "
        f"within two launch floors{known}."
    )


def _samples(run: Run) -> str:
    counts = run.rows[["n_samples", "n_outliers"]].sum()
    return (
        f"Samples of selected rows: the run has {int(counts['n_samples'])}, of which "
        f"{int(counts['n_outliers'])} lie far from their row's median; all are kept."
    )


def _overview(run: Run) -> str:
    ok = run.rows[run.rows["status"] == "ok"]
    best = ok.groupby(["op", "backend"], sort=False)["pct_roof"].max().dropna()
    texts = [
        f"{op} " + ", ".join(f"{side} {share:.0f} %" for (_, side), share in part.items())
        for op, part in best.groupby("op", sort=False)
    ]
    found = f"the largest shares are {'; '.join(texts[:6])}" if texts else ""
    return f"Rates over size against the measured roof, of which {found}." if found else ""


def _roofline(run: Run) -> str:
    ok = run.rows[(run.rows["status"] == "ok") & (run.rows["bound"] != "launch")]
    return f"Rates under the measured roofs, in percent of them: {_ranges(ok, 'pct_roof', '%')}."


def _tradeoff(run: Run) -> str:
    found = plot_tradeoff_data.trade_off(run)
    return "" if isinstance(found, str) else plot_tradeoff_data.finding(found)


_FINDINGS: dict[str, Callable[[Run], str]] = {
    "drift": drift,
    "launch": _launch,
    "samples": _samples,
    "overview": _overview,
    "roofline": _roofline,
    "tradeoff": _tradeoff,
}
