"""A source as functions and types, each with the names in it and the concepts that it uses.

Needs tree-sitter: reach.py imports it only where sources are read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

from tree_sitter import Node

from ..effort.concepts import uses
from ..effort.syntax import parse, text_of, walk
from .reach import SWIZZLE, Named, Unit

_UNITS = {
    "cuda": ("function_definition", "struct_specifier", "class_specifier"),
    "triton": ("function_definition",),
}
_NAMES = ("identifier", "type_identifier", "field_identifier")


def units_of(file: Path, side: str, path: str) -> tuple[Unit, ...]:
    """The outermost functions and types of a file: a method belongs to its type. path: as it is to
    be shown."""
    return _units(file.read_text(encoding="utf-8", errors="replace"), side, path)


@functools.lru_cache(maxsize=256)  # a header is read for every op that includes it
def _units(text: str, side: str, path: str) -> tuple[Unit, ...]:
    root = parse(side, text)
    lines = text.split("\n")
    found = [
        Named(path, use.line, " ".join(use.text.split()), use.concept, lines[use.line - 1])
        for use in uses(text, side)
    ]
    if side == "cuda":
        found += [Named(path, n, words, SWIZZLE, lines[n - 1]) for n, words in swizzles(root)]
    units = []
    for name, node in _outermost(root, _UNITS[side]):
        first, last = node.start_point[0] + 1, node.end_point[0] + 1
        here = tuple(use for use in found if first <= use.line <= last)
        names = frozenset(text_of(leaf) for leaf in walk(node) if leaf.type in _NAMES)
        units.append(Unit(name, names, here))
    return tuple(units)


def _outermost(root: Node, kinds: tuple[str, ...]) -> Iterator[tuple[str, Node]]:
    """(name, the node with its template parameters)."""
    left = [root]
    while left:
        node = left.pop()
        name = _name_of(node) if node.type in kinds else ""
        if not name:
            left += reversed(node.children)
            continue
        around = node.parent
        is_template = around is not None and around.type == "template_declaration"
        yield name, around if around is not None and is_template else node


def _name_of(node: Node) -> str:
    """Of a type or a function; one that returns a pointer wraps its name in further declarators."""
    found = node.child_by_field_name("name")
    around = node.child_by_field_name("declarator")
    while found is None and around is not None:
        if around.type in _NAMES:
            found = around
        inner = around.child_by_field_name("declarator")
        around = inner or next((c for c in around.children if "declarator" in c.type), None)
    return "" if found is None else text_of(found)


def swizzles(root: Node) -> Iterator[tuple[int, str]]:
    """(line, words) of sums with an exclusive or, `row * width + (chunk ^ row % 8)`: the form of a
    swizzled address. That it is one of shared memory follows only where the kernel has any."""
    for node in walk(root):
        around = node.parent
        if node.type != "binary_expression" or _operator(node) != "^":
            continue
        while around is not None and around.type == "parenthesized_expression":
            around = around.parent
        if around is not None and _operator(around) == "+":
            yield node.start_point[0] + 1, " ".join(text_of(around).split())


def _operator(node: Node) -> str:
    operator = node.child_by_field_name("operator")
    return "" if operator is None or node.type != "binary_expression" else text_of(operator)
