"""A hundred thousand rows: how long compare takes, and how few equal rows it calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cpu_time import times_of_pandas
from test_compare import big_run, text_of

from harness import cli
from harness.compare import compare_runs
from harness.results import read_run

N_ROWS = 100_000
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folders = [tmp_path_factory.mktemp(name) for name in ("base", "new")]
    for seed, folder in enumerate(folders):
        big_run(folder, N_ROWS, seed)
    return folders


def test_of_equal_rows_few_are_called(runs) -> None:
    comparison = compare_runs(*(read_run(run) for run in runs))
    assert comparison.count("FASTER") + comparison.count("SLOWER") <= N_ROWS / 1000
    assert f"{N_ROWS - 200} more rows not shown" in text_of(comparison)


def test_two_runs_take_seconds(runs, tmp_path, capsys) -> None:
    """Reading, comparing, writing CSV and JSON, and the table."""
    out = [str(tmp_path / name) for name in ("c.csv", "c.json")]
    arguments = ["compare", *map(str, runs), "--csv", out[0], "--json", out[1]]
    assert times_of_pandas(lambda: cli.main(arguments), runs) < 3.0
    assert Path(out[0]).read_text().count("\n") == N_ROWS + 1
    assert len(json.loads(Path(out[1]).read_text())["rows"]) == N_ROWS
    assert f"{N_ROWS - 200} more rows not shown" in capsys.readouterr().out


def test_two_sides_of_one_run_take_seconds(tmp_path, capsys) -> None:
    big_run(tmp_path, 2 * N_ROWS, 1, backends=("cuda", "triton"))
    out = str(tmp_path / "c.json")
    arguments = ["compare", str(tmp_path), "--side", "cuda", "--vs", "triton", "--json", out]
    assert times_of_pandas(lambda: cli.main(arguments), [tmp_path]) < 3.0
    assert len(json.loads(Path(out).read_text())["rows"]) == N_ROWS
