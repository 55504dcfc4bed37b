"""A run's rows beside the kernels that were timed; what does not join is shown, not hidden."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..csv_read import read_text, refuse_cut_lines
from ..schema import BENCH_NAME, KEY
from ..spelling import did_you_mean
from .fact_file import FACTS_NAME, TimedLaunch, launches_of, read, row_key
from .facts import ExplainError, KernelFacts
from .occupancy import waves_in_words

_NEEDED = (*KEY, "status", "kernel_hash", "config")


def lines(run: Path, ops: Sequence[str] = (), side: str = "") -> tuple[list[str], int]:
    """(a line a row and kernel, how many rows have another kernel's facts). Raises ExplainError for
    what is no run with facts.json, for damaged files and where no row is left to show."""
    folder = _folder(run)
    facts = read(folder / FACTS_NAME)
    text, n_mismatches = [], 0
    for row in _chosen(run, _rows(folder / BENCH_NAME), ops, side):
        entry = facts.rows.get(row_key(row))
        mismatch, parts = "", ["no facts"]
        if entry is not None:
            launches = _launches(folder / FACTS_NAME, row, entry, facts.kernels)
            mismatch = mismatches(row, entry)
            parts = [f"MISMATCH: {mismatch}"] if mismatch else [_launch(one) for one in launches]
        n_mismatches += bool(mismatch)
        text += [f"{_label(row)}: {part}" for part in parts]
    return [*text, *(f"problem: {problem}" for problem in facts.problems)], n_mismatches


def _folder(run: Path) -> Path:
    if not os.path.exists(run):
        raise ExplainError(f"--run {run}: does not exist; want a run's folder")
    if not run.is_dir() and run.name not in (BENCH_NAME, FACTS_NAME):
        raise ExplainError(f"--run {run}: is no run; want its folder, or the {BENCH_NAME} in it")
    folder = run if run.is_dir() else run.parent
    for name in (BENCH_NAME, FACTS_NAME):
        if not (folder / name).is_file():
            raise ExplainError(f"--run {run}: holds no {name}; want a run that was timed on a GPU")
    return folder


def _rows(path: Path) -> list[dict[str, str]]:
    """The rows of bench.csv, whole lines only. Raises ExplainError for another or a damaged file,
    and for one without a row; ResultsError for lines that were cut."""
    data, _ = read_text(path)
    try:
        table = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ExplainError(f"{path} is no table ({error}); copy the run again") from None
    header = table[0] if table else []
    missing = [name for name in _NEEDED if name not in header]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ExplainError(
            f"{path} lacks the column {', '.join(missing[:3])}{more}; want a run of this harness"
        )
    refuse_cut_lines(path, data, len(header))
    rows = [dict(zip(header, cells, strict=True)) for cells in table[1:] if cells]
    if not rows:
        raise ExplainError(f"{path} has a header and no row; want a run that was timed")
    return rows


def _chosen(
    run: Path, rows: Sequence[Mapping[str, str]], ops: Sequence[str], side: str
) -> list[Mapping[str, str]]:
    known = list(dict.fromkeys(row["op"] for row in rows))
    for op in ops:
        if op not in known:
            raise ExplainError(
                f"op {op!r} is not in {run}; it has {', '.join(known)}{did_you_mean(op, known)}"
            )
    kept = [
        row
        for row in rows
        if row["status"] == "ok" and row["op"] in (ops or known) and side in ("", row["backend"])
    ]
    if not kept:
        of = f" of {', '.join(ops)}" if ops else ""
        raise ExplainError(f"{run}: no {side + ' ' if side else ''}row{of} was timed (status ok)")
    return kept


def _launches(
    path: Path, row: Mapping[str, str], entry: Any, kernels: Mapping[str, KernelFacts]
) -> tuple[TimedLaunch, ...]:
    try:
        return launches_of(entry, kernels)
    except ExplainError as error:
        raise ExplainError(
            f"{path}: row {row_key(row)!r}: {error}; run the benchmark again"
        ) from None


def _label(row: Mapping[str, str]) -> str:
    rung = f":{row['variant']}" if row["variant"] else ""
    return f"{row['op']} {row['case']} {row['dtype']} {row['backend']}{rung}"


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


def _launch(timed: TimedLaunch) -> str:
    launch, counts = timed.launch, timed.kernel.instructions if timed.kernel else None
    parts = [f"{'?' if launch.registers is None else launch.registers} registers"]
    if launch.block and launch.grid:
        blocks, threads = ("x".join(map(str, size)) for size in (launch.grid, launch.block))
        parts.append(f"{blocks} blocks of {threads.removesuffix('x1').removesuffix('x1')}")
    if timed.occupancy is not None:
        parts.append(f"occupancy {100 * timed.occupancy:.0f} % ({timed.limiter})")
    if timed.waves is not None:
        parts.append(f"{waves_in_words(timed.waves)} waves")
    if timed.kernel is not None and counts is not None:
        parts.append(f"loads of {'/'.join(map(str, counts.loads)) or 'no'} B")
        parts += [*counts.async_copy, *counts.matrix]
        spilled = timed.kernel.spill_bytes
        parts.append("spills unknown" if spilled is None else f"{spilled} B spilled")
    return f"{timed.name} {launch.hash or 'unknown'}: {', '.join(parts)}"
