"""Every figure at 2 and at 60 series, with long names: no word on another, none off the page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pandas as pd
import pytest
from fixtures import synthetic_run as synthetic
from fixtures.drawn_texts import misplaced
from fixtures.plotted import figures, two_series, whole
from matplotlib.figure import Figure

from harness import plot_compare, plot_style, plots
from harness.compare import compare_runs
from harness.plot_text import fit, width_of, wrap
from harness.results import COLUMNS, Run, read_run
from harness.schema import META_NAME, ROUNDS_NAME

LONG = "grouped_query_attention_with_rotary_embedding_and_sliding_window"


def sixty_variants(folder: Path) -> Run:
    """One op with a name too long for any label, 60 implementations a side and four sizes."""
    table = []
    for power, variant in ((p, v) for p in (10, 14, 18, 24) for v in range(60)):
        name = f"warp_specialised_persistent_v{variant:02}" if variant else ""
        for backend in ("cuda", "triton"):
            us = 2.0 + (1 << power) / 1e3 * (1 + variant / 50)
            table.append(
                synthetic.row(LONG, 1 << power, backend, us, variant=name, headline=not variant)
            )
    return whole(folder, table)


def sixty_ops(folder: Path) -> Run:
    """60 ops in three dtypes: as many lines of a heat map and labels of a roofline."""
    table = []
    for n in range(20):
        for dtype in ("bf16", "f16", "f8e4m3"):
            for power in (12, 17 + n % 3, 24):
                for backend, factor in (("cuda", 1.0), ("triton", 0.3 * 1.15**n)):
                    us = synthetic.base_time_us("op", 1 << power) * factor
                    case = f"B=16;T=4096;D={1 << power}:strided_and_misaligned_view"
                    table.append(
                        synthetic.row(
                            f"{LONG}_{n:02}", 1 << power, backend, us, dtype=dtype, case=case,
                            distribution=("normal(0,1)", "uniform(0,1)")[n % 2],
                        )
                    )  # fmt: skip
    return whole(folder, table)


@pytest.fixture(scope="module", params=[two_series, sixty_variants, sixty_ops])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    made: Run = request.param(tmp_path_factory.mktemp(request.param.__name__))
    return made


@pytest.fixture(scope="module")
def drawn(run: Run) -> dict[str, Figure]:
    return figures(run)


def test_no_label_overlaps_another_or_leaves_the_page(drawn: dict[str, Figure]) -> None:
    assert {"overview", "speedup", "heatmap", "roofline", "launch", "samples", "drift"} <= set(
        drawn
    )
    for name, figure in drawn.items():
        assert not misplaced(figure), name
        assert max(figure.get_size_inches()) * figure.dpi < 2**16, name


def test_every_axis_has_a_unit_and_every_title_card_and_date(drawn: dict[str, Figure]) -> None:
    units = ("µs", "GB/s", "TFLOP/s", "%", "flop/byte", "bytes", "elements", "time / ")
    for name, figure in drawn.items():
        words = " ".join(t.get_text() for t in figure.texts)
        assert synthetic.GPU in words and "2000-01-01" in words, name
        for axes in figure.axes if name != "drift" else []:  # its panels' titles are axis labels
            for label in filter(None, (axes.get_xlabel(), axes.get_ylabel())):
                assert any(unit in label for unit in units), (name, label)
            assert axes.get_xlabel(), name
    titles = [axes.get_title("left") for axes in drawn["drift"].axes]
    assert {t.rpartition(", ")[2] for t in titles if t} == {"MHz", "%"}


def test_two_runs_side_by_side(tmp_path: Path, run: Run) -> None:
    rows = compare_runs(run, run).rows
    rows.loc[rows.index[:3], ["verdict", "ratio", "low", "high"]] = ["SLOWER", 1.3, 1.2, 1.4]
    rows.loc[rows.index[3], ["verdict", "ratio", "failed", "new_status"]] = [
        "MISSING", float("nan"), True, "mismatch",
    ]  # fmt: skip
    rows.loc[rows.index[4], ["verdict", "ratio", "low", "high"]] = [
        "UNCLEAR",
        1.0,
        0.0,
        float("inf"),
    ]
    with plot_style.house_style():
        figure = plot_compare.compare_figure(rows, f"results/{LONG}", f"results/{LONG * 2}", "GPU")
    assert isinstance(figure, Figure)
    assert not misplaced(figure)
    one = plot_compare.draw(rows, "a", "b", tmp_path / "one" / "compare")
    two = plot_compare.draw(rows, "a", "b", tmp_path / "two" / "compare")
    assert [p.name for p in one] == ["compare.png", "compare.svg"]
    assert [p.read_bytes() for p in one] == [p.read_bytes() for p in two]
    assert plot_compare.draw(rows, "a", "b", tmp_path / "c.svg") == [tmp_path / "c.svg"]


def test_nothing_to_compare_is_said(tmp_path: Path) -> None:
    run = two_series(tmp_path)
    rows = compare_runs(run, run).rows
    rows["verdict"], rows["failed"] = "", False
    with pytest.raises(plot_style.PlotError, match="nothing to draw of a and b: no row"):
        plot_compare.draw(rows, "a", "b", tmp_path / "c")


def test_a_text_is_cut_to_its_room_in_its_middle() -> None:
    assert fit("short", 5.0, 8.0) == "short"
    shorter = fit(LONG, 1.5, 8.0)
    assert width_of(shorter, 8.0) <= 1.5 < width_of(LONG, 8.0)
    assert shorter[0] == LONG[0] and shorter[-1] == LONG[-1] and "…" in shorter
    assert fit(LONG, 0.0, 8.0) == "…"
    lines = wrap(f"{LONG * 3} and a few words more of it", 2.0, 7.0)
    assert all(width_of(line, 7.0) <= 2.0 for line in lines)
    assert lines[-1].endswith("of it")


def big_csv(folder: Path) -> Iterator[Path]:
    """Write 100 000 rows as files, past the writer, whose locks and flushes would take minutes."""
    small = synthetic.write(folder / "small", synthetic.rows(("cuda",))[:1])
    table = [
        synthetic.row(f"op{op}", n + 1000, backend, 5.0 + n / 100, dtype=dtype)
        for op in range(5)
        for dtype in ("f32", "bf16")
        for n in range(2000)
        for backend in ("cuda", "triton", "torch", "compile", "library")
    ]
    folder = folder / "big"
    folder.mkdir()
    frame = pd.DataFrame(table).reindex(columns=list(COLUMNS))
    for column in ("headline", "throttled"):
        known = frame[column].map({True: "true", False: "false"})
        frame[column] = known
    frame.to_csv(folder / "bench.csv", index=False)
    (folder / META_NAME).write_text((small.path / META_NAME).read_text())
    rounds = pd.DataFrame({"row": range(len(frame)), "round": 0, "mean_us": frame["time_us_p50"]})
    rounds = rounds.assign(utc_s=synthetic.START_S + rounds["row"] / 100, sm_mhz=1755.0)
    rounds.to_csv(folder / ROUNDS_NAME, index=False)
    yield folder


@pytest.mark.slow
def test_a_hundred_thousand_rows_take_less_than_a_minute(tmp_path: Path) -> None:
    (folder,) = big_csv(tmp_path)
    start = time.perf_counter()
    run = read_run(folder)
    assert len(run.rows) == 100_000
    with mock.patch.object(plots, "samples_figure", return_value="none"):
        written = plots.plot_run(run, tmp_path / "out", say=lambda text: None)
    assert len(written) >= 2 * (10 + 5 + 4)
    assert time.perf_counter() - start < 60
