"""`sanitize` from its options to its table and exit code."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .options import UsageError, refuse_missing_device
from .registry import Registry
from .sanitize import Cell, Pair, Setup, cuda_instructions, exit_code, pairs_of, run_tool
from .sanitize_tools import TOOLS, find_tool, how_to_install, version_of

Cells = dict[str, dict[Pair, Cell]]
_SHOWN = 3


def sanitize(options: argparse.Namespace, console: Console) -> int:
    """Run the tools and print one table. Raises UsageError for what cannot be run here."""
    registry = Registry(tuple(options.kernels))
    pairs = _selected(registry, options)
    setup = _setup(registry, options)
    present = [pair for pair in pairs if pair[1] not in registry.spec(pair[0]).absent]
    tools = options.tool or TOOLS
    cells: Cells = {}
    for tool in tools:
        console.print(f"{tool}: {len(present)} pairs of op and side", markup=False)
        cells[tool] = run_tool(setup, tool, present) if present else {}
        for op, side in pairs:
            if (op, side) not in present:
                cells[tool][op, side] = Cell("absent", registry.spec(op).absent[side])
    show(cells, console)
    code = exit_code([cell for by_pair in cells.values() for cell in by_pair.values()])
    console.print(_last_line(cells, setup.folder, code), markup=False)
    return code


def _selected(registry: Registry, options: argparse.Namespace) -> list[Pair]:
    for op in options.op:
        registry.spec(op)  # raises for one that does not exist
    known = {dtype for op in registry.stems for dtype in registry.spec(op).dtypes}
    for dtype in options.dtype:
        if dtype not in known:
            raise UsageError(
                f"--dtype {dtype!r}: unknown, wanted one of {', '.join(sorted(known))}"
            )
    return [
        (op, side)
        for op, side in pairs_of(registry, options.op, options.backend)
        if not options.dtype or set(options.dtype) & set(registry.spec(op).dtypes)
    ]


def _setup(registry: Registry, options: argparse.Namespace) -> Setup:
    has_gpu = refuse_missing_device(options.device)
    import torch

    cuda = torch.version.cuda or ""
    executable = find_tool(os.environ, cuda)
    if executable is None:
        raise UsageError(how_to_install(cuda))
    if not has_gpu:
        raise UsageError("sanitize launches kernels and no GPU is visible; run it on a GPU machine")
    return Setup(
        executable,
        version_of(executable),
        Path(tempfile.mkdtemp(prefix="cvt-sanitize-")),
        options.dtype,
        options.kernels,
        options.device,
        options.timeout,
        cuda_instructions(registry),
        registry.stems,
    )


def show(cells: Cells, console: Console) -> None:
    """A row for each op and side, a column for each tool, then the first findings."""
    table = Table("op", "side", *cells)
    pairs: dict[Pair, None] = dict.fromkeys(pair for by_pair in cells.values() for pair in by_pair)
    for op, side in pairs:
        row = [by_pair.get((op, side)) for by_pair in cells.values()]
        table.add_row(op, side, *("" if cell is None else str(cell) for cell in row))
    console.print(table)
    for tool, by_pair in cells.items():
        for (op, side), cell in by_pair.items():
            for finding in cell.findings[:_SHOWN]:
                console.print(f"{tool} {op} {side}: {finding.text}", markup=False)
        for text in dict.fromkeys(text for cell in by_pair.values() for text in cell.warnings):
            console.print(f"{tool} itself: {text}", markup=False)


def _last_line(cells: Cells, folder: Path, code: int) -> str:
    counts = _counts(cells)
    text = ", ".join(f"{n} {status}" for status, n in counts.items())
    if code == 0 and "not covered" in counts:
        text += "; what is not covered has not been cleared"
    return f"{text}; logs in {folder}"


def _counts(cells: Cells) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for by_pair in cells.values():
        for cell in by_pair.values():
            counts[cell.status] = counts.get(cell.status, 0) + 1
    return counts
