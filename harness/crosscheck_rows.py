"""Do two timers agree? Bounds, offset and verdict: pure arithmetic over what was measured.

Our event pair holds a constant cost besides the kernel. It is measured, taken off our raw time,
and what is left must match the other timer's figure.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from .measure import FULL_CLOCK

SHORT_US = 20.0
SHORT_BOUND_US = 0.3
RELATIVE_BOUND = 0.01
OFFSET_BOUND_US = 0.2
CLOCK_BOUND = 0.01
EMPTY = "empty"


@dataclass(frozen=True)
class Row:
    """One kernel under both timers. Times are raw microseconds, None where not timed.

    `ours_us` is the median over all our samples, taken before (`ours_before_us`) and after the
    other timer's (`ours_after_us`); `other_us` is the other's median. `hidden`: no launch of ours
    waited for the host.
    """

    op: str
    case: str
    dtype: str
    backend: str
    status: str = "ok"
    reason: str = ""
    ours_us: float | None = None
    ours_before_us: float | None = None
    ours_after_us: float | None = None
    n_ours: int = 0
    hidden: bool = True
    other_us: float | None = None
    other_mean_us: float | None = None
    n_other: int = 0
    ours_sm_mhz: float | None = None
    other_sm_mhz: float | None = None
    max_sm_mhz: float | None = None

    @property
    def label(self) -> str:
        return " ".join(part for part in (self.op, self.case, self.dtype, self.backend) if part)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Row:
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in data.items() if key in known})


@dataclass(frozen=True)
class Judged:
    """A row and its difference: ours minus overhead minus the other's, against `bound_us`.

    `other_clock`: out of bounds, but power held the SM clock down, or it was more than CLOCK_BOUND
    apart under the two timers, one of which pauses between samples. Then the difference says
    nothing about the timers, and the row is not judged.
    """

    row: Row
    net_us: float | None
    difference_us: float | None
    bound_us: float | None
    within: bool
    other_clock: bool = False

    @property
    def difference_pct(self) -> float | None:
        if self.difference_us is None or not self.row.other_us:
            return None
        return 100 * self.difference_us / self.row.other_us


@dataclass(frozen=True)
class Verdict:
    """`offset_us`: median of raw minus other over short kernels, None when none was timed."""

    rows: tuple[Judged, ...]
    overhead_us: float
    offset_us: float | None

    @property
    def offset_within(self) -> bool:
        if self.offset_us is None:
            return False
        return abs(self.offset_us - self.overhead_us) <= OFFSET_BOUND_US

    @property
    def n_within(self) -> int:
        return sum(judged.within for judged in self.rows)

    @property
    def n_other_clock(self) -> int:
        return sum(judged.other_clock for judged in self.rows)

    @property
    def n_compared(self) -> int:
        return len(self.rows) - self.n_other_clock

    @property
    def passed(self) -> bool:
        return self.n_compared > 0 and self.offset_within and self.n_within == self.n_compared


def bound_us(other_us: float) -> float:
    """How far two timers may differ at this time: 0.3 us below 20 us, 1 % from there up."""
    return SHORT_BOUND_US if other_us < SHORT_US else RELATIVE_BOUND * other_us


def judge(rows: Sequence[Row], overhead_us: float) -> Verdict:
    """Every row against its bound, and the constant offset against the measured overhead.

    A row that was not timed is not within.
    """
    return Verdict(tuple(_judge_row(row, overhead_us) for row in rows), overhead_us, offset(rows))


def _judge_row(row: Row, overhead_us: float) -> Judged:
    if row.status != "ok" or row.ours_us is None or row.other_us is None:
        return Judged(row, None, None, None, within=False)
    net_us = row.ours_us - overhead_us
    difference_us, bound = net_us - row.other_us, bound_us(row.other_us)
    within = row.hidden and abs(difference_us) <= bound
    other_clock = not within and _other_clock(row)
    return Judged(row, net_us, difference_us, bound, within, other_clock)


def _other_clock(row: Row) -> bool:
    if not row.ours_sm_mhz or not row.other_sm_mhz:
        return False
    limited = row.ours_sm_mhz < FULL_CLOCK * (row.max_sm_mhz or 0.0)
    return limited or abs(row.ours_sm_mhz / row.other_sm_mhz - 1) > CLOCK_BOUND


def offset(rows: Sequence[Row]) -> float | None:
    """Median over rows of our raw time minus the other's, microseconds; None without rows.

    Of kernels below 20 us where there are any: above, a difference of a few tenths of a per cent
    is larger than what is looked for.
    """
    timed = [
        (row.other_us, row.ours_us - row.other_us)
        for row in rows
        if row.status == "ok" and row.ours_us is not None and row.other_us is not None
    ]
    short = [difference for other_us, difference in timed if other_us < SHORT_US]
    differences = short or [difference for _, difference in timed]
    return statistics.median(differences) if differences else None


def overhead_for(timer: str, rows: Sequence[Row], queue_overhead_us: float) -> float:
    """The cost of our event pair that the other timer's figure does not hold, microseconds.

    Against nvbench, which launches one sample at a time: what an interval in a full queue takes
    longer than one alone, measured with our clock and the empty kernel. Against a profiler, which
    reads a kernel's own duration: what the empty kernel shows, ours minus the profiler's; that
    this offset fits all other kernels is then what is checked.
    """
    if timer == "nvbench":
        return queue_overhead_us
    probe = offset([row for row in rows if row.op == EMPTY])
    return queue_overhead_us if probe is None else probe
