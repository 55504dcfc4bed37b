"""When to stop, in which order, and what to believe: pure logic over a clock.

Contenders alternate in rounds whose order is reshuffled, so that a drifting clock drifts over
everybody. The rounds are the independent units: each yields one mid-mean per contender, and the
interval of their mean decides when enough was measured.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from . import stats
from .clock import Batch, Clock, Launch

Key = TypeVar("Key", bound=Hashable)

# Of the card's highest SM clock: below it something holds the clock down.
FULL_CLOCK = 0.97


@dataclass(frozen=True)
class Settings:
    """Times in seconds; `precision` is the half-width of the interval over its mean.

    `limited_span_s`: how long rounds must go on at least when power holds the SM clock down: the
    controller swings for tenths of a second, and a quiet stretch of it looks precise.
    `second_seed`: rewrite the inputs before the last round and check again after it.
    `other_times`: graph and host time too.
    """

    min_rounds: int = 10
    max_rounds: int = 400
    precision: float = 0.005
    confidence: float = 0.95
    warm_min_s: float = 0.10
    warm_max_s: float = 0.6
    cap_s: float = 3.0
    limited_span_s: float = 1.5
    round_target_us: float = 3000.0
    min_samples: int = 3
    max_samples: int = 30
    sample_overhead_us: float = 100.0
    second_seed: bool = True
    other_times: bool = True


# "tune" ranks many candidates; its winners are timed again with "default". "aa" times like
# "default", in processes that run what an ordinary run has checked.
SETTINGS = {
    "default": Settings(),
    "quick": Settings(
        warm_max_s=0.3, cap_s=1.0, limited_span_s=0.5, round_target_us=1500.0, max_samples=15
    ),
    "tune": Settings(
        min_rounds=4,
        max_rounds=6,
        warm_min_s=0.02,
        warm_max_s=0.1,
        cap_s=1.5,
        limited_span_s=0.0,
        round_target_us=1000.0,
        max_samples=8,
        other_times=False,
    ),
    "aa": Settings(cap_s=1.5, limited_span_s=0.5, second_seed=False, other_times=False),
}


@dataclass
class Measurement:
    """One contender's batches by round: believable samples, and apart from them the others."""

    rounds: list[Batch] = field(default_factory=list)
    rejected: list[float] = field(default_factory=list)
    hidden: bool = True

    @property
    def samples_us(self) -> list[float]:
        return [sample for batch in self.rounds for sample in batch.samples_us]

    @property
    def round_means_us(self) -> list[float]:
        return [stats.mid_mean(batch.samples_us) for batch in self.rounds]

    def add(self, batch: Batch) -> None:
        """Keep believable samples; a time that is not positive and finite is set apart."""
        good = tuple(s for s in batch.samples_us if math.isfinite(s) and s > 0)
        self.rejected += [s for s in batch.samples_us if not (math.isfinite(s) and s > 0)]
        self.hidden &= batch.hidden
        if good:
            self.rounds.append(replace(batch, samples_us=good))

    @property
    def sm_mhz(self) -> float | None:
        """Median over rounds of the SM clock around them; None when unknown."""
        clocks = [batch.sm_mhz for batch in self.rounds if batch.sm_mhz is not None]
        return statistics.median(clocks) if clocks else None

    def clock_limited(self, max_sm_mhz: float) -> bool:
        """Did something hold the SM clock below the card's highest one?"""
        return self.sm_mhz is not None and self.sm_mhz < FULL_CLOCK * max_sm_mhz

    def half_width(self, confidence: float, tick_us: float) -> tuple[float, float]:
        """(mean, half-width) in microseconds of the interval over round means."""
        return stats.mean_interval(self.round_means_us, confidence, tick_us)


def measure(
    contenders: Mapping[Key, Launch],
    clock: Clock,
    settings: Settings,
    seed: int,
    before_last_round: Callable[[], None] = lambda: None,
    before_batch: Callable[[Key], None] = lambda _key: None,
) -> dict[Key, Measurement]:
    """Warm up, then run interleaved rounds until every contender is precise or time is up.

    `before_last_round` runs once, after the stop rule is met; one more round follows it.
    `before_batch` hears whose turn it is: a launch that never comes back has a name then.
    """
    order = list(contenders)
    shuffler = random.Random(seed)
    n_samples = _warm_up(contenders, clock, settings, before_batch)
    measured: dict[Key, Measurement] = {key: Measurement() for key in order}
    start_s = clock.now_s()
    for round_index in range(settings.max_rounds):
        _round(order, contenders, clock, n_samples, shuffler, measured, before_batch)
        if round_index + 2 < settings.min_rounds:
            continue
        elapsed_s = clock.now_s() - start_s
        limited = any(m.clock_limited(clock.max_sm_mhz) for m in measured.values())
        if elapsed_s > settings.cap_s:
            break
        if limited and elapsed_s < settings.limited_span_s:
            continue
        if all(_precise(m, settings, clock.tick_us) for m in measured.values()):
            break
    before_last_round()
    _round(order, contenders, clock, n_samples, shuffler, measured, before_batch)
    return measured


def _round(
    order: list[Key],
    contenders: Mapping[Key, Launch],
    clock: Clock,
    n_samples: Mapping[Key, int],
    shuffler: random.Random,
    measured: Mapping[Key, Measurement],
    before_batch: Callable[[Key], None],
) -> None:
    shuffler.shuffle(order)
    for key in order:
        before_batch(key)
        measured[key].add(clock.batch(contenders[key], n_samples[key]))


def _precise(measurement: Measurement, settings: Settings, tick_us: float) -> bool:
    if len(measurement.rounds) < 2:
        # Nothing believable comes from this one; waiting for it would starve the others.
        return not measurement.rounds and bool(measurement.rejected)
    mean, half_width = measurement.half_width(settings.confidence, tick_us)
    return half_width <= max(settings.precision * mean, tick_us)


def _warm_up(
    contenders: Mapping[Key, Launch],
    clock: Clock,
    settings: Settings,
    before_batch: Callable[[Key], None],
) -> dict[Key, int]:
    """Run until clocks are steady; returns how many samples fill each contender's round."""
    n_samples: dict[Key, int] = {}
    for key, launch in contenders.items():
        before_batch(key)
        estimate = sorted(clock.batch(launch, settings.min_samples).samples_us)
        typical = estimate[len(estimate) // 2]
        usable = typical if math.isfinite(typical) and typical > 0 else 0.0
        wanted = settings.round_target_us / (usable + settings.sample_overhead_us)
        n_samples[key] = max(settings.min_samples, min(settings.max_samples, int(wanted)))
    totals: list[float] = []
    start_s = clock.now_s()
    while True:
        total = 0.0
        for key, launch in contenders.items():
            before_batch(key)
            total += stats.mid_mean(clock.batch(launch, n_samples[key]).samples_us)
        totals.append(total)
        elapsed_s = clock.now_s() - start_s
        if elapsed_s >= settings.warm_max_s or len(totals) >= 1000:
            return n_samples
        if elapsed_s >= settings.warm_min_s and _steady(totals, settings.precision):
            return n_samples


def _steady(totals: list[float], precision: float) -> bool:
    """The last three rounds neither rise nor fall by more than twice the wanted precision."""
    last = totals[-3:]
    return len(last) == 3 and max(last) - min(last) <= 2 * precision * min(last)
