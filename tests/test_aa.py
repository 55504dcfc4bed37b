"""The build compared with itself: floors, calls and the record, on invented times."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fixtures import synthetic_run as synthetic

from harness import aa, aa_stats, aa_subset, aa_table, cli, commands, stats, sweep
from harness.compare import compare_runs, noise_classes, recorded_noise_floor
from harness.compare_judge import call
from harness.console import Progress
from harness.noise_floor import recorded_floor
from harness.plan import Filters, PlanError, plan
from harness.registry import REPOSITORY, Registry
from harness.results import read_run
from harness.schema import SCHEMA_VERSION
from harness.supervisor import Supervisor

EVERY_CLASS_US = (5.0, 50.0, 500.0)


def processes(
    rng: np.random.Generator,
    n_processes: int = 5,
    n_rows: int = 60,
    shift: float = 0.003,
    noise: float = 0.01,
    slow: int = -1,
) -> pd.DataFrame:
    """Identical builds: each process shifts each row by its own placement, and rounds scatter.

    `slow`: a process whose first row takes 10 % longer.
    """
    lines = []
    for process in range(n_processes):
        for row in range(n_rows):
            base_us = EVERY_CLASS_US[row % 3] * rng.normal(1.0, shift)
            base_us *= 1.1 if (process, row) == (slow, 0) else 1.0
            means = base_us * rng.normal(1.0, noise, 12)
            cells = synthetic.row("copy", row, "cuda", float(np.median(means)))
            lines.append(aa_table.table_line(process, cells, means))
    return pd.DataFrame(lines, columns=list(aa_table.COLUMNS))


def floors(table: pd.DataFrame, tick_us: float = 0.0) -> aa_stats.Classes:
    return aa_stats.floor_classes(aa_stats.compare_pairs(table, tick_us))


def called(table: pd.DataFrame) -> pd.DataFrame:
    judged = aa_stats.judge_pairs(aa_stats.compare_pairs(table, 0.0))
    return judged[judged["verdict"].isin(["FASTER", "SLOWER"])]


# Subset


def test_the_subset_is_spread_and_repeats_only_what_is_comparable():
    units = plan(Registry(), Filters(), "default")
    chosen = aa_subset.choose(units)
    assert 72 <= aa_subset.count_rows(chosen) < 78
    fitting = [u for u in units if aa_subset._fits(u)]
    assert {u.spec.stem for u in chosen} == {u.spec.stem for u in fitting}
    assert {u.dtype for u in chosen} == {u.dtype for u in units}
    assert not any(c.backend in ("compile", *u.spec.absent) for u in chosen for c in u.contenders)
    sizes = [
        u.spec.bytes_read(u.case, u.dtype) + u.spec.bytes_written(u.case, u.dtype) for u in chosen
    ]
    assert max(sizes) <= aa_subset.MAX_BYTES
    assert min(sizes) < 100_000
    # In the plan's order, as a sweep would run them.
    labels = [u.label for u in units]
    assert [labels.index(u.label) for u in chosen] == sorted(labels.index(u.label) for u in chosen)
    # The clock-limited end, where clocks differ most, is among them.
    products = [u.case.dims["K"] for u in chosen if u.spec.compute_bound]
    assert max(products) >= 2048


def test_a_small_subset_still_has_short_and_long_rows():
    chosen = aa_subset.choose(plan(Registry(), Filters(), "default"), 9)
    assert aa_subset.count_rows(chosen) < 13
    assert len({u.spec.stem for u in chosen}) == 3
    sizes = [u.spec.bytes_read(u.case, u.dtype) for u in chosen]
    assert min(sizes) < 1_000_000 < 50_000_000 < max(sizes)


def test_filters_shrink_the_subset_to_nothing_in_one_line():
    with pytest.raises(PlanError, match="512 MiB"):
        aa_subset.choose(plan(Registry(), Filters(cases=["N=2^28"]), "default"))
    with pytest.raises(PlanError):
        aa_subset.choose(plan(Registry(), Filters(backends=["compile"]), "default"))


# Floors


def test_the_floor_is_twice_the_99th_percentile_between_processes():
    table = processes(np.random.default_rng(1), 6, 600, shift=0.01, noise=0.0)
    for entry in floors(table):
        assert entry["source"] == "measured"
        assert (entry["rows"], entry["pairs"]) == (200, 200 * 15)
        # Two processes' shifts: sqrt(2) sigma, and 2.576 of those hold 99 %.
        assert entry["measured"] == pytest.approx(2.576 * math.sqrt(2) * 0.01, rel=0.1)
        assert entry["floor"] == aa_stats.MARGIN * entry["measured"]


def test_a_known_shift_is_found_exactly():
    table = processes(np.random.default_rng(2), 2, 60, shift=0.0, noise=0.0)
    second = table["process"] == 1
    scaled = [";".join(repr(float(m) * 1.03) for m in t.split(";")) for t in table.round_means_us]
    table["round_means_us"] = table["round_means_us"].where(~second, scaled)
    assert [entry["measured"] for entry in floors(table)] == pytest.approx([0.03] * 3)
    below = [entry["below_us"] for entry in floors(table)]
    assert below == [10.0, 100.0, None]


def test_no_floor_is_below_a_timer_tick():
    table = processes(np.random.default_rng(3), 5, 60, shift=0.0, noise=0.0)
    got = [entry["measured"] for entry in floors(table, tick_us=0.05)]
    assert got == pytest.approx([math.expm1(0.05 / t) for t in EVERY_CLASS_US], rel=1e-6)


def test_a_class_with_too_few_pairs_keeps_the_default():
    table = processes(np.random.default_rng(4), 2, 60)
    short = table["time_us_p50"] < 10.0
    few = table[~short | table["case"].isin(["0", "3"])]
    first, middle, _ = floors(few)
    assert (first["floor"], first["source"], first["pairs"]) == (0.05, "default", 2)
    assert first["measured"] < 0.05
    assert middle["source"] == "measured"
    none = floors(table[table["time_us_p50"] > 100.0])[0]
    assert (none["floor"], none["measured"], none["rows"]) == (0.05, None, 0)


def limit(table: pd.DataFrame, cases: list[str]) -> pd.DataFrame:
    marked = table["case"].isin(cases)
    table.loc[marked, "warnings"] = "above_roof;clock_limited"
    return table


def at_clock(table: pd.DataFrame, cases: list[str], slow_process: int, exponent: float):
    """The rows of `cases` under a clock that swings, lower by 5 % in one process; time follows it
    by `exponent`."""
    rng = np.random.default_rng(15)
    for index in table.index[table["case"].isin(cases)]:
        mean = 1600.0 if table.at[index, "process"] == slow_process else 1700.0
        clocks = mean * rng.normal(1.0, 0.03, 40)
        scale = (clocks / 1700.0) ** exponent
        means = table.at[index, "time_us_p50"] * scale * rng.normal(1.0, 0.0005, 40)
        table.at[index, "round_means_us"] = ";".join(map(repr, means.tolist()))
        table.at[index, "round_sm_mhz"] = ";".join(map(repr, clocks.tolist()))
        table.at[index, "time_us_p50"] = float(np.median(means))
    return limit(table, cases)


@pytest.mark.parametrize("exponent", [-1.0, -0.6])
def test_rows_whose_clock_is_held_down_have_a_floor_at_equal_clock(exponent):
    wild = [str(case) for case in range(1, 60, 6)]
    table = at_clock(
        processes(np.random.default_rng(12), 5, shift=0.0005, noise=0.0), wild, 3, exponent
    )
    pairs = aa_stats.compare_pairs(table, 0.0)
    assert max(entry["measured"] for entry in aa_stats.floor_classes(pairs)) < 0.01
    held = aa_stats.held_down_classes(pairs)
    assert (held["equal_clock"]["rows"], held["equal_clock"]["source"]) == (10, "measured")
    assert held["equal_clock"]["measured"] < 0.006, "clocks differ by 6 %"
    assert held["clock_limited"]["pairs"] == 0
    repeats = aa_stats.repeatability(table, pairs)
    assert repeats["free"]["share"] == 1.0
    assert repeats["clock_limited"]["share"] == 0.0
    assert repeats["equal_clock"]["share"] == 1.0
    assert called(table).empty


def test_times_under_unknown_clocks_make_no_floor_at_equal_clock():
    table = limit(processes(np.random.default_rng(12), 5, shift=0.02, noise=0.0), ["1", "4", "7"])
    held = aa_stats.held_down_classes(aa_stats.compare_pairs(table, 0.0))
    assert held["equal_clock"]["pairs"] == 0
    assert (held["clock_limited"]["pairs"], held["clock_limited"]["source"]) == (30, "measured")


def test_a_clock_of_zero_is_unknown():
    table = at_clock(processes(np.random.default_rng(12), 2), ["1"], 1, -1.0)
    table.loc[table["process"] == 1, "round_sm_mhz"] = ";".join(["0.0"] * 12)
    table.loc[(table["process"] == 1) & (table["case"] == "1"), "round_sm_mhz"] = ";".join(
        ["0.0"] * 40
    )
    assert not aa_stats.compare_pairs(table, 0.0)["at_equal_clock"].any()


def test_a_row_mean_is_the_one_that_ratios_are_made_of():
    means = np.random.default_rng(13).normal(10, 1, 57)
    line = aa_table.table_line(0, synthetic.row("copy", 1, "cuda", 10.0), means)
    table = {"row": np.zeros(57, dtype=int), "mean_us": means}
    got = line[aa_table.COLUMNS.index("mean_us")]
    assert got == pytest.approx(float(np.exp(stats.moments(table, 1).mean[0])), rel=1e-12)


def test_classes_with_pairs_enough_are_cross_validated_by_what_is_left_of_them():
    # 4 rows a class and 5 processes: 40 pairs, 12 of them without two of the processes.
    table = processes(np.random.default_rng(14), 5, n_rows=12, shift=0.05, noise=0.0001)
    bands = aa_stats.judge_pairs(aa_stats.compare_pairs(table, 0.0))["band"]
    assert bands.min() > 0.06, "the default of the long class is 1 %"


# Calls


@pytest.mark.parametrize("n_processes", [2, 5])
def test_identical_builds_are_called_at_most_once_in_a_thousand(n_processes):
    rng = np.random.default_rng(5)
    n_pairs, n_called = 0, 0
    for _ in range(20 if n_processes == 5 else 60):
        table = processes(rng, n_processes)
        judged = aa_stats.judge_pairs(aa_stats.compare_pairs(table, 0.0))
        summary = aa_stats.summarise_calls(judged, n_processes)
        n_pairs += summary["pairs"]
        n_called += summary["called"]
    assert n_pairs > 3000
    assert n_called <= n_pairs / 1000


def test_a_slower_process_is_called_in_its_row_only():
    table = processes(np.random.default_rng(6), slow=2, noise=0.002)
    found = called(table)
    assert set(found["case"]) == {"0"}
    # In all four pairs, each by a floor that process 2 had no part in.
    assert len(found) == 4
    assert set(found[found["new"] == 2]["verdict"]) == {"SLOWER"}
    assert set(found[found["base"] == 2]["verdict"]) == {"FASTER"}


def test_a_floor_is_not_judged_on_its_own_data():
    # One process is off in every row. Floors from all processes would cover just that.
    table = processes(np.random.default_rng(7), noise=0.002)
    off = table["process"] == 4
    for column in ("mean_us", "time_us_p50"):
        table.loc[off, column] *= 1.08
    scaled = [";".join(repr(float(m) * 1.08) for m in t.split(";")) for t in table.round_means_us]
    table["round_means_us"] = table["round_means_us"].where(~off, scaled)
    assert min(entry["floor"] for entry in floors(table)) > 0.07
    found = called(table)
    assert len(found) == 4 * 60
    # Three processes are too few to leave two out.
    assert called(table[table["process"] >= 2]).empty


def test_calls_are_those_of_compare(tmp_path):
    rng = np.random.default_rng(8)
    table = processes(rng, 2, slow=1, noise=0.002)
    # Of a quiet day: two processes alone cannot have a floor without their own difference.
    effects = aa_stats.compare_pairs(processes(rng, 2), 0.001)
    judged = aa_stats.compare_pairs(table, 0.001)
    call(judged, [aa_stats.noise_floor(effects)], aa_stats.LEAST_EFFECT)
    facts = synthetic.meta(noise_floor={"classes": aa_stats.floor_classes(effects)})
    runs = []
    for process in (0, 1):
        part = table[table["process"] == process]
        folder = tmp_path / str(process)
        rows = [
            synthetic.row("copy", int(line["case"]), "cuda", line["time_us_p50"])
            for line in part.to_dict("records")
        ]
        synthetic.write(folder, rows, facts)
        rounds = [
            (row, index, float(mean))
            for row, text in enumerate(part["round_means_us"])
            for index, mean in enumerate(text.split(";"))
        ]
        frame = pd.DataFrame(rounds, columns=["row", "round", "mean_us"])
        frame[["utc_s", "sm_mhz"]] = ""
        frame.to_csv(folder / "rounds.csv", index=False)
        runs.append(read_run(folder))
    compared = compare_runs(*runs).rows
    for column in ("ratio", "low", "high", "band"):
        np.testing.assert_allclose(judged[column], compared[column], rtol=1e-12)
    assert judged["verdict"].tolist() == compared["verdict"].tolist()
    assert "SLOWER" in judged["verdict"].tolist()


def test_rows_that_failed_somewhere_are_left_out_and_counted():
    table = processes(np.random.default_rng(9), 3)
    bad = (table["process"] == 1) & (table["case"] == "7")
    table.loc[bad, ["status", "time_us_p50", "mean_us"]] = ("mismatch", math.nan, math.nan)
    table.loc[bad, ["round_means_us", "round_sm_mhz"]] = ""
    judged = aa_stats.judge_pairs(aa_stats.compare_pairs(table, 0.0))
    summary = aa_stats.summarise_calls(judged, 3)
    assert (summary["pairs"], summary["missing"]) == (3 * 60 - 2, 2)
    assert sum(entry["pairs"] for entry in floors(table)) == 3 * 60 - 2


def test_nothing_ok_gives_no_calls_and_default_floors():
    table = processes(np.random.default_rng(10), 2).assign(status="error")
    effects = aa_stats.compare_pairs(table, 0.0)
    assert [entry["floor"] for entry in floors(table)] == [0.05, 0.02, 0.01]
    summary = aa_stats.summarise_calls(aa_stats.judge_pairs(effects), 2)
    assert (summary["pairs"], summary["per_thousand"]) == (0, None)
    assert (
        aa_stats.repeatability(table, aa_stats.compare_pairs(table, 0.0))["free"]["share"] is None
    )


def test_repeatability_counts_rows_of_ten_microseconds_and_longer():
    table = processes(np.random.default_rng(11), 3, shift=0.0, noise=0.0)
    off = (table["process"] == 2) & (table["case"].isin(["0", "1"]))
    table.loc[off, "time_us_p50"] *= 1.02
    found = aa_stats.repeatability(table, aa_stats.compare_pairs(table, 0.0))["free"]
    assert (found["rows"], found["pairs"]) == (40, 120)  # a third takes 5 us
    assert found["share"] == pytest.approx(39 / 40)
    assert found["share_of_pairs"] == pytest.approx(118 / 120)
    assert found["worst"][0]["case"] == "1"
    assert found["worst"][0]["spread"] == pytest.approx(0.02)


# From the worker to the files

NoisySupervisor = partial(Supervisor, module="tests.aa_worker")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder to run in, with workers that need no GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AA_COUNTER", str(tmp_path / "started"))
    monkeypatch.setattr(aa, "Supervisor", NoisySupervisor)
    monkeypatch.setattr(commands, "_refuse_missing_device", lambda device: True)
    return tmp_path


def bench_aa(*arguments: str) -> int:
    return cli.main(["bench", "--aa", *arguments])


def test_the_whole_way(here, capsys):
    assert bench_aa() == 0
    captured = capsys.readouterr()
    units = plan(Registry(), Filters(), "default")
    n_rows = aa_subset.count_rows(aa_subset.choose(units))
    assert re.search(rf"\b{n_rows} of \d+ rows, in 5 processes: about", captured.err)
    assert f"process 5 of 5: {n_rows} ok in" in captured.err
    assert f"0 of {10 * n_rows} rows of two processes were called" in captured.out
    (folder,) = (here / "results" / "fake-gpu" / "aa").iterdir()
    assert str(folder.relative_to(here)) in captured.out
    assert (here / "started").read_text() == "5"
    record = json.loads((folder / "aa.json").read_text())
    assert record["complete"] is True
    assert (record["processes"], record["rows"]) == (5, n_rows)
    assert record["statuses"] == {"ok": 5 * n_rows}
    assert record["tick_us"] == pytest.approx(0.032)
    assert record["settings"] == "aa"
    assert record["gpu"]["uuid_sha256"] and "GPU-fake" not in json.dumps(record)
    assert json.loads((here / "results/fake-gpu/noise_floor.json").read_text()) == record


def test_the_table_is_enough_to_compute_everything_again(here):
    bench_aa("--out", "out", "--op", "vector_add")
    record = json.loads((here / "out" / "aa.json").read_text())
    table = aa_table.read_table(here / "out" / "aa.csv")
    effects = aa_stats.compare_pairs(table, record["tick_us"])
    assert aa_stats.floor_classes(effects) == record["classes"]
    judged = aa_stats.judge_pairs(effects)
    assert aa_stats.summarise_calls(judged, 5) == record["calls"]
    assert aa_stats.repeatability(table, effects) == record["repeatability"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--op", "vector_add"], "selection"),
        (["--processes", "2"], "2 processes"),
        (["--flush", "write"], "--flush write"),
    ],
)
def test_only_a_whole_measurement_is_for_later_runs(here, capsys, arguments, reason):
    assert bench_aa("--out", "out", *arguments) == 0
    out = capsys.readouterr().out
    assert "not for later runs" in out
    assert reason in out
    assert not (here / "results").exists()


def test_a_slower_process_fails(here, capsys, monkeypatch):
    monkeypatch.setenv("AA_SLOW", "2:torch")
    assert bench_aa("--out", "out") == 1
    out = capsys.readouterr().out
    assert "SLOWER: softmax" in out
    assert "process 3 against 1" in out


def test_a_noisy_day_gives_a_floor_only_where_there_is_none(here, capsys, monkeypatch):
    monkeypatch.setenv("AA_SLOW", "2:torch")
    assert bench_aa("--out", "one") == 1
    floor = here / "results" / "fake-gpu" / "noise_floor.json"
    assert "noise_floor.json is written" in capsys.readouterr().out
    first = floor.read_text()
    assert json.loads(first)["calls"]["called"] > 0
    (here / "started").unlink()
    assert bench_aa("--out", "two") == 1
    assert "too many rows were called, and this GPU has a record already" in capsys.readouterr().out
    assert floor.read_text() == first


def test_a_failed_row_fails_and_is_kept(here, capsys, monkeypatch):
    monkeypatch.setenv("AA_FAIL", "1:torch")
    assert bench_aa("--out", "out") == 1
    assert "rows failed" in capsys.readouterr().out
    table = aa_table.read_table(here / "out" / "aa.csv")
    assert set(table[table["status"] == "mismatch"]["process"]) == {1}
    assert set(table[table["status"] == "mismatch"]["reason"]) == {"x"}


def test_a_shared_gpu_gives_no_floor_to_later_runs(here, capsys, monkeypatch):
    monkeypatch.setattr(aa.GpuWatch, "take", lambda watch: {"other_processes": 1})
    assert bench_aa("--out", "out") == 0
    assert "another process was on the GPU" in capsys.readouterr().out
    table = aa_table.read_table(here / "out" / "aa.csv")
    assert table["warnings"].str.contains("gpu_shared").all()
    assert not (here / "results").exists()


def test_a_used_folder_is_refused(here, capsys):
    (here / "out").mkdir()
    (here / "out" / "aa.csv").write_text("")
    assert bench_aa("--out", "out") == 2
    assert "already holds aa.csv" in capsys.readouterr().err
    assert not (here / "started").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--aa", "--resume", "--out", "x"], "leave --resume out"),
        (["--aa", "--quick"], "leave --quick out"),
        (["--aa", "--full"], "leave --full out"),
        (["--aa", "--processes", "1"], "wanted 2 or more"),
        (["--processes", "5"], "belongs to --aa"),
        (["--aa", "--op", "nope"], "'nope'"),
    ],
)
def test_bad_use_is_one_line_and_exit_2(here, capsys, arguments, words):
    assert cli.main(["bench", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_without_a_gpu_it_says_so(capsys, monkeypatch):
    monkeypatch.setattr(commands, "_refuse_missing_device", lambda device: False)
    assert bench_aa() == 2
    assert "no GPU is visible" in capsys.readouterr().err


def test_a_dry_run_prints_the_subset(here, capsys):
    assert bench_aa("--dry-run", "--processes", "3") == 0
    out = capsys.readouterr().out
    for unit in aa_subset.choose(plan(Registry(), Filters(), "default")):
        assert unit.label in out
    assert re.search(r"\b7[2-9] of \d+ rows, in 3 processes", out)
    assert "nothing was run" in out
    assert not (here / "started").exists()


INTERRUPTED = """
import sys
from functools import partial
sys.path.insert(0, {repository!r})
from harness import aa, cli, commands
from harness.supervisor import Supervisor
aa.Supervisor = partial(Supervisor, module="tests.aa_worker")
commands._refuse_missing_device = lambda device: True
sys.exit(cli.main(["bench", "--aa", "--op", "vector_add", "--out", {out!r}]))
"""


@pytest.mark.parametrize("finished", [0, 2])
def test_ctrl_c_keeps_the_finished_processes(tmp_path, finished):
    out = tmp_path / "out"
    source = INTERRUPTED.format(repository=str(REPOSITORY), out=str(out))
    process = subprocess.Popen(
        [sys.executable, "-c", source],
        env=os.environ | {"AA_SECONDS": "0.1", "AA_COUNTER": str(tmp_path / "started")},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        text = (out / "aa.csv").read_text() if (out / "aa.csv").exists() else ""
        if text and text.count("\n") >= 1 + 18 * finished:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    kept = aa_table.read_table(out / "aa.csv")
    assert kept["process"].nunique() == finished
    if finished == 0:
        assert "before two processes" in output
        assert not (out / "aa.json").exists()
        return
    assert "PARTIAL: stopped after 2 processes" in output
    assert "the measurement is partial" in output
    assert json.loads((out / "aa.json").read_text())["complete"] is False
    assert not (tmp_path / "results").exists()


# The floor in later runs


def floor_record(**changes: object) -> dict[str, object]:
    classes = [
        {"below_us": 10.0, "floor": 0.031, "source": "measured", "pairs": 120},
        {"below_us": 100.0, "floor": 0.022, "source": "measured", "pairs": 150},
        {"below_us": None, "floor": 0.01, "source": "default", "pairs": 3},
    ]
    return {
        "schema": SCHEMA_VERSION,
        "gpu": {"name": "Fake GPU", "uuid_sha256": "aa"},
        "started_utc": "2001-02-03T04:05:06Z",
        "flush": "clean",
        "driver": "1.0",
        "cuda": "13.0",
        "torch": "2.0.0",
        "triton": "3.0.0",
        "processes": 5,
        "rows": 61,
        "classes": classes,
        "clock_limited": {"floor": 0.07, "source": "measured", "pairs": 60},
        "equal_clock": {"floor": 0.06, "source": "measured", "pairs": 60},
    } | changes


def store(folder: Path, record: object) -> None:
    path = folder / "results" / "fake-gpu" / "noise_floor.json"
    path.parent.mkdir(parents=True)
    path.write_text(record if isinstance(record, str) else json.dumps(record))


def sweep_meta(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(
        sweep,
        "Supervisor",
        lambda device, silence_s: Supervisor(device, silence_s, "tests.fake_worker"),
    )
    registry = Registry()
    units = plan(registry, Filters(["vector_add"], ["f32"], ["N=4096"]), "default")
    out, _ = sweep.run_sweep(registry, units, folder / "run", sweep.SweepOptions(), Progress())
    return read_run(out).meta


def test_a_run_records_the_floor_and_where_it_came_from(tmp_path, monkeypatch):
    store(tmp_path, floor_record())
    kept = sweep_meta(tmp_path, monkeypatch)["noise_floor"]
    assert noise_classes({"noise_floor": kept}) == ((10.0, 0.031), (100.0, 0.022), (np.inf, 0.01))
    assert [entry["source"] for entry in kept["classes"]] == ["measured", "measured", "default"]
    assert recorded_noise_floor({"noise_floor": kept}).equal_clock == 0.06
    assert kept["measured_utc"] == "2001-02-03T04:05:06Z"
    assert (kept["gpu_id"], kept["processes"], kept["rows"]) == ("aa", 5, 61)


@pytest.mark.parametrize(
    "broken",
    [
        "{",
        "[]",
        floor_record(schema="99.0"),
        floor_record(classes=[]),
        floor_record(classes=[{"below_us": 10.0, "floor": 0.03, "source": "measured"}]),
        floor_record(classes=[{"below_us": None, "floor": "x", "source": "measured"}]),
        floor_record(classes=[{"below_us": None, "floor": -1, "source": "measured"}]),
        floor_record(classes=[7]),
        floor_record(equal_clock={"floor": -0.1, "source": "measured"}),
        {key: value for key, value in floor_record().items() if key != "driver"},
        {key: value for key, value in floor_record().items() if key != "equal_clock"},
    ],
)
def test_a_broken_floor_costs_one_line(tmp_path, monkeypatch, capsys, broken):
    store(tmp_path, broken)
    monkeypatch.chdir(tmp_path)
    assert recorded_floor("Fake GPU", "clean") is None
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "warning" in error and "noise_floor.json" in error


def test_a_broken_floor_does_not_stop_a_run(tmp_path, monkeypatch):
    store(tmp_path, "{")
    assert sweep_meta(tmp_path, monkeypatch)["noise_floor"] is None


@pytest.mark.parametrize("changes", [{"flush": "write"}, {"gpu": {"name": "Fake-GPU"}}])
def test_a_floor_of_other_circumstances_is_not_used(tmp_path, monkeypatch, capsys, changes):
    store(tmp_path, floor_record(**changes))
    monkeypatch.chdir(tmp_path)
    assert recorded_floor("Fake GPU", "clean") is None
    assert capsys.readouterr().err == ""


def runs_with(tmp_path: Path, floors: tuple[dict | None, dict | None], **meta: object):
    table = synthetic.rows()
    base = synthetic.write(tmp_path / "base", table, synthetic.meta(noise_floor=floors[0]))
    facts = synthetic.meta(**({"noise_floor": floors[1]} | meta))
    return base, synthetic.write(tmp_path / "new", table, facts)


def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **changes: object) -> dict:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results" / "fake-gpu").mkdir(parents=True, exist_ok=True)
    path = tmp_path / "results" / "fake-gpu" / "noise_floor.json"
    path.write_text(json.dumps(floor_record(**changes)))
    floor = recorded_floor("Fake GPU", "clean")
    assert floor is not None
    return floor


def test_compare_says_which_floor_counts(tmp_path, monkeypatch):
    gpu = {"name": synthetic.GPU, "uuid_sha256": "00"}
    same = recorded(tmp_path, monkeypatch, gpu={"name": "Fake GPU", "uuid_sha256": "00"})
    comparison = compare_runs(*runs_with(tmp_path / "a", (same, same)))
    (label,) = comparison.labels
    assert label.startswith("noise floor of both runs: A/A of 2001-02-03T04:05:06Z in 5 processes")
    assert "torch 2.0.0" in label and "another" not in label
    assert comparison.rows["band"].max() == 0.031

    one = compare_runs(*runs_with(tmp_path / "b", (same, None), gpu=gpu))
    assert [x.split(":")[0] for x in one.labels] == ["noise floor of base"]
    later = same | {"measured_utc": "2002", "driver": "9.9", "gpu_id": "other"}
    two = compare_runs(*runs_with(tmp_path / "c", (same, later)))
    assert "the larger of two" in two.labels[2]
    assert "measured with another driver, another card than this run" in two.labels[1]
    given = compare_runs(*runs_with(tmp_path / "d", (same, same)), noise_floor=0.04)
    assert given.labels == ("noise floor: 4 % as given",)


def test_two_cards_of_one_model_are_a_label(tmp_path):
    gpu = {"name": synthetic.GPU, "uuid_sha256": "01"}
    comparison = compare_runs(*runs_with(tmp_path, (None, None), gpu=gpu))
    assert comparison.labels[0].startswith("two cards of one model: base 00, new 01")
    assert "defaults used" in comparison.labels[1]
    assert comparison.rows["band"].max() == stats.DEFAULT_NOISE_FLOORS[0][1]
