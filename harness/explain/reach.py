"""Which lines of the sources belong to a kernel that was timed: its function, and what that names.

A file holds several forms of an op and a header helpers of many: only what the launched kernel
reaches by name is evidence about it. Names are taken as they stand, so a branch that the compiler
drops for the timed configuration is reached all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..machine import source_hash
from ..registry import Registry

# The aspect of launches in effort/concepts.toml; and one that only this table asks for.
LAUNCH = "mapping"
SWIZZLE = "shared address by exclusive or"
_UNITS = {
    "cuda": ("function_definition", "struct_specifier", "class_specifier"),
    "triton": ("function_definition",),
}
_NAMES = ("identifier", "type_identifier", "field_identifier")


@dataclass(frozen=True)
class Named:
    """One place in a source. path: from the repository's root, such as csrc/softmax.cu. whole: the
    line as it stands."""

    path: str
    line: int
    text: str
    aspect: str
    concept: str
    whole: str = ""


@dataclass(frozen=True)
class SourceUses:
    """device: what the kernels reach. host: what launches them. problem: why there is neither."""

    device: tuple[Named, ...] = ()
    host: tuple[Named, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class _Unit:
    """A function or a type of a file, with every name that occurs in it."""

    name: str
    file: Path
    first: int
    last: int
    names: frozenset[str]


def source_uses(
    registry: Registry, op: str, side: str, row: Mapping[str, Any], kernels: Sequence[str]
) -> SourceUses:
    """Concepts named by the sources of the row's kernels, where these are still what it ran.

    kernels: names of the launched kernels' functions, in order of launching.
    """
    files = registry.kernel_files(op, side) if op in registry.stems else []
    if not files:
        return SourceUses(problem="the source is not in this checkout")
    if row.get("kernel_hash") != source_hash(files):
        return SourceUses(problem="the source has changed since this run")
    try:
        from ..effort import concepts, syntax
    except ImportError as error:
        return SourceUses(problem=f"the source is not read: {error.name} is not installed")
    if side == "cuda":
        files = included(files)
    found: dict[Path, list[Named]] = {}
    units: list[_Unit] = []
    names = {concept.id: concept for concept in concepts.concepts(side)}
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        root = syntax.parse(side, text)
        path = _shown(file, files[0].parent)
        whole = text.split("\n")
        uses = [
            Named(path, use.line, use.text, concept.aspect, concept.name, whole[use.line - 1])
            for use in concepts.uses(text, side)
            for concept in [names[use.concept]]
        ]
        found[file] = uses + (list(_exclusive_ors(root, path)) if side == "cuda" else [])
        units += _units(root, file, side)
    device = _reached(units, kernels)
    if not device:
        return SourceUses(problem=f"no function {' or '.join(kernels)} is in the source")
    host = [unit for unit in _reached(units, [op]) if unit not in device]
    return SourceUses(_within(found, device), _launching(found, host, set(kernels)))


def _launching(
    found: Mapping[Path, Sequence[Named]], host: Sequence[_Unit], kernels: set[str]
) -> tuple[Named, ...]:
    """Where these kernels are launched, of all that the op's launcher reaches: the functions that
    name them, and in these the lines that do; all where none does, as with a kernel passed on."""
    launches = [use for use in _within(found, host) if use.aspect == LAUNCH]
    near = _within(found, [unit for unit in host if unit.names & kernels])
    closer = [use for use in launches if use in near]
    named = [use for use in closer if kernels & set(re.findall(r"\w+", use.whole))]
    return tuple(named or closer or launches)


def included(files: Sequence[Path]) -> list[Path]:
    """The first file and those of the others that it includes, directly or not."""
    by_name = {file.name: file for file in files[1:]}
    kept = [files[0]]
    for file in kept:
        for name in re.findall(
            r'^\s*#include "(?:.*/)?([^"/]+)"', file.read_text(errors="replace"), re.MULTILINE
        ):
            if name in by_name:
                kept.append(by_name.pop(name))
    return kept


def _shown(file: Path, folder: Path) -> str:
    """The file from the root's folder on; another root's kernels may use this repository's."""
    for root in (folder.parent, *(parent.parent for parent in file.parents)):
        if file.is_relative_to(root / folder.name):
            return file.relative_to(root).as_posix()
    return file.name


def _units(root: Any, file: Path, side: str) -> Iterator[_Unit]:
    """The outermost functions and types: a method belongs to its type."""
    left = [root]
    while left:
        node = left.pop()
        if node.type in _UNITS[side]:
            name = _name_of(node)
            if name:
                whole = node.parent if node.parent.type == "template_declaration" else node
                first, last = whole.start_point[0] + 1, whole.end_point[0] + 1
                yield _Unit(name, file, first, last, frozenset(_identifiers(whole)))
                continue
        left += node.children


def _name_of(node: Any) -> str:
    name = node.child_by_field_name("name")
    declarator = node.child_by_field_name("declarator")
    while name is None and declarator is not None:
        inner = declarator.child_by_field_name("declarator")
        name = declarator if inner is None and declarator.type in _NAMES else None
        # A function that returns a reference or a pointer wraps its declarator.
        declarator = inner or next((c for c in declarator.children if "declarator" in c.type), None)
    return "" if name is None else _text(name)


def _identifiers(node: Any) -> Iterator[str]:
    left = [node]
    while left:
        each = left.pop()
        if each.type in _NAMES:
            yield _text(each)
        left += each.children


def _exclusive_ors(root: Any, path: str) -> Iterator[Named]:
    """Sums with an exclusive or, `row * width + (chunk ^ row % 8)`: how an address is swizzled."""
    left = [root]
    while left:
        node = left.pop()
        left += node.children
        if node.type != "binary_expression" or _operator(node) != "^":
            continue
        outer = node.parent
        while outer is not None and outer.type == "parenthesized_expression":
            outer = outer.parent
        if outer is not None and outer.type == "binary_expression" and _operator(outer) == "+":
            words = " ".join(_text(outer).split())
            yield Named(path, node.start_point[0] + 1, words, SWIZZLE, "exclusive or in an address")


def _operator(node: Any) -> str:
    operator = node.child_by_field_name("operator")
    return "" if operator is None else _text(operator)


def _text(node: Any) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _reached(units: Iterable[_Unit], names: Iterable[str]) -> list[_Unit]:
    """Units of those names and, over and over, of names that these hold; nearest first."""
    by_name: dict[str, list[_Unit]] = {}
    for unit in units:
        by_name.setdefault(unit.name, []).append(unit)
    wanted = list(dict.fromkeys(names))
    found: list[_Unit] = []
    for name in wanted:
        for unit in by_name.get(name, ()):
            found.append(unit)
            wanted += [n for n in sorted(unit.names) if n in by_name and n not in wanted]
    return found


def _within(found: Mapping[Path, Sequence[Named]], units: Sequence[_Unit]) -> tuple[Named, ...]:
    """Uses on the units' lines, in the units' order, each once."""
    kept: dict[Named, None] = {}
    for unit in units:
        for use in found[unit.file]:
            if unit.first <= use.line <= unit.last:
                kept[use] = None
    return tuple(kept)
