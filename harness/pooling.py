"""Several runs of one build as one side of a comparison: mean, interval, and what its units are.

With three runs and more on both sides the runs' means are the units of the interval, so that it
holds what changes from process to process. Fewer say nothing about that: rounds of all runs are
the units then, and the noise floor stands for the rest. docs/method.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from harness.stats import CONFIDENCE, Floats, Moments

# Fewer run means than this have no spread worth the name: Student's t at one degree of freedom
# stretches their interval by 64.
LEAST_RUNS = 3


class Spread(NamedTuple):
    """How well each row's mean is known: runs behind it, variance of the mean, its degrees of
    freedom, both by rounds within runs and by the runs' own means."""

    n_runs: Floats
    by_rounds: Floats
    freedom: Floats
    by_runs: Floats


class Interval(NamedTuple):
    """Time ratio new/base with its interval; `runs` where the runs' means were its units."""

    ratio: Floats
    low: Floats
    high: Floats
    runs: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


def pooled(moments: Sequence[Moments]) -> tuple[Floats, Spread]:
    """Return each row's mean over runs, each run weighing the same, and how well it is known.

    moments: one entry a run, aligned; NaN where a run has no rounds of the row.
    """
    means = np.array([m.mean for m in moments])
    with np.errstate(all="ignore"):
        shares = np.array([m.variance / m.n_rounds for m in moments])
        freedoms = np.array([m.n_rounds - 1.0 for m in moments])
    return mean_of_runs(means), spread_of_runs(means, shares, freedoms)


def mean_of_runs(means: Floats) -> Floats:
    """Return the mean over the runs that have the row; NaN where none has."""
    known = np.isfinite(means)
    with np.errstate(all="ignore"):
        mean: Floats = np.where(known, means, 0.0).sum(axis=0) / known.sum(axis=0)
    return mean


def spread_of_runs(means: Floats, shares: Floats, freedoms: Floats) -> Spread:
    """Return the Spread of run means; shares: the variance of each run's mean by its rounds.

    A single run of one round has a share of NaN, and so has the row.
    """
    known = np.isfinite(means)
    n_runs = known.sum(axis=0).astype(np.float64)
    shares = np.where(known, shares, 0.0)
    with np.errstate(all="ignore"):
        total = shares.sum(axis=0)
        freedom = total**2 / np.where(known & (shares > 0), shares**2 / freedoms, 0.0).sum(axis=0)
        least = np.where(known, freedoms, np.inf).min(axis=0)
        freedom = np.where(np.isfinite(freedom), freedom, least)
        apart = np.where(known, means - mean_of_runs(means), 0.0)
        by_runs = (apart**2).sum(axis=0) / (n_runs - 1.0) / n_runs
        return Spread(n_runs, total / n_runs**2, freedom, by_runs)


def interval(
    log_ratio: Floats, sides: Sequence[Spread], tick: Floats, confidence: float = CONFIDENCE
) -> Interval:
    """Return the ratio's interval from the spread of each side, by Welch's approximation.

    Never narrower than the relative `tick`, and with runs as units never narrower than by their
    rounds: three runs may agree by chance. (0, inf) where a side has a single round.
    """
    with np.errstate(all="ignore"):
        by_rounds = _half([s.by_rounds for s in sides], [s.freedom for s in sides], confidence)
        by_runs = _half([s.by_runs for s in sides], [s.n_runs - 1.0 for s in sides], confidence)
        runs = np.all([s.n_runs >= LEAST_RUNS for s in sides], axis=0)
        half = np.maximum(by_rounds, tick)
        half = np.where(runs, np.fmax(half, by_runs), half)
        lone = np.any([~np.isfinite(s.by_rounds) for s in sides], axis=0) & ~runs
        half = np.where(lone & np.isfinite(log_ratio), np.inf, half)
        return Interval(np.exp(log_ratio), np.exp(log_ratio - half), np.exp(log_ratio + half), runs)


def _half(variances: Sequence[Floats], freedoms: Sequence[Floats], confidence: float) -> Floats:
    """Half width of the t interval of a sum of means with these variances (Welch, 1947)."""
    total = np.sum(variances, axis=0)
    parts = [np.where(v > 0, v**2 / f, 0.0) for v, f in zip(variances, freedoms, strict=True)]
    freedom = total**2 / np.sum(parts, axis=0)
    # Without any spread Welch's freedom is 0/0; the width is 0 at any.
    freedom = np.where(np.isfinite(freedom), freedom, np.min(freedoms, axis=0))
    half: Floats = stdtrit(freedom, 0.5 + confidence / 2.0) * np.sqrt(total)
    return half
