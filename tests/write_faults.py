"""Faults at each step by which a run reaches the disk; installed in a process that ends soon."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fixtures import synthetic_run as synthetic

from harness import run_repair, run_writer
from harness.results import ResultsError, RunWriter

TABLE = [synthetic.row("scale", n, "cuda", float(n), n_rounds=2) for n in (1, 2, 3)]


def whole_run(folder: Path, announce: Callable[[int], object] = lambda n_rows: None) -> None:
    """Write the run of TABLE into `folder`, or what it lacks there; tells each row's number."""
    resume = (folder / "meta.json").exists()
    with RunWriter.create(folder, synthetic.meta(), resume=resume) as writer:
        for cells in TABLE[len(writer.done_keys) :]:
            writer.record({"gpu_health": {cells["case"]: {"watts_mean": 1.0}}})
            writer.append(cells, [[5.0], [6.0]], [[5.0] * 40, [6.0] * 40])
            announce(len(writer.done_keys))
        writer.finish({"elapsed_s": 1.0})


class Faults:
    """Step number `at` (from 1) kills this process, or finds the disk at fault.

    fault: `kill`; `full`, for this step and all later ones; `once`, for this step alone;
    `read-only`, for this and all later ones, and for removing files too. A write is done by half
    before it fails.
    """

    def __init__(self, at: int, fault: str) -> None:
        self._at, self._fault, self._count = at, fault, 0

    def step(self, writes: bool, half: Callable[[], object] = lambda: None) -> None:
        self._count += 1
        if (self._fault in ("kill", "once") and self._count != self._at) or self._count < self._at:
            return
        if self._fault == "kill":
            half()
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault == "read-only":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        if self._fault == "once":
            half()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if writes:  # a full disk can be synchronised, and files on it cut
            half()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def install(self) -> None:
        for name in ("fsync", "replace", "ftruncate", "truncate", "unlink", "mkdir", "pwrite"):
            self._replace(name)
        for module in (run_writer, run_repair):
            module.open = self._open  # type: ignore[attr-defined]

    def _open(self, *arguments: Any, **options: Any) -> Stream:
        return Stream(self, open(*arguments, **options))

    def _replace(self, name: str) -> None:
        real = getattr(os, name)

        def faulty(*arguments: Any, **options: Any) -> Any:
            self.step(writes=False)
            return real(*arguments, **options)

        setattr(os, name, faulty)


class Stream:
    """A file whose writes are steps."""

    def __init__(self, faults: Faults, real: Any) -> None:
        self._faults, self._real = faults, real

    def write(self, data: Any) -> int:
        def half() -> None:
            self._real.write(bytes(data)[: len(data) // 2])
            self._real.flush()

        self._faults.step(writes=True, half=half)
        written: int = self._real.write(data)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._real.close()


def in_a_child(folder: Path, at: int, fault: str) -> tuple[str, int]:
    """Run whole_run in a forked process with the fault at step `at`.

    Returns how it ended (`done`, `killed`, or the text of the ResultsError) and the number of
    rows that it had announced.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        text = "done"
        try:
            Faults(at, fault).install()
            whole_run(folder, lambda n_rows: os.write(write, f"{n_rows}\n".encode()))
        except ResultsError as error:
            text = str(error)
        except BaseException as error:
            text = f"UNEXPECTED {type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with open(read) as stream:
        lines = stream.read().splitlines()
    _, status = os.waitpid(pid, 0)
    rows = [int(line) for line in lines if line.isdigit()]
    ended = "killed" if os.WIFSIGNALED(status) else lines[-1]
    return ended, max(rows, default=0)
