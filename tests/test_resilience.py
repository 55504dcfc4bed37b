"""A sweep that cannot be lost: whatever ends it, its rows stay and a resume completes it."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import os
import pty
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import write_faults
from fixtures import synthetic_run as synthetic

from harness import run_lock, supervisor
from harness.protocol import Contender, Request
from harness.registry import REPOSITORY
from harness.results import ResultsError, Run, RunWriter, read_run
from harness.run_lock import RunLock
from harness.supervisor import Supervisor, WorkerDiedError

BACKENDS = ("cuda", "triton", "torch")
SWEEP = """
import sys
sys.path.insert(0, {repository!r})
from harness import cli, commands, sweep
from harness.supervisor import Supervisor
sweep.Supervisor = lambda device, silence_s: Supervisor(device, silence_s, "tests.fake_worker")
# Without the seconds that torch takes; and a commit between two parts of a run is not the matter.
sweep.software_facts = lambda: {{"extension": None}}
sweep.source_facts = lambda *_: {{}}
commands._refuse_missing_device = lambda device: True
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def hang_up_is_not_ignored():
    """Under nohup these tests would inherit what nohup asks for, and so would their sweeps."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, previous)


def begin(out: Path, *more: str, **environment: str) -> subprocess.Popen[str]:
    """Start the sweep into `out`; FAKE_... of the worker by their names without that."""
    fakes = {f"FAKE_{name}": value for name, value in environment.items()}
    arguments = ["bench", "--op", "vector_add", "--dtype", "f32", "--no-plots", "--out", str(out)]
    return subprocess.Popen(
        [sys.executable, "-c", SWEEP.format(repository=str(REPOSITORY)), *arguments, *more],
        env=os.environ | fakes,
        cwd=out.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def error_of(err: str) -> str:
    """The one line of the error."""
    (line,) = (line for line in err.splitlines() if line.startswith("error"))
    assert "unexpected" not in line
    return line


def n_lines(out: Path) -> int:
    bench = out / "bench.csv"
    return bench.read_text().count("\n") if bench.is_file() else 0


def wait_for_rows(process: subprocess.Popen[str], out: Path, n_rows: int) -> None:
    wait_until(lambda: n_lines(out) > n_rows or process.poll() is not None)
    assert process.poll() is None, process.communicate()


def wait_until(is_so, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def keys(run: Run) -> list[tuple[str, ...]]:
    return sorted(map(tuple, run.rows[["case", "dtype", "backend"]].astype(str).to_numpy()))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, ...]]:
    """The rows of a sweep that nothing interrupts."""
    out = tmp_path_factory.mktemp("whole") / "run"
    code, _, err = end(begin(out))
    assert code == 0, err
    run = read_run(out)
    # What the sweep took is in the record.
    assert run.meta["elapsed_s"] > 0
    assert 0 <= run.meta["worker_start_s"] <= run.meta["elapsed_s"]
    assert run.meta["worker_restarts"] == 0
    return keys(run)


def assert_kept_and_resumed(out: Path, expected: list[tuple[str, ...]], least: int = 1) -> None:
    """What is on disk reads, and a resume adds what is missing, each row once."""
    before = read_run(out)
    assert not before.complete
    assert least <= len(before.rows) < len(expected)
    lines = (out / "bench.csv").read_bytes()
    lines = lines[: lines.rfind(b"\n") + 1]
    code, _, err = end(begin(out, "--resume"))
    assert code in (0, 1), err
    after = read_run(out)
    assert after.complete
    assert keys(after) == expected
    assert (out / "bench.csv").read_bytes().startswith(lines)
    ok = after.rows.index[after.rows.status == "ok"]
    assert sorted(after.rounds["row"].unique()) == list(ok)
    with gzip.open(out / "samples.csv.gz", "rt") as stream:
        assert {int(line.partition(",")[0]) for line in list(stream)[1:]} == set(ok)
    assert not [path.name for path in out.iterdir() if path.suffix == ".tmp"]
    assert not (out / ".lock").exists()


# Signals


def test_one_ctrl_c_ends_after_the_case_in_hand(tmp_path, expected):
    out = tmp_path / "run"
    process = begin(out, SECONDS="0.3")
    wait_for_rows(process, out, 4)
    process.send_signal(signal.SIGINT)
    code, text, err = end(process)
    assert code == 130
    assert "Ctrl-C again stops now" in err
    assert f"--resume --out {out}" in text
    # Whole cases only.
    done = keys(read_run(out))
    assert done == [key for key in expected if key[0] in {case for case, *_ in done}]
    assert read_run(out).meta["elapsed_s"] > 0
    assert_kept_and_resumed(out, expected, least=3)


@pytest.mark.parametrize("signals", [("INT", "INT"), ("TERM",), ("HUP",), ("TERM", "TERM", "HUP")])
def test_two_ctrl_c_and_other_signals_end_at_once(tmp_path, expected, signals):
    out = tmp_path / "run"
    process = begin(out, SECONDS="0.5")
    wait_for_rows(process, out, 4)
    (worker,) = children(process.pid)
    began_s = time.monotonic()
    for name in signals:
        process.send_signal(getattr(signal, f"SIG{name}"))
        time.sleep(0.05)
    code, text, err = end(process)
    assert code == 130, err
    assert time.monotonic() - began_s < 10
    assert f"--resume --out {out}" in text
    assert not lives(worker)
    assert_kept_and_resumed(out, expected, least=3)


def test_a_worker_that_hangs_is_ended_by_sigterm(tmp_path):
    out = tmp_path / "run"
    process = begin(out, torch="hang")
    wait_until(lambda: (out / "bench.csv").exists() and children(process.pid))
    (worker,) = children(process.pid)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    code, _, _ = end(process)
    assert code == 130
    assert not lives(worker)


def test_nohup_is_obeyed(tmp_path, expected):
    out = tmp_path / "run"
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = begin(out, SECONDS="0.05")
    finally:
        signal.signal(signal.SIGHUP, previous)
    wait_for_rows(process, out, 2)
    process.send_signal(signal.SIGHUP)
    code, _, err = end(process)
    assert code == 0, err
    assert keys(read_run(out)) == expected


def test_a_terminal_that_closes_stops_the_sweep_and_its_worker(tmp_path, expected):
    out = tmp_path / "run"
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        code = SWEEP.format(repository=str(REPOSITORY))
        arguments = ["bench", "--op", "vector_add", "--dtype", "f32", "--no-plots", "--out"]
        environment = os.environ | {"FAKE_SECONDS": "0.3", "TERM": "xterm"}
        command = [sys.executable, "-c", code, *arguments, str(out)]
        os.execve(sys.executable, command, environment)
    wait_until(lambda: n_lines(out) > 4)
    (worker,) = children(pid)
    os.close(terminal)
    os.waitpid(pid, 0)
    assert not lives(worker)
    assert_kept_and_resumed(out, expected, least=3)


def test_a_terminal_that_went_away_costs_no_row(tmp_path, expected):
    out = tmp_path / "run"
    process = begin(out, SECONDS="0.05")
    process.stderr.close()
    process.stderr = None
    code, _, _ = end(process)
    assert code == 0
    assert keys(read_run(out)) == expected


# Kills


@pytest.mark.parametrize("n_rows", [0, 1, 5, 9])
def test_kill_9_of_the_parent(tmp_path, expected, n_rows):
    out = tmp_path / "run"
    process = begin(out, SECONDS="0.1")
    wait_for_rows(process, out, n_rows)
    time.sleep(random.uniform(0, 0.2))
    (worker,) = children(process.pid)
    process.kill()
    process.wait()
    wait_until(lambda: not lives(worker), seconds=5)
    assert_kept_and_resumed(out, expected, least=n_rows)


def test_kill_9_of_the_parent_takes_a_hanging_worker_along(tmp_path):
    out = tmp_path / "run"
    # It sleeps in the middle of a case, so that it would not see its input end.
    process = begin(out, torch="hang")
    wait_until(lambda: (out / "bench.csv").exists() and children(process.pid))
    (worker,) = children(process.pid)
    time.sleep(0.5)
    process.kill()
    process.wait()
    wait_until(lambda: not lives(worker), seconds=5)


@pytest.mark.parametrize("module", ["worker", "cpu_worker", "crosscheck_worker"])
def test_every_worker_ends_with_its_parent(module):
    text = (REPOSITORY / "harness" / f"{module}.py").read_text()
    main = text.partition("def main()")[2]
    calls = re.findall(r"^    (?:\w+ = )?(\w+)\(", main, re.MULTILINE)
    quick = ("filterwarnings",)
    assert next(call for call in calls if call not in quick) == "open_answers"


@pytest.mark.parametrize("module", ["harness.cpu_worker", "tests.fake_worker"])
def test_a_worker_whose_parent_is_gone_before_it_begins_does_not_begin(module):
    worker = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    worker.stdin.close()
    worker.stdin = None
    out, _ = worker.communicate(timeout=60)
    assert (out, worker.returncode) == ("", 0)


def test_kill_9_of_the_worker_costs_a_row_at_most(tmp_path, expected):
    out = tmp_path / "run"
    process = begin(out, SECONDS="0.2")
    wait_for_rows(process, out, 4)
    (worker,) = children(process.pid)
    os.kill(worker, signal.SIGKILL)
    code, _, err = end(process)
    run = read_run(out)
    assert run.complete
    assert keys(run) == expected
    failed = run.rows[run.rows.status == "error"]
    assert len(failed) <= 1
    assert code == len(failed)
    assert "1 worker started again" in err
    assert run.meta["worker_restarts"] == 1


def test_an_answer_cut_by_a_kill_is_no_answer(tmp_path, expected):
    out = tmp_path / "run"
    code, _, err = end(begin(out, torch="cut"))
    assert code == 1, err
    run = read_run(out)
    assert keys(run) == expected
    assert "signal 9" in run.rows[run.rows.status == "error"].reason.iloc[0]


def test_a_worker_that_dies_over_naming_kernels_costs_no_row(tmp_path, expected):
    out = tmp_path / "run"
    code, _, err = end(begin(out, torch="named"))
    assert code == 0, err
    run = read_run(out)
    assert keys(run) == expected
    assert set(run.rows.status) == {"absent", "ok"}
    named = run.rows[run.rows.registers.notna()]
    assert set(named.backend) == {"cuda", "triton"}  # named before the worker died
    assert run.meta["worker_restarts"] > 0


@pytest.mark.parametrize("fault", ["kill", "full", "once", "read-only"])
def test_a_fault_at_every_step_to_the_disk(tmp_path, fault):
    write_faults.whole_run(tmp_path / "whole")
    wanted = contents(tmp_path / "whole")
    for at in itertools.count(1):
        out = tmp_path / str(at)
        ended, announced = write_faults.in_a_child(out, at, fault)
        if ended == "done":
            break
        if fault == "kill":
            assert ended == "killed"
        else:
            assert "cannot write" in ended
            assert ended.count("\n") == 0
            assert "--resume" in ended or not (out / "meta.json").exists()
            assert not (out / "meta.json.tmp").exists() or fault == "read-only"
        assert announced <= n_rows_on_disk(out) <= announced + 1
        write_faults.whole_run(out)
        assert contents(out) == wanted
    assert at > 20


def test_a_kill_during_the_resume_after_a_kill(tmp_path):
    write_faults.whole_run(tmp_path / "whole")
    wanted = contents(tmp_path / "whole")
    rng = random.Random(1)
    for number in range(30):
        out, announced = tmp_path / str(number), 0
        for _ in range(4):
            ended, now = write_faults.in_a_child(out, rng.randint(1, 22), "kill")
            announced = max(announced, now)
            assert ended in ("killed", "done")
            assert n_rows_on_disk(out) >= announced
        write_faults.whole_run(out)
        assert contents(out) == wanted


def n_rows_on_disk(out: Path) -> int:
    if not (out / "bench.csv").exists() or not n_lines(out):
        return 0
    return len(read_run(out).rows)


def contents(out: Path) -> dict[str, bytes]:
    """Every file of the run; whatever else lies in the folder fails."""
    names = {path.name for path in out.iterdir()} - {"meta.json.tmp"}
    assert names == {"bench.csv", "rounds.csv", "samples.csv.gz", "meta.json"}
    samples = gzip.decompress((out / "samples.csv.gz").read_bytes())
    return {n: (out / n).read_bytes() for n in names - {"samples.csv.gz"}} | {"samples": samples}


# Disks and folders


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 1 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no permission to mount a tmpfs")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_and_the_disk_coming_back(small_disk, expected):
    out = small_disk / "run"
    process = begin(out, SECONDS="0.3")
    wait_for_rows(process, out, 2)
    with contextlib.suppress(OSError), open(small_disk / "ballast", "wb", buffering=0) as ballast:
        while ballast.write(b"x" * 4096):
            pass
    code, _, err = end(process)
    assert code == 2
    line = error_of(err)
    assert "No space left" in line
    assert f"free space or permissions, then continue with --resume --out {out}" in line
    before = n_lines(out)
    code, _, err = end(begin(out, "--resume"))
    assert code == 2
    assert "No space left" in error_of(err)
    assert n_lines(out) == before
    (small_disk / "ballast").unlink()
    assert_kept_and_resumed(out, expected)


def test_a_file_that_may_not_grow(tmp_path, expected):
    out = tmp_path / "run"
    process = begin(out, SECONDS="0.3")
    wait_for_rows(process, out, 2)
    size = (out / "bench.csv").stat().st_size
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size + 500, resource.RLIM_INFINITY))
    code, _, err = end(process)
    assert code == 2
    assert "File too large" in error_of(err)
    assert_kept_and_resumed(out, expected, least=2)


def test_a_disk_that_comes_back_under_the_same_writer(tmp_path):
    """Even if what the failing write left could not be cut at once."""
    row = synthetic.row("scale", 1, "cuda", 4.5, n_rounds=1)
    with RunWriter.create(tmp_path, synthetic.meta()) as writer:
        writer.append(row, [[1.0]], [[1.0]])
        for name in ("samples.csv.gz", "rounds.csv", "bench.csv"):
            with open(tmp_path / name, "ab") as stream:
                stream.write(b"half a li")
        writer.append(row | {"case": "other"}, [[2.0]], [[2.0]])
        writer.finish()
    run = read_run(tmp_path)
    assert run.complete
    assert run.rounds["mean_us"].tolist() == [1.0, 2.0]
    with gzip.open(tmp_path / "samples.csv.gz", "rt") as stream:
        assert list(stream)[1:] == ["0,0,1.0\n", "1,0,2.0\n"]


def test_a_file_in_place_of_the_folder(tmp_path):
    out = tmp_path / "run"
    out.write_text("mine")
    code, _, err = end(begin(out))
    assert code == 2
    assert "choose another --out" in error_of(err)
    assert out.read_text() == "mine"


def test_a_folder_deleted_while_it_is_written_is_put_back(tmp_path, expected):
    out = tmp_path / "run"
    process = begin(out, SECONDS="0.2")
    wait_for_rows(process, out, 5)
    shutil.rmtree(out)
    code, _, err = end(process)
    assert code == 2
    line = error_of(err)
    assert "was deleted while the run was written" in line
    assert f"continue with --resume --out {out}" in line
    assert_kept_and_resumed(out, expected, least=5)


def test_a_folder_moved_while_it_is_written(tmp_path, expected):
    out = tmp_path / "run"
    process = begin(out, SECONDS="0.2")
    wait_for_rows(process, out, 5)
    out.rename(tmp_path / "elsewhere")
    code, _, err = end(process)
    assert code == 2
    assert f"continue with --resume --out {tmp_path / 'elsewhere'}" in error_of(err)
    assert not out.exists()
    assert_kept_and_resumed(tmp_path / "elsewhere", expected, least=5)


def test_a_folder_that_another_run_took_over(tmp_path, expected):
    out = tmp_path / "run"
    process = begin(out, SECONDS="0.2")
    wait_for_rows(process, out, 5)
    shutil.rmtree(out)
    with RunWriter.create(out, synthetic.meta()) as writer:
        writer.append(synthetic.row("scale", 1, "cuda", 4.5, n_rounds=1), [[1.0]], [[1.0]])
        code, _, err = end(process)
    assert code == 2
    assert str(tmp_path / "run-rescued-1") in error_of(err)
    assert len(read_run(out).rows) == 1
    assert_kept_and_resumed(tmp_path / "run-rescued-1", expected, least=5)


@pytest.mark.parametrize("name", ["rounds.csv", "samples.csv.gz", "bench.csv", ".lock"])
def test_one_file_deleted_while_the_run_is_written(tmp_path, name):
    table = [row | {"n_rounds": 1} for row in write_faults.TABLE]
    with RunWriter.create(tmp_path / "run", synthetic.meta()) as writer:
        writer.append(table[0], [[1.0]], [[1.0]])
        (tmp_path / "run" / name).unlink()
        with pytest.raises(ResultsError, match="continue with --resume --out"):
            writer.append(table[1], [[1.0]], [[1.0]])
    place = tmp_path / ("run-rescued-1" if name == "bench.csv" else "run")
    with RunWriter.create(place, synthetic.meta(), resume=True) as writer:
        assert len(writer.done_keys) == 1
        writer.append(table[1], [[1.0]], [[1.0]])
    assert len(read_run(place).rounds) == 2


# Two writers


def test_a_second_sweep_into_the_folder_is_refused_and_the_first_goes_on(tmp_path, expected):
    out = tmp_path / "run"
    first = begin(out, SECONDS="0.8")
    wait_for_rows(first, out, 1)
    code, _, err = end(begin(out, "--resume"))
    assert code == 2
    assert f"process {first.pid} on" in error_of(err)
    assert end(first)[0] == 0
    assert keys(read_run(out)) == expected


def test_the_lock_of_another_host_counts_while_the_folder_changes(tmp_path):
    with RunWriter.create(tmp_path, synthetic.meta()):
        pass
    (tmp_path / ".lock").write_text("77 on some-other-host\n")
    with pytest.raises(ResultsError, match=r"process 77 on some-other-host, .* wait a minute"):
        RunWriter.create(tmp_path, synthetic.meta(), resume=True)
    assert (tmp_path / ".lock").read_text() == "77 on some-other-host\n"
    for path in tmp_path.iterdir():
        os.utime(path, (0, time.time() - 2 * run_lock._QUIET_S))
    with RunWriter.create(tmp_path, synthetic.meta(), resume=True):
        assert f"{os.getpid()} on {os.uname().nodename}" in (tmp_path / ".lock").read_text()


def test_the_lock_of_a_dead_process_here_counts_for_nothing(tmp_path):
    (tmp_path / ".lock").write_text(f"77 on {os.uname().nodename}\n")
    RunWriter.create(tmp_path, synthetic.meta()).close()


def test_a_lock_that_is_not_ours_any_more_is_left_alone(tmp_path):
    lock = RunLock(tmp_path)
    (tmp_path / ".lock").unlink()
    other = RunLock(tmp_path)
    assert not lock.current
    lock.release()
    assert other.current
    other.release()


def test_a_resumed_run_began_when_it_was_begun(tmp_path):
    for began in ("2000-01-01T00:00:00Z", "2001-01-01T00:00:00Z"):
        meta = synthetic.meta(started_utc=began)
        with RunWriter.create(tmp_path, meta, resume=began.startswith("2001")) as writer:
            writer.record({"gpu_health": {}})
    assert json.loads((tmp_path / "meta.json").read_text())["started_utc"].startswith("2000")


# Whose fault it was


def request(*backends: str) -> Request:
    contenders = tuple(Contender(backend) for backend in backends)
    return Request("vector_add", {"N": 4096}, "", "f32", contenders, 1)


def answers(monkeypatch, tmp_path, backends=BACKENDS, **fakes: str) -> tuple[dict, Supervisor]:
    """status by backend, and the supervisor that asked."""
    monkeypatch.setenv("FAKE_COUNTER", str(tmp_path / "started"))
    for name, value in fakes.items():
        monkeypatch.setenv(f"FAKE_{name}", value)
    with Supervisor(silence_s=20, module="tests.fake_worker") as asked:
        rows = [event["row"] for event in asked.run(request(*backends))]
    assert sorted(row["backend"] for row in rows) == sorted(backends)
    return {row["backend"]: row for row in rows}, asked


@pytest.mark.parametrize("culprits", [("triton",), ("cuda", "torch"), BACKENDS])
def test_a_culprit_without_a_name_is_found(monkeypatch, tmp_path, culprits):
    rows, asked = answers(monkeypatch, tmp_path, **dict.fromkeys(culprits, "silent"))
    for backend, row in rows.items():
        assert row["status"] == ("error" if backend in culprits else "ok")
    assert "signal 9" in rows[culprits[0]]["reason"]
    # One for the case and at most one each.
    assert asked.restarts <= 1 + len(culprits)


def test_a_culprit_without_a_name_beside_one_with_a_name(monkeypatch, tmp_path):
    rows, asked = answers(monkeypatch, tmp_path, cuda="fault", torch="silent")
    assert {b: r["status"] for b, r in rows.items()} == {
        "cuda": "error",
        "triton": "ok",
        "torch": "error",
    }
    assert "illegal memory access" in rows["cuda"]["reason"]
    assert asked.restarts <= 1 + 2


def test_a_death_that_does_not_come_again_costs_nothing(monkeypatch, tmp_path):
    rows, asked = answers(monkeypatch, tmp_path, triton="once")
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert asked.restarts == 1


def test_what_dies_only_in_company_says_so(monkeypatch, tmp_path):
    rows, asked = answers(monkeypatch, tmp_path, triton="company")
    assert {row["status"] for row in rows.values()} == {"error"}
    assert "with several contenders and not with one alone" in rows["cuda"]["reason"]
    assert asked.restarts <= 2


def test_one_alone_is_its_own_culprit(monkeypatch, tmp_path):
    rows, asked = answers(monkeypatch, tmp_path, ("torch",), torch="silent")
    assert rows["torch"]["status"] == "error"
    assert asked.restarts == 0


def test_the_search_is_in_the_run(tmp_path, expected):
    out = tmp_path / "run"
    code, text, err = end(begin(out, triton="silent"))
    assert code == 1, err
    run = read_run(out)
    assert keys(run) == expected
    statuses = run.rows.groupby("backend").status.unique().map(set)
    assert statuses["triton"] == {"error"}
    assert statuses["cuda"] == statuses["torch"] == {"ok"}
    assert len(run.meta["gpu"]) and run.meta["worker_restarts"] == 2 * run.rows.case.nunique()
    assert "workers started again" in err
    assert text.count("error: vector_add") == run.rows.case.nunique()


def test_a_gpu_that_is_gone_stops_the_sweep_and_fails_no_row(tmp_path, expected):
    out = tmp_path / "run"
    process = begin(out, SECONDS="0.2", COUNTER=str(tmp_path / "started"), STARTS="1")
    wait_for_rows(process, out, 4)
    (worker,) = children(process.pid)
    os.kill(worker, signal.SIGKILL)
    code, _, err = end(process)
    assert code == 2
    line = error_of(err)
    assert "no worker starts any more" in line
    assert f"rows so far are kept: continue with --resume --out {out}" in line
    assert "no CUDA-capable device" in err
    assert "error" not in set(read_run(out).rows.status)
    assert_kept_and_resumed(out, expected, least=4)


def test_roofs_survive_the_death_of_one_worker(monkeypatch, tmp_path):
    with Supervisor(silence_s=20, module="tests.fake_worker") as asked:
        asked.start()
        os.kill(asked.pid, signal.SIGKILL)
        assert asked.roofs(["bf16"])["launch_floor_us"] == 3.0


def test_a_worker_that_cannot_be_ended_is_named(monkeypatch):
    monkeypatch.setattr(supervisor, "_END_TIMEOUT_S", 0.2)
    asked = Supervisor(module="tests.fake_worker")
    asked.start()
    process = asked._process
    with monkeypatch.context() as patched:
        patched.setattr(os, "killpg", lambda pid, number: None)  # as if the driver held it
        with pytest.raises(WorkerDiedError, match=f"process {process.pid}, was killed and does"):
            asked.stop()
    process.kill()
    process.wait()


def test_what_a_worker_started_ends_with_it():
    code = (
        "import json, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        "print(json.dumps({'event': 'ready', 'gpu': {'child': child.pid}}), flush=True)\n"
        "time.sleep(60)\n"
    )
    asked = Supervisor()
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    child = json.loads(process.stdout.readline())["gpu"]["child"]
    asked._process = process
    asked.stop()
    process.stdout.close()
    wait_until(lambda: not lives(child), seconds=5)


@pytest.mark.parametrize("loss", ["rounds", "cut", "line"])
def test_rows_that_have_lost_their_rounds_are_not_taken_for_whole(tmp_path, loss):
    folder = tmp_path / "run"
    with RunWriter.create(folder, synthetic.meta()) as writer:
        for n in (1, 2, 3):
            row = synthetic.row("scale", n, "cuda", float(n), n_rounds=n)
            writer.append(row, [[float(n)]] * n, [[float(n)]] * n)
    rounds, bench = folder / "rounds.csv", folder / "bench.csv"
    if loss == "rounds":
        rounds.unlink()
    elif loss == "cut":
        rounds.write_bytes(rounds.read_bytes()[:60])
    else:
        lines = bench.read_bytes().splitlines(keepends=True)
        bench.write_bytes(b"".join(lines[:2] + lines[3:]))
    before = bench.read_bytes()
    with pytest.raises(ResultsError, match="rounds of row"):
        RunWriter.create(folder, synthetic.meta(), resume=True)
    assert bench.read_bytes() == before
