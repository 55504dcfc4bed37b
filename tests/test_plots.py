"""Figures from synthetic runs: same bytes twice, no broken axis, nothing silently left out."""

from __future__ import annotations

import itertools
import math
import random
import re
from pathlib import Path
from typing import Any

import pytest
from fixtures import synthetic_run as synthetic
from matplotlib.figure import Figure
from matplotlib.text import Text

from harness import plot_data, plot_style
from harness.plots import PlotError, overview_figure, plot_run, rate_figure
from harness.results import Run

EXPECTED = {
    "bandwidth_scale_f32",
    "bandwidth_copy_f32",
    "throughput_matmul_bf16",
    "roof_share_scale",
    "roof_share_copy",
    "roof_share_matmul",
    "speedup",
    "heatmap",
    "roofline",
    "launch",
    "drift",
}


def figure_of(run: Run, op: str) -> Figure:
    group = next(g for g in plot_data.groups(run.rows) if g.op == op)
    with plot_style.house_style():
        figure = rate_figure(group, "GPU")
    assert figure is not None
    return figure


def texts(figure: Figure) -> list[str]:
    found = [t.get_text() for t in figure.texts]
    return found + [t.get_text() for axes in figure.axes for t in axes.texts]


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    run = synthetic.write(tmp_path / "run", synthetic.rows())
    first, second = plot_run(run, tmp_path / "a"), plot_run(run, tmp_path / "b")
    assert {p.stem for p in first} == EXPECTED | {"overview"}
    assert {p.suffix for p in first} == {".png", ".svg"}
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes(), one.name
    svg = (tmp_path / "a" / "overview.svg").read_text()
    assert not re.search(r"<dc:date>|Matplotlib v", svg)


def test_rates_are_decimal_and_axes_start_at_zero(tmp_path: Path) -> None:
    # 1 ms over exactly 1e9 bytes is 1000 GB/s; 1 ms over 1e12 flop is 1000 TFLOP/s.
    sizes = {"bytes_read": 10**9 - 1, "bytes_written": 1, "flops": 1e12}
    table = [
        synthetic.row("copy", 1, "cuda", 1000.0, **sizes),
        synthetic.row("matmul", 256, "cuda", 1000.0, **sizes),
    ]
    run = synthetic.write(tmp_path, table)
    for op in ("copy", "matmul"):
        axes = figure_of(run, op).axes[0]
        assert list(axes.lines[0].get_ydata()) == [1000.0]
        assert axes.get_ylim()[0] == 0.0
        assert axes.get_ylabel() == {"copy": "GB/s", "matmul": "TFLOP/s"}[op]


def test_failed_rows_are_counted_not_drawn(tmp_path: Path) -> None:
    table = synthetic.rows()
    broken: dict[str, Any] = {"time_us_p50": None, "time_us_p20": None, "time_us_p80": None}
    table[0] |= broken | {"status": "mismatch"}
    table[1] |= broken | {"status": "oom"}
    figure = figure_of(synthetic.write(tmp_path, table), "scale")
    assert any("rows not drawn: 1 mismatch, 1 oom" in t for t in texts(figure))
    drawn = {tuple(line.get_xdata()) for line in figure.axes[0].lines}
    assert min(len(x) for x in drawn) == 7


def test_missing_and_zero_values_break_no_axis(tmp_path: Path) -> None:
    table = synthetic.rows(("cuda", "triton"))
    for i, changes in enumerate(
        (
            {"roof_us": None},
            {"roof_us": 0.0},
            {"bytes_read": None},
            {"bytes_read": 0, "bytes_written": 0},
            {"time_us_p20": None, "time_us_p80": None},
            {"flops": 0.0},
            {"dims": ""},
            {"roof_name": ""},
        )
    ):
        table[i] |= changes
        table[-1 - i] |= changes
    written = plot_run(synthetic.write(tmp_path / "run", table), tmp_path / "out")
    assert {p.stem for p in written} == EXPECTED | {"overview"}
    run = synthetic.write(tmp_path / "bare", [r | {"roof_us": math.nan} for r in table])
    limits = figure_of(run, "scale").axes[0].get_ylim()
    assert all(math.isfinite(v) for v in limits)


def test_one_point_makes_a_figure(tmp_path: Path) -> None:
    run = synthetic.write(tmp_path / "run", [synthetic.row("copy", 1, "cuda", 0.001)])
    notes: list[str] = []
    written = plot_run(run, tmp_path / "out", say=notes.append)
    assert {p.stem for p in written} == {
        "bandwidth_copy_f32", "roof_share_copy", "overview", "roofline", "launch", "drift",
    }  # fmt: skip
    assert notes[-1].startswith("no tradeoff figure: ")
    assert notes[:-1] == [
        f"no speedup figure: {run.path} has no headline row of backend triton",
        f"no heatmap figure: {run.path} has no headline row of backend triton",
        "no samples figure: samples.csv.gz has no sample of an ok row",
    ]


@pytest.mark.parametrize("status", [None, "untimed"])
def test_an_empty_run_draws_nothing_and_says_why(tmp_path: Path, status: str | None) -> None:
    table = (
        [r | {"status": status, "time_us_p50": None} for r in synthetic.rows()] if status else []
    )
    notes: list[str] = []
    run = synthetic.write(tmp_path / "run", table)
    assert plot_run(run, tmp_path / "out", say=notes.append) == []
    assert not (tmp_path / "out").exists()
    assert len(notes) == 1
    assert (f"{len(table)} untimed" if status else "it is empty") in notes[0]


def test_several_gpus_are_refused(tmp_path: Path) -> None:
    table = synthetic.rows()
    table[0]["gpu"] = "OTHER GPU"
    run = synthetic.write(tmp_path / "run", table)
    with pytest.raises(PlotError, match="column gpu"):
        plot_run(run, tmp_path / "out")
    with pytest.raises(PlotError, match="gif"):
        plot_run(synthetic.write(tmp_path / "r", synthetic.rows()), tmp_path, formats=("gif",))


def test_modes_and_distributions_never_share_a_line(tmp_path: Path) -> None:
    table = synthetic.rows(("cuda", "triton"))
    table += [r | {"math_mode": "tf32"} for r in table if r["op"] == "copy"]
    written = plot_run(synthetic.write(tmp_path / "run", table), tmp_path / "out", ("svg",))
    stems = {p.stem for p in written}
    assert {"bandwidth_copy_f32_plain", "bandwidth_copy_f32_tf32", "bandwidth_scale_f32"} <= stems


def test_sixty_series_all_get_a_label_that_overlaps_none(tmp_path: Path) -> None:
    table = [
        synthetic.row("copy", 1 << p, "cuda", (1 << p) / 1e3 * (1 + v / 1e3), variant=f"v{v:02}")
        for v in range(60)
        for p in (12, 16, 20)
    ]
    figure = figure_of(synthetic.write(tmp_path, table), "copy")
    figure.canvas.draw()
    labels = [t for t in figure.axes[0].texts if t.get_text().startswith("cuda:v")]
    assert len(labels) == 60
    boxes = sorted((Text.get_window_extent(t) for t in labels), key=lambda b: b.y0)  # no arrows
    assert all(low.y1 <= high.y0 + 1.0 for low, high in itertools.pairwise(boxes))
    assert boxes[0].y0 >= 0
    assert boxes[-1].y1 <= figure.bbox.height


def test_spread_keeps_order_distance_and_range() -> None:
    rng = random.Random(0)
    for n in (1, 2, 7, 20):
        wanted = [rng.random() for _ in range(n)]
        placed = plot_style.spread(wanted, 0.05)
        assert max(placed) <= 1.0 + 1e-9
        ranks = sorted(range(n), key=lambda i: wanted[i])
        steps = [placed[b] - placed[a] for a, b in itertools.pairwise(ranks)]
        assert all(step >= 0.05 - 1e-9 for step in steps)
    assert plot_style.spread([0.2, 0.8], 0.1) == [0.2, 0.8]


def sweep_labels(run: Run) -> tuple[list[str], list[int], list[str]]:
    sweeps, left = plot_data.sweeps(plot_data.groups(run.rows)[0])
    return [s.label for s in sweeps], [len(s.x) for s in sweeps], left


def test_each_matrix_shape_sweeps_in_a_panel_of_its_own(tmp_path: Path) -> None:
    table = [
        synthetic.row(
            "matmul",
            k,
            "cuda",
            9.0,
            case=f"{m}x{k}",
            dims=f"M={m};N={m};K={k}",
            flops=2.0 * m * m * k,
        )
        for m in (2048, 4096)
        for k in (256, 512, 1024, 2048)
    ]
    labels, lengths, left = sweep_labels(synthetic.write(tmp_path / "k", table))
    assert labels == ["K   (M = N = 4096)", "K   (M = N = 2048)"]
    assert lengths == [4, 4]
    assert left == []
    square = [
        synthetic.row("matmul", n, "cuda", 9.0, case=f"{n}", dims=f"M={n};N={n};K={n}")
        for n in (512, 1024, 2048)
    ]
    assert sweep_labels(synthetic.write(tmp_path / "s", square))[0] == ["M = N = K"]


def test_a_memory_sweep_of_equal_bytes_runs_over_the_dimension_that_varies(tmp_path: Path) -> None:
    table = [
        synthetic.row("copy", 1 << 27, "cuda", 9.0, case=f"{n}", dims=f"M={(1 << 27) // n};N={n}")
        for n in (128, 1024, 4096, 32768)
    ]
    table.append(synthetic.row("copy", 1 << 20, "cuda", 9.0, case="small", dims="M=256;N=4096"))
    labels, lengths, left = sweep_labels(synthetic.write(tmp_path, table))
    assert labels == ["N"]
    assert lengths == [4]
    assert left == ["small"]


def test_near_twins_of_a_size_are_left_out_by_name(tmp_path: Path) -> None:
    table = [synthetic.row("copy", 1 << p, "cuda", 9.0) for p in (12, 20, 28)]
    table += [
        synthetic.row("copy", (1 << 28) - 1, "cuda", 9.0),
        synthetic.row("copy", 1 << 28, "cuda", 12.0, case=f"{1 << 28}:offset1"),
    ]
    run = synthetic.write(tmp_path, table)
    assert sweep_labels(run)[1:] == ([3], [str((1 << 28) - 1), f"{1 << 28}:offset1"])
    assert any("2 cases off this sweep" in t for t in texts(figure_of(run, "copy")))


def test_size_labels_are_binary() -> None:
    assert [plot_style.binary_size(p, True) for p in (4, 14, 20, 31)] == [
        "16 B",
        "16 KiB",
        "1 MiB",
        "2 GiB",
    ]
    assert [plot_style.binary_size(p, False) for p in (8, 13, 16, 20)] == [
        "256",
        "8192",
        "64 Ki",
        "1 Mi",
    ]


def test_the_overview_has_one_panel_an_op(tmp_path: Path) -> None:
    run = synthetic.write(tmp_path, synthetic.rows())
    with plot_style.house_style():
        figure = overview_figure(plot_data.groups(run.rows), "SOME GPU")
    assert figure is not None
    assert [axes.get_title("left") for axes in figure.axes] == [
        "scale f32",
        "copy f32",
        "matmul bf16",
    ]
    assert any("SOME GPU" in t for t in texts(figure))
