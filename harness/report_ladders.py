"""A page's ladders: from a side's simplest form to its headline, what each step gained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.report_text import cut, fixed, mapping, number, sequence, time_us
from harness.results import Run

HEADLINE = "headline"


@dataclass(frozen=True)
class Ladder:
    """One side of one case in one dtype; `lines`: rung, step, time, gain over the rung below, share
    of the roof."""

    title: str
    lines: list[list[str]]


def ladders(run: Run, op: str) -> list[Ladder]:
    """Return the op's ladders with at least one rung that was timed, in file order."""
    by_side = mapping(mapping(run.meta.get("ladders")).get(op))
    rows = run.rows[(run.rows["op"] == op) & (run.rows["status"] == "ok")]
    found = []
    for (case, dtype), part in rows.groupby(["case", "dtype"], sort=False):
        for side, rungs in by_side.items():
            ladder = _ladder(part[part["backend"] == side], sequence(rungs))
            if len(ladder) > 1:
                found.append(Ladder(f"{side}, {case} {dtype}", ladder))
    return found


def _ladder(rows: pd.DataFrame, rungs: Sequence[Any]) -> list[list[str]]:
    by_name = {str(row["variant"]): row for row in rows.to_dict("records")}
    steps = [tuple(cut(mapping(rung).get(key)) for key in ("name", "step")) for rung in rungs]
    lines: list[list[str]] = []
    below_us = math.nan
    for name, step in [*steps, ("", "what the pair is judged by")]:
        if name not in by_name:
            continue
        row = by_name[name]
        now_us = number(row["time_us_p50"])
        gain = below_us / now_us
        lines.append(
            [
                name or HEADLINE,
                step,
                time_us(now_us),
                fixed(gain, 2) if math.isfinite(gain) else "",
                fixed(row["pct_roof"], 0),
            ]
        )
        below_us = now_us
    return lines
