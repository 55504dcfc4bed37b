"""Which rows an A/A measurement repeats: few, but spread over ops, dtypes and durations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from .plan import PlanError, Unit

LEAST_ROWS = 72
LEAST_PROCESSES = 2
# Fewer than these give a floor for oneself, not one that later runs rely on.
PROCESSES = 5
# Every process makes a float64 reference of each case; beyond this it costs more than the timing.
MAX_BYTES = 1 << 29
# Under the power limit a case is watched for seconds: a few of them must do.
MOST_COMPUTE_BOUND = 4

# One H200's rates, rounded. They order the cases and tell a short one from a long one before
# anything was timed; no result depends on them.
_BYTES_PER_US = 3e6
_FLOPS_PER_BYTE = 200.0
_LAUNCH_US = 4.0
_SHORT_US, _LONG_US = 10.0, 100.0

# Means of one H200's processes: the first one's imports and compilations; of each, context and
# calibration; check and rounds of one row.
_FIRST_S = 10.0
_START_S = 3.0
_ROW_S = 0.18


def choose(units: Sequence[Unit], least_rows: int = LEAST_ROWS) -> list[Unit]:
    """Return a subset of `units` with at least `least_rows` rows where there are as many.

    Whole cases, because their contenders share rounds; in the order of `units`. The next case is
    always one of the duration class, op and dtype that were chosen least, and of those the
    smallest, the largest, the next smallest and so on. Raises PlanError when none is left.
    """
    left = _ends_first([unit for unit in map(_repeatable, units) if _fits(unit)])
    chosen: list[Unit] = []
    taken: Counter[tuple[str, object]] = Counter()
    while left and count_rows(chosen) < least_rows:
        unit = min(left, key=lambda u: [taken[trait] for trait in _traits(u)])
        left.remove(unit)
        if unit.spec.compute_bound and _compute_bound(chosen) == MOST_COMPUTE_BOUND:
            continue
        chosen.append(unit)
        taken.update(_traits(unit))
    if not chosen:
        raise PlanError(
            f"--aa repeats no case that matches: it takes those of at most {MAX_BYTES >> 20} MiB, "
            "without torch.compile; widen the filters"
        )
    labels = {unit.label for unit in chosen}
    return [unit for unit in map(_repeatable, units) if unit.label in labels]


def _compute_bound(units: Sequence[Unit]) -> int:
    return sum(unit.spec.compute_bound for unit in units)


def count_rows(units: Sequence[Unit]) -> int:
    """Return how many rows the units have together."""
    return sum(len(unit.contenders) for unit in units)


def estimate_s(units: Sequence[Unit], processes: int) -> float:
    """Return the seconds that `processes` times `units` should take on an H200, no promise."""
    return _FIRST_S + processes * (_START_S + _ROW_S * count_rows(units))


def _repeatable(unit: Unit) -> Unit:
    """The unit without absent sides, without rungs, of which one case may have more than all rows
    wanted, and without torch.compile, which may choose another configuration in each process: that
    is no noise of the measurement."""
    left_out = ("compile", *unit.spec.absent)
    kept = (c for c in unit.contenders if c.backend not in left_out and not c.variant)
    return replace(unit, contenders=tuple(kept))


def _fits(unit: Unit) -> bool:
    return bool(unit.contenders) and _bytes(unit) <= MAX_BYTES


def _bytes(unit: Unit) -> int:
    return unit.spec.bytes_read(unit.case, unit.dtype) + unit.spec.bytes_written(
        unit.case, unit.dtype
    )


def _guess_us(unit: Unit) -> float:
    work = max(float(_bytes(unit)), unit.spec.flops(unit.case) / _FLOPS_PER_BYTE)
    return _LAUNCH_US + work / _BYTES_PER_US


def _traits(unit: Unit) -> tuple[tuple[str, object], ...]:
    """What is to be spread, most important first."""
    guess_us = _guess_us(unit)
    duration = (guess_us >= _SHORT_US) + (guess_us >= _LONG_US)
    return ("duration", duration), ("op", unit.spec.stem), ("dtype", unit.dtype)


def _ends_first(units: Sequence[Unit]) -> list[Unit]:
    """The units from both ends of the durations inwards."""
    rising = sorted(units, key=_guess_us)
    middle = (len(rising) + 1) // 2
    pairs = zip_longest(rising[:middle], reversed(rising[middle:]))
    return [unit for pair in pairs for unit in pair if unit is not None]
