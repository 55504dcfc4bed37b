"""A run on disk, for writers and readers: bench.csv, rounds.csv, samples.csv.gz, meta.json.

Reading needs pandas and is checked here; the schema itself is in schema.py, writing in
run_writer.py. All public names are importable from this module.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.run_repair import read_meta, whole_lines
from harness.run_writer import RunWriter
from harness.schema import (
    BENCH_NAME,
    BOUNDS,
    CACHES,
    COLUMNS,
    DTYPES,
    FLAG_COLUMNS,
    FLOAT_COLUMNS,
    INT_COLUMNS,
    KEY,
    META_NAME,
    ROUNDS_COLUMNS,
    ROUNDS_NAME,
    SAMPLES_NAME,
    SCHEMA_VERSION,
    STATUSES,
    ResultsError,
    meta_fact,
    meta_value,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BENCH_NAME",
    "BOUNDS",
    "CACHES",
    "COLUMNS",
    "DTYPES",
    "KEY",
    "META_NAME",
    "ROUNDS_NAME",
    "SAMPLES_NAME",
    "SCHEMA_VERSION",
    "STATUSES",
    "ResultsError",
    "Run",
    "RunWriter",
    "gpu_names",
    "meta_fact",
    "meta_value",
    "read_run",
]

# Columns whose values may be what tells two rows of one key apart, most telling first.
_SUSPECTS = ("gpu", "cache", "dims", "device", "form", "config")


@dataclass(frozen=True, eq=False)
class Run:
    """One run as read: nothing filtered, nothing guessed.

    rows: COLUMNS (and columns of later minor versions), index = row id. Text is str with "" for
    empty, floats are float64 with NaN, whole numbers Int64 and flags boolean with <NA>.
    rounds: row (int), round (int), mean_us (float). truncated: the last line of bench.csv was
    torn and is left out.
    """

    path: Path
    rows: pd.DataFrame
    rounds: pd.DataFrame
    meta: dict[str, Any]
    truncated: bool = False

    @property
    def complete(self) -> bool:
        """True when the writer finished this run and no line was torn since."""
        return self.meta.get("complete") is True and not self.truncated


def read_run(path: Path | str) -> Run:
    """Read a run from its folder, or from the bench.csv in it.

    Raises ResultsError for missing files, a schema of another major version, missing columns,
    cells of the wrong kind and keys that occur twice.
    """
    folder = Path(path)
    if folder.name == BENCH_NAME and not folder.is_dir():
        folder = folder.parent
    if not folder.is_dir():
        raise ResultsError(f"{path} is not a run folder; want a folder that holds {BENCH_NAME}")
    bench, bench_torn = _read_text(folder / BENCH_NAME)
    meta = read_meta(folder / META_NAME)
    rows = _read_rows(folder / BENCH_NAME, bench)
    rounds_text, _ = _read_text(folder / ROUNDS_NAME)
    rounds = _read_csv(
        folder / ROUNDS_NAME,
        rounds_text,
        ROUNDS_COLUMNS,
        {"row": "int64", "round": "int64", "mean_us": "float64"},
    )
    # The row in progress may have rounds already; its bench.csv line is what makes it a row.
    rounds = rounds[rounds["row"] < len(rows)].reset_index(drop=True)
    _refuse_duplicates(folder / BENCH_NAME, rows)
    return Run(folder, rows, rounds, meta, bench_torn)


def gpu_names(run: Run) -> list[str]:
    """Return the GPU model names that a run's rows and meta name, sorted, each once.

    Empty when none is recorded. The device index is no part of a name.
    """
    names = {str(name) for name in run.rows["gpu"].unique() if name}
    recorded = meta_fact(run.meta, "gpu name")
    return sorted(names | ({str(recorded)} if recorded else set()))


def varying(rows: pd.DataFrame, columns: Sequence[str]) -> dict[str, set[str]]:
    """Column -> the ops whose rows differ in it: only there does naming its value tell anything."""
    return {
        column: {str(op) for op, count in rows.groupby("op")[column].nunique().items() if count > 1}
        for column in columns
    }


def _read_text(path: Path) -> tuple[bytes, bool]:
    """Return a CSV file's whole lines and whether a torn last line was dropped."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ResultsError(
            f"{path} is missing; a run is bench.csv, rounds.csv and meta.json together"
        ) from None
    except OSError as error:
        raise ResultsError(f"cannot read {path}: {error.strerror}") from error
    whole = whole_lines(data)
    return whole, len(whole) != len(data)


def _read_rows(path: Path, text: bytes) -> pd.DataFrame:
    kinds: dict[str, str] = {}
    for column in COLUMNS:
        kind = "Int64" if column in INT_COLUMNS else "str"
        kinds[column] = "float64" if column in FLOAT_COLUMNS else kind
    rows = _read_csv(path, text, COLUMNS, kinds)
    for column in sorted(FLAG_COLUMNS):
        rows[column] = _flags(path, rows[column])
    bad = sorted(set(rows["status"].unique()) - set(STATUSES))
    if bad:
        raise ResultsError(
            f"{path}: status {bad[0]!r} is not one of {', '.join(STATUSES)}; repair the file"
        )
    return rows


def _flags(path: Path, texts: pd.Series[str]) -> pd.Series[bool]:
    """Return "1"/"0"/"" as a nullable boolean column; spreadsheets' True/False are accepted."""
    known = {"1": True, "0": False, "true": True, "false": False, "": None}
    lowered = texts.str.lower()
    bad = sorted(set(lowered.unique()) - set(known))
    if bad:
        raise ResultsError(f"{path}: column {texts.name}: got {bad[0]!r}, want 1, 0 or empty")
    return lowered.map(known).astype("boolean")


def _read_csv(
    path: Path, text: bytes, columns: Sequence[str], kinds: dict[str, str]
) -> pd.DataFrame:
    """Parse a CSV without losing a digit; raises ResultsError that names the column at fault."""
    try:
        import pandas as pd
    except ImportError:
        raise ResultsError(
            "reading results needs pandas; install it with: pip install pandas"
        ) from None
    header = text.decode("utf-8-sig", errors="replace").partition("\n")[0].strip().split(",")
    missing = [c for c in columns if c not in header]
    if missing:
        raise ResultsError(
            f"{path} lacks the column {', '.join(missing)}; schema {SCHEMA_VERSION} wants "
            f"{len(columns)} columns: was it written by this harness?"
        )
    # Columns that this version does not know are kept as text. Floats go through Python's own
    # parser: the CSV reader's default is off by a last bit in some pandas versions.
    dtypes: dict[str, Any] = {name: kinds.get(name, "str") for name in header}
    floats = [name for name in header if dtypes[name] == "float64"]
    dtypes |= dict.fromkeys(floats, "str")
    empty = {name: [""] for name in header if dtypes[name] != "str"}
    try:
        table = pd.read_csv(
            io.BytesIO(text),
            dtype=dtypes,
            na_values=empty,
            keep_default_na=False,
            encoding="utf-8-sig",
        )
        for name in floats:
            cells = table[name].to_numpy(dtype=object)
            table[name] = [float(c) if c else math.nan for c in cells]
            table[name] = table[name].astype("float64")
        return table
    except (ValueError, TypeError) as error:
        raise ResultsError(
            f"{path} does not parse: {' '.join(str(error).split())}; repair or copy it again"
        ) from error


def _refuse_duplicates(path: Path, rows: pd.DataFrame) -> None:
    twice = rows[rows.duplicated(list(KEY), keep=False)]
    if twice.empty:
        return
    first = "/".join(str(v) for v in twice.iloc[0][list(KEY)] if v)
    groups = twice.groupby(list(KEY), sort=False)
    column = next((c for c in _SUSPECTS if (groups[c].nunique() > 1).any()), None)
    values = [] if column is None else sorted(map(str, twice[column].unique()))
    hint = (
        f"their column {column} differs ({', '.join(values[:4])}): keep one value of it"
        if column
        else "remove the copies"
    )
    raise ResultsError(f"{path}: {len(twice)} rows share a key with another ({first}); {hint}")
