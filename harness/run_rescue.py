"""A run's folder that was deleted, moved or replaced while it was written: its rows put back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from harness.run_lock import RunLock
from harness.run_repair import write_atomically
from harness.schema import BENCH_NAME, ResultsError


def lost(run_dir: Path, files: Mapping[str, BinaryIO], lock: RunLock) -> bool:
    """Return whether what is open, or the lock on it, is no longer what lies in the folder.

    Writing into deleted files succeeds, so nothing else would tell before the run's end.
    """
    return not (lock.current and all(_is_open(run_dir / n, f) for n, f in files.items()))


def rescue(
    run_dir: Path,
    files: Mapping[str, BinaryIO],
    lock: RunLock,
    whole: Mapping[str, bytes],
    n_rows: int,
) -> ResultsError:
    """Put the files `whole` back where they were deleted; return the error that ends the run.

    files: those that are open, by name. A folder that somebody else uses by now is left alone:
    the rows go to one beside it.
    """
    if all(_is_open(run_dir / name, stream) for name, stream in files.items()):
        return ResultsError(
            f"the lock of {run_dir} was removed while the run was written, so another writer may "
            f"use the folder; the {n_rows} rows so far are kept: continue with --resume --out "
            f"{run_dir}"
        )
    moved = _moved_to(files[BENCH_NAME])
    if moved is not None and moved != run_dir.resolve():
        return ResultsError(
            f"{run_dir} was moved to {moved} while the run was written; the {n_rows} rows so far "
            f"are there: continue with --resume --out {moved}"
        )
    try:
        target = _put_back(run_dir, files, lock, whole)
    except OSError as error:
        return ResultsError(
            f"{run_dir} was deleted while the run was written, and its {n_rows} rows cannot be put "
            f"back: {error.strerror or error}; run it again with another --out"
        )
    return ResultsError(
        f"{run_dir} was deleted while the run was written; the {n_rows} rows so far are in "
        f"{target}: continue with --resume --out {target}"
    )


def _is_open(path: Path, stream: BinaryIO) -> bool:
    """Is the file at `path` the one that is open as `stream`?"""
    try:
        return os.path.samestat(os.stat(path), os.fstat(stream.fileno()))
    except OSError:
        return False


def _moved_to(stream: BinaryIO) -> Path | None:
    """Return the folder that the open file lies in now; None when it was deleted."""
    try:
        path = Path(os.readlink(f"/proc/self/fd/{stream.fileno()}"))
    except OSError:
        return None
    return path.parent if _is_open(path, stream) else None


def _put_back(
    run_dir: Path, files: Mapping[str, BinaryIO], held: RunLock, whole: Mapping[str, bytes]
) -> Path:
    """Write what the folder lacks into it, or everything into a new one beside it."""
    run_dir.mkdir(parents=True, exist_ok=True)
    lock = None
    # Only the files that are open can be told from another run's.
    free = _is_open(run_dir / BENCH_NAME, files[BENCH_NAME]) or not any(
        (run_dir / name).exists() for name in whole
    )
    if free and not held.current:
        try:
            lock = RunLock(run_dir)
        except ResultsError:
            free = False
    target = run_dir
    if not free:
        beside = (run_dir.with_name(f"{run_dir.name}-rescued-{n}") for n in range(1, 1000))
        target = next(path for path in beside if not path.exists())
        target.mkdir()
    try:
        for name, data in whole.items():
            if not (target / name).exists():
                write_atomically(target / name, data)
    finally:
        if lock is not None:
            lock.release()
    return target
