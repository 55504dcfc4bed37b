"""What a reader refuses of a meta.json that was edited or damaged: facts that it computes with.

A fact that is missing or null is unknown and no fault. Standard library only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.roofs import CURVES, Roofs
from harness.schema import ResultsError

_POSITIVE, _NOT_NEGATIVE = "a finite number above 0", "a finite number from 0 up"


def refuse_unusable(path: Path, meta: Mapping[str, Any]) -> None:
    """Raise ResultsError for the first fact of `meta` that a reader cannot compute with."""
    _number(path, "tick_us", meta.get("tick_us"), _NOT_NEGATIVE)
    for name in ("roofs", "roofs_end"):
        roofs = _object(path, name, meta.get(name))
        for key in ("tick_us", "launch_floor_us"):
            _number(path, f"{name}.{key}", roofs.get(key), _NOT_NEGATIVE)
        rates = _object(path, f"{name}.matrix_tflops", roofs.get("matrix_tflops"))
        for dtype, rate in rates.items():
            _number(path, f"{name}.matrix_tflops.{dtype}", rate, _POSITIVE, null=False)
        curves = _object(path, f"{name}.curves_us", roofs.get("curves_us"))
        for kind, curve in curves.items():
            _curve(path, f"{name}.curves_us.{kind}", curve)


def whole_roofs(path: Path, recorded: Any) -> Roofs:
    """Return the roofs that an interrupted run recorded, for its other rows.

    Raises ResultsError when a part of them is missing: no row could be judged by the rest.
    """
    try:
        roofs = Roofs.from_meta(recorded)
        for kind in CURVES:
            _curve(path, f"roofs.curves_us.{kind}", roofs.curves[kind])
        missing = [key for key in ("matrix_tflops", "launch_floor_us") if recorded[key] is None]
    except KeyError as error:
        missing = list(error.args)
    except (AttributeError, TypeError):
        missing = ["curves_us"]
    if missing:
        raise ResultsError(
            f"{path}: roofs lacks {missing[0]}, which the rows to come need; take it from a copy, "
            "or choose another folder"
        )
    return roofs


def _object(path: Path, name: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _unusable(path, name, value, "an object")
    return value


def _number(path: Path, name: str, value: Any, wanted: str, null: bool = True) -> None:
    if value is None and null:
        return
    known = isinstance(value, int | float) and not isinstance(value, bool)
    if not (known and math.isfinite(value) and (value > 0 if wanted is _POSITIVE else value >= 0)):
        raise _unusable(path, name, value, wanted)


def _curve(path: Path, name: str, curve: Any) -> None:
    wanted = "pairs of bytes and microseconds, finite and above 0, bytes ascending"
    try:
        points = [(size, time_us) for size, time_us in curve]
        for value in itertools.chain.from_iterable(points):
            _number(path, name, value, _POSITIVE, null=False)
    except (TypeError, ValueError):
        raise _unusable(path, name, curve, wanted) from None
    sizes = [size for size, _ in points]
    if not sizes or any(later <= size for size, later in itertools.pairwise(sizes)):
        raise _unusable(path, name, curve, wanted)


def _unusable(path: Path, name: str, value: Any, wanted: str) -> ResultsError:
    text = repr(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    return ResultsError(
        f"{path}: {name} is {text}, want {wanted}, or null for unknown; copy the run again"
    )
