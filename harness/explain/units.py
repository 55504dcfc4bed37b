"""A source's units as effort/units.py reads them, each with its places that name a concept.

Needs tree-sitter: reach.py imports it only where sources are read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

from tree_sitter import Node

from ..effort import units as effort_units
from ..effort.syntax import SyntaxNotReadError, parse, text_of, walk
from .reach import SWIZZLE, Named, Unit

__all__ = ["SyntaxNotReadError", "swizzles", "units_of"]


def units_of(file: Path, side: str, path: str) -> tuple[Unit, ...]:
    """The units of a file. path: as it is to be shown. Raises SyntaxNotReadError."""
    return _units(file, file.read_text(encoding="utf-8", errors="replace"), side, path)


@functools.lru_cache(maxsize=256)  # a header is read for every op that includes it
def _units(file: Path, text: str, side: str, path: str) -> tuple[Unit, ...]:
    lines = text.split("\n")
    swizzled = list(swizzles(parse(side, text))) if side == "cuda" else []
    found = []
    for unit in effort_units.read_text(file, text, side, path).units:
        uses = [
            (use.line, use.text, use.concept)
            for use in unit.concepts
            # How shared memory is aligned says nothing of accesses to global memory.
            if use.concept != "cuda.alignment" or "__shared__" not in lines[use.line - 1]
        ]
        uses += [(n, words, SWIZZLE) for n, words in swizzled if n in unit.lines]
        named = (Named(path, n, " ".join(t.split()), c, lines[n - 1]) for n, t, c in uses)
        found.append(Unit(unit.names, unit.uses, tuple(named)))
    return tuple(found)


def swizzles(root: Node) -> Iterator[tuple[int, str]]:
    """(line, words) of sums with an exclusive or, `row * width + (chunk ^ row % 8)`: the form of a
    swizzled address. That it is one of shared memory follows only where the kernel has any."""
    for node in walk(root):
        around = node.parent
        if _operator(node) != "^":
            continue
        while around is not None and around.type == "parenthesized_expression":
            around = around.parent
        if around is not None and _operator(around) == "+":
            yield node.start_point[0] + 1, " ".join(text_of(around).split())


def _operator(node: Node) -> str:
    operator = node.child_by_field_name("operator")
    return "" if operator is None or node.type != "binary_expression" else text_of(operator)
