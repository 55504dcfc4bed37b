"""Two runs, or two sides of one run, row by row: ratio, interval, verdict, and what is missing.

Reads files only; needs neither a GPU nor torch. Ratios are time new/base: above 1 is slower. A
side may be several runs of one build.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness import stats
from harness.compare_checks import (
    ComparisonRefused,
    keys_in_common,
    refuse_other_cache,
    refuse_other_gpu,
    refuse_other_rounds,
    refuse_unfinished,
)
from harness.compare_floor import noise_classes, one_floor, recorded_noise_floor
from harness.compare_gate import DEFAULT_GATE
from harness.compare_judge import add_pooled_ratios, call
from harness.compare_labels import (
    card_labels,
    changed_tools,
    environment_labels,
    noise_floor_labels,
    unpaired_labels,
)
from harness.compare_pool import Pool, mixed_side_labels, pool
from harness.compare_reasons import add_reasons
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
    "recorded_noise_floor",
    "render",
]

_SIDE_KEY = tuple(c for c in KEY if c not in ("backend", "variant"))


@dataclass(frozen=True, eq=False)
class Comparison:
    """What `render` prints and `exit_code` judges.

    rows: one line a key of either side: the key columns, dims, family, cache, bound, base_status,
    new_status ("" = no such row), base_us, new_us (p50, the mean over runs), ratio, low, high (of
    round means), limited, at_equal_clock, clock_ratio, paired, by_runs, base_runs, new_runs (see
    compare_judge.add_pooled_ratios), band (relative), verdict, reason, changed, lost, failed.
    verdict is "" when neither side was timed. lost: ok in base, no time in new. failed: newly
    incorrect. labels: lines to print first. runs: those of base and of new. sides: the backends
    compared within the same runs, () for a comparison of runs.
    """

    base_name: str
    new_name: str
    rows: pd.DataFrame
    labels: tuple[str, ...]
    runs: tuple[tuple[Run, ...], tuple[Run, ...]]
    sides: tuple[str, ...] = ()

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
    Callers return 2 for ComparisonRefused; other gates are in compare_gate.
    """
    return DEFAULT_GATE.judge(comparison.rows).code


def compare_runs(
    base: Run | Sequence[Run],
    new: Run | Sequence[Run],
    *,
    noise_floor: float | None = None,
    least_effect: float = 0.02,
    force: bool = False,
) -> Comparison:
    """Compare two runs, or several runs a side, on KEY and dims.

    noise_floor, least_effect: relative (0.02 = 2 %). Without `noise_floor` the runs' own A/A
    floors count, the largest of them, else stats.DEFAULT_NOISE_FLOORS.
    Raises ComparisonRefused for no common row and damaged runs, and, unless `force`, for
    unfinished runs, another GPU model, other inputs, cold against warm, rows flushed differently,
    and kernels that differ between the runs of one side.
    """
    sides = {"base": _runs(base), "new": _runs(new)}
    labels = []
    for name, runs in sides.items():
        for run in runs:
            labels += refuse_unfinished(run, name, force)
            refuse_other_rounds(run)
        labels += mixed_side_labels(name, runs, force)
    before, now = sides.values()
    cross_device = refuse_other_gpu(before, now, force)
    pools = pool("base", before), pool("new", now)
    on, other_inputs = keys_in_common(pools[0].rows, pools[1].rows, force)
    rows = join_rows(pools[0].rows, pools[1].rows, on)
    both = (rows["base_status"] != "") & (rows["new_status"] != "")
    labels = cross_device + other_inputs + labels + refuse_other_cache(rows, both, force)
    floors = _floors([*before, *now], noise_floor)
    labels += card_labels(before, now)
    labels += noise_floor_labels(before, now, noise_floor, bool(floors))
    _judge(rows, pools, same_rounds=False)
    call(rows, floors, least_effect)
    mark_changes(rows, both, changed_tools(before, now), bool(cross_device))
    if not ((rows["verdict"] != "").any() or rows["failed"].any()):
        raise ComparisonRefused("no common row was timed on either side; nothing to compare")
    add_reasons(rows, (len(before), len(now)))
    labels += environment_labels(before, now)
    return Comparison(pools[0].path, pools[1].path, rows, tuple(labels), (before, now))


def compare_sides(
    run: Run | Sequence[Run],
    side: str = "cuda",
    vs: str = "triton",
    *,
    noise_floor: float | None = None,
    least_effect: float = 0.02,
    force: bool = False,
) -> Comparison:
    """Compare two backends' headline rows inside one run; ratio = time side / time vs.

    The sides ran in the same interleaved rounds: ratios are taken round by round, and no floor
    between processes applies unless given. Raises ComparisonRefused when a side has no headline
    row or two for one case, and, unless `force`, for several runs of other kernels.
    """
    runs = _runs(run)
    labels = [
        f"{r.path} is not a finished run; what it holds is compared" for r in runs if not r.complete
    ]
    for each in runs:
        refuse_other_rounds(each)
    labels += mixed_side_labels("both sides", runs, force)
    whole = pool("runs", runs)
    pools = _headline(whole, vs), _headline(whole, side)
    rows = join_rows(pools[0].rows, pools[1].rows, [*_SIDE_KEY, "dims"])
    _judge(rows, pools, same_rounds=True)
    call(rows, _floors(runs, noise_floor), least_effect, paired_floor=noise_floor or 0.0)
    rows["changed"] = ""
    if not (rows["verdict"] != "").any():
        raise ComparisonRefused(
            f"{whole.path} has no timed row of {side} or {vs}; nothing to compare"
        )
    add_reasons(rows, (len(runs), len(runs)), (vs, side))
    labels += unpaired_labels(rows)
    return Comparison(vs, side, rows, tuple(labels), (runs, runs), (vs, side))


def _runs(runs: Run | Sequence[Run]) -> tuple[Run, ...]:
    return (runs,) if isinstance(runs, Run) else tuple(runs)


def _judge(rows: pd.DataFrame, pools: tuple[Pool, Pool], same_rounds: bool) -> None:
    ticks = [_tick_us(run) for side in pools for run in side.runs]
    ids = rows["base_row"], rows["new_row"]
    rounds = [side.rounds(places) for side, places in zip(pools, ids, strict=True)]
    add_pooled_ratios(rows, rounds, max(ticks), same_rounds)


def _floors(runs: Sequence[Run], given: float | None) -> list[stats.NoiseFloor]:
    if given is not None:
        return [one_floor(given)]
    recorded = [recorded_noise_floor(run.meta) for run in runs]
    return [floor for floor in recorded if floor is not None]


def _headline(whole: Pool, backend: str) -> Pool:
    """One backend's headline rows, one a case."""
    rows = whole.rows
    mask = (rows["backend"] == backend) & rows["headline"].fillna(False)
    if not mask.any():
        raise ComparisonRefused(f"{whole.path} has no headline row of backend {backend}")
    part = whole.subset(mask.to_numpy(dtype=np.bool_))
    twice = part.rows[part.rows.duplicated([*_SIDE_KEY, "dims"])]
    if not twice.empty:
        first = twice.iloc[0]
        raise ComparisonRefused(
            f"{whole.path} has two headline rows of {backend} for {first['op']} "
            f"{first['case']} {first['dtype']}; mark one of them"
        )
    return part


def _tick_us(run: Run) -> float:
    recorded = (meta_value(run.meta, path) for path in ("tick_us", "roofs.tick_us"))
    return float(next((tick for tick in recorded if tick is not None), 0.0))
