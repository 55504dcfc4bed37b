"""Syntax trees of both sides, by tree-sitter: its CUDA grammar and its Python grammar.

A parse never fails: what the grammar does not know becomes an ERROR node. The CUDA grammar does
not know `__align__(n)` in a declaration, `__has_include("...")` and some fold expressions. `parse`
helps it over the first two: leaves of the first, broken tree are exchanged for words of the same
length that it does know, so every position stays that of the text. An error inside one statement of
a function, such as a fold, loses no leaf: `local_errors` names it; any other makes a file
unreadable. Macros' bodies are one opaque leaf in the grammar: `macro_bodies` parses them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import tree_sitter
import tree_sitter_cuda
import tree_sitter_python
from tree_sitter import Node

SIDES = ("cuda", "triton")
# Leaves that are one token whatever they are made of.
STRINGS = frozenset(
    ("string_literal", "raw_string_literal", "char_literal", "system_lib_string", "string")
)
COMMENTS = frozenset(("comment", "line_continuation"))
_STATEMENTS = frozenset(("expression_statement", "declaration", "return_statement"))
_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}


class SyntaxNotReadError(Exception):
    """A text that does not parse, in one line."""


@functools.cache
def _parser(side: str) -> tree_sitter.Parser:
    if side not in SIDES:
        raise ValueError(f"got side {side!r}, wanted one of {', '.join(SIDES)}")
    grammar = tree_sitter_cuda if side == "cuda" else tree_sitter_python
    return tree_sitter.Parser(tree_sitter.Language(grammar.language()))


def parse(side: str, text: str) -> Node:
    """The root of the tree of `text`; `side` is "cuda" (C++ of any file) or "triton" (Python).

    Positions are those of the UTF-8 text; ask `local_errors` whether all of it was understood.
    """
    code = text.encode()
    root = _parser(side).parse(code).root_node
    if side == "cuda" and root.has_error:
        root = _parser(side).parse(_known_words(code, root)).root_node
    return root


def walk(node: Node) -> Iterator[Node]:
    """`node` and all below it, in source order."""
    left = [node]
    while left:
        found = left.pop()
        yield found
        left += reversed(found.children)


def text_of(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


def local_errors(root: Node, name: str) -> list[int]:
    """The 1-based lines of statements that were not understood, whose leaves are all there.

    Raises SyntaxNotReadError where more than a statement is broken: brackets that do not match,
    or an error outside of functions. `name` is the file's, for the line that says so.
    """
    if not root.has_error:
        return []
    lines: dict[int, None] = {}
    for node in walk(root):
        if not (node.is_error or node.is_missing):
            continue
        line = node.start_point[0] + 1
        if not _within_a_statement(node) or not _balanced(root):
            raise SyntaxNotReadError(
                f"{name}, line {line}: does not parse, so nothing of it is counted; "
                "mend the syntax there or before"
            )
        lines[line] = None
    return list(lines)


def _within_a_statement(node: Node) -> bool:
    """Only C++: the Python grammar has no gap that we know of, so an error there is one."""
    inner = node.parent
    statement = False
    while inner is not None and not inner.is_error:
        statement = statement or inner.type in _STATEMENTS
        if inner.type == "function_definition" and inner.child_by_field_name("declarator"):
            return statement
        inner = inner.parent
    return False


def _balanced(root: Node) -> bool:
    opened = []
    for node in walk(root):
        if node.child_count or node.is_missing:
            continue
        if node.type in _CLOSED_BY:
            opened.append(_CLOSED_BY[node.type])
        elif node.type in _CLOSED_BY.values() and (not opened or opened.pop() != node.type):
            return False
    return not opened


def macro_bodies(root: Node) -> Iterator[tuple[Node, tuple[Node, ...]]]:
    """(the node of a #define's body, the leaves of its code) for each macro that has one.

    A leaf's row counts from 1 at the body's first row, its column is the text's.
    """
    for node in walk(root):
        if node.type not in ("preproc_def", "preproc_function_def"):
            continue
        body = node.child_by_field_name("value")
        if body is None or body.text is None:
            continue
        text = body.text.replace(b"\\\n", b" \n")
        code = b"void f(){\n" + b" " * body.start_point[1] + text + b"\n;}"
        tree = _parser("cuda").parse(code).root_node
        last = 1 + text.count(b"\n")
        yield body, tuple(n for n in walk(tree) if 1 <= n.start_point[0] <= last)


def tokens(root: Node) -> Iterator[Node]:
    """The lexical tokens of a tree in source order, each a node whose first row is its own.

    No comment and no docstring (a Python statement that is only a string); a string is one token,
    whatever is in it. A preprocessor line's text, one leaf in the grammar, is taken apart with the
    grammar too; its parts keep the row of the leaf.
    """
    left = [root]
    while left:
        node = left.pop()
        if node.type in COMMENTS or node.is_missing or is_docstring(node):
            continue
        if node.type in STRINGS or node.child_count == 0:
            if node.type == "preproc_arg":
                yield from (node for _ in range(_tokens_of_text(text_of(node))))
            elif text_of(node).strip():
                yield node
        else:
            left += reversed(node.children)


def is_docstring(node: Node) -> bool:
    if node.type != "expression_statement" or node.named_child_count != 1:
        return False
    return node.child_count == 1 and node.children[0].type in ("string", "concatenated_string")


@functools.lru_cache(maxsize=256)
def _tokens_of_text(text: str) -> int:
    code = "void f(){" + text.replace("\\\n", " ") + "\n;}"
    return sum(1 for _ in tokens(_parser("cuda").parse(code.encode()).root_node)) - 7


def _known_words(code: bytes, root: Node) -> bytes:
    """`__align__` becomes `alignas`, and what __has_include is asked about a name."""
    out = bytearray(code)
    for node in walk(root):
        if node.child_count == 0 and node.text == b"__align__":
            out[node.start_byte : node.end_byte] = b"alignas  "
        elif node.text == b"__has_include":
            line_end = code.find(b"\n", node.end_byte)
            inside = slice(code.find(b"(", node.end_byte) + 1, code.rfind(b")", 0, line_end))
            out[inside] = b"h" * (inside.stop - inside.start)
    return bytes(out)
