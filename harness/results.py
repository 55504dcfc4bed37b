"""A run on disk, for writers and readers: bench.csv, rounds.csv, samples.csv.gz, meta.json.

Reading needs pandas and is checked here; the schema itself is in schema.py, writing in
run_writer.py. All public names are importable from this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.csv_read import flags, read_csv, read_text
from harness.run_repair import read_meta
from harness.run_writer import RunWriter
from harness.schema import (
    BENCH_NAME,
    BOUNDS,
    CACHES,
    COLUMNS,
    DTYPES,
    FLAG_COLUMNS,
    FLOAT_COLUMNS,
    FLUSHES,
    INT_COLUMNS,
    KEY,
    META_NAME,
    ROUNDS_COLUMNS,
    ROUNDS_NAME,
    SAMPLES_NAME,
    SCHEMA_VERSION,
    SINCE_MINOR,
    STATUSES,
    WATCH_COLUMNS,
    WATCH_NAME,
    ResultsError,
    meta_fact,
    meta_value,
    minor,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BENCH_NAME",
    "BOUNDS",
    "CACHES",
    "COLUMNS",
    "DTYPES",
    "FLUSHES",
    "KEY",
    "META_NAME",
    "ROUNDS_NAME",
    "SAMPLES_NAME",
    "SCHEMA_VERSION",
    "STATUSES",
    "WATCH_NAME",
    "ResultsError",
    "Run",
    "RunWriter",
    "gpu_names",
    "meta_fact",
    "meta_value",
    "read_run",
    "read_watch",
]

# Columns whose values may be what tells two rows of one key apart, most telling first.
_SUSPECTS = ("gpu", "cache", "flush", "dims", "device", "form", "config")


@dataclass(frozen=True, eq=False)
class Run:
    """One run as read: nothing filtered, nothing guessed.

    rows: COLUMNS (and columns of later minor versions), index = row id. Text is str with "" for
    empty, floats are float64 with NaN, whole numbers Int64 and flags boolean with <NA>.
    rounds: row (int), round (int), mean_us, utc_s, sm_mhz (float), in that order. Columns that
    came after the run's schema are unknown throughout; `flush` then comes from the meta.
    truncated: the last line of bench.csv was torn and is left out.
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

    Raises ResultsError for missing files, a schema of another major version, columns missing that
    the run's version has, cells of the wrong kind and keys that occur twice.
    """
    folder = Path(path)
    if folder.name == BENCH_NAME and not folder.is_dir():
        folder = folder.parent
    if not any((folder / name).exists() for name in (BENCH_NAME, META_NAME)):
        what = f"holds no {BENCH_NAME}" if folder.is_dir() else "is no folder"
        what = what if folder.exists() else "does not exist"
        raise ResultsError(f"{folder} {what}; want a run's folder, such as results/<gpu>/<time>")
    bench, bench_torn = read_text(folder / BENCH_NAME)
    meta = read_meta(folder / META_NAME)
    rows = _read_rows(folder / BENCH_NAME, bench, meta)
    rounds_text, _ = read_text(folder / ROUNDS_NAME)
    rounds = read_csv(
        folder / ROUNDS_NAME,
        rounds_text,
        ROUNDS_COLUMNS,
        {"row": "int64", "round": "int64"} | dict.fromkeys(ROUNDS_COLUMNS[2:], "float64"),
        meta["schema"],
    )
    # The row in progress may have rounds already; its bench.csv line is what makes it a row.
    rounds = rounds[rounds["row"] < len(rows)]
    _refuse_impossible_rounds(folder / ROUNDS_NAME, rounds)
    # As measured: neighbours are judged together.
    rounds = rounds.sort_values(["row", "round"], kind="stable", ignore_index=True)
    _refuse_duplicates(folder / BENCH_NAME, rows)
    _refuse_impossible_times(folder / BENCH_NAME, rows)
    return Run(folder, rows, rounds, meta, bench_torn)


def _refuse_impossible_rounds(path: Path, rounds: pd.DataFrame) -> None:
    negative = rounds[(rounds["row"] < 0) | (rounds["round"] < 0)]
    twice = rounds[rounds.duplicated(["row", "round"])]
    for part, what in ((negative, "which is below 0"), (twice, "twice")):
        if not part.empty:
            first = part.iloc[0]
            raise ResultsError(
                f"{path} has row {first['row']:.0f}, round {first['round']:.0f}, {what}; want each "
                "round of each row once, as this harness writes them"
            )


def read_watch(run: Run) -> pd.DataFrame:
    """Read what NVML saw while `run` went on: WATCH_COLUMNS, a line a poll, in order of time.

    Numbers are float64 with NaN, reasons text. Empty when the run has no such file. Raises
    ResultsError for missing columns and cells of the wrong kind.
    """
    path = run.path / WATCH_NAME
    text = read_text(path)[0] if path.exists() else b""
    numbers = dict.fromkeys((c for c in WATCH_COLUMNS if c != "reasons"), "float64")
    header = ",".join(WATCH_COLUMNS).encode()
    table = read_csv(path, text or header, WATCH_COLUMNS, numbers, run.meta["schema"])
    ordered: pd.DataFrame = table.sort_values("utc_s", kind="stable", ignore_index=True)
    return ordered


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


def _read_rows(path: Path, text: bytes, meta: dict[str, Any]) -> pd.DataFrame:
    kinds: dict[str, str] = {}
    for column in COLUMNS:
        kind = "Int64" if column in INT_COLUMNS else "str"
        kinds[column] = "float64" if column in FLOAT_COLUMNS else kind
    rows = read_csv(path, text, COLUMNS, kinds, meta["schema"])
    if minor(meta["schema"]) < SINCE_MINOR["flush"] and meta.get("flush") in FLUSHES:
        rows["flush"] = rows["flush"].mask(rows["cache"] == "cold", meta["flush"])
    for column in sorted(FLAG_COLUMNS):
        rows[column] = flags(path, rows[column])
    bad = sorted(set(rows["status"].unique()) - set(STATUSES))
    if bad:
        raise ResultsError(
            f"{path}: status {bad[0]!r} is not one of {', '.join(STATUSES)}; repair the file"
        )
    return rows


def _refuse_impossible_times(path: Path, rows: pd.DataFrame) -> None:
    ok = rows[rows["status"] == "ok"]
    bad = ok[~(ok["time_us_p50"] > 0)]
    if len(bad):
        first = bad.iloc[0]
        raise ResultsError(
            f"{path}: the ok row {first['op']} {first['case']} {first['dtype']} "
            f"{first['backend']} has the time {first['time_us_p50']}, want one above 0; copy the "
            "run again"
        )
    edited = ok[(ok["time_us_p50"] < ok["time_us_p20"]) | (ok["time_us_p50"] > ok["time_us_p80"])]
    if len(edited):
        first = edited.iloc[0]
        raise ResultsError(
            f"{path}: the ok row {first['op']} {first['case']} {first['dtype']} "
            f"{first['backend']} has time_us_p50 {first['time_us_p50']}, outside its time_us_p20 "
            f"{first['time_us_p20']} to time_us_p80 {first['time_us_p80']}; copy the run again"
        )


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
