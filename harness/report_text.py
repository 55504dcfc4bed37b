"""Numbers and lists as the report prints them; unknown is a dash, never 0."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

UNKNOWN = "–"
_LONGEST = 400  # characters of a reason or config; all of it is in bench.csv


def time_us(value: object) -> str:
    """Return microseconds with three or four significant digits, never in exponent form."""
    us = number(value)
    if not math.isfinite(us):
        return UNKNOWN
    digits = 0 if us >= 1000 else 1 if us >= 100 else 2 if us >= 1 else 4
    return f"{us:.{digits}f}"


def fixed(value: object, digits: int) -> str:
    """Return a number with that many decimals."""
    value = number(value)
    return f"{value:.{digits}f}" if math.isfinite(value) else UNKNOWN


def short(value: object, digits: int = 2) -> str:
    """Return a number of any size with few digits, such as an error."""
    value = number(value)
    return f"{value:.{digits}g}" if math.isfinite(value) else UNKNOWN


def interval(low: object, high: object, digits: int = 3) -> str:
    """Return the ends of an interval; one without an end had too few rounds."""
    low, high = number(low), number(high)
    if low != low or high != high:
        return ""
    if not math.isfinite(high):
        return "too few rounds"
    return f"{low:.{digits}f} to {high:.{digits}f}"


def times(ratio: float) -> str:
    """Return how many times faster the faster side is, such as 1.68×."""
    return f"{max(ratio, 1.0 / ratio):.2f}×"


def count(n: int, one: str, many: str = "") -> str:
    """Return a count with its noun."""
    return f"{n} {one if n == 1 else many or one + 's'}"


def number(value: object) -> float:
    """Return a float, NaN for whatever is none: pandas' NA, None, text of an edited meta.json."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan


def binary(n_bytes: object) -> str:
    """Return a size in binary units, such as 64 MiB."""
    size = number(n_bytes)
    if not math.isfinite(size):
        return UNKNOWN
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"


def cut(text: object) -> str:
    """Return a text that a table can hold."""
    whole = str(text)
    return whole if len(whole) <= _LONGEST else f"{whole[:_LONGEST]} … ({len(whole)} characters)"


def listing(values: Sequence[str], most: int = 6) -> str:
    """Return the first values as words, and how many are left out."""
    text = ", ".join(values[:most])
    return f"{text} and {len(values) - most} more" if len(values) > most else text


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value where it is a JSON object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def sequence(value: object) -> Sequence[Any]:
    """Return the value where it is a JSON array, else an empty one."""
    return value if isinstance(value, list | tuple) else ()
