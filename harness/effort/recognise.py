"""How concepts are recognised on a syntax tree: the ways that concepts.json names.

leaf      a word of C++ that is no comment and no string, such as an identifier or a keyword
asm       an instruction in the text of an asm statement
pragma    the first word of a #pragma
launch    an argument of <<<...>>>, by its place; a literal 0 says nothing
name      a dotted name of Python, spelled as after the usual imports (tl for triton.language)
argument  an argument of a call of such a name, or of a launch, by keyword or place
tree      a shape, by the name of a function in shapes.py
All patterns match whole words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from . import concepts, shapes
from .syntax import COMMENTS, STRINGS, macro_bodies, parse, text_of, walk

# (concept, row from 0, first byte of the line, the byte behind the last; None: to the line's end)
Found = tuple[str, int, int, "int | None"]
_INSTRUCTION = re.compile(r"(?:\\[nt]|[\s;{}]|@!?[%\w]+\s)*([a-z][^;\\\n]*)")


def recognised(text: str, side: str) -> Iterator[Found]:
    root = parse(side, text)
    yield from _of_cuda(root) if side == "cuda" else _of_triton(root)


def _at(concept: str, node: Node) -> Found:
    (row, start), (end_row, end) = node.start_point, node.end_point
    return concept, row, start, end if end_row == row else None


def _patterns(side: str, way: str) -> list[tuple[str, re.Pattern[str]]]:
    return [(c, re.compile(m[way])) for c, m in concepts.matches(side) if way in m]


def _of_cuda(root: Node) -> Iterator[Found]:
    leaves = _patterns("cuda", "leaf")
    places = [(c, m["launch"]) for c, m in concepts.matches("cuda") if "launch" in m]
    trees = [(c, m["tree"]) for c, m in concepts.matches("cuda") if "tree" in m]
    fixed = shapes.fixed_names(root, "cuda")
    for node in code(root):
        if node.child_count == 0:
            yield from (_at(c, node) for c, p in leaves if p.fullmatch(text_of(node)))
        elif node.type == "kernel_call_syntax":
            yield from _launch_arguments(node, places)
        elif node.type in _OWN_TEXT:
            yield from _OWN_TEXT[node.type](node)
        for concept, shape in trees:
            if (found := shapes.CUDA[shape](node, fixed)) is not None:
                yield _at(concept, found)
    for body, nodes in macro_bodies(root):
        for node in nodes:
            for concept, pattern in leaves:
                if node.child_count == 0 and pattern.fullmatch(text_of(node)):
                    _, row, start, end = _at(concept, node)
                    yield concept, row - 1 + body.start_point[0], start, end


def code(root: Node) -> Iterator[Node]:
    """All nodes but those inside comments and strings."""
    left = [root]
    while left:
        node = left.pop()
        if node.type in COMMENTS:
            continue
        yield node
        if node.type not in STRINGS:
            left += reversed(node.children)


def _instructions(node: Node) -> Iterator[Found]:
    """Of the template: the strings before the first operand."""
    patterns = _patterns("cuda", "asm")
    template = node.child_by_field_name("assembly_code")
    for part in walk(template) if template is not None else ():
        if part.type not in ("string_content", "raw_string_content"):
            continue
        for at, line in enumerate(text_of(part).split("\n")):
            offset = part.start_point[1] if at == 0 else 0
            for match in _INSTRUCTION.finditer(line):
                start = offset + len(line[: match.start(1)].encode())
                end = offset + len(line[: match.end(1)].rstrip().encode())
                for concept, pattern in patterns:
                    if pattern.fullmatch(match[1].strip().replace("%%", "%")):
                        yield concept, part.start_point[0] + at, start, end


def _pragma(node: Node) -> Iterator[Found]:
    words = node.child_by_field_name("argument")
    directive = node.child_by_field_name("directive")
    if words is None or directive is None or text_of(directive) != "#pragma":
        return
    for concept, pattern in _patterns("cuda", "pragma"):
        if re.match(rf"(?:{pattern.pattern})\b", text_of(words)):
            (row, start), (_, end) = directive.start_point, words.end_point
            yield concept, row, start, end


def _launch_arguments(node: Node, places: list[tuple[str, int]]) -> Iterator[Found]:
    arguments = [child for child in node.named_children if child.type not in COMMENTS]
    for concept, place in places:
        if place < len(arguments) and text_of(arguments[place]) != "0":
            yield _at(concept, arguments[place])


def _of_triton(root: Node) -> Iterator[Found]:
    names = _patterns("triton", "name")
    trees = [(c, m["tree"]) for c, m in concepts.matches("triton") if "tree" in m]
    arguments = [(c, m) for c, m in concepts.matches("triton") if "argument" in m]
    aliases = shapes.aliases(root)
    fixed = shapes.fixed_names(root, "triton")
    for node in code(root):
        if node.type in ("attribute", "identifier"):
            name = shapes.dotted(node, aliases)
            if name:
                yield from (_at(c, node) for c, p in names if p.fullmatch(name))
        elif node.type == "call":
            yield from _call_arguments(node, arguments, aliases)
        for concept, shape in trees:
            if (found := shapes.TRITON[shape](node, fixed)) is not None:
                yield _at(concept, found)


def _call_arguments(
    node: Node, wanted: list[tuple[str, dict[str, str]]], aliases: dict[str, str]
) -> Iterator[Found]:
    function = node.child_by_field_name("function")
    given = node.child_by_field_name("arguments")
    if function is None or given is None:
        return
    name = "launch" if shapes.is_launch(node) else shapes.dotted(function, aliases)
    parts = [part for part in given.named_children if part.type not in COMMENTS]
    by_place = [part for part in parts if part.type != "keyword_argument"]
    for concept, match in wanted:
        if not name or not re.fullmatch(match["of"], name):
            continue
        place = int(match["position"])
        if 0 <= place < len(by_place):
            yield _at(concept, by_place[place])
        for part in parts:
            word = part.child_by_field_name("name")
            if word is not None and re.fullmatch(match["argument"], text_of(word)):
                yield _at(concept, part)


_OWN_TEXT = {"gnu_asm_expression": _instructions, "preproc_call": _pragma}
