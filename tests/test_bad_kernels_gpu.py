"""Every bad kernel on a GPU, through the real worker: caught by its layer, harming nobody else."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from harness.registry import REPOSITORY
from harness.supervisor import Supervisor

# tests/ is no package that an installation would bring.
sys.path.insert(0, str(REPOSITORY))
from tests.bad_kernels import cuda_library
from tests.bad_kernels.asking import CATALOGUE, assert_caught, params, request_for, rows_of

pytestmark = pytest.mark.gpu

HANG_S = 10.0


@pytest.fixture(scope="module", autouse=True)
def library():
    """Compiled here, once: the workers only load it, and the parent's patience is short."""
    if cuda_library.compiler() is None:
        pytest.fail("no nvcc to compile tests/bad_kernels/bad_kernels.cu with")
    return cuda_library.build()


@pytest.fixture(scope="module")
def worker(library):
    with Supervisor(silence_s=60.0) as supervisor:
        yield supervisor


def assert_untouched(rows, timed: bool = False) -> None:
    """The neighbours ran after the bad one, in its process or in the one that followed it."""
    for label, row in rows.items():
        assert row["status"] == ("ok" if timed else "untimed"), (label, row)
        assert not row["reason"], (label, row)
        assert "inputs_changed" not in (row.get("warnings") or ""), (label, row)


ONE_RUN = params(lambda bad: bad.caught.by in ("check", "guard", "parent"))


@pytest.mark.parametrize("bad", ONE_RUN)
def test_a_bad_kernel_costs_only_its_own_row(worker, bad):
    hangs = bad.caught.kind == "hang"
    with Supervisor(silence_s=HANG_S) if hangs else nullcontext(worker) as supervisor:
        supervisor.start()
        starts = supervisor.restarts
        rows = rows_of(supervisor, request_for(bad, bad.caught.case))
        assert_caught(bad, rows.pop(bad.contender.label))
        assert_untouched(rows)
        died = supervisor.restarts - starts
        assert died == 1 if bad.caught.by == "parent" else died <= 1


@pytest.mark.parametrize("bad", [b for b in CATALOGUE if b.caught.passes], ids=lambda b: b.name)
def test_it_is_the_awkward_case_that_catches_it(worker, bad):
    rows = rows_of(worker, request_for(bad, bad.caught.passes))
    assert_untouched(rows)


@pytest.mark.parametrize("bad", params(lambda bad: bad.caught.by == "repeat"))
def test_what_is_right_at_first_is_caught_after_timing(worker, bad):
    rows = rows_of(worker, request_for(bad, bad.caught.case, timed=True))
    assert_caught(bad, rows.pop(bad.contender.label))
    assert_untouched(rows, timed=True)


@pytest.fixture(scope="module")
def second_worker(library):
    """In which no bad kernel remembers a call yet."""
    with Supervisor(silence_s=60.0) as supervisor:
        yield supervisor


@pytest.mark.parametrize(
    "bad", [b for b in CATALOGUE if b.caught.by == "repeat"], ids=lambda b: b.name
)
def test_what_is_right_at_first_is_caught_by_check_too(second_worker, bad):
    rows = rows_of(second_worker, request_for(bad, bad.caught.case))
    assert_caught(bad, rows.pop(bad.contender.label))
    assert_untouched(rows)


def _sanitizer() -> str:
    nvcc = cuda_library.compiler()
    folders = [Path(nvcc.home, "bin")] if nvcc else []
    folders += [Path("/usr/local/cuda/bin"), Path("/usr/local/cuda/compute-sanitizer")]
    names = [shutil.which("compute-sanitizer"), *(str(f / "compute-sanitizer") for f in folders)]
    return next((name for name in names if name and Path(name).is_file()), "")


def sanitize(tool: str, kernel: str) -> subprocess.CompletedProcess[str]:
    program = cuda_library.build("alone.cu", shared=False)
    command = [_sanitizer(), "--tool", tool, "--error-exitcode", "9", str(program), kernel]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module", params=["memcheck", "racecheck"])
def tool(request):
    """A tool of compute-sanitizer that works here: it finds no fault with what is right."""
    if not _sanitizer():
        pytest.skip("no compute-sanitizer beside nvcc, on PATH or in /usr/local/cuda")
    done = sanitize(request.param, "right")
    if done.returncode:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        pytest.skip(f"compute-sanitizer --tool {request.param} does not work here: {last}")
    return request.param


def test_the_sanitizer_catches_what_no_answer_shows(tool):
    found = [bad for bad in CATALOGUE if bad.caught.tool == tool]
    assert found
    for bad in found:
        done = sanitize(tool, bad.name)
        assert done.returncode == 9, f"{bad.name}: {done.stdout}{done.stderr}"
        assert re.search(bad.caught.reason, done.stdout + done.stderr), done.stdout
