"""What an op cost to write, both sides, only where the sources are what the run was made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd

from harness.machine import source_problem
from harness.registry import Registry
from harness.sides import NAMES, SIDES

if TYPE_CHECKING:
    from harness.effort.counts import Effort

PACKAGES = ("lizard", "tree_sitter", "tree_sitter_cuda", "tree_sitter_python")


@dataclass(frozen=True)
class Written:
    """The table of an op: a line for each scope, a cell (both sides, their ratio) a measure.

    `reason` says why there is no table, "" where there is one.
    """

    titles: tuple[str, ...] = ()
    lines: list[tuple[str, list[tuple[str, str]]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reason: str = ""


def written(rows: pd.DataFrame, op: str, registry: Registry) -> Written:
    """Return the table of `op`, whose rows of this run are `rows`."""
    if reason := _changed(rows, op, registry):
        return Written(reason=reason)
    try:
        from harness.effort.counts import effort_of
    except ModuleNotFoundError as error:
        _refuse_other_modules(error)
        return Written(
            reason=f"{error.name} is not installed, so nothing is counted; "
            'pip install "cuda-vs-triton[effort]".'
        )
    return _table({side: effort_of(registry, op, side) for side in SIDES})


def _refuse_other_modules(error: ModuleNotFoundError) -> None:
    """Raise `error` again unless it is the extra `effort` that is not installed."""
    name = error.name or ""
    if name.split(".")[0] not in PACKAGES and not name.startswith("harness.effort"):
        raise error


def _changed(rows: pd.DataFrame, op: str, registry: Registry) -> str:
    """Why this checkout's sources say nothing about the run; "" where they do."""
    if op not in registry.stems:
        return "The op is not in this checkout, so nothing is counted."
    for side, name in NAMES.items():
        # Rungs have files, and hashes, of their own.
        own = rows[(rows["backend"] == side) & rows["headline"].eq(True)]
        hashes = {h for h in own["kernel_hash"] if h}
        if not hashes:
            return f"This run has no hash of the {name} source, so nothing is counted."
        if problem := source_problem(registry, op, side, hashes):
            return f"{name}: {problem}, so nothing is counted."
    return ""


def _table(efforts: Mapping[str, Effort]) -> Written:
    from harness.effort import rows

    cuda, triton = efforts["cuda"], efforts["triton"]
    missing = [f"{NAMES[side]}: {e.missing}" for side, e in efforts.items() if e.missing]
    if cuda.missing and triton.missing:
        return Written(reason="; ".join(missing))
    lines = []
    for scope, words in (*rows.SCOPES, ("build", "build, of all ops")):
        cells = [
            (cell.sides(), "" if cell.ratio is None else f"{cell.ratio:.2f}")
            for cell in rows.cells(cuda, triton, scope)
        ]
        lines.append((words, cells))
    tuning = " and ".join(
        f"{NAMES[side]} {e.knobs} and {e.configurations}"
        for side, e in efforts.items()
        if e.knobs is not None
    )
    notes = [*missing, *dict.fromkeys(p for e in efforts.values() for p in e.problems)]
    if tuning:
        notes.append(f"Tuning, knobs and configurations that are tried: {tuning}.")
    return Written(rows.TITLES, lines, notes)


def method() -> list[str]:
    """The counting rules and what may mislead, for the page's section on method; empty where the
    counting tools are not installed."""
    try:
        from harness.effort.counts import versions
        from harness.effort.rows import RULES, THREATS
    except ModuleNotFoundError as error:
        _refuse_other_modules(error)
        return []
    from harness.effort.concepts import VERSION

    tools = ", ".join(f"{name} {version}" for name, version in versions().items())
    return [
        *RULES,
        f"By {tools}, the same for both sides; list of concepts {VERSION}. Checks, bindings and "
        "setup.py are this checkout's: a run records no hash of them.",
        *THREATS,
    ]
