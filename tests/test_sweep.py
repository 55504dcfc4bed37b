"""A sweep that faults, hangs, is interrupted or killed keeps every finished row."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from harness import sweep
from harness.console import Progress
from harness.plan import Filters, plan
from harness.protocol import WAIT_VARIABLE
from harness.registry import REPOSITORY, Registry
from harness.results import read_run
from harness.supervisor import Supervisor

FakeSupervisor = partial(Supervisor, module="tests.fake_worker")


@pytest.fixture(autouse=True)
def fake_supervisor(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        sweep, "Supervisor", lambda device, silence_s: FakeSupervisor(device, silence_s)
    )


def run(tmp_path: Path, timeout_s: float = 30.0, resume: bool = False):
    registry = Registry()
    units = plan(registry, Filters(ops=["vector_add"], dtypes=["f32"]), "default")
    options = sweep.SweepOptions(timeout_s=timeout_s)
    folder, outcome = sweep.run_sweep(
        registry, units, tmp_path / "run", options, Progress(), resume=resume
    )
    return read_run(folder), outcome


def test_every_contender_of_every_case_gets_a_row(tmp_path):
    done, outcome = run(tmp_path)
    assert done.complete
    assert set(done.rows.status) == {"ok", "absent"}
    units = plan(Registry(), Filters(ops=["vector_add"], dtypes=["f32"]), "default")
    absent = [c for u in units for c in u.contenders if c.backend in u.spec.absent]
    assert outcome.statuses["absent"] == len(absent) > 0
    ok = done.rows[done.rows.status == "ok"]
    assert (ok.speedup_vs_torch == 1.0).all()
    assert (ok.roof_us > 0).all()
    assert len(done.rounds) == 2 * len(ok)


def test_a_wait_in_the_users_environment_is_not_the_workers(tmp_path, monkeypatch):
    monkeypatch.setenv(WAIT_VARIABLE, "1")
    supervisor = Supervisor(module="tests.fake_worker")
    with supervisor:
        assert supervisor.start() == {"name": "Fake GPU"}
    with supervisor:
        supervisor.prepare()
        assert supervisor.start() == {"name": "Fake GPU"}


@pytest.mark.parametrize(
    ("behaviour", "status", "reason"),
    [
        ("crash", "error", "signal 9"),
        ("fault", "error", "illegal memory access"),
        ("hang", "timeout", "no answer"),
    ],
)
def test_a_bad_kernel_costs_only_its_own_rows(tmp_path, monkeypatch, behaviour, status, reason):
    monkeypatch.setenv("FAKE_triton", behaviour)
    done, outcome = run(tmp_path, timeout_s=5.0 if behaviour == "hang" else 30.0)
    by_backend = done.rows.groupby("backend").status.unique().map(set)
    assert by_backend["triton"] == {status}
    assert by_backend["cuda"] == by_backend["torch"] == {"ok"}
    assert reason in done.rows[done.rows.backend == "triton"].reason.iloc[0]
    assert outcome.statuses[status] == (done.rows.backend == "triton").sum()


KILLED = """
import sys
from functools import partial
from pathlib import Path
sys.path.insert(0, {repository!r})
from harness import sweep
from harness.supervisor import Supervisor
sweep.Supervisor = lambda device, silence_s: Supervisor(device, silence_s, "tests.fake_worker")
from harness.console import Progress
from harness.plan import Filters, plan
from harness.registry import Registry
registry = Registry()
units = plan(registry, Filters(ops=["vector_add"]), "default")
_, outcome = sweep.run_sweep(registry, units, Path({out!r}), sweep.SweepOptions(), Progress())
print("interrupted" if outcome.interrupted else "complete")
"""


def start(tmp_path: Path) -> subprocess.Popen[str]:
    code = KILLED.format(repository=str(REPOSITORY), out=str(tmp_path / "run"))
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"FAKE_SECONDS": "0.3"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    bench = tmp_path / "run" / "bench.csv"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if bench.is_file() and bench.read_text().count("\n") > 5:
            return process
        time.sleep(0.05)
    process.kill()
    raise AssertionError("the sweep wrote no rows")


def test_kill_9_loses_at_most_the_case_in_progress_and_resume_finishes(tmp_path):
    process = start(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = read_run(tmp_path / "run")
    assert not before.complete
    kept = len(before.rows)
    assert kept >= 3
    after, outcome = run(tmp_path, resume=True)
    assert after.complete
    assert not after.rows.duplicated(["op", "case", "dtype", "backend"]).any()
    assert len(after.rows) > kept


def test_ctrl_c_ends_after_the_case_in_hand(tmp_path):
    process = start(tmp_path)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert output.strip() == "interrupted"
    done = read_run(tmp_path / "run")
    assert not done.complete
    # Whole cases only: each has cuda, triton and torch.
    assert done.rows.groupby(["case", "dtype"]).size().min() >= 3
