"""Verdicts, refusals and labels on synthetic runs; none of the times was measured."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fixtures import synthetic_run as synthetic
from rich.console import Console

from harness.compare import (
    Comparison,
    ComparisonRefused,
    compare_runs,
    compare_sides,
    exit_code,
    noise_classes,
    render,
)
from harness.results import COLUMNS, Run, RunWriter, read_run
from harness.schema import META_FACTS


def text_of(comparison: Comparison, limit: int = 200, width: int = 60) -> str:
    stream = io.StringIO()
    render(comparison, Console(file=stream, width=width, no_color=True), limit)
    return stream.getvalue()


def pair(tmp_path: Path, **changes: Any) -> tuple[Run, Run]:
    table = synthetic.rows()
    base = synthetic.write(tmp_path / "base", table, seed=1)
    new = synthetic.write(tmp_path / "new", table, synthetic.meta(**changes), seed=2)
    return base, new


def test_the_same_build_twice_has_no_verdict_but_same(tmp_path: Path) -> None:
    comparison = compare_runs(*pair(tmp_path))
    assert comparison.count("SAME") == len(comparison.rows)
    assert exit_code(comparison) == 0
    assert comparison.labels == ()
    assert (comparison.rows["changed"] == "").all()


def test_one_slower_kernel_is_the_only_verdict(tmp_path: Path) -> None:
    table = synthetic.rows()
    base = synthetic.write(tmp_path / "base", table, seed=1)
    new = synthetic.write(
        tmp_path / "new",
        table,
        seed=2,
        slower=lambda c: (
            1.2 if (c["op"], c["case"], c["backend"]) == ("copy", "65536", "cuda") else 1
        ),
    )
    comparison = compare_runs(base, new)
    assert comparison.count("SLOWER") == 1
    assert comparison.count("FASTER") == 0
    assert exit_code(comparison) == 1
    line = next(x for x in text_of(comparison).splitlines() if "SLOWER" in x)
    assert line.split()[:4] == ["copy", "65536", "f32", "cuda"]
    back = compare_runs(new, base)
    assert (back.count("SLOWER"), back.count("FASTER"), exit_code(back)) == (0, 1, 0)


def test_rows_on_one_side_are_missing_and_counted(tmp_path: Path) -> None:
    table = synthetic.rows()
    whole = synthetic.write(tmp_path / "whole", table)
    part = synthetic.write(tmp_path / "part", table[:-5])
    subset = compare_runs(whole, part)
    assert (subset.count("MISSING"), subset.lost, exit_code(subset)) == (5, 5, 1)
    assert "only in base 5, only in new 0" in text_of(subset)
    superset = compare_runs(part, whole)
    assert (superset.count("MISSING"), superset.lost, exit_code(superset)) == (5, 0, 0)
    assert "no row -> ok" in text_of(superset)


def test_nothing_in_common_is_refused(tmp_path: Path) -> None:
    table = synthetic.rows()
    one = synthetic.write(tmp_path / "one", table[:5])
    two = synthetic.write(tmp_path / "two", table[5:])
    empty = synthetic.write(tmp_path / "empty", [])
    with pytest.raises(ComparisonRefused, match="no common row"):
        compare_runs(one, two, force=True)
    with pytest.raises(ComparisonRefused, match="no rows"):
        compare_runs(one, empty)
    untimed = [r | {"status": "untimed", "time_us_p50": None} for r in table]
    bare = synthetic.write(tmp_path / "bare", untimed)
    with pytest.raises(ComparisonRefused, match="no common row was timed"):
        compare_runs(bare, bare)


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    base = synthetic.write(tmp_path / "base", synthetic.rows())
    with RunWriter.create(tmp_path / "new", synthetic.meta()) as writer:
        writer.append(synthetic.rows()[0] | {"n_rounds": 2}, [[1.0], [1.0]])
    with pytest.raises(ComparisonRefused, match=r"new .* is incomplete"):
        compare_runs(base, read_run(tmp_path / "new"))
    forced = compare_runs(base, read_run(tmp_path / "new"), force=True)
    assert "CUT SHORT (forced): new" in forced.labels[0]
    assert (forced.lost, forced.count("FASTER")) == (len(base.rows) - 1, 1)
    with open(tmp_path / "base" / "bench.csv", "a") as stream:
        stream.write("copy,half a li")
    with pytest.raises(ComparisonRefused, match="torn"):
        compare_runs(read_run(tmp_path / "base"), base)


def test_another_gpu_is_refused_and_labelled_when_forced(tmp_path: Path) -> None:
    base = synthetic.write(tmp_path / "base", synthetic.rows())
    other = [r | {"gpu": "OTHER GPU"} for r in synthetic.rows()]
    facts = synthetic.meta(gpu={"name": "OTHER GPU", "uuid_sha256": "01"})
    new = synthetic.write(tmp_path / "new", other, facts)
    with pytest.raises(ComparisonRefused, match="base SYNTHETIC GPU, new OTHER GPU"):
        compare_runs(base, new)
    forced = compare_runs(base, new, force=True)
    assert "CROSS-DEVICE" in forced.labels[0]
    assert forced.rows["changed"].str.contains("gpu").all()
    assert text_of(forced).index("CROSS-DEVICE") < text_of(forced).index("verdict")
    mixed = synthetic.write(tmp_path / "mixed", [*synthetic.rows()[:3], *other[3:]])
    with pytest.raises(ComparisonRefused, match="column gpu"):
        compare_runs(base, mixed, force=True)


def test_another_index_of_the_same_gpu_is_fine(tmp_path: Path) -> None:
    base = synthetic.write(tmp_path / "base", synthetic.rows())
    new = synthetic.write(tmp_path / "new", [r | {"device": 4} for r in synthetic.rows()])
    (label,) = compare_runs(base, new).labels
    assert "device index: base 0, new 4; the same card" in label


def test_cold_against_warm_is_refused(tmp_path: Path) -> None:
    base = synthetic.write(tmp_path / "base", synthetic.rows())
    new = synthetic.write(tmp_path / "new", [r | {"cache": "warm"} for r in synthetic.rows()])
    with pytest.raises(ComparisonRefused, match="cold on one side"):
        compare_runs(base, new)
    assert "COLD AGAINST WARM" in compare_runs(base, new, force=True).labels[0]


@pytest.mark.parametrize("other", ["write", "none"])
def test_rows_flushed_differently_are_refused(tmp_path: Path, other: str) -> None:
    clean = [r | {"flush": "clean"} for r in synthetic.rows()]
    base = synthetic.write(tmp_path / "base", clean)
    new = synthetic.write(
        tmp_path / "new", [*clean[:-4], *(r | {"flush": other} for r in clean[-4:])]
    )
    with pytest.raises(ComparisonRefused, match=f"flush: 4 of 66 .* clean on one side, {other} on"):
        compare_runs(base, new)
    assert "FLUSHED DIFFERENTLY (forced)" in compare_runs(base, new, force=True).labels[0]
    unknown = synthetic.write(tmp_path / "old", [r | {"flush": ""} for r in clean])
    assert compare_runs(unknown, new).labels == compare_runs(new, unknown).labels == ()


def test_tiny_times_differ_exactly(tmp_path: Path) -> None:
    base = synthetic.write(tmp_path / "a", [synthetic.row("copy", 1, "cuda", 0.0004)], {})
    new = synthetic.write(tmp_path / "b", [synthetic.row("copy", 1, "cuda", 0.0005)], {})
    comparison = compare_runs(base, new)
    row = comparison.rows.iloc[0]
    assert (row["base_us"], row["new_us"]) == (0.0004, 0.0005)
    assert row["verdict"] == "SLOWER"
    assert row["ratio"] == pytest.approx(1.25, rel=0.01)
    assert "0.0004000" in text_of(comparison)


@pytest.mark.parametrize("fact", META_FACTS)
def test_a_missing_fact_is_named_not_guessed(tmp_path: Path, fact: str) -> None:
    base, _ = pair(tmp_path)
    facts = synthetic.meta()
    path = META_FACTS[fact][-1].split(".")
    holder = facts
    for part in path[:-1]:
        holder = holder[part]
    holder[path[-1]] = None
    new = synthetic.write(tmp_path / "less", synthetic.rows(), facts)
    assert compare_runs(base, new).labels == (f"new does not record: {fact}",)


def test_changes_are_marks_beside_the_verdict(tmp_path: Path) -> None:
    table = synthetic.rows()
    base = synthetic.write(tmp_path / "base", table, seed=1)
    table[0] = table[0] | {"kernel_hash": "edited", "config": "BLOCK=2048"}
    new = synthetic.write(tmp_path / "new", table, synthetic.meta(triton="3.1.0", seed=7), seed=2)
    comparison = compare_runs(base, new)
    rows = comparison.rows
    assert rows["changed"].iloc[0] == "source,config"
    assert rows["verdict"].iloc[0] == "SAME"
    assert (rows.loc[rows["backend"] == "triton", "changed"] == "tools").all()
    assert (rows.loc[rows["backend"] == "torch", "changed"] == "").all()
    assert comparison.labels == ("triton: base 3.0.0, new 3.1.0", "seed: base 1, new 7")


def test_dirty_trees_and_drivers_are_labels(tmp_path: Path) -> None:
    comparison = compare_runs(*pair(tmp_path, driver="2.0", git_dirty=True))
    text = text_of(comparison)
    assert "driver: base 1.0, new 2.0" in text
    assert "new was built from a dirty tree" in text


def test_newly_incorrect_fails(tmp_path: Path) -> None:
    table = synthetic.rows()
    base = synthetic.write(tmp_path / "base", table)
    broken = {"status": "mismatch", "time_us_p50": None, "reason": "max error"}
    new = synthetic.write(tmp_path / "new", [table[0] | broken, *table[1:]])
    comparison = compare_runs(base, new)
    assert (comparison.newly_incorrect, comparison.lost, exit_code(comparison)) == (1, 0, 1)
    text = text_of(comparison)
    assert "ok -> mismatch" in text
    assert "newly incorrect 1" in text
    assert f"over {len(table) - 1} rows ok on both sides (1 left out: 1 ok -> mismatch)" in text
    assert exit_code(compare_runs(new, base)) == 0


def test_noise_floors(tmp_path: Path) -> None:
    assert noise_classes({}) == ()
    assert noise_classes({"noise_floor": 0.04}) == ((np.inf, 0.04),)
    base, new = pair(tmp_path)
    assert compare_runs(base, new).rows["band"].max() == 0.03
    assert (compare_runs(base, new, noise_floor=0.5).rows["band"] == 0.5).all()
    base, new = pair(tmp_path / "plain", noise_floor=None)
    assert compare_runs(base, new).rows["band"].max() == 0.03  # base's own record still counts
    assert any("defaults" in x for x in compare_runs(new, new).labels)


def test_names_are_never_cut_and_hidden_rows_are_counted(tmp_path: Path) -> None:
    case = "a-case-name-" + "x" * 90
    table = [synthetic.row("copy", n, "cuda", 5.0, case=f"{case}{n}") for n in range(1, 6)]
    base = synthetic.write(tmp_path / "base", table, seed=1)
    new = synthetic.write(tmp_path / "new", table, seed=2)
    text = text_of(compare_runs(base, new), limit=2, width=40)
    assert text.count(case) == 2
    assert "3 more rows not shown: 3 SAME" in text
    assert "\x1b" not in text


def test_launch_bound_rows_have_their_own_mean(tmp_path: Path) -> None:
    table = [
        r | {"bound": "launch" if r["case"] == "4096" else r["bound"]} for r in synthetic.rows()
    ]
    run = synthetic.write(tmp_path / "run", table)
    text = text_of(compare_runs(run, run))
    assert "launch-bound rows alone: 1.000 over 6 rows" in text
    assert f"overall: 1.000 over {len(table) - 6} rows" in text


def test_two_sides_of_one_run(tmp_path: Path) -> None:
    run = synthetic.write(tmp_path, synthetic.rows())
    comparison = compare_sides(run)
    assert (comparison.rows["verdict"] == "FASTER").all()
    assert comparison.rows["ratio"].median() == pytest.approx(1 / 1.05, rel=0.01)
    assert len(comparison.rows) == len(run.rows) / 3
    assert (compare_sides(run, "triton", "cuda").rows["verdict"] == "SLOWER").all()
    assert "geometric mean" in text_of(comparison)
    with pytest.raises(ComparisonRefused, match="backend library"):
        compare_sides(run, "library")


def test_a_side_that_failed_is_shown_as_failed(tmp_path: Path) -> None:
    good = synthetic.row("copy", 1024, "triton", 100.0)
    bad = synthetic.row("copy", 1024, "cuda", 100.0) | {"status": "mismatch", "reason": "x"}
    bad |= dict.fromkeys(("cache", "flush", "n_rounds", "n_outliers", "bound"), "")
    bad = {k: v for k, v in bad.items() if not k.startswith("time_us") and v != ""}
    run = synthetic.write(tmp_path, [good, bad])
    comparison = compare_sides(run)
    (row,) = comparison.rows.to_dict("records")
    assert (row["base_status"], row["new_status"]) == ("ok", "mismatch")
    assert comparison.newly_incorrect == 1
    assert "newly incorrect: ok -> mismatch: x" in text_of(comparison)


def test_two_headlines_are_refused(tmp_path: Path) -> None:
    table = synthetic.rows()
    run = synthetic.write(tmp_path, [*table, table[0] | {"variant": "other"}])
    with pytest.raises(ComparisonRefused, match="two headline rows of cuda"):
        compare_sides(run)


def big_run(folder: Path, n_rows: int, seed: int, backends: tuple[str, ...] = ("cuda",)) -> None:
    """Write a synthetic run directly: the writer's fsync a row is not what is tested here."""
    rng = np.random.default_rng(seed)
    times = np.repeat(np.linspace(5.0, 500.0, n_rows // len(backends)), len(backends))
    template = {c: "" for c in COLUMNS} | synthetic.row("copy", 1, "cuda", 5.0)
    bench = pd.DataFrame({c: [template[c]] * n_rows for c in COLUMNS}).astype(object)
    bench["case"] = [f"c{i // len(backends)}" for i in range(n_rows)]
    bench["backend"] = [backends[i % len(backends)] for i in range(n_rows)]
    for quantile in ("p20", "p50", "p80"):
        bench[f"time_us_{quantile}"] = times
    bench["headline"] = "1"
    synthetic.write(folder, [])
    bench.to_csv(folder / "bench.csv", index=False)
    rounds = pd.DataFrame(
        {
            "row": np.repeat(np.arange(n_rows), 12),
            "round": np.tile(np.arange(12), n_rows),
            "mean_us": np.repeat(times, 12) * rng.normal(1.0, 0.004, 12 * n_rows),
            "utc_s": 1.7e9 + 0.01 * np.arange(12 * n_rows),
            "sm_mhz": 1755.0,
        }
    )
    rounds.to_csv(folder / "rounds.csv", index=False)


def test_rounds_in_any_order_give_the_same_table(tmp_path: Path) -> None:
    base, new = pair(tmp_path)
    expected = compare_runs(base, new).rows
    path = tmp_path / "new" / "rounds.csv"
    header, *lines = path.read_text().splitlines()
    random.Random(0).shuffle(lines)
    path.write_text("\n".join([header, *lines]) + "\n")
    shuffled = compare_runs(base, read_run(tmp_path / "new")).rows
    np.testing.assert_allclose(shuffled["high"], expected["high"], rtol=1e-9)
