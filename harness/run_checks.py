"""What the writer of a run refuses before anything reaches the disk."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.schema import META_FACTS, SCHEMA_VERSION, ResultsError, Round, meta_fact

# Rows measured under different values of these do not belong in one table.
_FIXED_ON_RESUME = tuple(
    fact for fact in META_FACTS if fact not in ("Python", "git dirty", "clocks")
)


def round_cells(values: Sequence[float | None]) -> tuple[str, str, str]:
    """Return the cells of a round behind its number; a fact that is unknown is empty."""
    mean_us, *facts = Round(*values)  # type: ignore[arg-type]  # only the facts may be None
    utc_s, sm_mhz = ("" if v is None or not math.isfinite(v) else repr(float(v)) for v in facts)
    # A mean is written even where it is NaN: an invalid row keeps what was seen.
    return repr(float(mean_us)), utc_s, sm_mhz


def refuse_other_schema(run_dir: Path, old: Mapping[str, Any]) -> None:
    """Raise ResultsError unless the run that `old` is the meta of has this writer's schema."""
    if str(old["schema"]) != SCHEMA_VERSION:
        raise ResultsError(
            f"{run_dir} was begun with schema {old['schema']}, this harness writes "
            f"{SCHEMA_VERSION}; finish it with the harness version that began it, or choose "
            "another folder"
        )


def refuse_other_machine(run_dir: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise ResultsError when both metas record a fact of the machine or software and differ."""
    for field in _FIXED_ON_RESUME:
        before, now = meta_fact(old, field), meta_fact(new, field)
        if before is not None and now is not None and before != now:
            raise ResultsError(
                f"{run_dir} was begun with {field} {before!r}, this is {now!r}; rows of both do "
                "not belong in one run: choose another folder"
            )


def check_rounds(status: str, means: Sequence[float], samples: Sequence[Sequence[float]]) -> None:
    """Raise ResultsError for another number of rounds, or for a time in an ok row that cannot be.

    means, samples: microseconds, one mean and one sequence of samples a round.
    """
    if len(samples) not in (0, len(means)):
        raise ResultsError(
            f"got samples of {len(samples)} rounds with {len(means)} round means; want one "
            "sequence of samples a round, or none"
        )
    if status != "ok":
        return
    if not len(means):
        raise ResultsError("got an ok row without round means; use status untimed")
    bad = [v for vs in (means, *samples) for v in vs if not (math.isfinite(v) and v > 0)]
    if bad:
        raise ResultsError(
            f"got the time {bad[0]!r} us in an ok row, want a finite time above 0; use status "
            "invalid and put the raw value into reason"
        )
