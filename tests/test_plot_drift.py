"""The drift figure from synthetic runs: which panels, which numbers, and what is left out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fixtures import synthetic_run as synthetic
from fixtures.drawn_texts import misplaced
from matplotlib.figure import Figure

from harness import plot_style
from harness.plot_drift import drift_figure
from harness.plot_drift_data import Drift, drift_of, windows
from harness.plots import plot_run
from harness.results import Run, RunWriter, read_run, read_watch
from harness.schema import Round

ROOT = Path(__file__).resolve().parent.parent
CLOCK, POWER = "SM clock, MHz", "Power, W"
ROUNDS, ROOFS = "Round means against their row's own mean, %", "Roofs, end over start, %"


def roofs(factor: float, tflops: float) -> dict[str, Any]:
    curve = [[2.0**p, (4.0 + 2.0**p / 4e6) * factor] for p in range(14, 33, 2)]
    curves = {kind: curve for kind in ("copy", "read", "write")}
    return {"curves_us": curves, "matrix_tflops": {"bf16": tflops}, "tick_us": 0.032}


def whole(folder: Path, **changes: Any) -> Run:
    """Write a run with everything that the figure can show."""
    facts = synthetic.meta(roofs=roofs(1.0, 790.0), roofs_end=roofs(0.98, 782.1))
    run = synthetic.write(folder, synthetic.rows(), facts | changes)
    synthetic.write_watch(folder, run.rounds["utc_s"].max() - synthetic.START_S)
    return run


def figure_of(run: Run) -> Figure:
    with plot_style.house_style():
        figure = drift_figure(run, "SOME GPU", pytest.fail)
    assert isinstance(figure, Figure), figure
    return figure


def panels(run: Run) -> list[str]:
    titles = [axes.get_title("left") for axes in figure_of(run).axes]
    return [title for title in titles if title]


def texts(run: Run) -> str:
    return " ".join(" ".join(t.get_text().split()) for t in figure_of(run).texts)


def drift(run: Run) -> Drift:
    found = drift_of(run, read_watch(run))
    assert isinstance(found, Drift), found
    return found


def timed_run(folder: Path, tables: list[list[Round]], **changes: Any) -> Run:
    """Write one row for each list of rounds, all of one op and of cases of their own."""
    with RunWriter.create(folder, synthetic.meta()) as writer:
        for n, rounds in enumerate(tables):
            writer.append(synthetic.row("copy", n + 1, "cuda", 10.0, **changes), rounds)
        writer.finish({})
    return read_run(folder)


def test_all_panels_and_their_numbers(tmp_path: Path) -> None:
    run = whole(tmp_path)
    assert panels(run) == [CLOCK, POWER, ROUNDS, ROOFS]
    text = texts(run)
    assert "SOME GPU" in text
    assert "from a case's first to its last (99 % interval" in text
    assert "SM clock p5 to p95 1755 to 1785 MHz" in text
    assert "roofs at most +2.0 % (copy)" in text
    assert "power 1" in text
    assert "slowdown reasons, share of polls: power_cap" in text


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    run = whole(tmp_path / "run")
    written = [[p for p in plot_run(run, tmp_path / n) if p.stem == "drift"] for n in "ab"]
    assert [p.suffix for p in written[0]] == [".png", ".svg"]
    for one, two in zip(*written, strict=True):
        assert one.read_bytes() == two.read_bytes()


def test_what_is_not_recorded_costs_its_panel(tmp_path: Path) -> None:
    run = whole(tmp_path / "a", roofs_end=None)
    assert panels(run) == [CLOCK, POWER, ROUNDS]
    (tmp_path / "a" / "watch.csv").unlink()
    assert panels(read_run(tmp_path / "a")) == [CLOCK, ROUNDS]
    header = "utc_s,watts,celsius,sm_mhz,reasons,other_processes\n"
    at = synthetic.START_S + 20
    for name, line, title in (
        ("b", f"{at},,51,,,\n{at + 9},,52,,,\n", "Temperature, °C"),
        ("c", f"{at},300,,,,\n{at + 9},310,,,,\n", POWER),
        ("d", "", ROUNDS),
    ):
        synthetic.write(tmp_path / name, synthetic.rows(), synthetic.meta(roofs=roofs(1.0, 1.0)))
        (tmp_path / name / "watch.csv").write_text(header + line)
        assert panels(read_run(tmp_path / name))[1] == title
    timeless = [[Round(10.0, synthetic.START_S + r) for r in range(8)]]
    assert panels(timed_run(tmp_path / "e", timeless)) == [ROUNDS]


def test_a_watch_that_cannot_be_read_costs_its_panels_and_is_named(tmp_path: Path) -> None:
    whole(tmp_path)
    (tmp_path / "watch.csv").write_text("utc_s,watts\n1,2\n")
    notes: list[str] = []
    with plot_style.house_style():
        figure = drift_figure(read_run(tmp_path), "GPU", notes.append)
    assert isinstance(figure, Figure)
    assert len(notes) == 1 and "watch.csv lacks the column celsius" in notes[0]


def test_a_run_without_times_has_no_figure_and_says_why(tmp_path: Path) -> None:
    run = synthetic.write(tmp_path / "run", synthetic.rows(), clocked=False)
    notes: list[str] = []
    written = plot_run(run, tmp_path / "out", ("svg",), notes.append)
    assert written and "drift" not in {p.stem for p in written}
    assert [n for n in notes if n.startswith("no drift figure: rounds.csv")]


def test_launch_bound_and_failed_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    table = [
        r | {"bound": "launch" if r["case"] == "4096" else r["bound"]} for r in synthetic.rows()
    ]
    run = synthetic.write(tmp_path / "a", table)
    kept = drift(run).rounds
    assert kept.loc[kept["deviation_pct"].notna(), "row"].nunique() == len(table) - 6
    assert f"{len(table) - 6} ok rows, 6 launch-bound rows left out" in texts(run)
    only = synthetic.write(tmp_path / "b", [r | {"bound": "launch"} for r in table])
    assert panels(only) == [CLOCK]


def test_a_pause_is_cut_out_and_said(tmp_path: Path) -> None:
    t = synthetic.START_S
    tables = [[Round(10.0, t + s + r) for r in range(10)] for s in (0, 20, 10_000, 10_020)]
    run = timed_run(tmp_path, tables)
    found = drift(run)
    assert found.rounds["minutes"].max() == pytest.approx((29 + 29) / 60)
    assert found.pauses == [(pytest.approx(29 / 60), 10_000 - 29)]
    assert "dashed: where the run was stopped, cut out (2.8 h)" in texts(run)


def test_a_case_longer_than_a_pause_is_none_while_nvml_is_polled(tmp_path: Path) -> None:
    t = synthetic.START_S
    timed_run(tmp_path, [[Round(10.0, t + s + r) for r in range(10)] for s in (0, 300)])
    synthetic.write_watch(tmp_path, 310)
    found = drift(read_run(tmp_path))
    assert found.pauses == []
    assert found.rounds["minutes"].max() == pytest.approx(309 / 60)


def test_the_trend_is_that_within_cases(tmp_path: Path) -> None:
    t = synthetic.START_S
    noise = [0.02, -0.01, 0.0, 0.01, -0.02] * 2
    # Each case rises by 1 % while it runs; the next one is five times as slow from its start.
    tables = [
        [Round(5.0**n * (1 + r / 900 + noise[r] / 100), t + 30 * n + r) for r in range(10)]
        for n in range(4)
    ]
    trend = drift(timed_run(tmp_path / "a", tables)).trend
    assert trend is not None
    assert trend.pct == pytest.approx(1.0, abs=0.05)
    assert trend.low_pct < trend.pct < trend.high_pct
    assert trend.low_pct > 0.9
    assert drift(timed_run(tmp_path / "b", [tables[0][:3]])).trend is None
    still = [[Round(10.0, t) for _ in range(10)]]
    assert drift(timed_run(tmp_path / "c", still)).trend is None


def test_short_roofs_are_hollow_and_count_for_nothing(tmp_path: Path) -> None:
    run = whole(tmp_path)
    table = drift(run).roofs
    assert table["pct"].iloc[0] == pytest.approx(100 * (1 / 0.98 - 1))
    assert table.loc[table["bytes"] == 2.0**14, "small"].all()
    assert not table.loc[table["bytes"] == 2.0**32, "small"].any()
    odd = drift(whole(tmp_path / "c", roofs_end={"curves_us": {"copy": [[1.0, 2.0]]}})).roofs
    assert odd.empty


def test_wild_rounds_do_not_flatten_the_others_and_are_counted(tmp_path: Path) -> None:
    t = synthetic.START_S
    rounds = [Round(10.0 + 0.01 * (r % 3), t + r / 10) for r in range(300)]
    rounds[50] = Round(20.0, t + 5.0)
    run = timed_run(tmp_path, [rounds])
    axes = figure_of(run).axes[0]
    assert axes.get_ylim()[1] < 5.0
    assert "triangles: 1 rounds beyond the axis" in texts(run)


def test_many_rounds_are_thinned_for_the_eye_only(tmp_path: Path) -> None:
    t = synthetic.START_S
    tables = [
        [Round(10.0 + 0.01 * (r % 7), t + 90 * n + r / 10, 1700.0) for r in range(800)]
        for n in range(10)
    ]
    run = timed_run(tmp_path, tables)
    figure = figure_of(run)
    assert all(len(line.get_xdata()) <= 4000 for axes in figure.axes for line in axes.lines)
    assert "dots: one of 2 rounds" in texts(run)
    found = drift(run)
    assert 60 <= len(windows(found.rounds)) <= 80


@pytest.mark.parametrize("n_series", [1, 2, 60])
def test_few_and_many_series_leave_no_text_on_another(tmp_path: Path, n_series: int) -> None:
    table = [
        synthetic.row("copy", 1 << p, "cuda", 50.0, variant=f"v{v:02}")
        for p in (20, 24)
        for v in range(n_series)
    ]
    facts = synthetic.meta(roofs=roofs(1.0, 790.0), roofs_end=roofs(1.0, 780.0))
    facts["roofs"]["matrix_tflops"] |= {"f16": 700.0, "f8e4m3": 1500.0, "tf32": 400.0}
    facts["roofs_end"]["matrix_tflops"] = facts["roofs"]["matrix_tflops"]
    run = synthetic.write(tmp_path, table, facts)
    synthetic.write_watch(tmp_path, run.rounds["utc_s"].max() - synthetic.START_S)
    figure = figure_of(run)
    assert not misplaced(figure)


def test_drawing_imports_neither_torch_nor_triton() -> None:
    code = "import sys, harness.plots; print({'torch', 'triton'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("folder", sorted((ROOT / "results").glob("*/reference")), ids=str)
def test_a_committed_reference_is_drawn(tmp_path: Path, folder: Path) -> None:
    notes: list[str] = []
    run = read_run(folder)
    written = {p.stem for p in plot_run(run, tmp_path, ("svg",), notes.append)}
    timed = run.rounds["utc_s"].notna().any()
    assert ("drift" in written) == bool(timed)
    assert {"overview", "speedup"} <= written
    # Samples are not committed.
    assert len(notes) == (1 if timed else 2)
    assert any(n.startswith("no samples figure") for n in notes)
