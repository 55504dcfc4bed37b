"""Writing one run's folder so that a kill, a full disk or a second writer costs at most one row."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from harness import run_repair, run_rescue
from harness.run_checks import check_rounds, round_cells
from harness.run_folder import earlier_meta, refuse_held
from harness.run_lock import RunLock
from harness.schema import (
    BENCH_NAME,
    COLUMNS,
    KEY,
    META_NAME,
    ROUNDS_COLUMNS,
    ROUNDS_NAME,
    SAMPLES_COLUMNS,
    SAMPLES_NAME,
    SCHEMA_VERSION,
    ResultsError,
    row_cells,
)


def _csv_bytes(lines: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue().encode()


def _merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return `old` updated by `new`, folder by folder: a resume keeps earlier cases' clocks."""
    merged = dict(old)
    for name, value in new.items():
        before = merged.get(name)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        merged[name] = _merge(before, value) if both else value  # type: ignore[arg-type]
    return merged


class RunWriter:
    """Appends rows to one run folder; only one writer at a time, in one process.

    A row's samples and round means reach the disk before its line in bench.csv does, so a row
    that a reader sees always has its rounds. Row ids are 0-based positions in bench.csv.
    """

    def __init__(self, run_dir: Path, meta: dict[str, Any], lock: RunLock, keys: set[Any]) -> None:
        """Use RunWriter.create; this only stores what it prepared."""
        self.run_dir = run_dir
        self._meta = meta
        self._lock = lock
        self._keys = keys
        # Unbuffered: a failed write must not be tried again when the object is collected.
        # Readable: a folder that is deleted meanwhile is put back from what is still open.
        self._files: dict[str, BinaryIO] = {
            name: open(run_dir / name, "a+b", buffering=0)  # noqa: SIM115  # closed in close()
            for name in (SAMPLES_NAME, ROUNDS_NAME, BENCH_NAME)
        }
        # Up to here the files hold whole rows.
        self._sizes = {name: os.fstat(f.fileno()).st_size for name, f in self._files.items()}

    @classmethod
    def create(cls, run_dir: Path, meta: Mapping[str, Any], resume: bool = False) -> RunWriter:
        """Start a run in `run_dir`, or continue the one in it when `resume` is true.

        `meta` is JSON-able; the schema version and `complete: false` are added.
        Raises ResultsError when the folder holds a run and resume is false, when another writer
        has it, when the earlier rows come from another machine or have another schema, or when
        it cannot be written.
        """
        run_dir = Path(run_dir)
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
            lock = RunLock(run_dir)
        except OSError as error:
            raise ResultsError(
                f"cannot write {run_dir}: {error.strerror or error}; choose another --out"
            ) from error
        try:
            refuse_held(run_dir, resume)
            return cls._open(run_dir, dict(meta), lock)
        except OSError as error:
            lock.release()
            raise _cannot_write(run_dir, error) from error
        except BaseException:
            lock.release()
            raise

    @classmethod
    def _open(cls, run_dir: Path, meta: dict[str, Any], lock: RunLock) -> RunWriter:
        earlier = earlier_meta(run_dir, meta)
        began = {key: earlier[key] for key in ("started_utc",) if key in earlier}
        meta = _merge(earlier, meta) | began
        keys = run_repair.repair(run_dir)
        # First of all: a folder with meta.json is one that --resume can go on with.
        run_repair.write_atomically(run_dir / META_NAME, _meta_bytes(meta, complete=False))
        writer = cls(run_dir, meta, lock, keys)
        try:
            writer._start_files()
        except BaseException:
            writer.close()
            raise
        return writer

    @property
    def done_keys(self) -> set[tuple[str, ...]]:
        """The KEY tuples of all rows in bench.csv, whatever their status."""
        return set(self._keys)

    def append(
        self,
        row: Mapping[str, object],
        rounds: Sequence[Sequence[float | None]] = (),
        samples_us: Sequence[Sequence[float]] = (),
    ) -> int:
        """Write one row, its rounds and its samples (one sequence a round); return its id.

        rounds: one `Round` each, or its leading values as a plain sequence, such as JSON's list.
        samples_us: microseconds. Raises ResultsError for a row that breaks the schema (nothing is
        written then) and for a failing disk (the files are cut back to the last whole row).
        """
        cells = row_cells(row)
        key = tuple(cells[COLUMNS.index(c)] for c in KEY)
        if key in self._keys:
            raise ResultsError(f"row {'/'.join(key)} is in the run already; each key is kept once")
        lines = [round_cells(values) for values in rounds]
        check_rounds(cells[COLUMNS.index("status")], [float(m) for m, *_ in lines], samples_us)
        row_id = len(self._keys)
        means = [(str(row_id), str(r), *line) for r, line in enumerate(lines)]
        times = [
            (str(row_id), str(r), repr(float(t))) for r, ts in enumerate(samples_us) for t in ts
        ]
        packed = gzip.compress(_csv_bytes(times), mtime=0) if times else b""
        self._commit(
            {SAMPLES_NAME: packed, ROUNDS_NAME: _csv_bytes(means), BENCH_NAME: _csv_bytes([cells])}
        )
        self._keys.add(key)
        return row_id

    @property
    def meta(self) -> dict[str, Any]:
        """What meta.json holds: of a resumed run, what its earlier part recorded."""
        return self._meta

    def record(self, meta: Mapping[str, Any]) -> None:
        """Merge `meta` into meta.json of the run, which stays incomplete."""
        self._meta = _merge(self._meta, meta)
        try:
            self._write_meta(complete=False)
        except OSError as error:
            raise _cannot_write(self.run_dir, error) from error

    def finish(self, meta: Mapping[str, Any] | None = None) -> None:
        """Merge `meta` into what create() got, mark the run complete, and close it."""
        self._meta = _merge(self._meta, meta or {})
        try:
            self._write_meta(complete=True)
        except OSError as error:
            raise _cannot_write(self.run_dir, error) from error
        finally:
            self.close()

    def close(self) -> None:
        """Release the files and the lock; without finish() the run stays incomplete."""
        for stream in self._files.values():
            with contextlib.suppress(OSError):  # every row was synchronised when it was written
                stream.close()
        self._lock.release()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start_files(self) -> None:
        headers = {
            SAMPLES_NAME: gzip.compress(_csv_bytes([SAMPLES_COLUMNS]), mtime=0),
            ROUNDS_NAME: _csv_bytes([ROUNDS_COLUMNS]),
            BENCH_NAME: _csv_bytes([COLUMNS]),
        }
        self._commit({name: header for name, header in headers.items() if not self._sizes[name]})

    def _commit(self, chunks: Mapping[str, bytes]) -> None:
        """Append each chunk to its file in the order given, each on disk before the next."""
        self._refuse_lost()
        try:
            self._cut_back()  # what an earlier, failing write left and could not cut itself
            for name, chunk in chunks.items():
                view = memoryview(chunk)
                while view:
                    view = view[self._files[name].write(view) :]
                os.fsync(self._files[name].fileno())
        except BaseException as error:  # a Ctrl-C too
            with contextlib.suppress(OSError):  # the next row, or --resume, repairs what is left
                self._cut_back()
            if isinstance(error, OSError):
                raise _cannot_write(self.run_dir, error) from error
            raise
        for name, chunk in chunks.items():
            self._sizes[name] += len(chunk)

    def _cut_back(self) -> None:
        """Cut every file that is longer than its whole rows."""
        for name, stream in self._files.items():
            if os.fstat(stream.fileno()).st_size > self._sizes[name]:
                os.ftruncate(stream.fileno(), self._sizes[name])

    def _refuse_lost(self) -> None:
        """Raise ResultsError when the folder's files are not those that are open here; what was
        deleted is put back first."""
        if not run_rescue.lost(self.run_dir, self._files, self._lock):
            return
        try:
            whole = {n: os.pread(f.fileno(), self._sizes[n], 0) for n, f in self._files.items()}
        except OSError as error:
            raise _cannot_write(self.run_dir, error) from error
        whole[META_NAME] = _meta_bytes(self._meta, complete=False)
        raise run_rescue.rescue(self.run_dir, self._files, self._lock, whole, len(self._keys))

    def _write_meta(self, complete: bool) -> None:
        self._refuse_lost()
        run_repair.write_atomically(self.run_dir / META_NAME, _meta_bytes(self._meta, complete))


def _meta_bytes(meta: Mapping[str, Any], complete: bool) -> bytes:
    facts = {k: v for k, v in meta.items() if k not in ("schema", "complete")}
    body = {"schema": SCHEMA_VERSION, **facts, "complete": complete}
    try:
        return (json.dumps(body, indent=2, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise ResultsError(
            f"meta is not JSON: {error}; pass numbers, strings, lists, None"
        ) from error


def _cannot_write(run_dir: Path, error: OSError) -> ResultsError:
    then = "free space or permissions, or choose another --out"
    if (run_dir / META_NAME).exists():
        then = (
            "rows written so far are kept: free space or permissions, then continue with --resume "
            f"--out {run_dir}"
        )
    return ResultsError(f"cannot write {run_dir}: {error.strerror or error}; {then}")
