"""One writer a run folder, enforced by the kernel and therefore gone when the holder is killed."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from harness.schema import ResultsError

LOCK_NAME = ".lock"


def refuse_locked(run_dir: Path) -> None:
    """Raise ResultsError when a writer has the folder; leaves a lock that nobody holds as it is."""
    try:
        fd = os.open(run_dir / LOCK_NAME, os.O_RDONLY)
    except OSError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _held(run_dir, fd) from None
    finally:
        os.close(fd)


def _held(run_dir: Path, fd: int) -> ResultsError:
    holder = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
    return ResultsError(
        f"{run_dir} is being written by process {holder}; wait for it or choose another folder"
    )


class RunLock:
    """Holds `<run_dir>/.lock` from construction to release().

    The descriptor closes on exec, so child processes started through exec do not keep the lock
    alive; a plain fork would. Raises ResultsError when another process holds it.
    """

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / LOCK_NAME
        self._fd: int | None = None
        while self._fd is None:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held = _held(run_dir, fd)
                os.close(fd)
                raise held from None
            # The holder before us may have removed the file between our open and our lock.
            if self._is_current(fd):
                self._fd = fd
            else:
                os.close(fd)
        os.ftruncate(self._fd, 0)
        os.write(self._fd, f"{os.getpid()}\n".encode())

    def _is_current(self, fd: int) -> bool:
        try:
            return os.stat(self._path).st_ino == os.fstat(fd).st_ino
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Free the folder; calling it again does nothing."""
        if self._fd is None:
            return
        # Removed while still locked, so that nobody can lock the file we are about to remove.
        self._path.unlink(missing_ok=True)
        os.close(self._fd)
        self._fd = None
