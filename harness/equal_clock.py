"""Two rows whose SM clock was held down, compared as if both had run at the same clock.

Analysis of covariance (Fisher, Statistical Methods for Research Workers, 1932): within each side
the rounds show how time follows the clock, by a power law whose exponent both sides share; the
difference of the sides' mean clocks is then taken out. The exponent is -1 for a kernel that
computes throughout, whose cycles are constant, and 0 for one that waits for memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from . import pooling
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
    base: Sequence[ClockMoments],
    new: Sequence[ClockMoments],
    tick: Floats,
    confidence: float = CONFIDENCE,
) -> EqualClock:
    """Compare aligned rows of several runs a side, each run a group of the analysis.

    All runs share the exponent, which comes from within them: what differs from run to run tells
    nothing about how time follows the clock. A run that lacks a row is NaN there.
    """
    sides = [_Side.of(runs) for runs in (base, new)]
    with np.errstate(all="ignore"):
        tt, tf, ff = (sum(_known(getattr(c, s)) for c in (*base, *new)) for s in ("tt", "tf", "ff"))
        exponent = np.clip(tf / ff, -1.0, 0.0)
        n_blocks = sides[0].n_blocks + sides[1].n_blocks
        n_groups = sides[0].n_runs + sides[1].n_runs
        freedom = n_blocks - n_groups - 1.0
        variance = (tt - 2 * exponent * tf + exponent**2 * ff) / freedom
        apart = sides[1].f - sides[0].f
        log_ratio = sides[1].t - sides[0].t - exponent * apart
        clock_error = variance * apart**2 / ff
        spreads = [side.spread(exponent, variance, freedom) for side in sides]
        by_rounds = spreads[0].by_rounds + spreads[1].by_rounds + clock_error
        half = stdtrit(freedom, 0.5 + confidence / 2.0) * np.sqrt(by_rounds)
        as_units = pooling.interval(log_ratio, spreads, tick, confidence)
        # Runs as units: their spread holds the rest, but not how well the exponent is known.
        by_runs = np.hypot(np.log(as_units.high) - log_ratio, half)
        half = np.maximum(np.where(as_units.runs, by_runs, half), tick)
        spread = np.sqrt(ff / (n_blocks - n_groups))
        known = np.isfinite(half) & (freedom > 1) & (spread >= _LEAST_SPREAD)
        known &= np.abs(apart) <= _MOST_APART * spread
        return EqualClock(
            np.exp(log_ratio), np.exp(log_ratio - half), np.exp(log_ratio + half), known
        )


class _Side(NamedTuple):
    """Runs of one side, a line each: blocks, mean log time and clock, and over all runs: how many
    have the row, their blocks, and the means of their means."""

    counts: Floats
    times: Floats
    clocks: Floats
    n_runs: Floats
    n_blocks: Floats
    t: Floats
    f: Floats

    @classmethod
    def of(cls, runs: Sequence[ClockMoments]) -> _Side:
        counts, times, clocks = (np.array([getattr(c, s) for c in runs]) for s in ("n", "t", "f"))
        # A run whose clock is unknown makes the row's unknown; one without the row has no count.
        has_row = counts > 0
        n_runs = has_row.sum(axis=0).astype(np.float64)
        with np.errstate(all="ignore"):
            t, f = (np.where(has_row, v, 0.0).sum(axis=0) / n_runs for v in (times, clocks))
        return cls(counts, times, clocks, n_runs, counts.sum(axis=0), t, f)

    def spread(self, exponent: Floats, variance: Floats, freedom: Floats) -> pooling.Spread:
        """How well the mean time at equal clock is known; the rounds' variance is shared."""
        adjusted = np.where(self.counts > 0, self.times - exponent * self.clocks, np.nan)
        shares = variance / self.counts
        return pooling.spread_of_runs(adjusted, shares, np.broadcast_to(freedom, shares.shape))


def _known(values: Floats) -> Floats:
    return np.where(np.isnan(values), 0.0, values)


def widened_by_clock(low: Floats, high: Floats, clock_ratio: Floats) -> tuple[Floats, Floats]:
    """Widen the interval of a time ratio to hold every exponent from -1 to 0, where the rounds do
    not tell which; clock_ratio: SM clock new/base."""
    return low * np.minimum(clock_ratio, 1.0), high * np.maximum(clock_ratio, 1.0)
