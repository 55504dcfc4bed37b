"""Values of JSON against the types that a class of facts declares, with what is wrong in words."""

from __future__ import annotations

import functools
import types
from collections.abc import Hashable, Mapping
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Made = TypeVar("Made")
_WORDS = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}
_LONGEST = 40


class MisfitError(ValueError):
    """A value of another type than is wanted, in a part of a sentence."""


def made(kind: type[Made], data: Mapping[str, Any]) -> Made:
    """The dataclass from its fields in `data`; keys of later versions are passed over. Raises
    MisfitError for a field that is missing or of another type."""
    declared: Any = kind
    hints = _hints(declared)
    kept = {name: value for name, value in data.items() if name in hints}
    for name, value in kept.items():
        if not fits(value, hints[name]):
            raise MisfitError(f"{name} is {shown(value)}, want {_words(hints[name])}")
    try:
        return kind(**kept)
    except TypeError as error:  # which fields are missing, in Python's words
        raise MisfitError(str(error).partition("__init__() ")[2] or str(error)) from None


def member(data: Any, name: str, kind: type[Made], default: Made | None = None) -> Made:
    """data[name], `default` where it is absent. Raises MisfitError where it is of another type."""
    if not isinstance(data, dict):
        raise MisfitError(f"it is {shown(data)}, want an object")
    if name not in data and default is None:
        raise MisfitError(f"{name} is missing, want {_words(kind)}")
    value: Any = data.get(name, default)
    if not fits(value, kind):
        raise MisfitError(f"{name} is {shown(value)}, want {_words(kind)}")
    found: Made = value
    return found


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type, to its innermost parts; a list stands for a tuple."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in inner)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            return False
        wanted = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return len(value) == len(wanted) and all(map(fits, value, wanted))
    if origin is dict:
        return isinstance(value, dict) and all(
            fits(key, inner[0]) and fits(one, inner[1]) for key, one in value.items()
        )
    if hint is float:
        return type(value) in (int, float)
    return type(value) is int if hint is int else isinstance(value, hint)


def shown(value: Any) -> str:
    """The value as an error names it, on one line and cut."""
    text = "null" if value is None else repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


@functools.cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind)


def _words(hint: Any) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_words(one) for one in inner if one is not types.NoneType)
    if origin is tuple:
        if inner[-1] is Ellipsis:
            return f"a list, each {_words(inner[0])}"
        return f"a list of {len(inner)}, each {_words(inner[0])}"
    if origin is dict and inner[1] is not Any:
        return f"an object, each {_words(inner[1])}"
    return _WORDS.get(origin or hint, str(hint))
