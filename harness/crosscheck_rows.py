"""Do two timers agree? Bounds, offset and verdict: pure arithmetic over what was measured.

Our event pair holds a constant cost besides the kernel. It is taken off our raw time, and what is
left must match the other timer's figure. For a timer with events of its own that constant is
measured apart and the offset must equal it; for a profiler it must be the same for all kernels.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from .measure import FULL_CLOCK

SHORT_US = 20.0
SHORT_BOUND_US = 0.3
RELATIVE_BOUND = 0.01
OFFSET_BOUND_US = 0.2
SPREAD_BOUND_US = 0.2
LEAST_SHORT = 3
CLOCK_BOUND = 0.01
EMPTY = "empty"
PROFILERS = ("proton",)

Exempt = Literal["", "clock_limited", "other_clock", "oom"]


@dataclass(frozen=True)
class Row:
    """One kernel under both timers. Times are raw microseconds, None where not timed.

    `ours_us` is the median over all our samples, taken before (`ours_before_us`) and after the
    other timer's (`ours_after_us`); `other_us` is the other's median. `hidden`: no launch of ours
    waited for the host. `compute_bound`: its time follows the SM clock.
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
    compute_bound: bool = False

    @property
    def label(self) -> str:
        return " ".join(part for part in (self.op, self.case, self.dtype, self.backend) if part)

    @property
    def offset_us(self) -> float | None:
        """Our raw time less the other's; None unless both timed it."""
        if self.status != "ok" or self.ours_us is None or self.other_us is None:
            return None
        return self.ours_us - self.other_us

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Row:
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in data.items() if key in known})


@dataclass(frozen=True)
class Judged:
    """A row and its difference: ours minus overhead minus the other's, against `bound_us`.

    `exempt` says why the row is not judged; then `within` only tells what it would have been.
    """

    row: Row
    net_us: float | None
    difference_us: float | None
    bound_us: float | None
    within: bool
    exempt: Exempt = ""

    @property
    def difference_pct(self) -> float | None:
        if self.difference_us is None or not self.row.other_us:
            return None
        return 100 * self.difference_us / self.row.other_us


@dataclass(frozen=True)
class Verdict:
    """All rows against bounds, and what became of the offset.

    `overhead_us` was taken off our raw times: measured apart, or for a `profiler` the offset
    itself. `offset_us` is the median of raw minus other over the short kernels, None when none was
    timed; `spread_us` the largest of these less the smallest, over `n_short` kernels.
    """

    rows: tuple[Judged, ...]
    profiler: bool
    overhead_us: float
    offset_us: float | None
    spread_us: float | None
    n_short: int

    @property
    def offset_within(self) -> bool:
        if self.profiler:
            enough = self.n_short >= LEAST_SHORT
            return enough and self.spread_us is not None and self.spread_us <= SPREAD_BOUND_US
        if self.offset_us is None:
            return False
        return abs(self.offset_us - self.overhead_us) <= OFFSET_BOUND_US

    @property
    def judged(self) -> tuple[Judged, ...]:
        return tuple(one for one in self.rows if not one.exempt)

    @property
    def exempt(self) -> tuple[Judged, ...]:
        """Rows that both timers timed but nobody judges, by their clocks."""
        return tuple(one for one in self.rows if one.exempt and one.exempt != "oom")

    @property
    def too_large(self) -> tuple[Judged, ...]:
        return tuple(one for one in self.rows if one.exempt == "oom")

    @property
    def empty(self) -> Row | None:
        return next((one.row for one in self.rows if one.row.op == EMPTY), None)

    @property
    def passed(self) -> bool:
        """All judged rows within, among them a kernel that does something, and the offset too."""
        some = any(one.row.op != EMPTY for one in self.judged)
        return some and self.offset_within and all(one.within for one in self.judged)


def worst(rows: Sequence[Judged]) -> Judged | None:
    """The row that differs most in units of its bound; None when nothing was timed."""
    timed = [one for one in rows if one.difference_us is not None and one.bound_us]
    return max(timed, key=_in_bounds, default=None)


def _in_bounds(judged: Judged) -> float:
    return abs(judged.difference_us or 0.0) / (judged.bound_us or math.inf)


def bound_us(other_us: float) -> float:
    """How far two timers may differ at this time: 0.3 us below 20 us, 1 % from there up."""
    return SHORT_BOUND_US if other_us < SHORT_US else RELATIVE_BOUND * other_us


def judge(rows: Sequence[Row], timer: str, measured_overhead_us: float) -> Verdict:
    """Every row against its bound, and the offset against its rule. A row that was not timed is
    not within.

    Against nvbench, which launches one sample at a time, `measured_overhead_us` comes off: what an
    interval in our queue takes longer than one alone. A profiler reads a kernel's own duration, so
    the launch and the events come off too: the median offset of the short kernels, or the empty
    kernel's where there are none.
    """
    profiler = timer in PROFILERS
    offsets = _short_offsets(rows, with_empty=not profiler)
    short = offsets or _short_offsets(rows, with_empty=True)
    offset_us = statistics.median(short) if short else None
    overhead_us = measured_overhead_us
    if profiler and offset_us is not None:
        overhead_us = offset_us
    spread_us = max(offsets) - min(offsets) if offsets else None
    judged = tuple(_judge_row(row, overhead_us) for row in rows)
    return Verdict(judged, profiler, overhead_us, offset_us, spread_us, len(offsets))


def _judge_row(row: Row, overhead_us: float) -> Judged:
    if row.offset_us is None or row.ours_us is None or row.other_us is None:
        return Judged(row, None, None, None, within=False, exempt=exempt(row))
    net_us = row.ours_us - overhead_us
    difference_us, bound = net_us - row.other_us, bound_us(row.other_us)
    within = row.hidden and abs(difference_us) <= bound
    return Judged(row, net_us, difference_us, bound, within, exempt(row))


def exempt(row: Row) -> Exempt:
    """Why a row is not judged; "" when it is. Told from clocks alone, never from the times: a rule
    that looks at the difference would excuse exactly what it should find.

    Only where the time follows the SM clock, and that was held down under one of the timers, or
    was more than CLOCK_BOUND apart under the two, one of which pauses between samples.
    """
    if row.status == "oom":
        return "oom"
    if not row.compute_bound or row.offset_us is None or not row.hidden:
        return ""
    clocks = [mhz for mhz in (row.ours_sm_mhz, row.other_sm_mhz) if mhz]
    if clocks and min(clocks) < FULL_CLOCK * (row.max_sm_mhz or 0.0):
        return "clock_limited"
    apart = bool(clocks) and max(clocks) / min(clocks) - 1 > CLOCK_BOUND
    return "other_clock" if apart else ""


def _short_offsets(rows: Sequence[Row], with_empty: bool) -> list[float]:
    """Raw minus other of the judged kernels below 20 us: above, a difference of a few tenths of a
    per cent is larger than what is looked for."""
    return [
        row.offset_us
        for row in rows
        if row.offset_us is not None
        and (row.other_us or 0.0) < SHORT_US
        and (with_empty or row.op != EMPTY)
        and row.hidden
        and not exempt(row)
    ]
