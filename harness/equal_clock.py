"""Two rows whose SM clock was held down, compared as if both had run at the same clock.

Analysis of covariance (Fisher, Statistical Methods for Research Workers, 1932): within each side
the rounds show how time follows the clock, by a power law whose exponent both sides share; the
difference of the sides' mean clocks is then taken out. The exponent is -1 for a kernel that
computes throughout, whose cycles are constant, and 0 for one that waits for memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from .stats import CONFIDENCE, Floats, row_blocks

# Of log clock over blocks: a clock that moves less says nothing about how time follows it.
_LEAST_SPREAD = 0.003
# In spreads: further than this beyond what the rounds have seen, no exponent is carried.
_MOST_APART = 4.0


class ClockMoments(NamedTuple):
    """Of each row's blocks of rounds, t = log time and f = log SM clock: count, means, and sums
    of squares and products of the deviations from them. NaN where a clock is unknown."""

    n: Floats
    t: Floats
    f: Floats
    tt: Floats
    tf: Floats
    ff: Floats

    def of(self, ids: Any) -> ClockMoments:
        """Those of the rows with these ids."""
        return ClockMoments(*(values[ids] for values in self))


class EqualClock(NamedTuple):
    """Time ratio new/base at equal clock with its interval; `known` where the rounds tell it."""

    ratio: Floats
    low: Floats
    high: Floats
    known: np.ndarray[Any, np.dtype[np.bool_]]


def clock_moments(rounds: Any, n_rows: int) -> ClockMoments:
    """Return the moments of each row 0..n_rows-1 of a rounds table (row, mean_us, sm_mhz)."""
    row = np.asarray(rounds["row"], dtype=np.int64)
    times = np.asarray(rounds["mean_us"], dtype=np.float64)
    clocks = np.asarray(rounds["sm_mhz"], dtype=np.float64)
    with np.errstate(all="ignore"):
        block_row, t = row_blocks(row, np.where(times > 0, np.log(times), np.nan))
        _, f = row_blocks(row, np.where(clocks > 0, np.log(clocks), np.nan))

        def total(values: Floats) -> Floats:
            return np.bincount(block_row, values, minlength=n_rows).astype(np.float64)

        n = total(np.ones_like(t))
        mean_t, mean_f = total(t) / n, total(f) / n
        dt, df = t - mean_t[block_row], f - mean_f[block_row]
        return ClockMoments(n, mean_t, mean_f, total(dt * dt), total(dt * df), total(df * df))


def compare_at_equal_clock(
    base: ClockMoments, new: ClockMoments, tick: Floats, confidence: float = CONFIDENCE
) -> EqualClock:
    """Compare aligned rows; no interval is narrower than the relative `tick`."""
    with np.errstate(all="ignore"):
        tt, tf, ff = base.tt + new.tt, base.tf + new.tf, base.ff + new.ff
        exponent = np.clip(tf / ff, -1.0, 0.0)
        freedom = base.n + new.n - 3.0
        variance = (tt - 2 * exponent * tf + exponent**2 * ff) / freedom
        apart = new.f - base.f
        log_ratio = new.t - base.t - exponent * apart
        error = np.sqrt(variance * (1 / base.n + 1 / new.n + apart**2 / ff))
        half = np.maximum(stdtrit(freedom, 0.5 + confidence / 2.0) * error, tick)
        spread = np.sqrt(ff / (base.n + new.n - 2.0))
        known = np.isfinite(half) & (freedom > 1) & (spread >= _LEAST_SPREAD)
        known &= np.abs(apart) <= _MOST_APART * spread
        return EqualClock(
            np.exp(log_ratio), np.exp(log_ratio - half), np.exp(log_ratio + half), known
        )


def widened_by_clock(low: Floats, high: Floats, clock_ratio: Floats) -> tuple[Floats, Floats]:
    """Widen the interval of a time ratio to hold every exponent from -1 to 0, where the rounds do
    not tell which; clock_ratio: SM clock new/base."""
    return low * np.minimum(clock_ratio, 1.0), high * np.maximum(clock_ratio, 1.0)
