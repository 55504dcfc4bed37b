"""Names on a syntax tree: those that a unit defines, and those that it may mean from outside."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from .syntax import STRINGS, text_of, walk

_NAMES = frozenset(
    ("identifier", "type_identifier", "field_identifier", "operator_name", "destructor_name")
)
_DECLARE = {
    "cuda": ("parameter_declaration", "optional_parameter_declaration", "declaration"),
    "triton": ("parameters", "lambda_parameters", "assignment", "for_statement"),
}


def inner_of(node: Node) -> Node:
    """What a template or a decorator is put before."""
    while node.type in ("template_declaration", "decorated_definition"):
        node = node.named_children[-1]
    return node


def names_in_cuda(node: Node) -> Iterator[str]:
    node = inner_of(node)
    named = node.child_by_field_name("name")
    if named is not None:
        yield _last_name(named)
    kind = node.child_by_field_name("type")
    if kind is not None and kind.child_by_field_name("body") is not None:
        yield from names_in_cuda(kind)  # struct A { ... } a;
    for declarator in node.children_by_field_name("declarator"):
        yield _last_name(declarator)
    if node.type == "enum_specifier":
        for part in walk(node):
            if part.type == "enumerator" and (name := part.child_by_field_name("name")):
                yield text_of(name)


def _last_name(node: Node) -> str:
    """The name in a declarator or a qualified name; "" for one that has none."""
    while node.child_count:
        inner = node.child_by_field_name("declarator") or node.child_by_field_name("name")
        if inner is None:
            named = [n for n in node.named_children if n.child_count or n.type in _NAMES]
            if not named:
                break
            inner = named[-1] if node.type == "qualified_identifier" else named[0]
        node = inner
    return text_of(node)


def names_in_python(node: Node) -> Iterator[str]:
    node = inner_of(node)
    named = node.child_by_field_name("name")
    if named is not None:
        yield text_of(named)
        return
    for part in walk(node):
        if part.type in ("assignment", "augmented_assignment", "named_expression"):
            target = part.child_by_field_name("left") or part.child_by_field_name("name")
            if target is not None:
                yield from (text_of(n) for n in walk(target) if n.type == "identifier")


def used_names(node: Node, left_out: set[int], side: str) -> Iterator[str]:
    """Names that a unit may mean from outside: called ones in C++, and those it does not declare.

    In C++ a local variable hides only what is not called; in Python it hides all.
    """
    declared = set(_locals(node, side))
    left = [node]
    while left:
        part = left.pop()
        if part.id in left_out or part.type in STRINGS:
            continue
        if part.child_count:
            left += part.children
            continue
        if part.type not in ("identifier", "type_identifier", "namespace_identifier"):
            continue
        name = text_of(part)
        outside = name not in declared or (side == "cuda" and _is_called(part))
        if outside and not _is_word_of_call(part):
            yield name


def _is_called(leaf: Node) -> bool:
    above = leaf.parent
    while above is not None and above.type in ("template_function", "qualified_identifier"):
        leaf, above = above, above.parent
    return above is not None and above.type in ("call_expression", "template_function")


def _is_word_of_call(leaf: Node) -> bool:
    """A keyword argument's name, or an attribute: names of something else."""
    above = leaf.parent
    if above is None:
        return False
    if above.type == "keyword_argument":
        return above.child_by_field_name("name") == leaf
    return above.type == "attribute" and above.child_by_field_name("attribute") == leaf


def _locals(unit: Node, side: str) -> Iterator[str]:
    for node in walk(inner_of(unit)):
        if node.type not in _DECLARE[side] or node.id == unit.id:
            continue
        if side == "cuda":
            for declarator in node.children_by_field_name("declarator"):
                yield _last_name(declarator)
        elif node.type in ("parameters", "lambda_parameters"):
            for part in node.named_children:
                name = part.child_by_field_name("name") or part
                yield text_of(next((n for n in walk(name) if n.type == "identifier"), name))
        elif unit.type != "expression_statement":
            target = node.child_by_field_name("left")
            if target is not None:
                yield from (text_of(n) for n in walk(target) if n.type == "identifier")
