"""Two timers side by side: bounds, offset, what the other timers write, exit codes; no GPU.

The nvbench file is built by hand after what cuda-bench 0.3.0 writes: layout and tags from the
parser it ships (cuda/bench/results/_benchmark_result.py), summary texts and numbers as strings
from cuda/bench/scripts/test_ref.json, relative sample files from nvbench's own
testing/json_printer test. The Proton file follows TreeData::buildHatchetJson in
third_party/proton/csrc/lib/Data/TreeData.cpp.
"""

from __future__ import annotations

import csv
import io
import json
import struct
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from harness import cli, commands, crosscheck_worker, other_timers
from harness.crosscheck import Request, chosen_units, crosscheck
from harness.crosscheck_rows import Row, bound_us, judge, offset, overhead_for
from harness.crosscheck_view import summary
from harness.fake_clock import FakeClock
from harness.nvbench_timer import NvbenchTimer, nvbench_figures
from harness.other_timers import Figure, TimerError, missing_package
from harness.plan import Filters, plan
from harness.proton_timer import proton_samples_us
from harness.registry import Registry
from harness.supervisor import WorkerDiedError

OVERHEAD_US = 1.3


def row(other_us: float, ours_us: float, **facts: Any) -> Row:
    return replace(
        Row("vector_add", "2^20", "f32", "cuda", ours_us=ours_us, other_us=other_us), **facts
    )


def agreeing(*other_us: float) -> list[Row]:
    return [row(us, us + OVERHEAD_US) for us in other_us]


# ---- bounds and offset ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other_us", "bound"), [(3.0, 0.3), (19.99, 0.3), (20.0, 0.2), (100.0, 1.0), (5000.0, 50.0)]
)
def test_bound_is_absolute_below_20_us_and_one_per_cent_from_there(other_us, bound):
    assert bound_us(other_us) == pytest.approx(bound)


@pytest.mark.parametrize(
    ("other_us", "error_us", "within"),
    [
        (5.0, 0.29, True),
        (5.0, -0.29, True),
        (5.0, 0.31, False),
        (20.0, 0.19, True),
        (20.0, 0.21, False),
        (1000.0, 9.9, True),
        (1000.0, -10.1, False),
    ],
)
def test_the_overhead_comes_off_before_the_bound_is_applied(other_us, error_us, within):
    verdict = judge([row(other_us, other_us + OVERHEAD_US + error_us)], OVERHEAD_US)
    (judged,) = verdict.rows
    assert judged.difference_us == pytest.approx(error_us)
    assert judged.difference_pct == pytest.approx(100 * error_us / other_us)
    assert judged.within is within


def test_timers_that_agree_pass():
    verdict = judge(agreeing(3, 6, 12, 25, 50, 300, 5000), OVERHEAD_US)
    assert verdict.passed
    assert verdict.offset_us == pytest.approx(OVERHEAD_US)
    assert summary(verdict, "nvbench").startswith("PASS: 7 of 7 kernels within bounds of nvbench")


def test_a_timer_that_is_two_per_cent_off_at_100_us_fails():
    rows = [*agreeing(3, 6, 12), row(100.0, 102.0 + OVERHEAD_US)]
    verdict = judge(rows, OVERHEAD_US)
    assert verdict.offset_within
    assert (verdict.n_within, verdict.passed) == (3, False)
    assert summary(verdict, "nvbench").startswith("FAIL: 3 of 4")


def test_an_offset_that_is_not_the_measured_overhead_fails_though_every_row_is_within():
    verdict = judge([row(us, us + OVERHEAD_US + 0.25) for us in (3.0, 6.0, 12.0)], OVERHEAD_US)
    assert verdict.n_within == 3
    assert not verdict.offset_within
    assert not verdict.passed


def test_the_offset_is_read_off_short_kernels():
    rows = [*agreeing(3, 6, 12), *(row(5000.0, 5040.0) for _ in range(9))]
    assert offset(rows) == pytest.approx(OVERHEAD_US)
    assert offset(rows[3:]) == pytest.approx(40.0)
    assert offset([]) is None


@pytest.mark.parametrize(
    "bad",
    [
        {"status": "mismatch", "ours_us": None, "other_us": None},
        {"status": "error", "reason": "the other timer gave no figure", "other_us": None},
        {"hidden": False},
    ],
)
def test_what_was_not_timed_well_is_not_within(bad):
    verdict = judge([*agreeing(3, 6), replace(agreeing(50)[0], **bad)], OVERHEAD_US)
    assert (verdict.n_within, verdict.passed) == (2, False)


@pytest.mark.parametrize(("other_mhz", "judged"), [(1980.0, True), (1600.0, False), (None, True)])
def test_a_row_at_another_clock_is_shown_but_not_judged(other_mhz, judged):
    slow = replace(row(600.0, 630.0), ours_sm_mhz=1980.0, other_sm_mhz=other_mhz)
    verdict = judge([*agreeing(3, 6), slow], OVERHEAD_US)
    assert verdict.n_compared == 2 + judged
    assert verdict.passed is not judged
    assert ("not judged" in summary(verdict, "nvbench")) is not judged


def test_nothing_timed_fails():
    unsupported = replace(agreeing(5)[0], status="unsupported", ours_us=None, other_us=None)
    verdict = judge([unsupported], OVERHEAD_US)
    assert not verdict.passed
    assert summary(verdict, "nvbench") == (
        "FAIL: 0 of 1 kernels within bounds of nvbench; nothing was timed"
    )


def test_the_overhead_against_a_profiler_is_what_the_empty_kernel_shows():
    rows = [Row("empty", "", "", "cuda", ours_us=4.4, other_us=1.2), *agreeing(6)]
    assert overhead_for("nvbench", rows, 1.3) == 1.3
    assert overhead_for("proton", rows, 1.3) == pytest.approx(3.2)
    assert overhead_for("proton", rows[1:], 1.3) == 1.3


# ---- which kernels -------------------------------------------------------------------------


def test_by_default_kernels_span_short_and_long_and_every_op_on_both_sides():
    registry = Registry()
    units = chosen_units(registry, None, ())
    assert 10 <= len(units) <= 24
    assert len({(unit.spec.stem, unit.case.name) for unit in units}) == len(units)
    assert {unit.spec.stem for unit in units} == set(registry.stems)
    assert all([c.backend for c in unit.contenders] == ["cuda", "triton"] for unit in units)


def test_a_selection_keeps_our_two_sides_unless_another_is_named():
    registry = Registry()
    units = plan(registry, Filters(ops=["vector_add"], dtypes=["f32"]), "full")
    assert {c.backend for u in chosen_units(registry, units, ()) for c in u.contenders} == {
        "cuda",
        "triton",
    }
    named = chosen_units(registry, units, ["torch"])
    assert {c.backend for u in named for c in u.contenders} == {"torch"}


def test_the_request_starts_with_an_empty_kernel():
    registry = Registry()
    units = chosen_units(registry, None, ())
    subjects = Request("nvbench", units, 1, ()).as_json()["subjects"]
    assert subjects[0]["op"] == "empty"
    assert len(subjects) == 1 + 2 * len(units)
    assert json.dumps(subjects)


# ---- what nvbench writes -------------------------------------------------------------------


def nvbench_summary(tag: str, name: str = "value", kind: str = "float64", value: Any = 0) -> Any:
    return {"tag": tag, "data": [{"name": name, "type": kind, "value": str(value)}]}


def nvbench_state(samples: str, size: int, mean_s: float) -> dict[str, Any]:
    return {
        "name": "Device=0",
        "device": 0,
        "type_config_index": 0,
        "axis_values": None,
        "summaries": [
            nvbench_summary("nv/cold/sample_size", kind="int64", value=size),
            nvbench_summary("nv/cold/time/gpu/mean", value=mean_s),
            nvbench_summary("nv/cold/sm_clock_rate/mean", value=1.755e9),
            {
                "tag": "nv/json/bin:nv/cold/sample_times",
                "name": "Samples Times File",
                "hint": "file/sample_times",
                "hide": "Not needed in table.",
                "data": [
                    {"name": "filename", "type": "string", "value": samples},
                    {"name": "size", "type": "int64", "value": str(size)},
                ],
            },
        ],
        "is_skipped": False,
    }


def write_nvbench(folder: Path, states: list[dict[str, Any]]) -> Path:
    benchmarks = [
        {"name": str(index), "index": index, "devices": [0], "axes": None, "states": [state]}
        for index, state in enumerate(states)
    ]
    file = folder / "result.json"
    meta = {"version": {"json": {"string": "1.1.0"}}}
    file.write_text(json.dumps({"meta": meta, "devices": [], "benchmarks": benchmarks}))
    return file


def write_samples(file: Path, samples_s: list[float]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(struct.pack(f"<{len(samples_s)}f", *samples_s))


def test_nvbench_figures_are_the_samples_median_and_the_mean(tmp_path):
    write_samples(tmp_path / "result.json-bin" / "0.bin", [1e-5, 2e-5, 9e-5])
    state = nvbench_state("result.json-bin/0.bin", 3, 4e-5)
    skipped = {"name": "Device=0", "summaries": None, "is_skipped": True, "skip_reason": "no"}
    figures = nvbench_figures(write_nvbench(tmp_path, [state, skipped]))
    assert set(figures) == {"0"}
    assert figures["0"].median_us == pytest.approx(20.0)
    assert figures["0"].mean_us == pytest.approx(40.0)
    assert (figures["0"].n_samples, figures["0"].sm_mhz) == (3, pytest.approx(1755.0))


@pytest.mark.parametrize("absolute", [True, False])
def test_nvbench_sample_files_are_found_where_other_releases_put_them(tmp_path, absolute):
    folder = tmp_path / "run"
    at = folder / "elsewhere" / "0.bin" if absolute else tmp_path / "samples" / "0.bin"
    write_samples(at, [1e-5])
    name = str(at) if absolute else "samples/0.bin"
    folder.mkdir(exist_ok=True)
    figures = nvbench_figures(write_nvbench(folder, [nvbench_state(name, 1, 1e-5)]))
    assert figures["0"].median_us == pytest.approx(10.0)


def test_an_unknown_nvbench_file_is_refused_in_one_line(tmp_path):
    state = nvbench_state("result.json-bin/0.bin", 3, 4e-5)
    file = write_nvbench(tmp_path, [state])
    with pytest.raises(TimerError, match=r"result file is not understood.*cuda-bench 0\.3"):
        nvbench_figures(file)  # the samples are missing
    write_samples(tmp_path / "result.json-bin" / "0.bin", [1e-5])
    with pytest.raises(TimerError, match="1 samples, wanted 3"):
        nvbench_figures(file)
    state["summaries"] = state["summaries"][:2]
    with pytest.raises(TimerError, match="sample_times"):
        nvbench_figures(write_nvbench(tmp_path, [state]))


class FakeNvbench(SimpleNamespace):
    """cuda.bench as far as it is used; its states take `exec` and write no samples but 7 us."""

    def __init__(self) -> None:
        super().__init__(__version__="0.3.0", functions=[], skipped=[], argv=[])

    def register(self, function: Any) -> Any:
        self.functions.append(function)
        return SimpleNamespace(set_name=lambda name: self.skipped.append(None))

    def run_all_benchmarks(self, argv: list[str]) -> None:
        self.argv = argv
        file = Path(argv[argv.index("--jsonbin") + 1])
        states = []
        for function in self.functions:
            reasons: list[str] = []
            state = SimpleNamespace(
                set_stream=lambda stream: None,
                exec=lambda launcher, batched: launcher(None),
                skip=reasons.append,
            )
            function(state)
            write_samples(file.parent / "0.bin", [7e-6])
            data = nvbench_state("0.bin", 1, 7e-6)
            states.append(data | {"is_skipped": bool(reasons)})
        write_nvbench(file.parent, states).rename(file)


def test_nvbench_gets_each_closure_once_and_skips_what_was_not_handed_over(monkeypatch):
    torch = pytest.importorskip("torch")
    fake, launched = FakeNvbench(), []
    monkeypatch.setitem(sys.modules, "cuda.bench", fake)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)

    def visit(index: int, theirs: Any) -> None:
        if index != 1:
            theirs(lambda: launched.append(index))

    figures = NvbenchTimer().time_all(3, visit)
    assert launched == [0, 2]
    assert {index: round(figure.median_us, 3) for index, figure in figures.items()} == {
        0: 7.0,
        2: 7.0,
    }
    assert fake.argv[fake.argv.index("--devices") + 1] == "2"


# ---- what Proton writes --------------------------------------------------------------------


def proton_node(name: str, time_ns: int | None = None, *children: Any) -> dict[str, Any]:
    metrics = {} if time_ns is None else {"time (ns)": time_ns, "count": 1, "device_id": "0"}
    frame = {"name": name, "type": "function"}
    return {"frame": frame, "metrics": metrics, "children": list(children)}


def test_proton_counts_only_kernels_inside_the_scopes():
    database = [
        proton_node(
            "ROOT",
            0,
            proton_node("flush_write_kernel", 30_000),
            proton_node("crosscheck.000000", None, proton_node("add_kernel", 5_000)),
            proton_node(
                "crosscheck.000001",
                None,
                proton_node("mul_kernel", 2_000),
                proton_node("add_kernel", 4_500),
            ),
            proton_node("crosscheck.000002"),
        ),
        {"CUDA": {"0": {"arch": "90"}}},
    ]
    assert proton_samples_us(database, "crosscheck.") == [5.0, 6.5]


# ---- the worker ----------------------------------------------------------------------------


class Steady:
    """A launch of constant time on the fake clock."""

    def __init__(self, us: float) -> None:
        self.us = us

    def next_us(self) -> float:
        return self.us


class WorkerClock(FakeClock):
    flush_mode = "clean"

    def forget(self) -> None:
        pass

    def queue_overhead_us(self) -> float:
        return OVERHEAD_US


class FakeOther:
    version = "fake 1"

    def time_all(self, n_closures: int, visit: Any) -> dict[int, Figure]:
        figures: dict[int, Figure] = {}
        for index in range(n_closures):

            def theirs(launch: Any, index: int = index) -> None:
                figures[index] = Figure(launch.us - OVERHEAD_US, launch.us, 3, 1980.0)
                launch.us += 0.5  # what our clock sees afterwards

            visit(index, theirs)
        return figures


def session_says(monkeypatch: Any, launches: list[Any], other: Any = FakeOther) -> list[Any]:
    pytest.importorskip("torch")
    said: list[dict[str, Any]] = []
    worker = SimpleNamespace(
        clock=WorkerClock(), say=lambda event, **facts: said.append({"event": event, **facts})
    )
    subject = {"op": "vector_add", "dims": {"N": 8}, "layout": "contiguous", "dtype": "f32"}
    subjects = [subject | {"backend": "cuda"} for _ in launches]
    monkeypatch.setattr(crosscheck_worker, "extension_problem", lambda: "")
    monkeypatch.setattr(crosscheck_worker, "other_timer", lambda name, clock: other())
    todo = iter(launches)

    def launch(self: Any, subject: Any) -> Any:
        one = next(todo)
        if isinstance(one, Exception):
            raise one
        return one

    monkeypatch.setattr(crosscheck_worker.Session, "_launch", launch)
    request = {"timer": "nvbench", "seed": 1, "kernels": [], "subjects": subjects}
    crosscheck_worker.Session(worker, request).run()  # type: ignore[arg-type]
    assert worker.clock.flush_mode == "write"
    return said


def test_each_closure_is_timed_by_us_before_and_after_the_other(monkeypatch):
    said = session_says(monkeypatch, [Steady(10.0), RuntimeError("no such thing"), Steady(30.0)])
    assert [fact["event"] for fact in said] == ["stage", "timed"] * 3 + ["figures"]
    first, failed, last = (Row.from_json(data) for data in said[-1]["rows"])
    assert (first.ours_before_us, first.ours_us, first.ours_after_us) == (10.0, 10.25, 10.5)
    assert (first.other_us, first.other_sm_mhz) == (10.0 - OVERHEAD_US, 1980.0)
    assert (failed.status, failed.reason) == ("error", "RuntimeError: no such thing")
    assert last.n_ours == first.n_ours > 100
    assert said[-1]["queue_overhead_us"] == OVERHEAD_US


def test_a_timer_that_does_not_work_is_a_fault_with_its_reason(monkeypatch):
    def refuse() -> Any:
        raise TimerError("Proton cannot profile here")

    (fault,) = session_says(monkeypatch, [], refuse)
    assert (fault["event"], fault["reason"]) == ("fault", "Proton cannot profile here")


# ---- the command ---------------------------------------------------------------------------


class FakeSupervisor:
    """Answers like the worker: one short kernel that agrees, one of 100 us by `factor` off."""

    def __init__(self, factor: float = 1.0, fault: str = "") -> None:
        self._factor, self._fault = factor, fault

    def __enter__(self) -> FakeSupervisor:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start(self) -> dict[str, Any]:
        return {"name": "Fake GPU", "uuid": "secret"}

    def ask(self, request: Request) -> Any:
        if self._fault:
            raise WorkerDiedError("error", "", self._fault)
        rows = [row(5.0, 5.0 + OVERHEAD_US), row(100.0, self._factor * 100.0 + OVERHEAD_US)]
        for one in rows:
            yield {"event": "timed", "label": one.label, "status": "ok", "ours_us": one.ours_us}
        yield {
            "event": "figures",
            "version": "fake 1",
            "queue_overhead_us": OVERHEAD_US,
            "rows": [vars(one) for one in rows],
        }


def run(supervisor: Any, out: Path) -> tuple[int, str, list[str]]:
    console, notes = Console(width=200, record=True, file=io.StringIO()), []
    progress = SimpleNamespace(note=notes.append)
    request = Request("nvbench", [], 1, ())
    code = crosscheck(request, supervisor, out, progress, console)  # type: ignore[arg-type]
    return code, console.export_text(), notes


def test_agreement_exits_0_and_writes_both_files(tmp_path):
    code, text, notes = run(FakeSupervisor(), tmp_path / "out")
    assert code == 0
    assert "PASS: 2 of 2" in text
    assert notes[1] == "[2/1] vector_add 2^20 f32 cuda: ours 101.30 us"
    with (tmp_path / "out" / "crosscheck.csv").open() as file:
        written = list(csv.DictReader(file))
    assert [float(line["other_us"]) for line in written] == [5.0, 100.0]
    assert [line["within"] for line in written] == ["True", "True"]
    assert float(written[1]["net_us"]) == pytest.approx(100.0)
    meta = json.loads((tmp_path / "out" / "crosscheck.json").read_text())
    assert (meta["passed"], meta["flush"], meta["timer_version"]) == (True, "write", "fake 1")
    assert "secret" not in json.dumps(meta)


def test_two_per_cent_off_at_100_us_exits_1(tmp_path):
    code, text, _ = run(FakeSupervisor(factor=1.02), tmp_path / "out")
    assert code == 1
    assert "FAIL: 1 of 2" in text
    assert json.loads((tmp_path / "out" / "crosscheck.json").read_text())["passed"] is False


def test_a_package_that_is_not_there_is_named_with_its_install_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cuda", None)
    assert missing_package("nvbench") == (
        "cuda-bench is not installed: pip install 'cuda-bench[cu13]'"
    )
    monkeypatch.setattr(commands, "_refuse_missing_device", lambda device: True)
    assert cli.main(["crosscheck"]) == 2
    assert "pip install 'cuda-bench[cu13]'" in capsys.readouterr().err


def test_no_gpu_exits_2(monkeypatch, capsys):
    monkeypatch.setattr(commands, "_refuse_missing_device", lambda device: False)
    assert cli.main(["crosscheck"]) == 2
    assert "no GPU is visible" in capsys.readouterr().err


def test_a_timer_that_fails_in_the_worker_exits_2(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(commands, "_refuse_missing_device", lambda device: True)
    monkeypatch.setattr(other_timers, "missing_package", lambda timer: "")
    monkeypatch.setattr(
        "harness.crosscheck.CrosscheckSupervisor",
        lambda *_: FakeSupervisor(fault="Proton cannot profile here"),
    )
    assert cli.main(["crosscheck", "--timer", "proton", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.strip() == "error: Proton cannot profile here"


def test_a_reason_with_brackets_is_printed_as_it_is():
    from harness.crosscheck_view import render

    odd = replace(agreeing(5)[0], status="error", reason="cannot open [/tmp/x]", ours_us=None)
    console = Console(width=240, record=True, file=io.StringIO())
    render(judge([odd], OVERHEAD_US), "nvbench", console)
    assert "cannot open [/tmp/x]" in console.export_text()
