"""The noise floor that a run's meta.json records: read, or refused where it is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from harness import stats
from harness.compare_checks import ComparisonRefused
from harness.results import meta_value


def noise_classes(meta: Mapping[str, Any]) -> tuple[tuple[float, float], ...]:
    """Return a run's A/A noise floors as rising (below_us, relative floor), () if unrecorded.

    meta's noise_floor is one number, or {"classes": [{"below_us": 10.0, "floor": 0.05}, ...,
    {"below_us": null, "floor": 0.01}]} with null for the class without an upper end.
    """
    recorded = meta_value(meta, "noise_floor")
    if recorded is None:
        return ()
    if isinstance(recorded, int | float):
        return ((np.inf, _floor(recorded)),)
    try:
        classes = recorded.get("classes", []) if isinstance(recorded, Mapping) else recorded
        pairs = [
            (np.inf if c.get("below_us") is None else float(c["below_us"]), _floor(c["floor"]))
            for c in classes
        ]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise _unusable_floor(recorded) from None
    return tuple(sorted(pairs))


def recorded_noise_floor(meta: Mapping[str, Any]) -> stats.NoiseFloor | None:
    """Return a run's A/A noise floor, None if unrecorded.

    Beside its classes meta's noise_floor may hold {"equal_clock": {"floor": 0.01}} and
    {"clock_limited": {"floor": 0.05}}, which was "power_limited" at first. Raises
    ComparisonRefused, as noise_classes does, for a record that is no floor.
    """
    classes = noise_classes(meta)
    if not classes:
        return None
    recorded = meta["noise_floor"]
    old = _named_floor(recorded, "power_limited", stats.DEFAULT_LIMITED_FLOOR)
    return stats.NoiseFloor(
        classes,
        _named_floor(recorded, "equal_clock", stats.DEFAULT_EQUAL_CLOCK_FLOOR),
        _named_floor(recorded, "clock_limited", old),
    )


def _named_floor(recorded: Any, name: str, default: float) -> float:
    entry = recorded.get(name) if isinstance(recorded, Mapping) else None
    if entry is None:
        return default
    return _floor(entry.get("floor") if isinstance(entry, Mapping) else entry)


def one_floor(floor: float) -> stats.NoiseFloor:
    """Return a user's own floor, the same for every row."""
    return stats.NoiseFloor(((np.inf, floor),), floor, floor)


def _floor(value: Any) -> float:
    """A relative floor; one of 1 or more, or NaN, would hide every difference."""
    if isinstance(value, int | float) and 0 <= value < 1:
        return float(value)
    raise _unusable_floor(value)


def _unusable_floor(value: Any) -> ComparisonRefused:
    return ComparisonRefused(
        f"a run's meta.json says noise_floor {value!r}, want shares of 1 as `bench --aa` records "
        "them; give --noise-floor, or set it to null"
    )
