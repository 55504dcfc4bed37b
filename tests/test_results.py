"""What reaches the disk, what survives a kill, and what a reader refuses."""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fixtures import synthetic_run as synthetic
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.results import (
    COLUMNS,
    KEY,
    SCHEMA_VERSION,
    ResultsError,
    RunWriter,
    read_run,
    read_watch,
)
from harness.schema import (
    FLAG_COLUMNS,
    FLOAT_COLUMNS,
    INT_COLUMNS,
    SINCE_MINOR,
    WATCH_COLUMNS,
    Round,
    cell,
)

ROOT = Path(__file__).resolve().parent.parent
ROW = synthetic.row("scale", 4096, "cuda", 4.5)

# Appends rows for ever; its parent kills it in the middle.
APPENDER = """
import sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from fixtures import synthetic_run as synthetic
from harness.results import RunWriter
writer = RunWriter.create(Path(sys.argv[1]), synthetic.meta(), resume=True)
for n in range(len(writer.done_keys) + 1, 1 << 20):
    row, rounds = synthetic.row("scale", n, "cuda", float(n), n_rounds=3), [[float(n)]] * 3
    writer.append(row, rounds, [[float(n)] * 60] * 3)
    print(n, flush=True)
"""


def appender(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", APPENDER, str(folder), str(ROOT), str(ROOT / "tests")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_round_trip_keeps_every_digit(tmp_path: Path) -> None:
    awkward = 0.1 + 0.2
    with RunWriter.create(tmp_path / "run", synthetic.meta()) as writer:
        writer.append(
            ROW
            | {"time_us_p50": awkward, "time_us_p20": awkward, "time_us_p80": awkward}
            | {"reason": 'a "b",\nc', "bytes_read": (1 << 60) + 1},
            [Round(awkward, 1.7e9 + 0.1, 1755.0), [1 / 3, None, None]],
            [[awkward], [1 / 3, 2 / 3]],
        )
        writer.finish({"roofs": {"copy": 1.5}})
    run = read_run(tmp_path / "run" / "bench.csv")
    row = run.rows.iloc[0]
    assert run.complete
    assert list(run.rows.columns) == list(COLUMNS)
    assert row["time_us_p50"] == awkward
    assert row["bytes_read"] == (1 << 60) + 1
    assert row["reason"] == 'a "b", c'
    assert row["variant"] == ""
    assert row["headline"]
    assert math.isnan(row["gbps"])
    assert run.rounds["mean_us"].tolist() == [awkward, 1 / 3]
    assert run.rounds.iloc[0][["utc_s", "sm_mhz"]].tolist() == [1.7e9 + 0.1, 1755.0]
    assert run.rounds.iloc[1][["utc_s", "sm_mhz"]].isna().all()
    with gzip.open(tmp_path / "run" / "samples.csv.gz", "rt") as stream:
        samples = list(csv.reader(stream))
    assert samples[0] == ["row", "round", "time_us"]
    assert samples[2:] == [["0", "1", repr(1 / 3)], ["0", "1", repr(2 / 3)]]
    meta = json.loads((tmp_path / "run" / "meta.json").read_text())
    assert meta["schema"] == SCHEMA_VERSION
    assert list(meta)[-1] == "complete"
    assert meta["roofs"] == {"copy": 1.5}
    assert meta["driver"] == "1.0"


@given(st.floats(allow_nan=False, allow_infinity=False))
@settings(max_examples=200, deadline=None)
def test_a_float_cell_reads_back_bit_for_bit(value: float) -> None:
    assert float(cell("flops", value)) == value


def test_unknown_is_an_empty_cell() -> None:
    for value in (None, "", math.nan, math.inf, -math.inf):
        assert cell("gbps", value) == ""
    assert cell("bytes_read", 4096.0) == "4096"
    assert cell("headline", True) == "1"


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"nonsense": 1}, "nonsense"),
        ({"status": "crashed"}, "crashed"),
        ({"dtype": "tf32"}, "tf32"),
        ({"bound": "io"}, "io"),
        ({"flush": "dirty"}, "flush"),
        ({"n_outliers": 0.5}, "n_outliers"),
        ({"op": ""}, "op"),
        ({"bytes_read": 1.5}, "bytes_read"),
        ({"gbps": "fast"}, "gbps"),
        ({"headline": 2}, "headline"),
        ({"time_us_p50": 0.0}, "time_us_p50"),
        ({"time_us_p50": -1.0}, "time_us_p50"),
        ({"time_us_p50": math.nan}, "time_us_p50"),
        ({"time_us_p20": math.inf}, "time_us_p20"),
        ({"time_us_p50": None}, "time_us_p50"),
    ],
)
def test_a_bad_row_is_refused_by_name(
    tmp_path: Path, changes: dict[str, object], word: str
) -> None:
    with RunWriter.create(tmp_path, {}) as writer:
        with pytest.raises(ResultsError, match=word):
            writer.append(ROW | changes, [[1.0]])
        writer.append(ROW, [[1.0]])
    assert len(read_run(tmp_path).rows) == 1


def test_times_that_cannot_be_are_refused_in_ok_rows_and_kept_in_invalid_ones(
    tmp_path: Path,
) -> None:
    with RunWriter.create(tmp_path, {}) as writer:
        one = [[1.0]]
        for rounds, samples in (([[math.nan]], []), ([], []), (one, [[0.0]]), (one, one * 2)):
            with pytest.raises(ResultsError):
                writer.append(ROW, rounds, samples)
        writer.append(ROW | {"status": "invalid", "time_us_p50": math.inf}, [[math.inf]], [[0.0]])
    run = read_run(tmp_path)
    assert math.isnan(run.rows["time_us_p50"].iloc[0])
    assert math.isinf(run.rounds["mean_us"].iloc[0])


def test_a_key_is_kept_once(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, {}) as writer:
        assert writer.append(ROW, [[1.0]]) == 0
        with pytest.raises(ResultsError, match="scale/4096"):
            writer.append(ROW, [[1.0]])


def test_a_folder_with_a_run_is_only_continued_on_request(tmp_path: Path) -> None:
    synthetic.write(tmp_path, [ROW])
    before = (tmp_path / "bench.csv").read_bytes()
    with pytest.raises(ResultsError, match="--resume"):
        RunWriter.create(tmp_path, {})
    assert (tmp_path / "bench.csv").read_bytes() == before
    with RunWriter.create(tmp_path, synthetic.meta(gpu_health={"a": 1}), resume=True) as writer:
        assert writer.done_keys == {tuple(str(ROW.get(c, "")) for c in KEY)}
        assert not read_run(tmp_path).complete
        assert writer.append(ROW | {"case": "other"}, [[1.0]]) == 1
        writer.finish({"gpu_health": {"b": 2}})
    run = read_run(tmp_path)
    assert run.complete
    assert run.meta["gpu_health"] == {"a": 1, "b": 2}


def test_another_machine_does_not_continue_a_run(tmp_path: Path) -> None:
    synthetic.write(tmp_path, [ROW])
    with pytest.raises(ResultsError, match=r"torch '2\.0\.0'"):
        RunWriter.create(tmp_path, synthetic.meta(torch="9.9"), resume=True)
    RunWriter.create(tmp_path, synthetic.meta(), resume=True).close()  # the lock was freed


def test_two_writers_at_once(tmp_path: Path) -> None:
    first = appender(tmp_path)
    try:
        assert first.stdout is not None
        first.stdout.readline()
        with pytest.raises(ResultsError, match=f"process {first.pid}"):
            RunWriter.create(tmp_path, {}, resume=True)
    finally:
        first.kill()
        first.wait()
    # The kernel freed the lock, though its file is still there.
    assert (tmp_path / ".lock").exists()
    RunWriter.create(tmp_path, synthetic.meta(), resume=True).close()
    assert not (tmp_path / ".lock").exists()


def test_kill_costs_at_most_the_row_in_progress(tmp_path: Path) -> None:
    for _ in range(3):
        process = appender(tmp_path)
        assert process.stdout is not None
        announced = int(process.stdout.readline())
        time.sleep(0.15)
        os.kill(process.pid, signal.SIGKILL)
        rest = [line for line in process.stdout.read().splitlines() if line.isdigit()]
        process.wait()
        announced = int(rest[-1]) if rest else announced
        run = read_run(tmp_path)
        assert announced <= len(run.rows) <= announced + 1
        assert run.rows["time_us_p50"].tolist() == [float(n) for n in range(1, len(run.rows) + 1)]
        assert (run.rounds.groupby("row").size() == 3).all()
        assert run.rounds["row"].nunique() == len(run.rows)
    with RunWriter.create(tmp_path, synthetic.meta(), resume=True) as writer:
        n_rows = len(writer.done_keys)
        writer.append(synthetic.row("scale", n_rows + 1, "cuda", 1.0), [[1.0]], [[1.0]])
        writer.finish()
    with gzip.open(tmp_path / "samples.csv.gz", "rt") as stream:
        ids = [int(line.partition(",")[0]) for line in list(stream)[1:]]
    assert sorted(set(ids)) == list(range(n_rows + 1))
    assert len(ids) == 180 * n_rows + 1


@pytest.mark.parametrize("lost_bytes", [1, 7, 60])
def test_a_torn_last_line_is_dropped_and_repaired(tmp_path: Path, lost_bytes: int) -> None:
    table = [synthetic.row("scale", n, "cuda", 5.0, n_rounds=1) for n in (1, 2, 3)]
    with RunWriter.create(tmp_path, synthetic.meta()) as writer:
        for cells in table:
            writer.append(cells, [[5.0]], [[5.0]])
    for name in ("bench.csv", "rounds.csv", "samples.csv.gz"):
        path = tmp_path / name
        cut = min(lost_bytes, 5) if name == "rounds.csv" else min(lost_bytes, 20)
        os.truncate(path, path.stat().st_size - cut)
    run = read_run(tmp_path)
    assert run.truncated
    assert not run.complete
    assert run.rows["case"].tolist() == ["1", "2"]
    with RunWriter.create(tmp_path, synthetic.meta(), resume=True) as writer:
        writer.append(table[2], [[6.0]], [[6.0]])
        writer.finish()
    run = read_run(tmp_path)
    assert run.complete
    assert run.rounds["mean_us"].tolist() == [5.0, 5.0, 6.0]
    with gzip.open(tmp_path / "samples.csv.gz", "rt") as stream:
        assert [line.strip() for line in stream][1:] == ["0,0,5.0", "1,0,5.0", "2,0,6.0"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(ResultsError, match="cannot write"):
        RunWriter.create(blocked / "run", {})


def edit_meta(folder: Path, **changes: object) -> None:
    path = folder / "meta.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_schema_is_known_or_refused_by_name(tmp_path: Path) -> None:
    synthetic.write(tmp_path, [ROW])
    edit_meta(tmp_path, schema="2.0")
    with pytest.raises(ResultsError, match=r"schema 2\.0, this reader knows 1\.x"):
        read_run(tmp_path)
    edit_meta(tmp_path, schema=None)
    with pytest.raises(ResultsError, match="names no schema"):
        read_run(tmp_path)
    edit_meta(tmp_path, schema="1.7")
    lines = (tmp_path / "bench.csv").read_text().splitlines()
    (tmp_path / "bench.csv").write_text(f"{lines[0]},novelty\n{lines[1]},x\n")
    assert read_run(tmp_path).rows["novelty"].tolist() == ["x"]


def as_of_1_0(folder: Path) -> None:
    """Rewrite a run as a writer of schema 1.0 would have left it."""
    edit_meta(folder, schema="1.0", flush="clean")
    for name in ("bench.csv", "rounds.csv"):
        with open(folder / name, newline="") as stream:
            header, *lines = csv.reader(stream)
        kept = [i for i, c in enumerate(header) if c not in SINCE_MINOR]
        with open(folder / name, "w", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerows([line[i] for i in kept] for line in (header, *lines))


def test_a_run_of_schema_1_0_reads_with_later_columns_unknown(tmp_path: Path) -> None:
    broken = synthetic.row("scale", 1, "cuda", 1.0, status="oom", cache="", time_us_p50=None)
    synthetic.write(tmp_path, [ROW | {"cache": "cold"}, broken])
    as_of_1_0(tmp_path)
    run = read_run(tmp_path)
    assert list(run.rows.columns) == list(COLUMNS)
    assert run.rows["flush"].tolist() == ["clean", ""]
    assert run.rows["n_outliers"].dtype == "Int64"
    assert run.rows["n_outliers"].isna().all()
    assert len(run.rounds) == 12
    assert run.rounds[["utc_s", "sm_mhz"]].isna().all(axis=None)
    assert read_watch(run).empty
    edit_meta(tmp_path, flush=None)
    assert read_run(tmp_path).rows["flush"].tolist() == ["", ""]
    edit_meta(tmp_path, schema="1.1")
    with pytest.raises(ResultsError, match=r"bench\.csv lacks the column flush, n_outliers"):
        read_run(tmp_path)


def test_a_run_of_another_schema_is_not_continued(tmp_path: Path) -> None:
    synthetic.write(tmp_path, [ROW])
    as_of_1_0(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ResultsError, match=r"begun with schema 1\.0, this harness writes 1\.1"):
        RunWriter.create(tmp_path, synthetic.meta(), resume=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_run_is_not_continued_with_another_flush(tmp_path: Path) -> None:
    synthetic.write(tmp_path, [ROW])
    with pytest.raises(ResultsError, match="flush 'clean', this is 'write'"):
        RunWriter.create(tmp_path, synthetic.meta(flush="write"), resume=True)


def test_a_torn_line_of_the_watch_is_dropped_and_cut_by_a_resume(tmp_path: Path) -> None:
    synthetic.write(tmp_path, [ROW])
    whole = ",".join(WATCH_COLUMNS) + "\n2.5,300.0,50,,power_cap;sw_thermal,0\n1.5,,,,none,\n"
    (tmp_path / "watch.csv").write_text(whole + "3.5,20")
    seen = read_watch(read_run(tmp_path))
    assert seen["utc_s"].tolist() == [1.5, 2.5]
    assert seen["reasons"].tolist() == ["none", "power_cap;sw_thermal"]
    assert seen["sm_mhz"].isna().all()
    RunWriter.create(tmp_path, synthetic.meta(), resume=True).close()
    assert (tmp_path / "watch.csv").read_text() == whole
    (tmp_path / "watch.csv").write_text("utc_s,watts\n")
    with pytest.raises(ResultsError, match=r"watch\.csv lacks the column celsius"):
        read_watch(read_run(tmp_path))


@pytest.mark.parametrize("name", ["bench.csv", "rounds.csv", "meta.json"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    synthetic.write(tmp_path, [ROW])
    (tmp_path / name).unlink()
    with pytest.raises(ResultsError, match=name):
        read_run(tmp_path)


def test_duplicates_name_the_column_to_filter(tmp_path: Path) -> None:
    synthetic.write(tmp_path, [ROW])
    text = (tmp_path / "bench.csv").read_text()
    header, line = text.splitlines()
    (tmp_path / "bench.csv").write_text(f"{text}{line.replace(synthetic.GPU, 'OTHER GPU')}\n")
    with pytest.raises(ResultsError, match="column gpu differs"):
        read_run(tmp_path)
    (tmp_path / "bench.csv").write_text(f"{text}{line}\n")
    with pytest.raises(ResultsError, match="2 rows share a key"):
        read_run(tmp_path)
    (tmp_path / "bench.csv").write_text(text.replace("dtype", "type", 1))
    with pytest.raises(ResultsError, match="lacks the column dtype"):
        read_run(tmp_path)
    (tmp_path / "bench.csv").write_text(text.replace("4.5", "4,5"))
    with pytest.raises(ResultsError, match=r"bench\.csv"):
        read_run(tmp_path)
    assert header.split(",") == list(COLUMNS)


def test_every_column_has_one_kind_and_one_line_in_the_docs() -> None:
    assert not (FLAG_COLUMNS & INT_COLUMNS) | (INT_COLUMNS & FLOAT_COLUMNS)
    assert set(COLUMNS) >= FLAG_COLUMNS | INT_COLUMNS | FLOAT_COLUMNS
    text = (ROOT / "docs" / "results-schema.md").read_text()
    section = text.partition("## bench.csv")[2].partition("\n## ")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == COLUMNS
    assert SCHEMA_VERSION in text.splitlines()[0]
