"""Intervals and verdicts from round means, one row at a time or whole columns at once.

Rounds are the independent units. Samples within a round share clocks and placement, and event
times are quantised and tie, so an interval over samples would be too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit  # Student's t quantile, elementwise over degrees of freedom

Floats = NDArray[np.float64]

CONFIDENCE = 0.99
MOST_BLOCKS = 20
_OUTLIER_MADS = 14.826
VERDICTS = ("SLOWER", "MISSING", "FASTER", "UNCLEAR", "SAME")

# Used when a run has no A/A record of its own: (times below this, relative floor). Conservative:
# a short kernel's time is mostly launch and timer ticks, which differ between processes.
DEFAULT_NOISE_FLOORS: tuple[tuple[float, float], ...] = (
    (10.0, 0.05),
    (100.0, 0.02),
    (math.inf, 0.01),
)


# Times of rows whose SM clock was held down, and the same at equal clock.
DEFAULT_LIMITED_FLOOR = 0.05
DEFAULT_EQUAL_CLOCK_FLOOR = 0.02


@dataclass(frozen=True)
class NoiseFloor:
    """What differs between identical processes, relative: `classes` of (times below this in us,
    floor) in rising order; of rows whose SM clock was held down, `equal_clock` of ratios at equal
    clock and `limited` of times."""

    classes: Sequence[tuple[float, float]] = DEFAULT_NOISE_FLOORS
    equal_clock: float = DEFAULT_EQUAL_CLOCK_FLOOR
    limited: float = DEFAULT_LIMITED_FLOOR

    def of(self, time_us: ArrayLike, limited: ArrayLike, at_equal_clock: ArrayLike) -> Floats:
        """Return each row's floor; NaN times take the largest class.

        limited: the clock was held down. at_equal_clock: the ratio is the one at equal clock.
        """
        floors = noise_floor_for(time_us, self.classes)
        floors = np.where(limited, np.maximum(floors, self.limited), floors)
        return np.where(at_equal_clock, self.equal_clock, floors)


class Moments(NamedTuple):
    """Of each row's log round means: count, mean, variance, and the relative size of one tick."""

    n_rounds: Floats
    mean: Floats
    variance: Floats
    tick: Floats


def mid_mean(samples: ArrayLike) -> float:
    """Return the mean of the middle half of `samples` (unit kept); NaN when there are none.

    Insensitive to stray slow launches like a median, but not stuck on one timer tick like it.
    """
    values = np.sort(np.asarray(samples, dtype=np.float64).ravel())
    if values.size == 0:
        return math.nan
    cut = values.size // 4
    return float(values[cut : values.size - cut].mean())


def count_outliers(samples: ArrayLike, tick: float = 0.0) -> int:
    """Return how many samples lie more than 14.826 MADs from the median (ten sigmas of a normal
    distribution; hyperfine's rule, after Iglewicz and Hoaglin, 1993). Flagged, never dropped.

    The MAD counts as one timer `tick` at least: with quantised times it is often zero.
    """
    values = np.asarray(samples, dtype=np.float64).ravel()
    if values.size == 0:
        return 0
    distance = np.abs(values - np.median(values))
    mad = max(float(np.median(distance)), tick)
    return int(np.count_nonzero(distance > _OUTLIER_MADS * mad))


def block_means(values: ArrayLike) -> Floats:
    """Return the means of at most MOST_BLOCKS runs of consecutive `values`, equal but for one.

    Rounds next to each other share the phase of the power controller, which swings for tenths of
    a second; longer blocks of them come closer to the independent units that an interval needs
    (the method of batch means).
    """
    rounds = np.asarray(values, dtype=np.float64).ravel()
    return row_blocks(np.zeros(rounds.size, dtype=np.int64), rounds)[1]


def mean_interval(
    round_means: ArrayLike, confidence: float = CONFIDENCE, tick: float = 0.0
) -> tuple[float, float]:
    """Return (mean, half width) of the t interval of the rounds' mid-means, unit kept.

    Rounds in blocks are the units, see block_means.

    The half width is never below one timer `tick`, and infinite for fewer than two rounds: nothing
    is known about their spread then. Without rounds the mean is NaN.
    """
    values = np.asarray(round_means, dtype=np.float64).ravel()
    if values.size == 0:
        return math.nan, math.inf
    mean = float(values.mean())
    if values.size < 2:
        return mean, math.inf
    blocks = block_means(values)
    error = float(blocks.std(ddof=1)) / math.sqrt(blocks.size)
    t = float(stdtrit(blocks.size - 1, 0.5 + confidence / 2.0))
    return mean, max(t * error, tick)


def moments(rounds: Any, n_rows: int, tick_us: float = 0.0) -> Moments:
    """Return the moments of each row 0..n_rows-1 from a rounds table (row, mean_us), in the order
    that they were measured.

    The units are blocks of rounds, see block_means. Rounds with times <= 0 or NaN make their row's
    moments NaN: no interval is made of them.
    """
    row = np.asarray(rounds["row"], dtype=np.int64)
    times = np.asarray(rounds["mean_us"], dtype=np.float64)
    with np.errstate(all="ignore"):
        row, logs = row_blocks(row, np.where(times > 0, np.log(times), np.nan))
        count = np.bincount(row, minlength=n_rows).astype(np.float64)
        mean = np.bincount(row, logs, minlength=n_rows) / count
        # Second pass around the mean: exact ties give exactly zero variance.
        squares = np.bincount(row, (logs - mean[row]) ** 2, minlength=n_rows)
        variance = squares / (count - 1.0)
        tick = tick_us / np.exp(mean)
    return Moments(count, mean, variance, tick)


def row_blocks(row: NDArray[np.int64], logs: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return block_means of every row at once, as (row, mean) of each block."""
    if not row.size:
        return row, logs
    if (np.diff(row) < 0).any():
        order = np.argsort(row, kind="stable")
        row, logs = row[order], logs[order]
    sizes = np.bincount(row)
    first = (np.cumsum(sizes) - sizes)[row]  # position of each row's first round
    size = sizes[row]
    place = np.arange(row.size) - first
    block = np.where(size <= MOST_BLOCKS, place, place * MOST_BLOCKS // size)
    starts = np.flatnonzero(np.diff(row * MOST_BLOCKS + block, prepend=-1))
    lengths = np.diff(starts, append=row.size)
    return row[starts], np.add.reduceat(logs, starts) / lengths


def verdicts(low: ArrayLike, high: ArrayLike, band: ArrayLike) -> NDArray[np.str_]:
    """Return FASTER, SLOWER, SAME or UNCLEAR for ratio intervals against relative bands.

    The whole interval has to lie beyond the band to be called, within it to be SAME; the band is
    symmetric in the logarithm, so swapping the sides swaps FASTER and SLOWER and nothing else.
    """
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    edge = 1.0 + np.asarray(band, dtype=np.float64)
    choices = [low > edge, high < 1.0 / edge, (low >= 1.0 / edge) & (high <= edge)]
    return np.asarray(np.select(choices, ["SLOWER", "FASTER", "SAME"], "UNCLEAR"), dtype=np.str_)


def noise_floor_for(time_us: ArrayLike, classes: Sequence[tuple[float, float]]) -> Floats:
    """Return each time's floor from (below_us, floor) classes in rising order."""
    times = np.asarray(time_us, dtype=np.float64)
    worst = max(floor for _, floor in classes)
    conditions = [times < below for below, _ in classes]
    return np.asarray(np.select(conditions, [f for _, f in classes], worst), dtype=np.float64)


def geometric_mean(values: ArrayLike) -> float:
    """Return the geometric mean of the finite positive `values`; NaN when there are none."""
    numbers = np.asarray(values, dtype=np.float64).ravel()
    numbers = numbers[np.isfinite(numbers) & (numbers > 0)]
    return float(np.exp(np.log(numbers).mean())) if numbers.size else math.nan
