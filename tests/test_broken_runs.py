"""Runs that were edited after they were measured: refused in words, never compared by guess."""

from __future__ import annotations

import csv
import math
import shutil
from pathlib import Path

import pytest
from fixtures import synthetic_run as synthetic

from harness.compare import ComparisonRefused, compare_runs, compare_sides
from harness.registry import REPOSITORY
from harness.results import ResultsError, read_run

REFERENCE = REPOSITORY / "results" / "nvidia-h200" / "reference"


def reference_copy(tmp_path: Path) -> Path:
    copy = tmp_path / "copy"
    shutil.copytree(REFERENCE, copy)
    return copy


@pytest.mark.parametrize("drop", [slice(10, 13), slice(1, 2)])
def test_a_run_that_lost_lines_is_not_judged_by_the_rounds_of_others(tmp_path: Path, drop) -> None:
    copy = reference_copy(tmp_path)
    lines = (copy / "bench.csv").read_text().splitlines(keepends=True)
    del lines[drop]
    (copy / "bench.csv").write_text("".join(lines))
    with pytest.raises(ComparisonRefused, match=r"rounds of \d+ of \d+ ok rows"):
        compare_runs(read_run(REFERENCE), read_run(copy))


def test_a_sorted_run_is_not_judged_by_the_rounds_of_others(tmp_path: Path) -> None:
    copy = reference_copy(tmp_path)
    header, *lines = (copy / "bench.csv").read_text().splitlines(keepends=True)
    (copy / "bench.csv").write_text(header + "".join(sorted(lines, reverse=True)))
    with pytest.raises(ComparisonRefused, match="was a file sorted or cut"):
        compare_sides(read_run(copy))


def test_a_line_cut_in_the_middle_is_refused(tmp_path: Path) -> None:
    copy = reference_copy(tmp_path)
    lines = (copy / "bench.csv").read_text().splitlines(keepends=True)
    lines[27] = lines[27].partition(",ok,")[0] + ",ok\n"
    (copy / "bench.csv").write_text("".join(lines))
    with pytest.raises(ResultsError, match=r"line 28 has \d+ cells, want 57"):
        read_run(copy)


def test_an_ok_row_without_a_possible_time_is_refused(tmp_path: Path) -> None:
    copy = reference_copy(tmp_path)
    with (copy / "bench.csv").open(newline="") as file:
        header, first, *others = csv.reader(file)
    first[header.index("time_us_p50")] = "-5.0"
    with (copy / "bench.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, first, *others])
    with pytest.raises(ResultsError, match=r"has the time -5\.0, want one above 0"):
        read_run(copy)


@pytest.mark.parametrize(
    "floor",
    [
        "abc",
        [1],
        50,
        -0.5,
        {"classes": "x"},
        {"classes": [{"below_us": 10}]},
        {"classes": [{"below_us": None, "floor": math.nan}]},
        {"classes": [{"below_us": None, "floor": 0.01}], "equal_clock": {"floor": "x"}},
        {"classes": [{"below_us": None, "floor": 0.01}], "equal_clock": "x"},
        {"classes": [{"below_us": None, "floor": 0.01}], "clock_limited": [1]},
        {"classes": [{"below_us": None, "floor": 0.01}], "power_limited": {"floor": 2}},
    ],
)
def test_an_unusable_noise_floor_is_refused_in_words(tmp_path: Path, floor: object) -> None:
    table = synthetic.rows()
    base = synthetic.write(tmp_path / "base", table, synthetic.meta())
    new = synthetic.write(tmp_path / "new", table, synthetic.meta())
    new.meta["noise_floor"] = floor
    with pytest.raises(ComparisonRefused, match="noise_floor"):
        compare_runs(base, new)
    assert compare_runs(base, new, noise_floor=0.02).count("SLOWER") == 0


@pytest.mark.parametrize(
    ("line", "what"), [("-1,0,5.0,,", "below 0"), ("0,-1,5.0,,", "below 0"), ("0,0,5.0,,", "twice")]
)
def test_rounds_that_cannot_be_are_refused(tmp_path: Path, line: str, what: str) -> None:
    run = synthetic.write(tmp_path, synthetic.rows())
    with (run.path / "rounds.csv").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ResultsError, match=what):
        read_run(tmp_path)


def test_rounds_are_read_in_the_order_that_they_were_measured(tmp_path: Path) -> None:
    run = synthetic.write(tmp_path, synthetic.rows())
    lines = (run.path / "rounds.csv").read_text().splitlines()
    (run.path / "rounds.csv").write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    assert read_run(tmp_path).rounds.equals(run.rounds)


def test_a_median_outside_its_own_quantiles_is_refused(tmp_path: Path) -> None:
    table = synthetic.rows()
    table[3] |= {"time_us_p50": table[3]["time_us_p50"] * 1.5}
    with pytest.raises(ResultsError, match=r"time_us_p50 .* outside its time_us_p20"):
        synthetic.write(tmp_path, table)
