"""Which definitions of shared files a kernel's own file reaches, by name, over syntax trees.

A definition is reached when its name stands in the own file or in a reached definition, in a file
that includes or imports it. Overloads are reached together, and a local variable of the same name
reaches it too: never too little is shown, sometimes a little more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.effort.syntax import parse

if TYPE_CHECKING:
    from tree_sitter import Node

_WRAPPERS = (
    "namespace_definition",
    "declaration_list",
    "linkage_specification",
    "preproc_if",
    "preproc_ifdef",
    "preproc_else",
    "preproc_elif",
)
_NAMES = ("identifier", "type_identifier", "field_identifier", "namespace_identifier")
_TYPES = ("struct_specifier", "class_specifier", "enum_specifier", "union_specifier")


@dataclass(frozen=True)
class Definition:
    """A top-level definition: lines counted from 1, with the comment right above it."""

    names: frozenset[str]
    words: frozenset[str]
    first: int
    last: int


@dataclass(frozen=True)
class _File:
    path: Path
    definitions: tuple[Definition, ...]
    words: frozenset[str]
    includes: tuple[str, ...]
    imports: dict[str, str]  # Triton: name -> the module that it comes from


def reached(side: str, files: Sequence[Path]) -> list[tuple[Path, list[tuple[int, int]]]]:
    """Return the shared files of which the first file reaches something, with the (first, last)
    lines of each stretch; `files` as the registry's kernel_files gives them, own file first."""
    read = [_read(side, path) for path in files]
    by_name = {file.path.stem if side == "triton" else file.path.name: file for file in read}
    own, found = read[0], dict[tuple[Path, Definition], None]()
    left = [(own, own.words - _defined(own))]
    while left:
        file, words = left.pop()
        new = [
            (there, definition)
            for there, names in _visible(file, words, by_name)
            for definition in there.definitions
            if there is not own and definition.names & names
        ]
        for there, definition in new:
            if (there.path, definition) not in found:
                found[there.path, definition] = None
                left.append((there, definition.words))
    return [
        (file.path, _joined(d for path, d in found if path == file.path))
        for file in read[1:]
        if any(path == file.path for path, _ in found)
    ]


def _visible(
    file: _File, words: Iterable[str], by_name: dict[str, _File]
) -> Iterator[tuple[_File, frozenset[str]]]:
    """The files that `file` sees, itself among them, with those of `words` that it may mean."""
    wanted = frozenset(words)
    yield file, wanted
    for name in sorted({file.imports[word] for word in wanted & file.imports.keys()}):
        if name in by_name:
            yield by_name[name], frozenset(w for w in wanted if file.imports.get(w) == name)
    seen, left = {file.path.name}, list(file.includes)
    while left:
        name = left.pop()
        if name in by_name and name not in seen:
            seen.add(name)
            left += by_name[name].includes
            yield by_name[name], wanted


def _joined(definitions: Iterable[Definition]) -> list[tuple[int, int]]:
    """Stretches of lines in order; those with two lines between them at most are one."""
    stretches: list[tuple[int, int]] = []
    for first, last in sorted((d.first, d.last) for d in definitions):
        if stretches and first <= stretches[-1][1] + 3:
            first, last = stretches[-1][0], max(last, stretches.pop()[1])
        stretches.append((first, last))
    return stretches


def _read(side: str, path: Path) -> _File:
    text = path.read_text(encoding="utf-8", errors="replace")
    root = parse(side, text)
    imports = {
        name: module
        for module, names in re.findall(
            r"^from \.+(_\w+) import (\([^)]*\)|[^\n]*)", text, re.MULTILINE
        )
        for name in re.findall(r"\w+", names)
    }
    includes = re.findall(r'^#include "(?:[^"\n]*/)?([^"/\n]+)"', text, re.MULTILINE)
    definitions = tuple(_definitions(side, root))
    words = frozenset(_words(root))
    if side == "triton":
        return _File(path, definitions, words, (), imports)
    return _File(path, definitions, words, tuple(includes), {})


def _defined(file: _File) -> frozenset[str]:
    return frozenset(name for definition in file.definitions for name in definition.names)


def _definitions(side: str, node: Node) -> Iterator[Definition]:
    comments: list[Node] = []  # those that end right above the next definition
    names = _python_names if side == "triton" else _cuda_names
    for child in node.children:
        if child.type == "comment":
            if comments and comments[-1].end_point[0] + 1 != child.start_point[0]:
                comments = []
            comments.append(child)
            continue
        if child.type in _WRAPPERS:
            yield from _definitions(side, child)
        else:
            defined = frozenset(names(child))
            if defined:
                above = comments and comments[-1].end_point[0] + 1 == child.start_point[0]
                first = comments[0] if above else child
                # A #define ends at column 0 of the line behind it.
                last = child.end_point[0] + (child.end_point[1] > 0)
                yield Definition(defined, frozenset(_words(child)), first.start_point[0] + 1, last)
        comments = []


def _cuda_names(node: Node) -> Iterator[str]:
    if node.type == "template_declaration":
        for child in node.named_children:
            if child.type != "template_parameter_list":
                yield from _cuda_names(child)
    elif node.type in _TYPES:
        if node.child_by_field_name("body") is not None:
            yield from _text(node.child_by_field_name("name"))
    elif node.type in ("alias_declaration", "preproc_def", "preproc_function_def"):
        yield from _text(node.child_by_field_name("name"))
    elif node.type in ("function_definition", "declaration", "type_definition"):
        for declarator in node.children_by_field_name("declarator"):
            yield from _text(_declared(declarator))
        of_type = node.child_by_field_name("type")
        if of_type is not None and of_type.type in _TYPES:
            yield from _cuda_names(of_type)
    if node.type == "enum_specifier":
        yield from _words(node)  # its constants


def _declared(node: Node | None) -> Node | None:
    """The name inside a declarator."""
    while node is not None and node.type not in _NAMES:
        if node.type in ("template_function", "template_type", "qualified_identifier"):
            node = node.child_by_field_name("name")
            continue
        inner = node.child_by_field_name("declarator")
        node = inner if inner is not None else next(iter(node.named_children), None)
    return node


def _python_names(node: Node) -> Iterator[str]:
    if node.type == "decorated_definition":
        yield from _text(_field(node.child_by_field_name("definition"), "name"))
    elif node.type in ("function_definition", "class_definition"):
        yield from _text(node.child_by_field_name("name"))
    elif node.type == "expression_statement":
        for child in node.named_children:
            left = _field(child, "left") if child.type == "assignment" else None
            if left is not None:
                yield from _words(left)


def _field(node: Node | None, name: str) -> Node | None:
    return None if node is None else node.child_by_field_name(name)


def _text(node: Node | None) -> Iterator[str]:
    if node is not None and node.text is not None:
        yield node.text.decode(errors="replace")


def _words(node: Node) -> Iterator[str]:
    """Each name in a tree; the body of a macro is text to the parser."""
    left = [node]
    while left:
        found = left.pop()
        if found.type in _NAMES:
            yield from _text(found)
        elif found.type == "preproc_arg":
            for text in _text(found):
                yield from re.findall(r"[A-Za-z_]\w*", text)
        left += found.children
