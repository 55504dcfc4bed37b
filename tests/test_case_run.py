"""A case from first run to second check, on the CPU: each bad implementation costs its own row."""

from __future__ import annotations

import functools

import pytest

torch = pytest.importorskip("torch")

from harness import case_run, check, later_runs, roster
from harness.backends import Bound
from harness.clock import Batch
from harness.explain.facts import Launch
from harness.protocol import Contender, Request
from harness.registry import Registry
from harness.spec import Case


class CountingClock:
    """Runs every launch and says that it took 10 us."""

    tick_us = 0.01
    max_sm_mhz = 0.0

    def __init__(self) -> None:
        self._now_s = 0.0

    def now_s(self) -> float:
        self._now_s += 0.01
        return self._now_s

    def batch(self, launch, n_samples: int) -> Batch:
        for _ in range(n_samples):
            launch()
        return Batch((10.0,) * n_samples, hidden=True)

    def forget(self) -> None:
        pass


def graph_us(_clock, launch) -> float:
    launch()
    return 8.0


class FakeWorker:
    gpu_slug = "fake"

    def __init__(self) -> None:
        self.clock = CountingClock()
        self.triton_facts: dict[object, object] = {}
        self.rows: dict[str, dict[str, object]] = {}

    def say(self, event: str, **facts: object) -> None:
        if event == "kernels":
            told = dict(facts)
            self.rows[told.pop("contender")] |= told.pop("columns", {}) | told

    def came_back(self) -> bool:
        return True

    def say_row(self, contender: Contender, **row: object) -> None:
        self.rows[contender.backend] = row


def good(problem):
    torch.add(problem.tensors["x"], problem.tensors["y"], out=problem.out)


def writes_nothing(problem):
    pass


def raises(problem):
    raise RuntimeError("no such luck\nsecond line")


def exhausts_memory(problem):
    raise torch.cuda.OutOfMemoryError("CUDA out of memory")


class CachesItsFirstAnswer:
    def __init__(self) -> None:
        self.answer = None

    def __call__(self, problem):
        if self.answer is None:
            self.answer = problem.tensors["x"] + problem.tensors["y"]
        problem.out.copy_(self.answer)


class ScribblesWhenTimed:
    """Right and harmless when checked: writes into an input on every call but the first."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, problem):
        good(problem)
        self.calls += 1
        if self.calls > 1:
            problem.tensors["y"][0] += 1


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(later_runs, "graph_us", graph_us)
    monkeypatch.setattr(later_runs, "host_us", lambda launch: 5.0)
    monkeypatch.setattr(case_run, "leaves_the_stream", lambda *_: "")

    def run_case(settings="default", flush="clean", **functions):
        def bind(_registry, problem, backend, variant, config, _slug):
            call = functools.partial(functions[backend], problem)
            return Bound(backend, variant, call, lambda: problem.out, {}, "", "")

        on_cpu = functools.partial(_problem_on_cpu, check.Problem)
        monkeypatch.setattr(case_run, "Problem", on_cpu)
        monkeypatch.setattr(case_run, "bind", bind)
        monkeypatch.setattr(case_run, "unavailable", lambda backend: "")
        for name in ("synchronize", "empty_cache"):
            monkeypatch.setattr(torch.cuda, name, lambda: None)
        contenders = tuple(Contender(backend) for backend in functions)
        request = Request(
            "vector_add",
            {"N": 1000},
            "contiguous",
            "f32",
            contenders,
            seed=1,
            settings=settings,
            flush=flush,
        )
        worker = FakeWorker()
        case = case_run.CaseRun(worker, request, Registry(), Case({"N": 1000}))
        case.execute()
        case.release()
        return worker.rows

    return run_case


def _problem_on_cpu(make, spec, case, dtype, _device, seed):
    return make(spec, case, dtype, "cpu", seed)


def test_a_good_row_has_all_three_times(run):
    row = run(cuda=good)["cuda"]
    assert row["status"] == "ok"
    assert (row["time_us_p50"], row["host_us_p50"], row["graph_us_p50"]) == (10.0, 5.0, 8.0)
    assert row["n_rounds"] >= 10
    assert len(row["rounds"]) == row["n_rounds"]
    assert row["warnings"] is None


@pytest.mark.parametrize(
    ("bad", "status", "reason"),
    [
        (writes_nothing, "mismatch", "NaN"),
        (raises, "error", "RuntimeError: no such luck"),
        (exhausts_memory, "oom", "out of memory"),
        (CachesItsFirstAnswer(), "mismatch", "right before timing, wrong after it"),
    ],
)
def test_a_bad_row_has_a_reason_and_no_time_and_harms_nobody(run, bad, status, reason):
    rows = run(cuda=bad, triton=good)
    assert rows["cuda"]["status"] == status
    assert reason in rows["cuda"]["reason"]
    assert not any(key.startswith(("time_us", "rounds", "samples")) for key in rows["cuda"])
    assert rows["triton"]["status"] == "ok"


class RaisesWhenTimed:
    """Right when checked; an error of its own in the middle of the timed rounds."""

    def __init__(self, error: Exception) -> None:
        self.calls, self.error = 0, error

    def __call__(self, problem):
        good(problem)
        self.calls += 1
        if self.calls > 25:
            raise self.error


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (ValueError("only so often\nsecond line"), "error", "ValueError: only so often"),
        (torch.cuda.OutOfMemoryError("no memory"), "oom", "OutOfMemoryError: no memory"),
    ],
)
def test_an_exception_while_timed_names_its_author_and_keeps_its_text(run, error, status, reason):
    rows = run(cuda=RaisesWhenTimed(error), triton=good)
    assert rows["cuda"] == {"status": status, "reason": reason}
    assert rows["triton"]["status"] == "ok"
    assert rows["triton"]["n_rounds"] >= 10


def test_an_exception_while_timed_of_the_only_one_leaves_its_row(run):
    rows = run(cuda=RaisesWhenTimed(ValueError("no more")))
    assert rows["cuda"]["reason"] == "ValueError: no more"


def test_inputs_are_new_again_when_rounds_start_again(run):
    """Whoever raises at the first new inputs leaves others that must see new ones too."""

    class RaisesAtNewInputs:
        first = None

        def __call__(self, problem):
            good(problem)
            now = problem.tensors["x"].sum().item()
            self.first = now if self.first is None else self.first
            if now != self.first:
                raise ValueError("these are not my inputs")

    class KeepsItsSecondAnswer:
        """Right for the first inputs and for the second ones, which it takes to be the last."""

        first = answer = None

        def __call__(self, problem):
            good(problem)
            now = problem.tensors["x"].sum().item()
            self.first = now if self.first is None else self.first
            if now != self.first:
                self.answer = problem.out.clone() if self.answer is None else self.answer
                problem.out.copy_(self.answer)

    rows = run(cuda=RaisesAtNewInputs(), torch=KeepsItsSecondAnswer(), triton=good)
    assert rows["cuda"]["reason"] == "ValueError: these are not my inputs"
    assert rows["torch"]["status"] == "mismatch"
    assert rows["triton"]["status"] == "ok"


def test_a_failure_of_the_other_times_leaves_the_row(run, monkeypatch):
    def no_host_time(_launch):
        raise torch.cuda.OutOfMemoryError("no memory")

    monkeypatch.setattr(later_runs, "host_us", no_host_time)
    rows = run(cuda=good)
    assert rows["cuda"]["status"] == "ok"
    assert "not_capturable" in rows["cuda"]["warnings"]


class Ended(BaseException):
    """What os._exit would have done."""


@pytest.mark.parametrize("out_of_memory", [False, True])
def test_whoever_keeps_the_memory_ends_the_process_by_name(run, monkeypatch, out_of_memory):
    """Also where the harness itself runs out of memory afterwards: the hoard is still there."""
    said, held = [], [0]

    def hoards(problem):
        good(problem)
        held[0] += 5 << 30
        if out_of_memory:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    def exit_now(_code):
        raise Ended

    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: held[0])
    monkeypatch.setattr(roster.os, "_exit", exit_now)
    monkeypatch.setattr(
        FakeWorker, "say", lambda _self, event, **facts: said.append((event, facts))
    )
    with pytest.raises(Ended):
        run(triton=good, cuda=hoards)
    reason = "keeps 5.4 GB of GPU memory after its call"
    assert said[-1] == ("fault", {"contender": "cuda", "reason": reason})


def test_damage_done_while_timed_is_blamed_on_its_author(run):
    rows = run(cuda=good, triton=ScribblesWhenTimed(), torch=good)
    assert rows["triton"]["status"] == "mismatch"
    assert "input y was changed" in rows["triton"]["reason"]
    for innocent in ("cuda", "torch"):
        assert rows[innocent]["status"] == "ok"
        assert "inputs_changed_while_timed" in rows[innocent]["warnings"]


def test_a_launch_that_leaves_the_stream_is_never_timed(run, monkeypatch):
    def stray(_clock, _out, _poison, launch) -> str:
        return "its output was written early" if launch.func is stays_away else ""

    def stays_away(problem):
        good(problem)

    monkeypatch.setattr(case_run, "leaves_the_stream", stray)
    rows = run(cuda=stays_away, triton=good)
    assert (rows["cuda"]["status"], rows["cuda"]["reason"]) == (
        "mismatch",
        "its output was written early",
    )
    assert rows["triton"]["status"] == "ok"


def test_work_that_a_capture_finds_unjoined_costs_the_row_its_times(run, monkeypatch):
    def capture(_clock, launch) -> float:
        if launch.func is not good:
            raise RuntimeError("CUDA error: capture sequence contains unjoined work")
        return graph_us(None, launch)

    monkeypatch.setattr(later_runs, "graph_us", capture)
    rows = run(cuda=lambda problem: good(problem), triton=good)
    assert rows["cuda"]["status"] == "mismatch"
    assert "does not wait for" in rows["cuda"]["reason"]
    assert "time_us_p50" not in rows["cuda"]
    assert rows["triton"]["graph_us_p50"] == 8.0


def test_kernels_that_cannot_be_named_cost_only_their_columns(run):
    row = run(cuda=good)["cuda"]  # no GPU here, so nothing can be captured
    assert row["status"] == "ok"
    assert "registers" not in row
    assert row["launch_problem"].startswith("cuda: ")


def test_the_kernels_that_were_timed_are_named(run, monkeypatch):
    launch = Launch("add_kernel", "0123", (4, 1, 1), (128, 1, 1), 1024, 32, 0, 64, "90")
    monkeypatch.setattr(later_runs.launched, "launches_of", lambda call: [launch])
    row = run(cuda=good)["cuda"]
    columns = [row[name] for name in ("kernel_symbol", "registers", "spill_bytes", "shared_bytes")]
    assert columns == ["add_kernel", 32, 0, 1088]
    assert row["launches"][0]["grid"] == [4, 1, 1]


def test_a_run_against_itself_skips_what_an_ordinary_run_has_checked(run):
    row = run(settings="aa", cuda=good)["cuda"]
    assert row["status"] == "ok"
    assert "host_us_p50" not in row


@pytest.mark.parametrize(
    ("flush", "cache"), [("clean", "cold"), ("write", "cold"), ("none", "warm")]
)
def test_every_row_names_its_flush(run, flush, cache):
    row = run(flush=flush, cuda=good)["cuda"]
    assert (row["flush"], row["cache"]) == (flush, cache)


def test_a_capture_that_fails_leaves_the_current_stream_as_it_was(monkeypatch):
    from harness import stream_order

    current = ["worker's"]
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: current[0])
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: current.__setitem__(0, stream))

    def capture_that_fails() -> None:
        with stream_order.keeping_the_stream():
            current[0] = "capture's"
            raise RuntimeError("unjoined")

    with pytest.raises(RuntimeError, match="unjoined"):
        capture_that_fails()
    assert current == ["worker's"]
