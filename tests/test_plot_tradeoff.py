"""The trade-off figure: only what was counted is drawn, at its own values; labels never overlap."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fixtures import synthetic_run as synthetic
from fixtures.drawn_texts import drawn, misplaced
from matplotlib.figure import Figure

from harness import plot_style, plot_tradeoff_data
from harness.machine import source_hash
from harness.plot_tradeoff import tradeoff_figure, way
from harness.plot_tradeoff_data import Arrow, Point, finding, trade_off
from harness.plot_tradeoff_data import Path as Ladder
from harness.plots import plot_run
from harness.registry import REPOSITORY, Registry
from harness.report import render
from harness.results import Run, read_run

REFERENCE = REPOSITORY / "results" / "nvidia-h200" / "reference"
REGISTRY = Registry()
RUNGS = [{"name": "naive", "step": "reads three times"}, {"name": "online", "step": "reads twice"}]


def hash_of(op: str, side: str, rung: str = "") -> str:
    return source_hash(REGISTRY.kernel_files(op, side, rung))


def row(op: str, n: int, side: str, pct: float, **changes: Any) -> dict[str, Any]:
    cells = synthetic.row(op, n, side, 1000.0 / pct, roof_us=10.0, pct_roof=pct)
    rung = str(changes.get("variant", ""))
    return cells | {"kernel_hash": hash_of(op, side, rung), "headline": not rung} | changes


def counts(tokens: int, *concepts: str) -> SimpleNamespace:
    return SimpleNamespace(tokens=tokens, concepts=frozenset(concepts))


def effort(
    missing: dict[tuple[str, str], str] | None = None, **scopes: Any
) -> Callable[..., SimpleNamespace]:
    """Invented counts: CUDA 3 concepts in 100 + 50 + 7 tokens, Triton 1 in 40, a rung 2 in 30."""

    def effort_of(registry: Registry, op: str, side: str, rung: str = "") -> SimpleNamespace:
        known: dict[str, Any] = {"device": counts(40, "program"), "host": None, "shared": None}
        if side == "cuda":
            known = {"device": counts(100, "thread", "shared"), "host": counts(50, "stream")}
            known["shared"] = counts(7, "thread")
        if rung:
            known = {"device": counts(30, "thread", "block"), "host": None, "shared": None}
        reason = (missing or {}).get((op, side), "")
        return SimpleNamespace(**{**known, **scopes, "missing": reason})

    return effort_of


def draw(run: Run, effort_of: Any) -> Figure | str:
    with plot_style.house_style():
        return tradeoff_figure(run, "GPU", effort_of)


def pairs(op: str, n: int, cuda: float, triton: float, **changes: Any) -> list[dict[str, Any]]:
    return [row(op, n, "cuda", cuda, **changes), row(op, n, "triton", triton, **changes)]


def test_an_arrow_is_at_the_largest_case_with_all_the_code(tmp_path: Path) -> None:
    table = pairs("softmax", 64, 10, 10) + pairs("softmax", 4096, 80, 60)
    table += pairs("rope", 4096, 50, 95)
    found = trade_off(synthetic.write(tmp_path, table), effort())
    assert not isinstance(found, str)
    assert found.arrows == [
        Arrow("softmax", "4096 f32", Point(3, 157, 80.0), Point(1, 40, 60.0)),
        Arrow("rope", "4096 f32", Point(3, 157, 50.0), Point(1, 40, 95.0)),
    ]
    assert found.paths == [] and found.left_out == []
    assert [way(arrow) for arrow in found.arrows] == ["down", "up"]
    assert way(dataclasses.replace(found.arrows[0], triton=Point(1, 40, 81.5))) == "level"


def test_points_lie_at_their_own_values_in_both_panels(tmp_path: Path) -> None:
    figure = draw(synthetic.write(tmp_path, pairs("softmax", 4096, 80, 60)), effort())
    assert isinstance(figure, Figure) and len(figure.axes) == 2
    for axes, xs in zip(figure.axes, ((3, 1), (157, 40)), strict=True):
        for marker, x, y in (("o", xs[0], 80.0), ("s", xs[1], 60.0)):
            places = [
                tuple(line.get_xydata()[0])
                for line in axes.lines
                if line.get_marker() == marker and len(line.get_xydata())
            ]
            assert places == [(x, y)]
        arrows = [t for t in axes.texts if not t.get_text()]
        assert [(t.xyann, t.xy) for t in arrows] == [((xs[0], 80.0), (xs[1], 60.0))]
    texts = [text for text, _ in drawn(figure)]
    assert texts.count("softmax 80 → 60 %") == 2
    assert not misplaced(figure)


def ladder_run(folder: Path) -> Run:
    table = pairs("softmax", 4096, 80, 60) + pairs("softmax", 64, 70, 50)
    for name, pct in (("naive", 20.0), ("online", 40.0)):
        table.append(row("softmax", 64, "cuda", pct, variant=name))
    return synthetic.write(
        folder, table, synthetic.meta(ladders={"softmax": {"cuda": RUNGS, "triton": RUNGS}})
    )


def test_a_ladder_is_a_path_at_its_own_case(tmp_path: Path) -> None:
    run = ladder_run(tmp_path)
    found = trade_off(run, effort())
    assert not isinstance(found, str)
    rungs = (Point(2, 30, 20.0, "naive"), Point(2, 30, 40.0, "online"), Point(3, 157, 70.0))
    assert found.paths == [Ladder("softmax", "cuda", "64 f32", rungs)]
    assert found.arrows[0].case == "4096 f32"
    figure = draw(run, effort())
    assert isinstance(figure, Figure) and len(figure.axes) == 4
    paths = [line for axes in figure.axes[2:] for line in axes.lines if len(line.get_xdata()) == 3]
    assert [list(line.get_ydata()) for line in paths] == [[20.0, 40.0, 70.0]] * 2
    assert [list(line.get_xdata()) for line in paths] == [[2, 2, 3], [30, 30, 157]]
    texts = [text for text, _ in drawn(figure)]
    assert texts.count("softmax:naive 20 %") == 2 and not misplaced(figure)


def test_a_rung_whose_source_changed_is_left_out_and_named(tmp_path: Path) -> None:
    run = ladder_run(tmp_path)
    rows = run.rows.copy()
    rows.loc[rows["variant"] == "naive", "kernel_hash"] = "another"
    found = trade_off(dataclasses.replace(run, rows=rows), effort())
    assert not isinstance(found, str)
    assert [p.name for p in found.paths[0].points] == ["online", ""]
    assert found.left_out == ["softmax naive (CUDA: the source has changed since this run)"]


def lost(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    untimed = {f"time_us_p{q}": None for q in (20, 50, 80)} | {"status": "oom", "pct_roof": None}
    return [r | untimed if r["backend"] == "triton" else r for r in rows]


@pytest.mark.parametrize(
    ("rope", "effort_of", "reason"),
    [
        (pairs("rope", 64, 90, 80, kernel_hash="x"), effort(), "CUDA: the source has changed"),
        (lost(pairs("rope", 64, 90, 80)), effort(), "no case has a time and a roof on both sides"),
        (pairs("rope", 64, 90, 80)[:1], effort(), "no case has a time and a roof on both sides"),
        (
            pairs("rope", 64, 90, 80),
            effort({("rope", "triton"): "cannot be parsed"}),
            "Triton: cannot be parsed",
        ),
    ],
)
def test_what_cannot_be_counted_is_named_and_never_at_zero(
    tmp_path: Path, rope: list[dict[str, Any]], effort_of: Any, reason: str
) -> None:
    run = synthetic.write(tmp_path, pairs("softmax", 64, 90, 80) + rope)
    found = trade_off(run, effort_of)
    assert not isinstance(found, str)
    assert [arrow.op for arrow in found.arrows] == ["softmax"]
    assert len(found.left_out) == 1 and reason in found.left_out[0]
    figure = draw(run, effort_of)
    assert isinstance(figure, Figure)
    caption = " ".join(" ".join(text.split()) for text, _ in drawn(figure))
    assert "left out: rope (" in caption and not misplaced(figure)
    for axes in figure.axes:
        xs = [x for line in axes.lines if line.get_marker() in "os" for x in line.get_xdata()]
        assert all(x > 0 for x in xs)


def test_no_counts_at_all_is_a_reason_and_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = synthetic.write(tmp_path, pairs("softmax", 64, 90, 80))
    nothing = draw(run, effort(device=None))
    assert nothing == "no op can be counted: softmax (CUDA: no code was counted)"
    unknown = draw(synthetic.write(tmp_path / "b", synthetic.rows()), effort())
    assert isinstance(unknown, str) and "not in this checkout" in unknown

    def absent(*_: Any) -> Any:
        raise ImportError("No module named 'lizard'")

    text = draw(run, absent)
    assert isinstance(text, str) and "pip install" in text
    monkeypatch.setitem(sys.modules, "harness.effort.counts", None)
    assert trade_off(run) == plot_tradeoff_data.NOT_INSTALLED
    said: list[str] = []
    plot_run(run, tmp_path / "out", ("svg",), said.append)
    assert f"no tradeoff figure: {plot_tradeoff_data.NOT_INSTALLED}" in said
    assert "tradeoff" in render(run).partition("Figures that are not here")[2]


def plain_counts(registry: Registry, op: str, side: str, rung: str = "") -> SimpleNamespace:
    """Counts of real sources by the crudest rule: enough to place 21 arrows as they may lie."""
    text = registry.kernel_files(op, side, rung)[0].read_text()
    words = frozenset(re.findall(r"\b(?:__\w+|tl\.\w+|num_\w+)", text))
    device = SimpleNamespace(tokens=len(re.findall(r"\w+|[^\w\s]", text)), concepts=words)
    return SimpleNamespace(device=device, host=None, shared=None, missing="")


def test_every_op_of_the_reference_has_a_label_and_none_overlaps() -> None:
    run = read_run(REFERENCE)
    found = trade_off(run, plain_counts)
    assert not isinstance(found, str)
    left = [text.partition(" ")[0] for text in found.left_out]
    assert [arrow.op for arrow in found.arrows] == [
        op for op in run.rows["op"].drop_duplicates() if op not in left
    ]
    figure = draw(run, plain_counts)
    assert isinstance(figure, Figure)
    assert not misplaced(figure)
    texts = [text for text, _ in drawn(figure)]
    for arrow in found.arrows:
        assert sum(text.startswith(f"{arrow.op} ") for text in texts) >= 2
    for axes in figure.axes:
        assert np.isfinite([*axes.get_xlim(), *axes.get_ylim()]).all()


def test_ways_differ_by_line_as_well_as_by_colour(tmp_path: Path) -> None:
    table = pairs("softmax", 64, 80, 60) + pairs("rope", 64, 60, 80) + pairs("adamw", 64, 90, 90)
    figure = draw(synthetic.write(tmp_path, table), effort())
    assert isinstance(figure, Figure)
    arrows = [t.arrow_patch for t in figure.axes[0].texts if not t.get_text()]
    assert len({str(a.get_linestyle()) for a in arrows}) == 3
    assert len({a.get_edgecolor() for a in arrows}) == 3


def test_one_op_alone_and_equal_points_draw(tmp_path: Path) -> None:
    same = effort(device=counts(10, "a"), host=None, shared=None)
    figure = draw(synthetic.write(tmp_path, pairs("softmax", 64, 90, 90)), same)
    assert isinstance(figure, Figure) and not misplaced(figure)
    for axes in figure.axes:
        assert axes.get_xlim()[0] < axes.get_xlim()[1]


def test_the_finding_is_made_of_the_arrows(tmp_path: Path) -> None:
    table = pairs("softmax", 64, 80, 60) + pairs("rope", 64, 90, 88)
    found = trade_off(synthetic.write(tmp_path, table), effort())
    assert not isinstance(found, str)
    assert finding(found) == (
        "Share of the roof against the code that it takes, for 2 ops at the largest case: Triton "
        "names fewer concepts in 2, and is within 5 points of the roof of CUDA in 1; the median of "
        "CUDA's tokens over Triton's is 3.92."
    )
