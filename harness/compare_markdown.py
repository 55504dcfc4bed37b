"""A comparison as Markdown for a pull request: what matters in sight, the rest to unfold."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pandas as pd

from harness.compare_gate import Outcome
from harness.compare_means import means, told
from harness.compare_rerun import rerun_commands
from harness.compare_view import COLUMNS, TEXTS, cells_of, counts, heading, hidden, ordered

if TYPE_CHECKING:
    from harness.compare import Comparison

# GitHub cuts a comment at 65 536 characters; a row has about 150.
MAX_ROWS = 250
_IN_SIGHT = 20
_N_NAMES = 4
_QUIET = ("SAME",)


def markdown(comparison: Comparison, outcome: Outcome) -> str:
    """Return the comparison as GitHub's Markdown; more than MAX_ROWS rows are counted."""
    rows = ordered(comparison.rows)
    shown = rows.head(MAX_ROWS)
    quiet = shown["verdict"].isin(_QUIET) & ~shown["failed"]
    loud = shown[~quiet]
    lines = [f"**{_text(counts(comparison))}**", "", _text(heading(comparison)), ""]
    lines += [f"- {_text(label)}" for label in comparison.labels]
    lines += _table(loud.head(_IN_SIGHT))
    lines += _folded("more rows with a verdict", loud.iloc[_IN_SIGHT:])
    lines += _folded("rows that are SAME", shown[quiet])
    lines += ["", *map(_text, hidden(rows, MAX_ROWS)), ""]
    lines += [f"- {_text(mean.text)}" for mean in told(means(comparison.rows), comparison.rows)]
    if commands := rerun_commands(comparison):
        text = ["", "```sh", *commands, "```"]
        title = f"{len(commands)} commands that measure UNCLEAR rows again"
        lines += ["", *_details(title, text)]
    return "\n".join([*lines, "", _text(outcome.text)]) + "\n"


def _folded(title: str, rows: pd.DataFrame) -> list[str]:
    return ["", *_details(f"{len(rows)} {title}", _table(rows))] if len(rows) else []


def _details(title: str, lines: list[str]) -> list[str]:
    # GitHub reads Markdown inside the element only after an empty line.
    return [f"<details><summary>{_text(title)}</summary>", *lines, "", "</details>"]


def _table(rows: pd.DataFrame) -> list[str]:
    if rows.empty:
        return []
    names = [*COLUMNS, *TEXTS]
    right = range(_N_NAMES, len(COLUMNS))
    rule = ["--:" if place in right else "---" for place in range(len(names))]
    return ["", *(_line(cells) for cells in (names, rule, *map(_cells, cells_of(rows))))]


def _cells(cells: list[str]) -> list[str]:
    return [_text(cell) for cell in cells]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    """Return `text` so that Markdown shows it as it is: a pipe ends a cell, a tag may hide text."""
    return re.sub(r"([\\`*_|<>\[\]#~])", r"\\\1", " ".join(text.split())).replace("@", "&#64;")
