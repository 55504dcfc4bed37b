"""What a results folder contains: column names, kinds, allowed values, and one cell as text.

Standard library only: a GPU box without pandas must still be able to write its results.
docs/results-schema.md explains every column; tests/test_results.py keeps the two equal.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any, NamedTuple, SupportsIndex

SCHEMA_VERSION = "1.1"

BENCH_NAME = "bench.csv"
ROUNDS_NAME = "rounds.csv"
SAMPLES_NAME = "samples.csv.gz"
WATCH_NAME = "watch.csv"
META_NAME = "meta.json"

# Order is part of the schema: adding a column raises the minor version, changing the meaning of
# one raises the major version, and both get a line in CHANGELOG.md.
COLUMNS: tuple[str, ...] = tuple(
    """
    op family case dims distribution dtype math_mode backend variant headline form config
    config_source gpu device status reason cache flush n_samples n_rounds n_outliers precision_pct
    time_us_p50 time_us_p20 time_us_p80 time_us_min time_us_mean time_us_std ci_low_us ci_high_us
    graph_us_p50 host_us_p50 first_call_ms compile_ms bytes_read bytes_written bytes_model flops
    gbps tflops bound roof_name roof_us pct_roof speedup_vs_torch max_abs_err max_rel_err tolerance
    sm_mhz_p50 throttled registers spill_bytes shared_bytes kernel_symbol kernel_hash warnings
    """.split()  # noqa: SIM905  # one word a name reads better than 60 quotes
)
ROUNDS_COLUMNS = ("row", "round", "mean_us", "utc_s", "sm_mhz")
SAMPLES_COLUMNS = ("row", "round", "time_us")
WATCH_COLUMNS = ("utc_s", "watts", "celsius", "sm_mhz", "reasons", "other_processes")

# The minor version that brought a column of bench.csv or rounds.csv; the others came with 1.0.
# A run of an earlier version lacks it rightly: its readers fill it with unknown.
SINCE_MINOR = {"flush": 1, "n_outliers": 1, "utc_s": 1, "sm_mhz": 1}

# What makes a row one row: a run holds each combination once.
KEY = ("op", "case", "distribution", "dtype", "math_mode", "backend", "variant")

STATUSES = (
    "ok",
    "mismatch",
    "unsupported",
    "absent",
    "oom",
    "error",
    "timeout",
    "invalid",
    "untimed",
)
# Those that say something is wrong, not merely absent or unmeasured.
FAILED = ("mismatch", "error", "timeout", "invalid", "oom")
# Mark in `warnings`: something, mostly the power limit, held the SM clock down.
CLOCK_LIMITED = "clock_limited"
# As a pattern, with the name that the mark had first.
CLOCK_LIMITED_MARKS = "clock_limited|power_limited"
BOUNDS = ("memory", "compute", "launch", "class")
CACHES = ("cold", "warm")
FLUSHES = ("clean", "write", "none")
DTYPES = ("f32", "f16", "bf16", "f8e4m3", "i8", "i32", "i64", "u8", "u32")

FLAG_COLUMNS = frozenset({"headline", "throttled"})
INT_COLUMNS = frozenset(
    """
    device n_samples n_rounds n_outliers bytes_read bytes_written bytes_model registers
    spill_bytes shared_bytes
    """.split()  # noqa: SIM905  # one word a name reads better than 60 quotes
)
FLOAT_COLUMNS = frozenset(
    """
    precision_pct time_us_p50 time_us_p20 time_us_p80 time_us_min time_us_mean time_us_std
    ci_low_us ci_high_us graph_us_p50 host_us_p50 first_call_ms compile_ms flops gbps tflops
    roof_us pct_roof speedup_vs_torch max_abs_err max_rel_err tolerance sm_mhz_p50
    """.split()  # noqa: SIM905  # one word a name reads better than 60 quotes
)
TEXT_COLUMNS = frozenset(COLUMNS) - FLAG_COLUMNS - INT_COLUMNS - FLOAT_COLUMNS
TIME_COLUMNS = tuple(c for c in COLUMNS if c.startswith("time_us_") or c.startswith("ci_"))

# Facts about the machine and the software: name -> where meta.json may hold it, first match wins.
META_FACTS: dict[str, tuple[str, ...]] = {
    "gpu name": ("gpu.name",),
    "gpu id": ("gpu.uuid_sha256",),
    "driver": ("driver",),
    "CUDA": ("cuda",),
    "nvcc": ("nvcc", "extension.nvcc"),
    "nvcc's ptxas": ("nvcc_ptxas", "extension.ptxas"),
    "nvcc flags": ("flags", "extension.flags"),
    "torch": ("torch",),
    "triton": ("triton",),
    "triton's ptxas": ("triton_ptxas",),
    "Python": ("python",),
    "git commit": ("git_commit",),
    "git dirty": ("git_dirty",),
    "seed": ("seed",),
    "effort": ("settings",),
    "flush": ("flush",),
    "clocks": ("gpu_health",),
}


_REQUIRED = ("op", "case", "dtype", "backend", "status")
_ALLOWED = {
    "status": STATUSES,
    "bound": ("", *BOUNDS),
    "cache": ("", *CACHES),
    "flush": ("", *FLUSHES),
    "dtype": DTYPES,
}


class Round(NamedTuple):
    """One row's part of one interleaved round.

    mean_us: mid-mean of the round's samples, microseconds. utc_s: seconds since the epoch at the
    end of the round's batch. sm_mhz: SM clock around that batch. None: not recorded.
    """

    mean_us: float
    utc_s: float | None = None
    sm_mhz: float | None = None


class ResultsError(Exception):
    """A results folder cannot be written or read; the text is one line that says what to do."""


def major(version: object) -> str:
    """Return the part of a schema version that a reader must know."""
    return str(version).partition(".")[0]


def minor(version: object) -> int:
    """Return the part of a schema version that counts added columns; 0 where it names none."""
    digits = str(version).partition(".")[2].partition(".")[0]
    return int(digits) if digits.isdigit() else 0


def meta_value(meta: Mapping[str, Any], dotted: str) -> Any:
    """Return the entry of `meta` at a dotted path such as "gpu.name", or None when unrecorded.

    An empty string counts as unrecorded, so that nobody compares "" with a version.
    """
    value: Any = meta
    for part in dotted.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return None if value == "" else value


def meta_fact(meta: Mapping[str, Any], name: str) -> Any:
    """Return one of META_FACTS from `meta`, or None when it is not recorded."""
    found = (meta_value(meta, path) for path in META_FACTS[name])
    return next((value for value in found if value is not None), None)


def cell(column: str, value: object) -> str:
    """Return one bench.csv cell: raw, nothing rounded, "" for unknown (None, NaN, infinity).

    Raises ResultsError when the value does not fit the column's kind.
    """
    if value is None or (isinstance(value, str) and value == ""):
        return ""
    if column in TEXT_COLUMNS:
        # One row is one line: a reader finds a torn last line by its missing newline alone.
        return " ".join(str(value).split("\n")).replace("\r", " ").replace("\0", " ").strip()
    try:
        number = float(value)  # type: ignore[arg-type]  # anything with __float__, NumPy included
    except (TypeError, ValueError):
        raise ResultsError(
            f"column {column}: got {value!r}, want a number or None; fix the row's producer"
        ) from None
    if not math.isfinite(number):
        return ""
    if column in FLOAT_COLUMNS:
        return repr(number)
    if column in FLAG_COLUMNS and number in (0.0, 1.0):
        return str(int(number))
    if column in INT_COLUMNS and number == int(number):
        # The float above has lost digits beyond 2^53; integers of any library keep theirs.
        return str(operator.index(value) if isinstance(value, SupportsIndex) else int(number))
    kind = "0, 1 or None" if column in FLAG_COLUMNS else "a whole number or None"
    raise ResultsError(f"column {column}: got {value!r}, want {kind}; fix the row's producer")


def row_cells(row: Mapping[str, object]) -> list[str]:
    """Return a row's cells in COLUMNS order; a column that `row` lacks is unknown.

    Raises ResultsError for unknown columns, values outside the allowed sets, and rows that claim
    status ok without a positive finite time.
    """
    unknown = sorted(set(row) - set(COLUMNS))
    if unknown:
        raise ResultsError(
            f"unknown column {', '.join(unknown)}; schema {SCHEMA_VERSION} has no such name: "
            "see docs/results-schema.md"
        )
    cells = {column: cell(column, row.get(column)) for column in COLUMNS}
    for column in _REQUIRED:
        if not cells[column]:
            raise ResultsError(f"column {column} is empty; every row needs {', '.join(_REQUIRED)}")
    for column, allowed in _ALLOWED.items():
        if cells[column] not in allowed:
            raise ResultsError(
                f"column {column}: got {cells[column]!r}, want one of "
                f"{', '.join(a for a in allowed if a)}"
            )
    if cells["status"] == "ok":
        _check_ok_times(row)
    return list(cells.values())


def _check_ok_times(row: Mapping[str, object]) -> None:
    """Refuse an ok row with a time that cannot be: it must carry status invalid instead."""
    for column in TIME_COLUMNS:
        value = row.get(column)
        if value is None or value == "":
            if column == "time_us_p50":
                raise ResultsError(
                    "column time_us_p50 is empty in an ok row; use status untimed or invalid"
                )
            continue
        number = float(value)  # type: ignore[arg-type]  # cell() has accepted it already
        # A spread may be 0 and an interval may reach below 0; a time may not.
        positive = number > 0 or column in ("time_us_std", "ci_low_us")
        if not math.isfinite(number) or not positive:
            raise ResultsError(
                f"column {column}: got {value!r} in an ok row, want a finite time above 0; "
                "use status invalid and put the raw value into reason"
            )
