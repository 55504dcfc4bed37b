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
import math
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
from harness.crosscheck_problem import SlicedProblem, problem_for
from harness.crosscheck_rows import Row, Verdict, bound_us, exempt, worst
from harness.crosscheck_rows import judge as judge_timer
from harness.crosscheck_view import summary
from harness.fake_clock import FakeClock
from harness.nvbench_timer import NvbenchTimer, nvbench_figures
from harness.other_timers import Figure, TimerError, missing_package
from harness.plan import Filters, plan
from harness.proton_timer import proton_samples_us
from harness.registry import Registry
from harness.run_lock import RunLock
from harness.schema import ResultsError
from harness.spec import Case
from harness.supervisor import WorkerDiedError

OVERHEAD_US = 1.3


def row(other_us: float, ours_us: float, **facts: Any) -> Row:
    return replace(
        Row("vector_add", "2^20", "f32", "cuda", ours_us=ours_us, other_us=other_us), **facts
    )


def agreeing(*other_us: float) -> list[Row]:
    return [row(us, us + OVERHEAD_US) for us in other_us]


def judge(rows: list[Row], overhead_us: float) -> Verdict:
    return judge_timer(rows, "nvbench", overhead_us)


def n_within(verdict: Verdict) -> int:
    return sum(one.within for one in verdict.judged)


def first_line(verdict: Verdict, timer: str = "nvbench") -> str:
    return summary(verdict, timer)[0]


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
    assert first_line(verdict).startswith(
        "PASS: 7 of 7 kernels from 3 to 5000 us within bounds of nvbench; ours is 1.30 us above it"
    )
    assert len(summary(verdict, "nvbench")) == 1


def test_a_timer_that_is_two_per_cent_off_at_100_us_fails():
    rows = [*agreeing(3, 6, 12), row(100.0, 102.0 + OVERHEAD_US)]
    verdict = judge(rows, OVERHEAD_US)
    assert verdict.offset_within
    assert (n_within(verdict), verdict.passed) == (3, False)
    assert first_line(verdict).startswith("FAIL: 3 of 4")


def test_an_offset_that_is_not_the_measured_overhead_fails_though_every_row_is_within():
    verdict = judge([row(us, us + OVERHEAD_US + 0.25) for us in (3.0, 6.0, 12.0)], OVERHEAD_US)
    assert n_within(verdict) == 3
    assert not verdict.offset_within
    assert not verdict.passed


def test_the_offset_is_read_off_short_kernels():
    rows = [*agreeing(3, 6, 12), *(row(5000.0, 5040.0) for _ in range(9))]
    assert judge(rows, OVERHEAD_US).offset_us == pytest.approx(OVERHEAD_US)
    without = judge(rows[3:], OVERHEAD_US)
    assert (without.offset_us, without.passed) == (None, False)
    assert "nothing tells the offset" in first_line(without)


def test_the_empty_kernel_alone_does_not_pass():
    empty = Row("empty", "", "", "cuda", ours_us=2.9 + OVERHEAD_US, other_us=2.9)
    verdict = judge([empty], OVERHEAD_US)
    assert verdict.offset_within
    assert not verdict.passed
    assert "no other than the empty one was judged" in first_line(verdict)


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
    assert (n_within(verdict), verdict.passed) == (2, False)


# ---- who is not judged ----------------------------------------------------------------------


def matmul(other_us: float, ours_us: float, ours_mhz: Any, other_mhz: Any) -> Row:
    facts = {"compute_bound": True, "max_sm_mhz": 1980.0}
    return row(other_us, ours_us, ours_sm_mhz=ours_mhz, other_sm_mhz=other_mhz, **facts)


@pytest.mark.parametrize(
    ("ours_mhz", "other_mhz", "reason"),
    [
        (1980.0, 1975.0, ""),
        (1980.0, 1950.0, "other_clock"),
        (1950.0, 1980.0, "other_clock"),
        (1900.0, 1900.0, "clock_limited"),
        (1975.0, 1850.0, "clock_limited"),
        (1900.0, None, "clock_limited"),
        (1975.0, None, ""),
        (None, None, ""),
    ],
)
@pytest.mark.parametrize("ours_us", [600.0 + OVERHEAD_US, 630.0])
def test_clocks_alone_decide_who_is_judged(ours_mhz, other_mhz, reason, ours_us):
    slow = matmul(600.0, ours_us, ours_mhz, other_mhz)
    assert exempt(slow) == reason
    verdict = judge([*agreeing(3, 6), slow], OVERHEAD_US)
    assert len(verdict.judged) == (2 if reason else 3)
    assert verdict.passed is (bool(reason) or ours_us < 630.0)


def test_what_is_bound_by_memory_is_judged_at_any_clock():
    slow = replace(matmul(600.0, 630.0, 1500.0, 1980.0), compute_bound=False)
    assert exempt(slow) == ""
    assert not judge([*agreeing(3, 6), slow], OVERHEAD_US).passed


def test_a_launch_that_was_not_hidden_is_excused_by_no_clock():
    slow = replace(matmul(600.0, 630.0, 1500.0, 1980.0), hidden=False)
    assert not judge([*agreeing(3, 6), slow], OVERHEAD_US).passed


def test_those_not_judged_are_counted_with_their_largest_difference():
    off = replace(matmul(100.0, 95.0 + OVERHEAD_US, 1500.0, 1500.0), case="64x64")
    within = matmul(600.0, 605.0 + OVERHEAD_US, 1500.0, 1500.0)
    verdict = judge([*agreeing(3, 6), within, off], OVERHEAD_US)
    first, second = summary(verdict, "nvbench")
    assert first.startswith("PASS: 2 of 2 kernels from 3 to 6 us")
    assert second.startswith("not judged: 2 compute-bound kernels whose SM clock was below 97 %")
    assert second.endswith(
        "1 of them are within bounds, the largest difference is -5.00 us (-5.00 %) of vector_add "
        "64x64 f32 cuda"
    )
    assert worst(()) is None


def test_clocks_that_differ_keep_a_row_out_of_the_offset():
    short = matmul(10.0, 10.8 + OVERHEAD_US, 1900.0, 1980.0)
    assert judge([row(5.0, 6.3), short, short], OVERHEAD_US).offset_us == pytest.approx(1.3)


def test_what_does_not_fit_into_memory_is_named_and_not_judged():
    large = replace(
        agreeing(5)[0], case="2^40", status="oom", reason="x", ours_us=None, other_us=None
    )
    verdict = judge([*agreeing(3, 6), large], OVERHEAD_US)
    assert verdict.passed
    assert summary(verdict, "nvbench")[1] == (
        "not timed, too large for this GPU's memory: vector_add 2^40 f32 cuda"
    )


def test_nothing_timed_fails():
    unsupported = replace(agreeing(5)[0], status="unsupported", ours_us=None, other_us=None)
    verdict = judge([unsupported], OVERHEAD_US)
    assert not verdict.passed
    assert summary(verdict, "nvbench") == [
        "FAIL: 0 of 1 kernels within bounds of nvbench; no short kernel was timed, so nothing "
        "tells the offset"
    ]


# ---- a profiler's offset ---------------------------------------------------------------------

EMPTY_ROW = Row("empty", "", "", "cuda", ours_us=2.8, other_us=0.6)


def profiled(*offsets_us: float) -> list[Row]:
    short = [row(3.0 + i, 3.0 + i + offset) for i, offset in enumerate(offsets_us)]
    return [EMPTY_ROW, *short, row(100.0, 102.4), row(5000.0, 5010.0)]


def test_a_profilers_offset_passes_when_it_is_constant_whatever_we_measured_apart():
    verdict = judge_timer(profiled(2.35, 2.4, 2.53), "proton", 0.02)
    assert verdict.passed
    assert (verdict.overhead_us, verdict.offset_us) == (pytest.approx(2.4), pytest.approx(2.4))
    assert (verdict.n_short, verdict.spread_us) == (3, pytest.approx(0.18))
    assert first_line(verdict, "proton") == (
        "PASS: 6 of 6 kernels from 0.6 to 5000 us within bounds of proton; the offset 2.40 us was "
        "taken off; over 3 kernels below 20 us it varies by 0.18 us (may by 0.2 us); the empty "
        "kernel: ours 2.80, proton 0.60 us"
    )


def test_a_profilers_offset_that_varies_fails_though_every_row_is_within():
    verdict = judge_timer(profiled(2.25, 2.36, 2.48), "proton", 0.02)
    assert all(one.within for one in verdict.rows)
    assert not verdict.offset_within
    assert not verdict.passed
    assert "varies by 0.23 us" in first_line(verdict, "proton")


def test_a_constant_offset_does_not_excuse_a_row_out_of_bounds():
    rows = [*profiled(2.4, 2.4, 2.4), row(1000.0, 1015.0)]
    verdict = judge_timer(rows, "proton", 0.02)
    assert verdict.offset_within
    assert not verdict.passed


def test_too_few_short_kernels_show_no_constant():
    verdict = judge_timer(profiled(2.2, 2.2), "proton", 0.02)
    assert not verdict.passed
    assert "2 kernels below 20 us were judged, wanted 3" in first_line(verdict, "proton")
    assert judge_timer(profiled(), "proton", 0.02).overhead_us == pytest.approx(2.2)


def test_nvbenchs_offset_must_be_the_measured_one_though_it_is_constant():
    rows = [row(us, us + 2.4) for us in (3.0, 6.0, 12.0)]
    assert judge_timer(rows, "proton", 0.02).passed
    assert not judge_timer(rows, "nvbench", 0.02).passed


# ---- which kernels -------------------------------------------------------------------------


def test_by_default_kernels_span_short_and_long_and_every_op_on_both_sides():
    registry = Registry()
    units = chosen_units(registry, None, ())
    assert len(registry.stems) <= len(units) <= 32
    assert len({(unit.spec.stem, unit.case.name) for unit in units}) == len(units)
    assert {unit.spec.stem for unit in units} == set(registry.stems)
    assert all([c.backend for c in unit.contenders] == ["cuda", "triton"] for unit in units)


def test_the_longest_kernel_is_bound_by_memory_and_takes_about_5_ms():
    long = chosen_units(Registry(), None, ())[-1]
    n_bytes = sum(
        count(long.case, long.dtype) for count in (long.spec.bytes_read, long.spec.bytes_written)
    )
    assert not long.spec.compute_bound
    assert n_bytes / 4.4e12 == pytest.approx(5e-3, rel=0.1)
    assert long.case.dims["N"] < 1 << 31  # Triton's arguments stay 32-bit, as in other cases


def test_a_backend_that_the_op_does_not_have_selects_nothing():
    registry = Registry()
    units = plan(registry, Filters(ops=["softmax"], backends=["library"]), "full")
    assert chosen_units(registry, units, ["library"]) == []


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


def test_a_time_that_is_none_is_an_invalid_row_in_readable_json(monkeypatch):
    class Broken:
        version = "fake 1"

        def time_all(self, n_closures: int, visit: Any) -> dict[int, Figure]:
            visit(0, lambda launch: None)
            return {0: Figure(math.nan, math.nan, 3)}

    said = session_says(monkeypatch, [Steady(10.0)], Broken)
    (only,) = (Row.from_json(data) for data in said[-1]["rows"])
    assert (only.status, only.reason) == ("invalid", "the other timer gave nan us")
    assert "NaN" not in json.dumps(said[-1])


@pytest.mark.parametrize("wrong_at", [None, 0, 100, 299])
def test_a_large_case_is_checked_to_its_last_element(monkeypatch, wrong_at):
    pytest.importorskip("torch")
    monkeypatch.setattr("harness.crosscheck_problem._SLICE_ELEMENTS", 64)
    spec = Registry().spec("vector_add")
    problem = SlicedProblem(spec, Case({"N": 300}), "f32", "cpu", 1)
    out = problem.tensors["x"] + problem.tensors["y"]
    assert not problem.judge(problem.out).ok  # poisoned, nothing written
    if wrong_at is not None:
        out[wrong_at] += 1
    verdict = problem.judge(out)
    assert verdict.ok is (wrong_at is None)
    if wrong_at is not None:
        assert verdict.reason.startswith(f"from {wrong_at // 64 * 64} of 300 on: error above")


def test_only_large_elementwise_cases_are_checked_in_slices(monkeypatch):
    made: list[tuple[str, str]] = []
    for kind in ("Problem", "SlicedProblem"):
        monkeypatch.setattr(
            f"harness.crosscheck_problem.{kind}",
            lambda spec, case, *_, kind=kind: made.append((kind, case.name)),
        )
    for unit in chosen_units(Registry(), None, ()):
        problem_for(unit.spec, unit.case, unit.dtype, 1)
    assert [name for kind, name in made if kind == "SlicedProblem"] == [made[-1][1]]


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


class Untouched(FakeSupervisor):
    """A supervisor that must never be started."""

    def start(self) -> dict[str, Any]:
        raise AssertionError("measuring began")


@pytest.mark.parametrize("name", ["crosscheck.csv", "crosscheck.json", "bench.csv"])
def test_a_used_folder_is_refused_before_anything_is_measured(tmp_path, name):
    (tmp_path / name).write_text("kept")
    with pytest.raises(ResultsError, match=f"already holds {name}; choose another --out"):
        run(Untouched(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "kept"


def test_a_folder_that_another_process_writes_is_refused_before_measuring(tmp_path):
    lock = RunLock(tmp_path)
    with pytest.raises(ResultsError, match="is being written by process"):
        run(Untouched(), tmp_path)
    lock.release()


def test_an_out_that_is_a_file_is_refused_before_measuring(tmp_path):
    (tmp_path / "out").write_text("kept")
    with pytest.raises(ResultsError, match=r"cannot write .*out.*; choose another --out"):
        run(Untouched(), tmp_path / "out")
    assert (tmp_path / "out").read_text() == "kept"


def test_a_used_out_is_one_line_on_the_command_line(monkeypatch, capsys, tmp_path):
    (tmp_path / "crosscheck.csv").write_text("kept")
    monkeypatch.setattr(commands, "_refuse_missing_device", lambda device: True)
    monkeypatch.setattr(other_timers, "missing_package", lambda timer: "")
    monkeypatch.setattr("harness.crosscheck.CrosscheckSupervisor", lambda *_: Untouched())
    assert cli.main(["crosscheck", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"error: {tmp_path} already holds crosscheck.csv; choose another --out"
    ]


def test_a_failing_timer_leaves_no_folder_and_a_finished_run_no_other_file(tmp_path):
    with pytest.raises(WorkerDiedError):
        run(FakeSupervisor(fault="no CUPTI"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    run(FakeSupervisor(), tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"crosscheck.csv", "crosscheck.json"}


def test_a_full_disk_is_one_line_after_the_table_and_leaves_no_half_file(tmp_path, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("harness.run_repair.os.fsync", full)
    console = Console(width=200, record=True, file=io.StringIO())
    request, progress = Request("nvbench", [], 1, ()), SimpleNamespace(note=lambda text: None)
    with pytest.raises(ResultsError, match="No space left on device; choose another --out"):
        crosscheck(request, FakeSupervisor(), tmp_path / "out", progress, console)  # type: ignore[arg-type]
    assert "PASS: 2 of 2" in console.export_text()
    assert not (tmp_path / "out").exists()


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


def test_a_row_that_is_not_judged_shows_both_clocks_known_or_not():
    from harness.crosscheck_view import render

    console = Console(width=240, record=True, file=io.StringIO())
    rows = [matmul(600.0, 630.0, 1500.0, None), matmul(600.0, 630.0, 1950.0, 1980.0)]
    render(judge(rows, OVERHEAD_US), "nvbench", console)
    text = console.export_text()
    assert "not judged, clock_limited: 1500 MHz against unknown" in text
    assert "not judged, other_clock: 1950 MHz against 1980" in text
