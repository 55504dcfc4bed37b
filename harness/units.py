"""The unit of every column of a run's tables, as docs/results-schema.md has them.

Standard library only.
"""

from __future__ import annotations

from harness.schema import COLUMNS, FLAG_COLUMNS, ROUNDS_COLUMNS, TEXT_COLUMNS

# What a name's ending says; the exceptions are below.
_BY_ENDING = {"_us": "µs", "_ms": "ms", "_pct": "%", "_err": "value"}
_BY_NAME = {
    "device": "integer",
    "n_samples": "count",
    "n_rounds": "count",
    "n_outliers": "count",
    "bytes_read": "bytes",
    "bytes_written": "bytes",
    "bytes_model": "bytes",
    "flops": "flop",
    "gbps": "1e9 bytes/s",
    "tflops": "1e12 flop/s",
    "pct_roof": "%",
    "speedup_vs_torch": "ratio",
    "max_rel_err": "ratio",
    "tolerance": "value",
    "sm_mhz_p50": "MHz",
    "sm_mhz": "MHz",
    "registers": "count",
    "spill_bytes": "bytes",
    "shared_bytes": "bytes",
    "row": "number",
    "round": "number",
    "utc_s": "s",
}


def unit(column: str) -> str:
    """Return a column's unit; "text" for columns that this schema does not know."""
    if column in _BY_NAME:
        return _BY_NAME[column]
    if column in FLAG_COLUMNS:
        return "1 or 0"
    if column in TEXT_COLUMNS:
        return "text"
    if column.startswith("time_us_") or "_us_" in column:
        return "µs"
    return next((u for ending, u in _BY_ENDING.items() if column.endswith(ending)), "text")


BENCH_UNITS = {column: unit(column) for column in COLUMNS}
ROUNDS_UNITS = {column: unit(column) for column in ROUNDS_COLUMNS}
