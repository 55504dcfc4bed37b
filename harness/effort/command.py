"""`effort`: parsing is in cli.py; here is what it does with its options."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from ..console import stdout
from ..registry import Registry, RegistryError
from ..results import ResultsError
from ..run_repair import write_atomically
from . import closure, compile_cost, concepts, rows
from .counts import Effort, effort_of, versions

_WIDE = 170  # columns of a table that goes to no terminal


def effort(options: argparse.Namespace) -> int:
    """Print or write what was asked for; 0, or 1 where a source did not parse."""
    registry = Registry(tuple(options.kernels))
    for op in options.ops:
        if op not in registry.stems:
            raise RegistryError(f"unknown op {op!r}; known ops: {', '.join(registry.stems)}")
    ops = tuple(dict.fromkeys(options.ops)) or registry.stems
    if options.compile_cost:
        return compile_cost.show(registry, ops, stdout)
    efforts = [
        effort_of(registry, op, side, rung)
        for op in ops
        for side in closure.SIDES
        for rung in ("", *closure.rungs(registry, op, side))
    ]
    if options.csv is not None:
        _write(options.csv, rows.as_csv(efforts))
    if options.json is not None:
        _write(options.json, json.dumps(rows.as_json(efforts), indent=1) + "\n")
    if options.csv is None and options.json is None:
        show(efforts, stdout, with_rungs=bool(options.ops))
    return int(any(e.missing and not e.missing.startswith("missing") for e in efforts))


def _write(file: Path, text: str) -> None:
    if str(file) == "-":
        sys.stdout.write(text)
        return
    try:
        write_atomically(file, text.encode())
    except OSError as error:
        raise ResultsError(
            f"cannot write {file}: {error.strerror or error}; choose another file"
        ) from error


def show(efforts: Sequence[Effort], console: Console, with_rungs: bool) -> None:
    """The table of pairs, the rules that it was counted by and the threats to what it says."""
    headlines = {(e.op, e.side): e for e in efforts if not e.rung}
    pairs = [
        (headlines[op, "cuda"], headlines[op, "triton"])
        for op in dict.fromkeys(e.op for e in efforts)
    ]
    wide = console if console.is_terminal else Console(file=console.file, width=_WIDE)
    wide.print(table(pairs), soft_wrap=False)
    if with_rungs and (lower := [e for e in efforts if e.rung]):
        wide.print(_rungs_table(lower), soft_wrap=False)
    for line in notes(pairs, efforts):
        console.print(line, markup=False)


def table(pairs: Sequence[tuple[Effort, Effort]]) -> Table:
    found = _table("CUDA / Triton = ratio")
    found.add_column("Op", no_wrap=True)
    found.add_column("Scope", no_wrap=True)
    for title in rows.TITLES:
        found.add_column(title, justify="right")
    for cuda, triton in pairs:
        for at, (scope, words) in enumerate(rows.SCOPES):
            texts = [cell.words() for cell in rows.cells(cuda, triton, scope)]
            found.add_row(
                cuda.op if at == 0 else "", words, *texts, end_section=scope == rows.SCOPES[-1][0]
            )
    return found


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", pad_edge=False, box=box.SIMPLE)


def _rungs_table(efforts: Sequence[Effort]) -> Table:
    found = _table("Rungs below the headline")
    for title in ("Op", "Rung", "Scope", *rows.TITLES):
        found.add_column(title, justify="left" if title in ("Op", "Rung", "Scope") else "right")
    for effort in efforts:
        for scope, words in rows.SCOPES:
            counts = getattr(effort, scope)
            numbers = [rows.measure(counts, name) for name in rows.MEASURES]
            texts = ["–" if n is None else f"{n:.0f}" for n in numbers]
            found.add_row(effort.op, f"{effort.side}:{effort.rung}", words, *texts)
    return found


def notes(pairs: Sequence[tuple[Effort, Effort]], efforts: Sequence[Effort]) -> list[str]:
    """What is printed under the table."""
    tools = ", ".join(f"{name} {version}" for name, version in versions().items())
    tuning = ", ".join(
        f"{c.op} {rows.tuning_words(c)} and {rows.tuning_words(t)}" for c, t in pairs
    )
    built = next((cuda.build for cuda, _ in pairs if cuda.build is not None), None)
    lines = [f"{e.op}, {e.side}: {e.missing}" for e in efforts if e.missing]
    lines += [rows.summary(pairs)] if rows.summary(pairs) else []
    if built is not None:
        lines.append(
            f"Build, the same for all ops: {built.tokens} tokens on {built.lines} lines for CUDA "
            "(setup.py), none for Triton."
        )
    lines.append(f"Knobs / configurations that `tune` tries, CUDA and Triton: {tuning}.")
    lines += ["", "How it was counted:", *(f"- {rule}" for rule in rows.RULES)]
    lines.append(f"- By {tools}, the same for both sides; list of concepts {concepts.VERSION}.")
    lines += ["", "What may mislead:", *(f"- {threat}" for threat in rows.THREATS)]
    problems = dict.fromkeys(problem for e in efforts for problem in e.problems)
    if problems:
        lines += ["", "Not wholly read:", *(f"- {problem}" for problem in problems)]
    return lines
