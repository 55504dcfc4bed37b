"""The commands that measure a comparison's UNCLEAR rows again."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from harness.results import meta_value
from harness.schema import FLUSHES

if TYPE_CHECKING:
    from harness.compare import Comparison

# Backends that a command line can name; a peer's package is not one.
_KNOWN = ("cuda", "triton", "torch", "compile", "library")


def rerun_commands(comparison: Comparison) -> list[str]:
    """Return one command for each case that has UNCLEAR rows, the most of them first."""
    rows = comparison.rows
    unclear = rows[rows["verdict"] == "UNCLEAR"]
    if unclear.empty:
        return []
    options = _options(comparison)
    parts = [
        (len(part), str(op), str(case), part)
        for (op, case), part in unclear.groupby(["op", "case"], sort=False)
    ]
    parts.sort(key=lambda part: -part[0])
    return [_command(op, case, part, comparison.sides, options) for _, op, case, part in parts]


def _command(
    op: str, case: str, rows: pd.DataFrame, sides: Sequence[str], options: Sequence[str]
) -> str:
    words = ["python", "-m", "harness", "bench", "--op", op, "--case", glob.escape(case)]
    for dtype in sorted(set(rows["dtype"])):
        words += ["--dtype", dtype]
    # Rows of two sides have no column that names one.
    backends = set(sides or rows["backend"])
    for backend in sides or sorted(backends & set(_KNOWN)):
        words += ["--backend", backend]
    if backends - {"cuda", "triton", "torch"}:
        words.append("--full")  # which runs the others on every case
    return shlex.join([*words, *options])


def _options(comparison: Comparison) -> list[str]:
    """What both runs were asked for besides cases: another flush or seed would not compare."""
    meta = comparison.runs[0][0].meta
    seed, flush = meta_value(meta, "seed"), meta_value(meta, "flush")
    words = ["--seed", str(seed)] if isinstance(seed, int) else []
    return words + (["--flush", flush] if flush in FLUSHES and flush != "clean" else [])
