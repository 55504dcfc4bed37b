"""One writer a run folder, enforced by the kernel and therefore gone when the holder is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from harness.schema import ResultsError

LOCK_NAME = ".lock"
# A run that goes on writes several times a minute.
_QUIET_S = 60.0


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


def _holder(fd: int) -> str:
    """Return what the lock file says, `PID on HOST`; "" when it says nothing."""
    return os.pread(fd, 300, 0).decode(errors="replace").strip()


def _held(run_dir: Path, fd: int) -> ResultsError:
    holder = _holder(fd) or "unknown"
    return ResultsError(
        f"{run_dir} is being written by process {holder}; wait for it or choose another folder"
    )


class RunLock:
    """Holds `<run_dir>/.lock` from construction to release().

    The descriptor closes on exec, so child processes started through exec do not keep the lock
    alive; a plain fork would. Raises ResultsError when another process holds it, and when the
    folder's last writer was on another host and may be alive: some shared file systems keep such
    locks from each other.
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
            if not self._is_current(fd):
                os.close(fd)
            elif elsewhere := self._alive_elsewhere(fd):
                os.close(fd)
                raise elsewhere
            else:
                self._fd = fd
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()} on {os.uname().nodename}\n".encode(), 0)

    @property
    def current(self) -> bool:
        """False once the file was removed or replaced: nothing keeps another writer out then."""
        return self._fd is not None and self._is_current(self._fd)

    def _is_current(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(fd))
        except OSError:
            return False

    def _alive_elsewhere(self, fd: int) -> ResultsError | None:
        """The refusal, if a writer of another host left its name and the folder still changes."""
        run_dir, holder = self._path.parent, _holder(fd)
        host = holder.partition(" on ")[2]
        if not host or host == os.uname().nodename:
            return None
        others = (path for path in run_dir.iterdir() if path != self._path)
        changed_s = max((path.stat().st_mtime for path in others), default=0.0)
        if abs(time.time() - changed_s) > _QUIET_S:
            return None
        return ResultsError(
            f"{run_dir} was written less than a minute ago by process {holder}, whose lock may not "
            "reach this host; wait a minute, or choose another folder"
        )

    def release(self) -> None:
        """Free the folder; calling it again does nothing."""
        if self._fd is None:
            return
        # Removed while still locked, so that nobody can lock the file we are about to remove, and
        # only if it is ours. Where that cannot be done the kernel frees it all the same.
        if self.current:
            with contextlib.suppress(OSError):
                self._path.unlink()
        fd, self._fd = self._fd, None
        os.close(fd)
