"""Two runs, or two sides of one run, row by row: ratio, interval, verdict, and what is missing.

Reads files only; needs neither a GPU nor torch. Ratios are time new/base: above 1 is slower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness import stats
from harness.compare_checks import (
    ComparisonRefused,
    card_labels,
    changed_tools,
    environment_labels,
    noise_floor_labels,
    refuse_other_cache,
    refuse_other_gpu,
    refuse_other_rounds,
    refuse_unfinished,
    unpaired_labels,
)
from harness.compare_judge import add_ratios, call
from harness.compare_rows import join_rows, mark_changes
from harness.compare_view import render
from harness.results import KEY, Run, meta_value

__all__ = [
    "Comparison",
    "ComparisonRefused",
    "compare_runs",
    "compare_sides",
    "exit_code",
    "noise_classes",
    "render",
]

_SIDE_KEY = tuple(c for c in KEY if c not in ("backend", "variant"))


@dataclass(frozen=True, eq=False)
class Comparison:
    """What `render` prints and `exit_code` judges.

    rows: one line a key of either side: the key columns, dims, cache, bound, base_status,
    new_status ("" = no such row), base_us, new_us (p50), ratio, low, high (of round means),
    limited, at_equal_clock, clock_ratio, paired (see compare_judge.add_ratios), band (relative),
    verdict, changed, lost, failed. verdict is "" when neither side was timed.
    lost: ok in base, no time in new. failed: newly incorrect. labels: lines to print first.
    """

    base_name: str
    new_name: str
    rows: pd.DataFrame
    labels: tuple[str, ...]

    def count(self, verdict: str) -> int:
        """Return how many rows have this verdict."""
        return int((self.rows["verdict"] == verdict).sum())

    @property
    def newly_incorrect(self) -> int:
        """Return how many rows were right in base and failed in new."""
        return int(self.rows["failed"].sum())

    @property
    def lost(self) -> int:
        """Return how many rows were timed in base and have no time in new."""
        return int(self.rows["lost"].sum())


def exit_code(comparison: Comparison) -> int:
    """Return 1 when a row got slower, went missing or went wrong in new, else 0.

    Rows that only new has are listed as MISSING but do not fail: adding a kernel is no regression.
    Callers return 2 for ComparisonRefused.
    """
    bad = comparison.count("SLOWER") + comparison.lost + comparison.newly_incorrect
    return 1 if bad else 0


def compare_runs(
    base: Run,
    new: Run,
    *,
    noise_floor: float | None = None,
    least_effect: float = 0.02,
    force: bool = False,
) -> Comparison:
    """Compare two runs on KEY and dims.

    noise_floor, least_effect: relative (0.02 = 2 %). Without `noise_floor` the runs' own A/A
    floors count, the larger of the two, else stats.DEFAULT_NOISE_FLOORS.
    Raises ComparisonRefused for unfinished runs, no common row, and, unless `force`, another GPU
    model, cold against warm, or rows flushed differently.
    """
    refuse_unfinished(base, "base")
    refuse_unfinished(new, "new")
    refuse_other_rounds(base)
    refuse_other_rounds(new)
    cross_device = refuse_other_gpu(base, new, force)
    on = [*KEY, "dims"]
    rows = join_rows(base.rows, new.rows, on)
    both = (rows["base_status"] != "") & (rows["new_status"] != "")
    if not both.any():
        raise ComparisonRefused(
            f"no common row: base has {len(base.rows)}, new has {len(new.rows)}, and no "
            f"{'/'.join(on)} is in both; compare runs of the same cases"
        )
    labels = cross_device + refuse_other_cache(rows, both, force)
    if noise_floor is not None:
        floor = [_one_floor(noise_floor)]
    else:
        recorded = [recorded_noise_floor(run.meta) for run in (base, new)]
        floor = [f for f in recorded if f is not None]
    labels += card_labels(base, new) + noise_floor_labels(base, new, noise_floor, bool(floor))
    tick = max(_tick_us(base), _tick_us(new))
    add_ratios(rows, (base.rounds, new.rounds), tick, same_rounds=False)
    call(rows, floor, least_effect)
    mark_changes(rows, both, changed_tools(base, new), bool(cross_device))
    if not ((rows["verdict"] != "").any() or rows["failed"].any()):
        raise ComparisonRefused("no common row was timed on either side; nothing to compare")
    labels += environment_labels(base, new)
    return Comparison(str(base.path), str(new.path), rows, tuple(labels))


def compare_sides(
    run: Run,
    side: str = "cuda",
    vs: str = "triton",
    *,
    noise_floor: float | None = None,
    least_effect: float = 0.02,
) -> Comparison:
    """Compare two backends' headline rows inside one run; ratio = time side / time vs.

    The sides ran in the same interleaved rounds: ratios are taken round by round, and no floor
    between processes applies unless given. Raises ComparisonRefused when a side has no headline
    row or two for one case.
    """
    refuse_other_rounds(run)
    rows = join_rows(_headline(run, vs), _headline(run, side), [*_SIDE_KEY, "dims"])
    add_ratios(rows, (run.rounds, run.rounds), _tick_us(run), same_rounds=True)
    given = None if noise_floor is None else _one_floor(noise_floor)
    floors = [floor for floor in (given or recorded_noise_floor(run.meta),) if floor]
    call(rows, floors, least_effect, paired_floor=noise_floor or 0.0)
    rows["changed"] = ""
    if not (rows["verdict"] != "").any():
        raise ComparisonRefused(
            f"{run.path} has no timed row of {side} or {vs}; nothing to compare"
        )
    return Comparison(vs, side, rows, tuple(unpaired_labels(rows)))


def _headline(run: Run, backend: str) -> pd.DataFrame:
    """One backend's headline rows, one a case."""
    mask = (run.rows["backend"] == backend) & run.rows["headline"].fillna(False)
    part: pd.DataFrame = run.rows[mask.astype(bool)]
    if part.empty:
        raise ComparisonRefused(f"{run.path} has no headline row of backend {backend}")
    twice = part[part.duplicated([*_SIDE_KEY, "dims"])]
    if not twice.empty:
        first = twice.iloc[0]
        raise ComparisonRefused(
            f"{run.path} has two headline rows of {backend} for {first['op']} "
            f"{first['case']} {first['dtype']}; mark one of them"
        )
    return part


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


def _one_floor(floor: float) -> stats.NoiseFloor:
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


def _tick_us(run: Run) -> float:
    recorded = (meta_value(run.meta, path) for path in ("tick_us", "roofs.tick_us"))
    return float(next((tick for tick in recorded if tick is not None), 0.0))
