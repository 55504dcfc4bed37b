"""The table that aa.csv holds: a line for each row in each process, with all its rounds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness import stats
from harness.schema import KEY

ROW = [*KEY, "dims"]
COLUMNS = (
    "process",
    *ROW,
    "status",
    "reason",
    "cache",
    "flush",
    "config",
    "kernel_hash",
    "throttled",
    "warnings",
    "n_rounds",
    "time_us_p50",
    "mean_us",
    "round_means_us",
    "round_sm_mhz",
)


def table_line(
    process: int,
    row: Mapping[str, Any],
    means_us: Sequence[float],
    sm_mhz: Sequence[float | None] = (),
) -> list[Any]:
    """Return one line of the table in COLUMNS order.

    `row`: the columns of bench.csv. `means_us`, `sm_mhz`: of each round, the clock None where it
    is unknown; both are kept whole. `mean_us` is the geometric mean over blocks of rounds, the one
    that ratios of times are made of.
    """
    clocks = [math.nan if mhz is None else mhz for mhz in sm_mhz] or [math.nan] * len(means_us)
    blocks = stats.block_means(np.log(means_us))
    own = {
        "process": process,
        "n_rounds": len(means_us),
        "mean_us": float(np.exp(blocks.mean())) if blocks.size else math.nan,
        "round_means_us": _joined(means_us),
        "round_sm_mhz": _joined(clocks),
    }
    text = dict.fromkeys(COLUMNS, "") | {"time_us_p50": math.nan}
    found = {c: row[c] for c in COLUMNS if row.get(c) is not None}
    return list((text | found | own).values())


def _joined(values: Sequence[float]) -> str:
    return ";".join(repr(float(value)) for value in values)


def _split(text: str) -> list[float]:
    return [float(value) for value in text.split(";") if value]


def read_table(path: Path) -> pd.DataFrame:
    """Return aa.csv as it was measured, to the last digit; unknown text is "", numbers NaN."""
    table: pd.DataFrame = pd.read_csv(path, keep_default_na=False, dtype=str)
    # Python's own parser: pandas' is off by a last bit in some versions.
    for column in ("time_us_p50", "mean_us"):
        table[column] = [float(text or "nan") for text in table[column]]
    for column in ("process", "n_rounds"):
        table[column] = table[column].astype("int64")
    return table


def side_of(table: pd.DataFrame, process: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return one process as a run: its rows, and its rounds by row id."""
    rows = table[table["process"] == process].reset_index(drop=True).assign(bound="")
    means, clocks = ([_split(t) for t in rows[c]] for c in ("round_means_us", "round_sm_mhz"))
    ids = np.repeat(np.arange(len(rows)), [len(row) for row in means])
    every = {"mean_us": itertools.chain(*means), "sm_mhz": itertools.chain(*clocks)}
    return rows, pd.DataFrame({"row": ids} | {name: list(v) for name, v in every.items()})
