"""Shapes on a syntax tree that no single word gives away.

A function of `CUDA` or `TRITON` takes a node and the file's names fixed at compile time; it
returns the node that is the use, None where the shape is another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tree_sitter import Node

from .syntax import text_of, walk

_RELATIONS = frozenset(("<", "<=", ">", ">="))
_NUMBERS = frozenset(("number_literal", "integer", "float", "true", "false"))
_USUAL = {"triton.language": "tl"}


def fixed_names(root: Node, side: str) -> frozenset[str]:
    """Names that a file fixes at compile time: constexpr variables and template or constexpr
    parameters. Another file's are not known here."""
    return frozenset(_fixed_cuda(root) if side == "cuda" else _fixed_triton(root))


def _fixed_cuda(root: Node) -> Iterator[str]:
    for node in walk(root):
        if node.type == "template_parameter_list":
            found: list[Node] = list(node.named_children)
        elif node.type in ("declaration", "field_declaration") and any(
            text_of(child) == "constexpr" for child in node.children
        ):
            found = node.children_by_field_name("declarator")
        else:
            continue
        for part in found:
            for leaf in walk(part):
                if leaf.type in ("identifier", "field_identifier"):
                    yield text_of(leaf)
                    break


def _fixed_triton(root: Node) -> Iterator[str]:
    for node in walk(root):
        kind = node.child_by_field_name("type")
        if kind is None or not text_of(kind).endswith("constexpr"):
            continue
        name = node.child_by_field_name("name") or node.child_by_field_name("left")
        if name is None:
            name = node.named_child(0)
        if name is not None:
            yield text_of(name)


def function_of(node: Node) -> Node | None:
    """The innermost function definition around a node; a lambda belongs to the one around it."""
    inner = node.parent
    while inner is not None and inner.type != "function_definition":
        inner = inner.parent
    return inner


def is_device(function: Node) -> bool:
    """Whether a function is compiled for the GPU: marked so in CUDA, @triton.jit in Triton."""
    if function.parent is not None and function.parent.type == "decorated_definition":
        marks = [text_of(c) for c in function.parent.children if c.type == "decorator"]
        return any(mark.lstrip("@").split("(")[0].split(".")[-1] == "jit" for mark in marks)
    return any(text_of(child) in ("__global__", "__device__") for child in function.children)


def _guard(node: Node, fixed: frozenset[str]) -> Node | None:
    """The condition of an if or a conditional expression of device code that compares with a limit
    known at run time only."""
    if node.type not in ("if_statement", "elif_clause", "conditional_expression"):
        return None
    if any(child.type == "constexpr" for child in node.children):
        return None
    function = function_of(node)
    if function is None or not is_device(function):
        return None
    condition = node.child_by_field_name("condition")
    if condition is None and node.type == "conditional_expression":  # Python's: value if condition
        condition = node.named_children[1]
    if condition is None:
        return None
    if condition.type == "condition_clause":
        condition = condition.child_by_field_name("value") or condition
    return condition if any(_limits(part, fixed) for part in walk(condition)) else None


def _limits(node: Node, fixed: frozenset[str]) -> bool:
    if node.type not in ("binary_expression", "comparison_operator") or node.child_count != 3:
        return False
    left, operator, right = node.children
    if operator.type not in _RELATIONS:
        return False
    limit = right if operator.type in ("<", "<=") else left
    other = left if limit is right else right
    return not _is_fixed(limit, fixed) and other.type not in _NUMBERS


def _is_fixed(node: Node, fixed: frozenset[str]) -> bool:
    """Made of numbers and fixed names only; a member of a type, A::b, is fixed in device code."""
    if node.type in _NUMBERS or node.type == "qualified_identifier":
        return True
    if node.child_count == 0:
        return not node.is_named or text_of(node) in fixed
    return all(_is_fixed(child, fixed) for child in node.children)


def _pointer_cast(node: Node, _: frozenset[str]) -> Node | None:
    """reinterpret_cast to a pointer or a reference."""
    if node.type != "call_expression":
        return None
    function = node.child_by_field_name("function")
    if function is None or function.type != "template_function":
        return None
    target = function.child_by_field_name("arguments")
    if not text_of(function).startswith("reinterpret_cast") or target is None:
        return None
    kinds = {part.type for part in walk(target)}
    wanted = {"abstract_pointer_declarator", "abstract_reference_declarator"}
    return function if kinds & wanted else None


def _split_thread_index(node: Node, _: frozenset[str]) -> Node | None:
    """threadIdx divided: its lane, its warp, its row."""
    if node.type != "binary_expression":
        return None
    left, operator = node.child_by_field_name("left"), node.child_by_field_name("operator")
    if left is None or operator is None or operator.type not in ("%", "/", "&", ">>"):
        return None
    return node if any(text_of(n) == "threadIdx" for n in walk(left) if not n.children) else None


def _shared(node: Node, dynamic: bool) -> Node | None:
    if node.type != "__shared__" or node.parent is None:
        return None
    around: Node | None = node.parent
    while around is not None and around.type not in ("declaration", "field_declaration"):
        around = around.parent
    is_extern = around is not None and any(text_of(c) == "extern" for c in around.children)
    return node if is_extern == dynamic else None


def dotted(node: Node, aliases: dict[str, str]) -> str:
    """The usual spelling of a dotted name that is read, "" for any other node.

    Only whole names: not the `tl` of tl.load, not a keyword, a parameter or a name being bound.
    """
    parent = node.parent
    if parent is None or node.type not in ("attribute", "identifier"):
        return ""
    if parent.type in ("attribute", "dotted_name", "aliased_import", "import_from_statement"):
        return ""
    if parent.type == "keyword_argument" and parent.child_by_field_name("name") == node:
        return ""
    head, *rest = text_of(node).replace(" ", "").split(".")
    return ".".join((aliases[head], *rest)) if head in aliases else ""


def aliases(root: Node) -> dict[str, str]:
    """Names that a Python file binds by import, to what they stand for in the usual spelling."""
    found: dict[str, str] = {}
    for node in walk(root):
        if node.type not in ("import_statement", "import_from_statement"):
            continue
        module = node.child_by_field_name("module_name")
        start = f"{text_of(module)}." if module is not None else ""
        for part in node.children_by_field_name("name"):
            name = part.child_by_field_name("name") or part
            alias = part.child_by_field_name("alias")
            target = start + text_of(name)
            if alias is None and not start:
                target = target.split(".")[0]
            found[text_of(alias) if alias is not None else target.split(".")[-1]] = target
    return {name: _usual(target) for name, target in found.items()}


def _usual(target: str) -> str:
    for module, short in _USUAL.items():
        if target == module or target.startswith(f"{module}."):
            return short + target[len(module) :]
    return target


def is_launch(node: Node) -> bool:
    """kernel[grid](...) outside of device code, with a kernel's keyword or a name that says so."""
    function = node.child_by_field_name("function")
    if node.type != "call" or function is None or function.type != "subscript":
        return False
    around = function_of(node)
    kernel = function.child_by_field_name("value")
    if (around is not None and is_device(around)) or kernel is None:
        return False
    return kernel.type == "identifier" and _is_kernel(text_of(kernel), node)


def _is_kernel(name: str, node: Node) -> bool:
    """Defined here by @triton.jit, imported or chosen from such; or the launch has num_warps."""
    root = node
    while (above := root.parent) is not None:
        root = above
    for definition in walk(root):
        if definition.type == "function_definition" and is_device(definition):
            defined = definition.child_by_field_name("name")
            if defined is not None and text_of(defined) == name:
                return True
    given = node.child_by_field_name("arguments")
    words = (part.child_by_field_name("name") for part in (given.children if given else ()))
    options = {"num_warps", "num_stages", "num_ctas", "maxnreg"}
    return any(word is not None and text_of(word) in options for word in words)


def _launch(node: Node, _: frozenset[str]) -> Node | None:
    return node.child_by_field_name("function") if is_launch(node) else None


Shape = Callable[[Node, frozenset[str]], "Node | None"]
CUDA: dict[str, Shape] = {
    "guard": _guard,
    "pointer_cast": _pointer_cast,
    "split_thread_index": _split_thread_index,
    "static_shared": lambda node, _: _shared(node, dynamic=False),
    "dynamic_shared": lambda node, _: _shared(node, dynamic=True),
}
TRITON: dict[str, Shape] = {"guard": _guard, "launch": _launch}
