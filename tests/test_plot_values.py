"""Values that are missing, zero, infinite or absurd: no figure breaks, no axis is without end."""

from __future__ import annotations

import dataclasses
import gzip
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures import synthetic_run as synthetic
from fixtures.drawn_texts import misplaced
from fixtures.plotted import ROOFS, figures, two_series, whole, with_samples
from matplotlib.figure import Figure

from harness import plot_compare, plot_curves, plot_data, plot_heat, plot_roofline, plot_style
from harness.compare import compare_runs
from harness.plots import plot_run
from harness.results import Run

NUMBERS = (
    "time_us_p50", "time_us_p20", "time_us_p80", "graph_us_p50", "host_us_p50", "flops",
    "bytes_read", "bytes_written", "bytes_model", "roof_us",
)  # fmt: skip
VALUES = (math.nan, 0.0, -1.0, math.inf, 1e300, 1e-300)


def small(folder: Path) -> Run:
    sizes = [("copy", 1 << p) for p in (12, 18, 24)] + [("matmul", 1 << p) for p in (8, 10, 12)]
    table = [
        synthetic.row(op, n, backend, synthetic.base_time_us(op, n) * synthetic.SPEED[backend])
        for op, n in sizes
        for backend in ("cuda", "triton")
    ]
    return whole(folder, table)


def sound(drawn: dict[str, Figure]) -> None:
    """Assert that each figure draws, with limits that are numbers and no text on another."""
    for name, figure in drawn.items():
        for axes in figure.axes:
            ends = [*axes.get_xlim(), *axes.get_ylim()]
            assert np.isfinite(ends).all(), (name, ends)
            assert ends[0] != ends[1] and ends[2] != ends[3], (name, ends)
        assert not misplaced(figure), name


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("everywhere", [False, True])
def test_no_value_breaks_a_figure(tmp_path: Path, value: float, everywhere: bool) -> None:
    run = small(tmp_path)
    rows = run.rows.copy()
    for place, column in enumerate(NUMBERS):
        rows[column] = rows[column].astype("float64")
        rows.loc[rows.index if everywhere else place, column] = value
    drawn = figures(dataclasses.replace(run, rows=rows))
    sound(drawn)
    if not everywhere:
        assert {"overview", "speedup", "launch", "samples", "drift"} <= set(drawn)


@pytest.mark.parametrize("value", [math.nan, 0.0, math.inf, 1e-9, 1e9])
def test_no_ratio_breaks_a_comparison(tmp_path: Path, value: float) -> None:
    run = small(tmp_path)
    rows = compare_runs(run, run).rows
    for place, column in enumerate(("ratio", "low", "high", "band", "base_us", "new_us")):
        rows.loc[place, column] = value
    with plot_style.house_style():
        figure = plot_compare.compare_figure(rows, "base", "new")
        assert isinstance(figure, Figure)
        sound({"compare": figure})


@pytest.mark.parametrize(
    "roofs", [None, {}, {"curves_us": {"copy": []}}, {"matrix_tflops": {"bf16": 0.0}}]
)
def test_roofs_that_were_not_measured_cost_their_lines(tmp_path: Path, roofs: Any) -> None:
    run = small(tmp_path)
    sound(figures(dataclasses.replace(run, meta={**run.meta, "roofs": roofs, "roofs_end": None})))


def test_one_row_and_one_size_draw(tmp_path: Path) -> None:
    sound(figures(whole(tmp_path / "a", [synthetic.row("copy", 1, "cuda", 0.001)])))
    pair = [synthetic.row("copy", 4096, b, 5.0) for b in ("cuda", "triton")]
    drawn = figures(whole(tmp_path / "b", pair))
    assert {"speedup", "heatmap", "roofline", "launch", "samples"} <= set(drawn)
    sound(drawn)


def test_all_failed_on_one_side_is_hatched_and_all_failed_draws_nothing(tmp_path: Path) -> None:
    table = [
        r
        | (
            {"status": "oom", "time_us_p50": None}
            if r["backend"] == "triton" and r["op"] == "copy"
            else {}
        )
        for r in synthetic.rows(("cuda", "triton"))
    ]
    with plot_style.house_style():
        figure = plot_heat.heat_figure(whole(tmp_path / "a", table), "GPU")
    assert isinstance(figure, Figure)
    words = [t.get_text() for t in figure.axes[0].texts]
    assert words.count("failed") == 8
    assert figure.axes[0].patches[0].get_hatch()
    table = [r | {"status": "mismatch", "time_us_p50": None} for r in table]
    notes: list[str] = []
    run = synthetic.write(tmp_path / "b", table)
    assert plot_run(run, tmp_path / "out", say=notes.append) == []
    assert len(notes) == 1 and "44 mismatch" in notes[0]


def test_the_heat_map_is_centred_on_one_and_says_how_many_cases_it_joins(tmp_path: Path) -> None:
    table = [
        synthetic.row("copy", 4096, b, t, case=c, dims="N=4096")
        for b, times in (("cuda", (8.0, 2.0)), ("triton", (4.0, 4.0)))
        for c, t in zip(("one", "other"), times, strict=True)
    ]
    with plot_style.house_style():
        figure = plot_heat.heat_figure(synthetic.write(tmp_path, table), "GPU")
    assert isinstance(figure, Figure)
    words = [t.get_text() for t in figure.axes[0].texts]
    assert words[0] in ("0.99", "1.00", "1.01") and re.fullmatch(
        r"0\.(49|50|51)-(1.99|2.0.)", words[1]
    )
    grey = plot_heat._MAP(0.5)
    assert max(grey[:3]) - min(grey[:3]) < 0.01


def test_the_roofline_is_flops_over_model_bytes_and_names_the_ridge(tmp_path: Path) -> None:
    sizes = {"bytes_read": 10**9, "bytes_written": 0, "bytes_model": 2 * 10**9, "flops": 1e12}
    run = whole(tmp_path, [synthetic.row("matmul", 256, "cuda", 1000.0, **sizes)])
    with plot_style.house_style():
        figure = plot_roofline.roofline_figure(run, "GPU")
    assert isinstance(figure, Figure)
    points = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert list(points[0].get_xydata()[0]) == [500.0, 1000.0]
    copy = max(size / time for size, time in ROOFS["curves_us"]["copy"]) / 1e3
    words = [t.get_text() for t in figure.axes[0].texts]
    assert f"copy {copy:.0f} GB/s" in words
    assert any(w.startswith("roof bf16 790") and f"ridge {790e3 / copy:.0f}" in w for w in words)


def test_the_share_is_roof_over_time(tmp_path: Path) -> None:
    run = whole(tmp_path, [synthetic.row("copy", 4096, "cuda", 8.0, roof_us=4.0)])
    with plot_style.house_style():
        figure = plot_curves.share_figure(plot_data.groups(run.rows), "GPU")
    assert figure is not None
    assert list(figure.axes[0].lines[0].get_ydata()) == [50.0]
    assert figure.axes[0].get_ylim()[0] == 0.0


def test_samples_that_cannot_be_read_to_the_end_are_drawn_as_far(tmp_path: Path) -> None:
    run = two_series(tmp_path)
    path = run.path / "samples.csv.gz"
    path.write_bytes(path.read_bytes()[:-9])
    assert "samples" in figures(run)
    path.write_bytes(gzip.compress(b"row,round,time_us\n0,0,x\n0,0,inf\n0,0,5\n"))
    sound({k: v for k, v in figures(run).items() if k == "samples"})
    path.write_bytes(b"no gzip")
    assert "samples" not in figures(run)
    with_samples(run)
    assert "samples" in figures(run)


def test_every_file_is_the_same_twice_and_names_are_unlike(tmp_path: Path) -> None:
    table = [
        synthetic.row(op, n, b, 5.0 + n / 1e3, distribution="$a_b$ 1e3")
        for op in ("a/b", "a-b", "A-b")
        for n in (64, 4096)
        for b in ("cuda", "triton")
    ]
    run = whole(tmp_path / "run", table)
    one, two = plot_run(run, tmp_path / "1"), plot_run(run, tmp_path / "2")
    assert len({str(p).lower() for p in one}) == len(one) == 2 * (3 + 3 + 7)
    assert {"samples", "heatmap", "launch", "roofline", "overview"} <= {p.stem for p in one}
    for a, b in zip(one, two, strict=True):
        assert a.read_bytes() == b.read_bytes(), a.name


def test_an_absent_row_splits_no_figure(tmp_path: Path) -> None:
    table = synthetic.rows(("cuda", "triton"))
    absent = {"status": "absent", "time_us_p50": None, "cache": "", "flush": ""}
    table += [r | {"backend": "library", **absent} for r in table if r["backend"] == "cuda"]
    run = synthetic.write(tmp_path, table)
    assert [g.name for g in plot_data.groups(run.rows)] == [
        "bandwidth_scale_f32",
        "bandwidth_copy_f32",
        "throughput_matmul_bf16",
    ]
