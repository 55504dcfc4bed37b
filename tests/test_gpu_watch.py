"""What a watch makes of NVML that answers, refuses or is not there; NVML itself is a fake."""

# ruff: noqa: N801, N802, N818  # NVML's spelling

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness import gpu_watch, sweep
from harness.console import Progress
from harness.gpu_watch import GpuWatch, Seen
from harness.plan import Filters, plan
from harness.registry import Registry
from harness.results import read_run, read_watch
from harness.schema import WATCH_COLUMNS
from harness.supervisor import Supervisor

OUR_PID = 4242


class FakeNvml(ModuleType):
    """One GPU with uuid GPU-1. `refuse` names the functions that raise, `pids` who is on it."""

    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM = 0, 1

    class NVMLError(Exception):
        pass

    class NVMLError_NotSupported(NVMLError):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.refuse: set[str] = set()
        self.error: type[Exception] = self.NVMLError
        self.pids = [OUR_PID]
        self.bits = 0x4
        self.device = "GPU-1"

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in super().__getattribute__("refuse"):
            raise super().__getattribute__("error")(name)
        return super().__getattribute__(name)

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return "handle"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != self.device:
            raise self.NVMLError(uuid)
        return "handle"

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 300_500

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 51

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> int:
        assert clock == self.NVML_CLOCK_SM
        return 1755

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return self.bits

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid) for pid in self.pids]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(gpu_watch, "_POLL_S", 0.005)
    return fake


def seen_by(watch: GpuWatch) -> dict[str, Any]:
    """What a watch tells after some polls; {} where it makes none."""
    with watch:
        deadline = time.monotonic() + 10
        while watch._thread is not None and len(watch._seen) < 3 and time.monotonic() < deadline:
            time.sleep(0.005)
        return watch.take()


def test_everything_is_told(nvml: FakeNvml) -> None:
    facts = seen_by(GpuWatch("1", lambda: OUR_PID))
    polls = facts.pop("reasons")["power_cap"]
    assert polls >= 3
    assert facts == {
        "watts_mean": 300.5,
        "celsius_max": 51,
        "sm_mhz_min": 1755,
        "sm_mhz_mean": 1755.0,
        "throttled": False,
        "other_processes": 0,
    }


def test_thermal_and_hardware_slowdown_is_throttling(nvml: FakeNvml) -> None:
    nvml.bits = 0x4 | 0x40 | 0x1
    facts = seen_by(GpuWatch("1"))
    assert facts["throttled"]
    assert set(facts["reasons"]) == {"power_cap", "hw_thermal"}


def test_no_library_no_columns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert seen_by(GpuWatch("1", run_dir=tmp_path)) == {}
    assert not (tmp_path / "watch.csv").exists()


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlDeviceGetHandleByUUID"])
def test_no_driver_or_no_device_no_columns(nvml: FakeNvml, tmp_path: Path, function: str) -> None:
    nvml.refuse = {function}
    assert seen_by(GpuWatch("1", run_dir=tmp_path)) == {}
    assert not (tmp_path / "watch.csv").exists()


@pytest.mark.parametrize(
    ("function", "lost"),
    [
        ("nvmlDeviceGetPowerUsage", {"watts_mean"}),
        ("nvmlDeviceGetTemperature", {"celsius_max"}),
        ("nvmlDeviceGetClockInfo", {"sm_mhz_min", "sm_mhz_mean"}),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", {"reasons", "throttled"}),
        ("nvmlDeviceGetComputeRunningProcesses", {"other_processes"}),
    ],
)
@pytest.mark.parametrize("error", [FakeNvml.NVMLError_NotSupported, AttributeError])
def test_a_refused_question_costs_its_own_columns(
    nvml: FakeNvml, function: str, lost: set[str], error: type[Exception]
) -> None:
    whole = set(seen_by(GpuWatch("1")))
    nvml.refuse, nvml.error = {function}, error
    assert set(seen_by(GpuWatch("1"))) == whole - lost


@pytest.mark.parametrize("uuid", ["MIG-7", "7"])
def test_a_slice_of_a_gpu_tells_what_it_may(nvml: FakeNvml, tmp_path: Path, uuid: str) -> None:
    nvml.device = "MIG-7"
    nvml.error = FakeNvml.NVMLError_NotSupported
    nvml.refuse = {
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
    }
    assert seen_by(GpuWatch(uuid, run_dir=tmp_path)) == {"celsius_max": 51}
    header, first, *_ = (tmp_path / "watch.csv").read_text().splitlines()
    assert header == ",".join(WATCH_COLUMNS)
    assert first.partition(",")[2] == ",51,,,"


@pytest.mark.parametrize(
    ("pids", "worker", "others"),
    [
        ([OUR_PID], OUR_PID, 0),
        ([OUR_PID, 1], OUR_PID, 1),
        ([OUR_PID, OUR_PID], OUR_PID, 0),
        ([], OUR_PID, 0),  # a container that hides the processes
        ([977], OUR_PID, 0),  # a container with pids of its own: this one is ours
        ([977, 978], OUR_PID, 1),
        ([977], None, 1),  # no worker is alive: all are others
    ],
)
def test_other_processes(nvml: FakeNvml, pids: list[int], worker: int | None, others: int) -> None:
    nvml.pids = pids
    assert seen_by(GpuWatch("1", lambda: worker))["other_processes"] == others


def test_a_watch_that_goes_on_appends(nvml: FakeNvml, tmp_path: Path) -> None:
    for _ in range(2):
        assert seen_by(GpuWatch("", run_dir=tmp_path))
    lines = (tmp_path / "watch.csv").read_text().splitlines()
    assert [line for line in lines if line.startswith("utc_s")] == lines[:1]
    assert len(lines) >= 7
    assert all(line.count(",") == len(WATCH_COLUMNS) - 1 for line in lines)
    assert lines[1].endswith(",300.5,51,1755,power_cap,1")


def test_none_is_told_apart_from_unknown() -> None:
    assert Seen(1.5, None, 50, 1200.0, (), 0).line() == "1.5,,50,1200.0,none,0\n"
    assert Seen(1.5, 9.0, None, None, None, None).line() == "1.5,9.0,,,,\n"
    assert Seen(1.5, 9.0, None, None, ("power_cap", "hw_thermal"), 2).line() == (
        "1.5,9.0,,,power_cap;hw_thermal,2\n"
    )


def test_a_folder_that_cannot_be_written_costs_only_the_file(
    nvml: FakeNvml, tmp_path: Path
) -> None:
    assert seen_by(GpuWatch("1", run_dir=tmp_path / "missing"))["watts_mean"] == 300.5


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_costs_only_the_file(nvml: FakeNvml, tmp_path: Path) -> None:
    (tmp_path / "watch.csv").symlink_to("/dev/full")
    assert seen_by(GpuWatch("1", run_dir=tmp_path))["watts_mean"] == 300.5


class Notes(Progress):
    """Keeps what a sweep says."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture
def sweep_into(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml) -> Callable[[Path], Notes]:
    fake = partial(Supervisor, module="tests.fake_worker")
    monkeypatch.setattr(sweep, "Supervisor", lambda device, silence_s: fake(device, silence_s))
    monkeypatch.setenv("FAKE_SECONDS", "0.05")

    def run(folder: Path) -> Notes:
        registry, notes = Registry(), Notes()
        units = plan(registry, Filters(ops=["vector_add"], dtypes=["f32"]), "default")[:3]
        sweep.run_sweep(registry, units, folder, sweep.SweepOptions(), notes)
        return notes

    return run


def test_rows_beside_another_process_are_marked_and_said_once(
    sweep_into: Callable[[Path], Notes], nvml: FakeNvml, tmp_path: Path
) -> None:
    nvml.pids = [OUR_PID, 1, 2]
    notes = sweep_into(tmp_path)
    run = read_run(tmp_path)
    ok = run.rows["status"] == "ok"
    assert run.rows.loc[ok, "warnings"].str.contains("gpu_shared").all()
    assert not run.rows.loc[~ok, "warnings"].str.contains("gpu_shared").any()
    assert sum("2 other processes on this GPU" in text for text in notes.texts) == 1
    assert {facts["other_processes"] for facts in run.meta["gpu_health"].values()} == {2}
    seen = read_watch(run)
    assert len(seen) > 3
    assert set(seen["other_processes"]) == {2.0}
    assert set(seen["reasons"]) == {"power_cap"}


def test_rows_alone_on_the_gpu_are_not_marked(
    sweep_into: Callable[[Path], Notes], tmp_path: Path
) -> None:
    notes = sweep_into(tmp_path)
    run = read_run(tmp_path)
    assert not run.rows["warnings"].str.contains("gpu_shared").any()
    assert not any("other process" in text for text in notes.texts)
    assert set(run.rows.loc[run.rows["status"] == "ok", "throttled"]) == {False}


def test_the_supervisor_tells_the_workers_pid() -> None:
    with Supervisor(module="tests.fake_worker") as supervisor:
        assert supervisor.pid is None
        supervisor.start()
        assert supervisor.pid
        supervisor.stop()
        assert supervisor.pid is None
