"""From one contender's measurement to the timing columns of its row."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import stats
from .clock import Clock
from .measure import Measurement, Settings
from .schema import CLOCK_LIMITED


def time_columns(
    measurement: Measurement, settings: Settings, clock: Clock, flush: str
) -> dict[str, Any]:
    """The row's timing columns; `invalid` with empty times where no sample was believable."""
    samples = sorted(measurement.samples_us)
    if len(measurement.rounds) < 2:
        raw = ", ".join(f"{value:g}" for value in measurement.rejected[:3])
        given = f"; the timer gave {raw}" if raw else ""
        few = f"{len(measurement.rounds)} rounds with" if measurement.rounds else "no"
        return {"status": "invalid", "reason": f"{few} usable samples{given}"}
    mean, half_width = measurement.half_width(settings.confidence, clock.tick_us)
    warnings = None if measurement.hidden else "launch_not_hidden"
    if measurement.rejected:
        warnings = join_warnings(warnings, "samples_rejected")
    if measurement.clock_limited(clock.max_sm_mhz):
        warnings = join_warnings(warnings, CLOCK_LIMITED)
    return {
        "status": "ok",
        "cache": "warm" if flush == "none" else "cold",
        "flush": flush,
        "n_samples": len(samples),
        "n_rounds": len(measurement.rounds),
        "n_outliers": stats.count_outliers(samples, clock.tick_us),
        "precision_pct": 100 * half_width / mean,
        "time_us_p50": float(np.quantile(samples, 0.5)),
        "time_us_p20": float(np.quantile(samples, 0.2)),
        "time_us_p80": float(np.quantile(samples, 0.8)),
        "time_us_min": samples[0],
        "time_us_mean": sum(samples) / len(samples),
        "time_us_std": float(np.std(samples, ddof=1)),
        "ci_low_us": mean - half_width,
        "ci_high_us": mean + half_width,
        "sm_mhz_p50": measurement.sm_mhz,
        "warnings": warnings,
        "rounds": [
            (stats.mid_mean(batch.samples_us), batch.utc_s, batch.sm_mhz)
            for batch in measurement.rounds
        ],
        "samples": [list(batch.samples_us) for batch in measurement.rounds],
    }


def join_warnings(warnings: str | None, more: str) -> str:
    return f"{warnings};{more}" if warnings else more
