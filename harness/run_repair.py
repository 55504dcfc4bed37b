"""Bringing an interrupted run folder back to its last whole row before it is continued."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.meta_checks import refuse_unusable
from harness.schema import (
    BENCH_NAME,
    COLUMNS,
    KEY,
    ROUNDS_NAME,
    SAMPLES_NAME,
    SCHEMA_VERSION,
    WATCH_NAME,
    ResultsError,
    major,
)

_CHUNK = 1 << 20


def read_meta(path: Path) -> dict[str, Any]:
    """Return a run's meta.json.

    Raises ResultsError when the file is missing, is not a JSON object, or names a schema that
    this reader does not know.
    """
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ResultsError(
            f"{path} is missing; a run is bench.csv, rounds.csv and meta.json together"
        ) from None
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} is not readable JSON: {error}; copy the run again") from error
    version = meta.get("schema") if isinstance(meta, dict) else None
    if version is None:
        raise ResultsError(
            f"{path} names no schema; this reader knows {major(SCHEMA_VERSION)}.x: was it written "
            "by this harness?"
        )
    if major(version) != major(SCHEMA_VERSION):
        raise ResultsError(
            f"{path} has schema {version}, this reader knows {major(SCHEMA_VERSION)}.x; use the "
            "harness version that wrote it"
        )
    refuse_unusable(path, meta)
    return dict(meta)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data`; a kill leaves either the old or the new content.

    What is no regular file, such as /dev/stdout or a pipe, is written to and stays what it is.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        with open(path, "wb", buffering=0) as stream:
            stream.write(data)
        return
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:  # a Ctrl-C too
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def whole_lines(data: bytes) -> bytes:
    """Return `data` without a last line that lacks its newline: the one a kill interrupted."""
    return data[: data.rfind(b"\n") + 1]


def held_rows(run_dir: Path) -> list[dict[str, str]]:
    """Return the rows that bench.csv holds whole, none where it is missing.

    Raises ResultsError when its columns or keys are not those of a run of this schema.
    """
    bench = run_dir / BENCH_NAME
    if not bench.exists():
        return []
    text = whole_lines(bench.read_bytes()).decode(errors="replace")
    lines = list(csv.reader(io.StringIO(text, newline="")))
    if lines and tuple(lines[0]) != COLUMNS:
        raise ResultsError(
            f"{bench} has other columns than schema {SCHEMA_VERSION}; choose another folder"
        )
    cut = next((n for n, line in enumerate(lines, 1) if len(line) != len(COLUMNS)), None)
    if cut is not None:
        raise ResultsError(
            f"{bench}: line {cut} has {len(lines[cut - 1])} cells, want {len(COLUMNS)}; repair it "
            "or choose another folder"
        )
    rows = [dict(zip(COLUMNS, line, strict=True)) for line in lines[1:]]
    if len({_key(row) for row in rows}) != len(rows):
        raise ResultsError(f"{bench} holds a key twice; choose another folder")
    return rows


def _key(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(row[c] for c in KEY)


def repair(run_dir: Path) -> set[tuple[str, ...]]:
    """Cut all files back to the last row that bench.csv holds whole; return the rows' keys.

    Does nothing in an empty folder. Raises ResultsError, before it cuts anything, when bench.csv
    is not one of this schema.
    """
    bench = run_dir / BENCH_NAME
    if not bench.exists():
        for name in (ROUNDS_NAME, SAMPLES_NAME, WATCH_NAME):
            (run_dir / name).unlink(missing_ok=True)
        return set()
    rows = held_rows(run_dir)
    _refuse_lost_rounds(run_dir / ROUNDS_NAME, rows)
    _cut_torn_line(bench)
    _cut_rounds(run_dir / ROUNDS_NAME, len(rows))
    _cut_samples(run_dir / SAMPLES_NAME, len(rows))
    if (run_dir / WATCH_NAME).exists():
        _cut_torn_line(run_dir / WATCH_NAME)
    return {_key(row) for row in rows}


def _refuse_lost_rounds(rounds: Path, rows: Sequence[dict[str, str]]) -> None:
    """Raise ResultsError where one of bench.csv's rows has not its rounds: no kill does that."""
    held: Counter[str] = Counter()
    if rounds.exists():
        lines = whole_lines(rounds.read_bytes()).decode(errors="replace").splitlines()[1:]
        held.update(line.partition(",")[0] for line in lines)
    for number, row in enumerate(rows):
        found, wanted = held[str(number)], row["n_rounds"]
        if row["status"] == "ok" and (not found or wanted not in ("", str(found))):
            named = " ".join(row[c] for c in ("op", "case", "dtype", "backend"))
            raise ResultsError(
                f"{rounds} has {found} rounds of row {number} ({named}), want the "
                f"{wanted or 'rounds'} that {BENCH_NAME} names; copy the run again or choose "
                "another folder"
            )


def _cut_torn_line(path: Path) -> None:
    """Remove a last line without its newline from the file."""
    data = path.read_bytes()
    whole = whole_lines(data)
    if len(whole) != len(data):
        os.truncate(path, len(whole))


def _cut_rounds(path: Path, n_rows: int) -> None:
    """Cut the file behind the last line of a row below `n_rows`; rows are in order."""
    if not path.exists():
        return
    data = path.read_bytes()
    end = 0
    for number, line in enumerate(whole_lines(data).splitlines(keepends=True)):
        row = line.partition(b",")[0]
        if number and not row.isdigit():
            raise ResultsError(
                f"{path}: line {number + 1} begins with {row[:20]!r}, want a row's number; repair "
                "it or choose another folder"
            )
        if number and int(row) >= n_rows:
            break
        end += len(line)
    # Never by writing the kept part again: the disk may be full.
    if end != len(data):
        os.truncate(path, end)


def _cut_samples(path: Path, n_rows: int) -> None:
    """Cut the file after its last whole gzip member that belongs to a row below `n_rows`.

    Each row is one member; appending behind a torn member would make the rest unreadable.
    """
    if not path.exists():
        return
    end = 0
    with open(path, "rb") as stream:
        while True:
            head, size = _next_member(stream.read, end, stream.seek)
            row = head.partition(b",")[0]
            if not size or (row.isdigit() and int(row) >= n_rows):
                break
            end += size
    os.truncate(path, end)


def _next_member(read: Any, start: int, seek: Any) -> tuple[bytes, int]:
    """Return a gzip member's first bytes and compressed size; size 0 for a torn one or the end."""
    seek(start)
    unpack = zlib.decompressobj(wbits=31)
    head, size = b"", 0
    while not unpack.eof:
        chunk = read(_CHUNK)
        if not chunk:
            return head, 0
        try:
            text = unpack.decompress(chunk)
        except zlib.error:
            return head, 0
        head = head or text[:32]
        size += len(chunk) - len(unpack.unused_data)
    return head, size
