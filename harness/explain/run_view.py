"""A run's rows beside the kernels that were timed; what does not join is shown, not hidden."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..schema import BENCH_NAME
from .book import FACTS_NAME, read, row_key
from .facts import ExplainError, KernelFacts


def lines(run: Path, ops: Sequence[str] = (), side: str = "") -> list[str]:
    """A line a row and kernel. Raises ExplainError for a folder without facts.json."""
    folder = run if run.is_dir() else run.parent
    _, kernels, rows = read(folder / FACTS_NAME)
    text = []
    for row in _rows(folder / BENCH_NAME):
        if row["status"] != "ok" or (ops and row["op"] not in ops):
            continue
        if side and row["backend"] != side:
            continue
        label = f"{row['op']} {row['case']} {row['dtype']} {row['backend']}"
        entry = rows.get(row_key(row))
        text += [f"{label}: {part}" for part in _parts(row, entry, kernels)]
    return text


def _rows(path: Path) -> Iterable[dict[str, str]]:
    try:
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise ExplainError(f"{path}: {error.strerror}; name a run's folder") from None


def _parts(
    row: Mapping[str, str], entry: Mapping[str, Any] | None, kernels: Mapping[str, KernelFacts]
) -> list[str]:
    if entry is None:
        return ["no facts"]
    mismatch = mismatches(row, entry)
    if mismatch:
        return [f"MISMATCH: {mismatch}"]
    return [_launch(launch, kernels.get(launch.get("hash", ""))) for launch in entry["launches"]]


def mismatches(row: Mapping[str, str], entry: Mapping[str, Any]) -> str:
    """Why the entry is not this row's: other sources, configuration or kernel; "" when it is."""
    for name in ("kernel_hash", "config"):
        there = entry.get(name) or ""
        if (row.get(name) or "") != there:
            return f"{name} is {row.get(name)!r} in the row and {there!r} in {FACTS_NAME}"
    symbols = ",".join(dict.fromkeys(k["symbol"] for k in entry["launches"]))
    if row.get("kernel_symbol") and row["kernel_symbol"] != symbols:
        return f"kernel_symbol is {row['kernel_symbol']!r} in the row, {symbols!r} in {FACTS_NAME}"
    return ""


def _launch(launch: Mapping[str, Any], kernel: KernelFacts | None) -> str:
    name = launch.get("name", launch["symbol"])
    parts = [f"{launch.get('registers', '?')} registers"]
    if launch.get("block"):
        parts.append(f"{'x'.join(map(str, launch['grid']))} blocks of {launch['block'][0]}")
    if "occupancy" in launch:
        parts.append(f"occupancy {100 * launch['occupancy']:.0f} % ({launch['limiter']})")
    if launch.get("waves") is not None:
        parts.append(f"{launch['waves']:.1f} waves")
    if kernel is not None and kernel.instructions is not None:
        counts = kernel.instructions
        parts.append(f"loads of {'/'.join(map(str, counts.loads)) or 'no'} B")
        parts += [*counts.async_copy, *counts.matrix]
        parts.append(f"{kernel.spill_bytes} B spilled")
    return f"{name} {launch.get('hash', 'unknown')}: {', '.join(parts)}"
