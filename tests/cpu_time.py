"""CPU time as a test can judge it on any machine: against work whose speed is pandas' own.

An absolute limit fails on a slow or busy machine, and where it does not, hides a slower program.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness.schema import BENCH_NAME, ROUNDS_NAME


def seconds_of(work: Callable[[], Any]) -> float:
    """CPU time of this process for one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def times_of_pandas(work: Callable[[], Any], runs: Sequence[Path], repeats: int = 2) -> float:
    """CPU time of `work`, as a multiple of what pandas takes to read the tables of `runs` and to
    write one of them; the quickest of both, taken in turns, since neighbours slow either."""

    def read_and_write() -> None:
        tables = [pd.read_csv(run / name) for run in runs for name in (BENCH_NAME, ROUNDS_NAME)]
        tables[0].to_csv(io.StringIO())

    pairs = [(seconds_of(work), seconds_of(read_and_write)) for _ in range(repeats)]
    ours, yardstick = (min(times) for times in zip(*pairs, strict=True))
    return ours / yardstick
