"""The versioned list of hardware concepts, and where a text uses them.

The list is concepts.json beside this file; recognise.py has the ways to recognise one. A concept
is what the author had to name: a use stands where the author wrote it, so a helper's concepts are
those of the helper's body, not of its callers.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LIST: dict[str, Any] = json.loads((Path(__file__).parent / "concepts.json").read_text())
VERSION: int = _LIST["version"]
ASPECTS = (
    "program index",
    "element index",
    "boundary",
    "global access",
    "vector width",
    "shared memory",
    "pipelining",
    "matrix unit",
    "barrier",
    "reduction",
    "mapping",
    "threads",
    "atomics",
    "cache hints",
    "unrolling",
    "inline assembly",
    "tuning",
    "host",
)


@dataclass(frozen=True)
class Concept:
    """One entry of the list; `aspect` is what it has in common with concepts of the other side."""

    id: str
    name: str
    side: str
    aspect: str


@dataclass(frozen=True)
class Use:
    """One use of a concept, on one line. `line` counts from 1, columns from 0, in characters."""

    concept: str
    line: int
    column: int
    end_column: int
    text: str


@functools.cache
def concepts(side: str) -> tuple[Concept, ...]:
    """The concepts of "cuda" or "triton", in the list's order."""
    return tuple(
        Concept(entry["id"], entry["name"], entry["side"], entry["aspect"])
        for entry in _LIST["concepts"]
        if entry["side"] == side
    )


@functools.cache
def matches(side: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    """(concept, one way to recognise it) of a side, in the list's order."""
    return tuple(
        (entry["id"], match)
        for entry in _LIST["concepts"]
        if entry["side"] == side
        for match in entry["match"]
    )


@functools.lru_cache(maxsize=256)
def _uses(text: str, side: str) -> tuple[Use, ...]:
    from . import recognise  # needs tree-sitter; the list does not

    lines = text.split("\n")
    found = set()
    for concept, row, start, end in recognise.recognised(text, side):
        line = lines[row].encode()
        end = len(line) if end is None else end
        column = len(line[:start].decode(errors="replace"))
        end_column = len(line[:end].decode(errors="replace"))
        # A word that syntax.parse exchanged for a shorter one, such as __align__, goes on.
        word = re.compile(r"(?<=\w)\w+").match(lines[row], end_column)
        end_column = word.end() if word else end_column
        found.add(Use(concept, row + 1, column, end_column, lines[row][column:end_column]))
    return tuple(sorted(found, key=lambda use: (use.line, use.column, use.end_column, use.concept)))


def uses(text: str, side: str) -> list[Use]:
    """Every use in `text` of a side's concepts, in source order.

    Comments and strings never count, but the instructions of an `asm` statement are code. What
    does not parse is counted as far as its leaves go: see syntax.local_errors.
    """
    return list(_uses(text, side))
