"""What NVML says about the GPU while a run goes on: for each case, and line by line in watch.csv.

Reads only; nothing on the card is ever set. NVML's library may be missing, and in a container or
on a slice of a GPU each single question may be refused: that costs its column and nothing else.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from .schema import WATCH_COLUMNS, WATCH_NAME

_POLL_S = 0.2

# Bits of NVML's clock event reasons that slow a GPU down; the rest is idleness and settings.
_REASONS = {
    0x4: "power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
}


@dataclass(frozen=True)
class Seen:
    """One poll, by columns of watch.csv; None where NVML does not answer."""

    utc_s: float
    watts: float | None
    celsius: float | None
    sm_mhz: float | None
    reasons: tuple[str, ...] | None
    other_processes: int | None

    def line(self) -> str:
        """Return the line of watch.csv, with `none` for the absence of reasons."""
        reasons = None if self.reasons is None else ";".join(self.reasons) or "none"
        cells = vars(self) | {"reasons": reasons}
        return ",".join("" if cells[c] is None else str(cells[c]) for c in WATCH_COLUMNS) + "\n"


class GpuWatch:
    """Polls NVML at 5 Hz in a thread; says nothing, and writes nothing, without NVML.

    `uuid`: the GPU's, with or without its prefix; "" for the first. `worker_pid`: the process
    that may be on the GPU, None while there is none. `run_dir`: where watch.csv grows, if given.
    """

    def __init__(
        self,
        uuid: str,
        worker_pid: Callable[[], int | None] = lambda: None,
        run_dir: Path | None = None,
    ) -> None:
        self._uuid, self._worker_pid = uuid, worker_pid
        self._path = run_dir / WATCH_NAME if run_dir else None
        self._seen: list[Seen] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> GpuWatch:
        try:
            import pynvml

            pynvml.nvmlInit()
            handle = _handle(pynvml, self._uuid)
        except Exception:  # no library, no driver, no such device: the run goes on without
            return self
        self._thread = threading.Thread(target=self._poll, args=(pynvml, handle), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=2)

    def take(self) -> dict[str, Any]:
        """Return what was seen since the last call, {} when nothing was.

        watts_mean, celsius_max, sm_mhz_min, sm_mhz_mean; reasons: polls by slowdown reason;
        throttled: thermal or hardware slowdown, while the software power cap, normal for matmul,
        is only counted; other_processes: most processes on the GPU besides the worker. A fact
        that NVML does not tell is left out.
        """
        seen, self._seen = self._seen, []
        facts: dict[str, Any] = {}
        if watts := [s.watts for s in seen if s.watts is not None]:
            facts["watts_mean"] = round(sum(watts) / len(watts), 1)
        if celsius := [s.celsius for s in seen if s.celsius is not None]:
            facts["celsius_max"] = max(celsius)
        if clocks := [s.sm_mhz for s in seen if s.sm_mhz is not None]:
            facts["sm_mhz_min"] = min(clocks)
            facts["sm_mhz_mean"] = round(sum(clocks) / len(clocks), 1)
        reasons = [s.reasons for s in seen if s.reasons is not None]
        if reasons:
            counts = Counter(name for names in reasons for name in names)
            facts["reasons"] = dict(counts)
            facts["throttled"] = any(name != "power_cap" for name in counts)
        if others := [s.other_processes for s in seen if s.other_processes is not None]:
            facts["other_processes"] = max(others)
        return facts

    def _poll(self, nvml: Any, handle: Any) -> None:
        stream = self._open()
        try:
            while not self._stop.wait(_POLL_S):
                seen = look(nvml, handle, self._worker_pid)
                self._seen.append(seen)
                if stream is not None:
                    try:
                        stream.write(seen.line().encode())
                    except OSError:  # a full disk is reported where rows are written
                        stream.close()
                        stream = None
        finally:
            if stream is not None:
                stream.close()

    def _open(self) -> BinaryIO | None:
        """Return watch.csv, with its header, for appending; None where it cannot be written."""
        if self._path is None:
            return None
        try:
            # Unbuffered: a kill costs at most the line in progress.
            stream = open(self._path, "ab", buffering=0)  # noqa: SIM115  # _poll closes it
            if not self._path.stat().st_size:
                stream.write((",".join(WATCH_COLUMNS) + "\n").encode())
        except OSError:
            return None
        return stream


def look(nvml: Any, handle: Any, worker_pid: Callable[[], int | None] = lambda: None) -> Seen:
    """Return one poll of the device `handle`; what the module `nvml` refuses is None."""
    watts = _ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3)
    celsius = _ask(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
    sm_mhz = _ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
    bits = _ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    reasons = None if bits is None else tuple(n for bit, n in _REASONS.items() if bits & bit)
    others = _ask(lambda: _other_processes(nvml, handle, worker_pid()))
    return Seen(round(time.time(), 3), watts, celsius, sm_mhz, reasons, others)


def _other_processes(nvml: Any, handle: Any, worker_pid: int | None) -> int:
    """Processes on the GPU besides the worker.

    In a container NVML lists pids of another namespace, or none: the worker is one of them then.
    """
    pids = {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    if worker_pid is None:
        return len(pids)
    return max(len(pids) - 1, 0)


def _ask(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except Exception:  # NVML has a class for each fault, and old ones lack functions
        return None


def _handle(nvml: Any, uuid: str) -> Any:
    """Return NVML's handle of the GPU, or slice of one, whose uuid CUDA gave without its prefix."""
    if not uuid:
        return nvml.nvmlDeviceGetHandleByIndex(0)
    names = [uuid] if uuid.startswith(("GPU-", "MIG-")) else [f"GPU-{uuid}", f"MIG-{uuid}"]
    for name in names[:-1]:
        handle = _ask(lambda name=name: nvml.nvmlDeviceGetHandleByUUID(name))  # type: ignore[misc]
        if handle is not None:
            return handle
    return nvml.nvmlDeviceGetHandleByUUID(names[-1])
