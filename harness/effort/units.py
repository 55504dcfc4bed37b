"""A file's units: its functions, types, constants and macros, with what they name and use.

Only units count: includes, imports, `#pragma once`, namespaces' own lines and bare `using` say
where code lies, not what it does, so that code may move between files and cost the same.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tree_sitter import Node

from . import concepts
from .names import inner_of, names_in_cuda, names_in_python, used_names
from .shapes import is_device
from .syntax import is_docstring, local_errors, parse, text_of, tokens, walk

_CONTAINERS = frozenset(
    ("translation_unit", "namespace_definition", "declaration_list", "linkage_specification")
)
_BRANCHES = ("preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif")
_CUDA_UNITS = frozenset(
    (
        "function_definition",
        "template_declaration",
        "template_instantiation",
        "declaration",
        "struct_specifier",
        "class_specifier",
        "union_specifier",
        "enum_specifier",
        "alias_declaration",
        "type_definition",
        "static_assert_declaration",
        "preproc_def",
        "preproc_function_def",
    )
)
_NOT_PYTHON_UNITS = frozenset(
    ("import_statement", "import_from_statement", "future_import_statement", "comment")
)
_FUNCTIONS = "function_definition"


@dataclass(frozen=True)
class Unit:
    """One top-level piece of a file. Compared by its place.

    `scope` is "device", "host", or "" for what is of the scope that uses it. `functions` are the
    texts of its functions, for lizard.
    """

    file: Path
    start: int
    names: frozenset[str] = field(compare=False)
    uses: frozenset[str] = field(compare=False)
    scope: str = field(compare=False)
    tokens: int = field(compare=False)
    lines: frozenset[int] = field(compare=False)
    functions: tuple[str, ...] = field(compare=False)
    concepts: tuple[concepts.Use, ...] = field(compare=False)


@dataclass(frozen=True)
class SourceFile:
    """`includes` as written: a path, or for Python (module, name, bound name)."""

    path: Path
    units: tuple[Unit, ...]
    includes: tuple[str, ...]
    imports: tuple[tuple[str, str, str], ...]
    problems: tuple[str, ...]


def read(path: Path, side: str, shown: str) -> SourceFile:
    """Parse a file; `shown` names it in problems. SyntaxNotReadError where it does not parse."""
    return read_text(path, path.read_text(encoding="utf-8", errors="replace"), side, shown)


@functools.lru_cache(maxsize=512)
def read_text(path: Path, text: str, side: str, shown: str) -> SourceFile:
    root = parse(side, text)
    lines = local_errors(root, shown)
    problems = tuple(
        f"{shown}, line {line}: a statement that the grammar does not know is counted by its words"
        for line in lines
    )
    pieces = _cuda_pieces(root) if side == "cuda" else _python_pieces(root)
    of_file = tuple(concepts.uses(text, side))
    make = functools.partial(_unit, path, of_file, side)
    units = tuple(make(nodes, holes) for nodes, holes in pieces)
    imports = tuple(_imports(root)) if side == "triton" else ()
    includes = tuple(_includes(root)) if side == "cuda" else ()
    return SourceFile(path, units, includes, imports, problems)


def _cuda_pieces(root: Node) -> Iterator[tuple[tuple[Node, ...], tuple[Node, ...]]]:
    """(the nodes of a unit, what in them is a unit of its own)."""
    for at, node in enumerate(root.children):
        if node.type in _CUDA_UNITS:
            semicolon = root.children[at + 1 : at + 2]
            nodes = (node, *(n for n in semicolon if n.type == ";"))
            holes = tuple(_definitions(node))
            yield nodes, holes
            yield from (((hole,), ()) for hole in holes)
        elif node.type in _CONTAINERS or node.type in _BRANCHES:
            yield from _cuda_pieces(node)


def _definitions(node: Node) -> Iterator[Node]:
    """Statements `m.def("name", &function, ...)`: a binding each."""
    if node.type != _FUNCTIONS:
        return
    for statement in walk(node):
        if statement.type == "expression_statement" and _binding_name(statement):
            yield statement


def _binding_name(statement: Node) -> str:
    call = statement.named_children[0] if statement.named_children else None
    function = call.child_by_field_name("function") if call is not None else None
    given = call.child_by_field_name("arguments") if call is not None else None
    if function is None or given is None or function.type != "field_expression":
        return ""
    method = function.child_by_field_name("field")
    if method is None or text_of(method) != "def" or len(given.named_children) < 2:
        return ""
    name = given.named_children[0]
    return text_of(name).strip('"') if name.type == "string_literal" else ""


def _python_pieces(root: Node) -> Iterator[tuple[tuple[Node, ...], tuple[Node, ...]]]:
    for node in root.children:
        if node.type not in _NOT_PYTHON_UNITS and any(True for _ in tokens(node)):
            yield (node,), ()


def _unit(
    path: Path,
    of_file: tuple[concepts.Use, ...],
    side: str,
    nodes: tuple[Node, ...],
    holes: tuple[Node, ...],
) -> Unit:
    node = nodes[0]
    left_out = {hole.id for hole in holes}
    found = [
        token
        for part in nodes
        for token in tokens(part)
        if not (left_out and _inside(token, left_out))
    ]
    first, last = node.start_point, nodes[-1].end_point
    taken = [(hole.start_point[0] + 1, hole.end_point[0] + 1) for hole in holes]
    mine = tuple(
        use
        for use in of_file
        if (first[0], first[1]) <= (use.line - 1, use.column) < (last[0], last[1])
        and not any(start <= use.line <= end for start, end in taken)
    )
    names = frozenset(names_in_python(node) if side == "triton" else names_in_cuda(node))
    if binding := _binding_name(node) if node.type == "expression_statement" else "":
        names = frozenset((f"def {binding}",))
    return Unit(
        path,
        node.start_byte,
        names,
        frozenset(used_names(node, left_out, side)),
        _scope(node, side),
        len(found),
        frozenset(token.start_point[0] + 1 for token in found),
        tuple(_functions(node, side)),
        mine,
    )


def _inside(token: Node, ids: set[int]) -> bool:
    above: Node | None = token
    while above is not None:
        if above.id in ids:
            return True
        above = above.parent
    return False


def _scope(node: Node, side: str) -> str:
    inner = inner_of(node)
    functions = [n for n in walk(node) if n.type == _FUNCTIONS]
    if inner.type == _FUNCTIONS:
        if is_device(inner):
            return "device"
        fixed = any(text_of(child) == "constexpr" for child in inner.children)
        return "" if side == "cuda" and fixed else "host"
    if any(is_device(function) for function in functions):
        return "device"
    if any(text_of(n) in ("__device__", "__constant__") for n in walk(node) if not n.children):
        return "device"
    if inner.type == "class_definition" or (functions and side == "triton"):
        return "host"
    return "host" if node.type == "expression_statement" and side == "cuda" else ""


def _functions(node: Node, side: str) -> Iterator[str]:
    """Outermost functions' texts; a docstring is no part of one."""
    if node.type == _FUNCTIONS:
        yield _without_docstrings(node) if side == "triton" else text_of(node)
        return
    for child in node.children:
        yield from _functions(child, side)


def _without_docstrings(function: Node) -> str:
    code = bytearray(function.text or b"")
    for node in walk(function):
        if is_docstring(node):
            start, end = node.start_byte - function.start_byte, node.end_byte - function.start_byte
            alone = node.parent is not None and node.parent.named_child_count == 1
            blank = b"pass" if alone else b""
            kept = bytes(c if c == ord("\n") else ord(" ") for c in code[start:end])
            code[start:end] = blank + kept[len(blank) :]
    return " " * function.start_point[1] + code.decode(errors="replace")


def _includes(root: Node) -> Iterator[str]:
    for node in walk(root):
        if node.type == "preproc_include":
            path = node.child_by_field_name("path")
            if path is not None and path.type == "string_literal":
                yield text_of(path).strip('"')


def _imports(root: Node) -> Iterator[tuple[str, str, str]]:
    """(module beside the file, its name, the name here) of relative imports, at any depth; name ""
    for the module itself, "*" for all."""
    for node in walk(root):
        if node.type != "import_from_statement":
            continue
        module = node.child_by_field_name("module_name")
        if module is None or not text_of(module).startswith("."):
            continue
        stem = text_of(module).lstrip(".")
        if any(child.type == "wildcard_import" for child in node.children):
            yield stem, "*", "*"
        for part in node.children_by_field_name("name"):
            name = text_of(part.child_by_field_name("name") or part)
            alias = part.child_by_field_name("alias")
            bound = text_of(alias) if alias is not None else name
            yield (stem, name, bound) if stem else (name, "", bound)
