"""`results export`: no digit lost, every column with its documented unit."""

from __future__ import annotations

import importlib.util
import json
import math
import re
from pathlib import Path

import pytest
from fixtures.recorded_runs import QUICK
from test_schema_docs import TEXT

from harness import cli
from harness.export import parquet_bytes
from harness.results import COLUMNS, read_run
from harness.units import BENCH_UNITS, ROUNDS_UNITS


def exported(tmp_path: Path, *options: str) -> dict:
    out = tmp_path / "new" / "run.json"
    words = ["results", "export", str(QUICK[0]), "--format", "json", "--out", str(out)]
    assert cli.main([*words, *options]) == 0
    return json.loads(out.read_text())


def test_units_are_those_of_the_documentation() -> None:
    section = TEXT.partition("\n## bench.csv\n")[2].partition("\n## ")[0]
    documented = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section, re.MULTILINE))
    assert documented == BENCH_UNITS
    assert list(BENCH_UNITS) == list(COLUMNS)
    assert ROUNDS_UNITS["mean_us"] == "µs"


def test_json_has_every_digit_and_null_for_unknown(tmp_path: Path) -> None:
    found = exported(tmp_path)
    run = read_run(QUICK[0])
    assert (found["schema"], found["table"]) == ("1.1", "bench")
    assert found["units"] == {"row": "number", **BENCH_UNITS}
    assert found["meta"]["driver"] == run.meta["driver"]
    for row, (place, line) in zip(found["rows"], run.rows.iterrows(), strict=True):
        assert row["row"] == place
        for column in ("time_us_p50", "graph_us_p50", "gbps"):
            value = line[column]
            assert row[column] == (None if math.isnan(value) else value)
    assert {type(row["headline"]) for row in found["rows"]} == {bool}
    absent = next(row for row in found["rows"] if row["status"] == "absent")
    assert (absent["time_us_p50"], absent["n_rounds"], absent["variant"]) == (None, None, "")


def test_rounds_are_a_table_of_their_own(tmp_path: Path) -> None:
    found = exported(tmp_path, "--table", "rounds")
    assert found["units"] == ROUNDS_UNITS
    assert len(found["rows"]) == len(read_run(QUICK[0]).rounds)


def test_parquet_carries_units_and_meta() -> None:
    pytest.importorskip("pyarrow")
    import io

    from pyarrow import parquet

    run = read_run(QUICK[0])
    table = parquet.read_table(io.BytesIO(parquet_bytes(run)))
    assert table.schema.field("time_us_p50").metadata[b"unit"].decode() == "µs"
    assert json.loads(table.schema.metadata[b"meta"])["driver"] == run.meta["driver"]
    assert table.num_rows == len(run.rows)


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is not None, reason="pyarrow is there")
def test_without_pyarrow_one_line_says_what_to_install(capsys) -> None:
    assert cli.main(["results", "export", str(QUICK[0]), "--format", "parquet"]) == 2
    error = capsys.readouterr().err
    assert "pip install pyarrow" in error
    assert error.count("\n") == 1


def test_standard_output_and_bad_places(tmp_path, capsysbinary) -> None:
    words = ["results", "export", str(QUICK[0]), "--format", "json", "--out"]
    assert cli.main([*words, "-"]) == 0
    assert json.loads(capsysbinary.readouterr().out)["units"]["flops"] == "flop"
    blocked = tmp_path / "file"
    blocked.write_text("")
    for place, said in ((tmp_path, b"is a folder"), (blocked / "x.json", b"cannot be written")):
        assert cli.main([*words, str(place)]) == 2
        error = capsysbinary.readouterr().err
        assert said in error
        assert error.count(b"\n") == 1
