"""docs/results-schema.md names what `bench --aa` and `crosscheck` write, column by column."""

from __future__ import annotations

import csv
import json
import re
from functools import partial
from pathlib import Path

import pytest

from harness import aa, aa_subset, aa_table, crosscheck_files
from harness.console import Progress
from harness.crosscheck_rows import Row, judge
from harness.plan import Filters, plan
from harness.registry import REPOSITORY, Registry
from harness.supervisor import Supervisor
from harness.sweep import SweepOptions, run_meta

TEXT = (REPOSITORY / "docs" / "results-schema.md").read_text()


def first_cells(heading: str, table: int = 0) -> list[str]:
    """The names in the first column of a section's table."""
    section = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    tables = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    return re.findall(
        r"`([\w.]+)`", "\n".join(row.split("|")[1] for row in tables[table].split("\n") if row)
    )


AA = "aa.csv, aa.json and noise_floor.json"


def test_the_columns_of_aa_csv_are_documented():
    assert tuple(first_cells(AA)) == aa_table.COLUMNS


def test_the_keys_of_aa_json_and_of_the_noise_floor_are_documented(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AA_COUNTER", str(tmp_path / "started"))
    monkeypatch.setattr(aa, "Supervisor", partial(Supervisor, module="tests.aa_worker"))
    registry = Registry()
    units = aa_subset.choose(plan(registry, Filters(), "default"))
    options = SweepOptions(settings="aa")
    run = aa.run_aa(registry, units, None, options, aa_subset.PROCESSES, False, Progress())
    assert run.folder is not None and run.floor is not None
    facts = {*run_meta(registry, units, options, {})} - {"noise_floor"}
    for path in (run.folder / "aa.json", run.floor):
        assert {*json.loads(path.read_text())} - facts == {*first_cells(AA, 1)}
    with (run.folder / "aa.csv").open(newline="") as file:
        assert next(csv.reader(file)) == first_cells(AA)
    for entry in (*run.record["classes"], run.record["equal_clock"], run.record["clock_limited"]):
        assert_named("classes", entry)
    for key in ("calls", "repeatability"):
        assert_named(key, run.record[key])
    assert_named("repeatability", run.record["repeatability"]["free"])


def assert_named(key: str, entry: dict[str, object]) -> None:
    line = next(line for line in TEXT.splitlines() if line.startswith(f"| `{key}` | "))
    missing = {*entry} - {*re.findall(r"`(\w+)`", line)}
    assert not missing, (key, missing)


@pytest.mark.parametrize("timer", ["nvbench", "proton"])
def test_the_columns_of_crosscheck_csv_are_documented(tmp_path: Path, timer: str) -> None:
    rows = [Row("empty", "", "", "cuda", ours_us=3.0, other_us=2.0)]
    crosscheck_files.write(tmp_path, judge(rows, timer, 1.0), {})
    with (tmp_path / "crosscheck.csv").open(newline="") as file:
        assert next(csv.reader(file)) == first_cells("crosscheck.csv and crosscheck.json")
