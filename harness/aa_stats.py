"""What processes of one build say about noise: floors by duration, calls, repeatability.

Pure arithmetic over the table that aa.csv holds, one line for a row in a process, of two
processes at least.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd

from harness import stats
from harness.aa_table import ROW, side_of
from harness.compare_judge import add_ratios, call
from harness.compare_rows import join_rows
from harness.schema import CLOCK_LIMITED_MARKS

PERCENTILE = 99
# A 99th percentile of few pairs is called by every hundredth new one; at most one in a thousand may
# be. Twice it is more than five sigmas of a normal shift between processes.
MARGIN = 2.0
LEAST_PAIRS = 20
LEAST_EFFECT = 0.02
# Of processes: with three left over, a pair's floor still comes from three other pairs.
LEAST_TO_CROSS_VALIDATE = 4
REPEATABLE = 0.01
REPEATABLE_FROM_US = 10.0

Classes = list[dict[str, Any]]


def compare_pairs(table: pd.DataFrame, tick_us: float) -> pd.DataFrame:
    """Return every row of every two processes, compared as `compare` compares two runs.

    ROW, base, new, base_us, new_us, the columns of compare_judge.add_ratios, time_us (median over
    processes of the row's p50), below_us (upper edge of its duration class) and effect: |log
    ratio|, NaN unless ok on both sides. No effect is known better than to a timer tick: it is never
    below `tick_us` over the row's time.
    """
    ok = table[table["status"] == "ok"]
    times = ok.groupby(ROW)["time_us_p50"].median().rename("time_us").reset_index()
    processes = sorted(table["process"].unique())
    sides = {process: side_of(table, process) for process in processes}
    parts = []
    for base, new in itertools.combinations(processes, 2):
        rows = join_rows(sides[base][0], sides[new][0], ROW)
        rounds = (sides[base][1], sides[new][1])
        add_ratios(rows, rounds, tick_us, same_rounds=False)
        parts.append(rows.assign(base=base, new=new))
    pairs: pd.DataFrame = pd.concat(parts, ignore_index=True).merge(times, on=ROW, how="left")
    pairs["below_us"] = _class_of(pairs["time_us"])
    pairs["effect"] = np.maximum(np.abs(np.log(pairs["ratio"])), tick_us / pairs["time_us"])
    return pairs


def _by_process(table: pd.DataFrame, ok: pd.DataFrame, column: str) -> pd.DataFrame:
    """One line a row that is ok anywhere, one column a process, NaN where it is not ok."""
    wide = ok.pivot(index=ROW, columns="process", values=column)
    whole: pd.DataFrame = wide.reindex(columns=sorted(table["process"].unique()))
    return whole


def _limited(ok: pd.DataFrame, index: pd.Index[Any]) -> pd.Series[bool]:
    """For each row of `index`: was its clock held down in any process?"""
    marked = ok["warnings"].str.contains(CLOCK_LIMITED_MARKS)
    return marked.groupby([ok[column] for column in ROW]).any().reindex(index).astype(bool)


def _class_of(times_us: Any) -> Any:
    edges = [below for below, _ in stats.DEFAULT_NOISE_FLOORS]
    return np.select([times_us < edge for edge in edges], edges, edges[-1])


def floor_classes(pairs: pd.DataFrame, least_pairs: int = LEAST_PAIRS) -> Classes:
    """Return the noise floor of each duration class, rising, as `compare` reads them.

    floor: relative, MARGIN times the PERCENTILE of the effects of rows at full clock. A class of
    fewer than `least_pairs` pairs keeps the default floor and says so in `source`; `measured` is
    then what the few pairs gave.
    """
    free = pairs[~pairs["limited"]]
    return [
        {"below_us": below_us if math.isfinite(below_us) else None}
        | _class(free[free["below_us"] == below_us], default, least_pairs)
        for below_us, default in stats.DEFAULT_NOISE_FLOORS
    ]


def held_down_classes(
    pairs: pd.DataFrame, least_pairs: int = LEAST_PAIRS
) -> dict[str, dict[str, Any]]:
    """Return the floors of the rows whose SM clock was held down: `equal_clock` of those compared
    at equal clock, `clock_limited` of the times of the others."""
    equal, limited = pairs["at_equal_clock"], pairs["limited"]
    return {
        "equal_clock": _class(pairs[equal], stats.DEFAULT_EQUAL_CLOCK_FLOOR, least_pairs),
        "clock_limited": _class(pairs[limited & ~equal], stats.DEFAULT_LIMITED_FLOOR, least_pairs),
    }


def _class(part: pd.DataFrame, default: float, least_pairs: int) -> dict[str, Any]:
    part = part[part["effect"].notna()]
    measured = _percentile(part["effect"].to_numpy(dtype=float))
    enough = measured is not None and len(part) >= least_pairs
    return {
        "floor": MARGIN * measured if enough and measured is not None else default,
        "source": "measured" if enough else "default",
        "measured": measured,
        "percentile": PERCENTILE,
        "margin": MARGIN,
        "rows": len(part[ROW].drop_duplicates()),
        "pairs": len(part),
    }


def _percentile(effects: Any) -> float | None:
    """An observed effect, never interpolated below it: the pairs of five processes are few."""
    if not len(effects):
        return None
    return float(np.expm1(np.quantile(effects, PERCENTILE / 100, method="higher")))


def judge_pairs(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the verdict on every row of every two processes, as `compare` would call it.

    `pairs` (see compare_pairs) with band and verdict; rows that were ok in one of the two only are
    MISSING. With LEAST_TO_CROSS_VALIDATE processes the floor of a pair is made without its two
    processes: a floor covers the data that it came from by construction.
    """
    processes = set(pairs["base"]) | set(pairs["new"])
    cross = len(processes) >= LEAST_TO_CROSS_VALIDATE
    # A class that has pairs enough as a whole is judged by what is left of them, not by a default.
    all_pairs = math.comb(len(processes), 2)
    left_pairs = math.comb(len(processes) - 2, 2) if cross else all_pairs
    least_pairs = max(1, LEAST_PAIRS * left_pairs // all_pairs)
    judged = []
    for (base, new), rows in pairs.groupby(["base", "new"], sort=False):
        involved = pairs["base"].isin((base, new)) | pairs["new"].isin((base, new))
        floor = noise_floor(pairs[~involved] if cross else pairs, least_pairs)
        rows = rows.copy()
        call(rows, [floor], LEAST_EFFECT)
        judged.append(rows)
    every: pd.DataFrame = pd.concat(judged, ignore_index=True)
    return every


def noise_floor(pairs: pd.DataFrame, least_pairs: int = LEAST_PAIRS) -> stats.NoiseFloor:
    """Return the floors as `compare` would read them from a run's meta.json."""
    found = floor_classes(pairs, least_pairs)
    classes = tuple((c["below_us"] or math.inf, c["floor"]) for c in found)
    held = held_down_classes(pairs, least_pairs)
    return stats.NoiseFloor(classes, held["equal_clock"]["floor"], held["clock_limited"]["floor"])


_CALL_COLUMNS = (
    *ROW,
    "base",
    "new",
    "base_us",
    "new_us",
    "ratio",
    "low",
    "high",
    "band",
    "verdict",
)


def summarise_calls(judged: pd.DataFrame, processes: int) -> dict[str, Any]:
    """Return pairs judged, those called FASTER or SLOWER, their share in a thousand, and which."""
    n_judged = int(judged["ratio"].notna().sum())
    called = judged[judged["verdict"].isin(("FASTER", "SLOWER"))]
    return {
        "pairs": n_judged,
        "called": len(called),
        "per_thousand": 1000 * len(called) / n_judged if n_judged else None,
        "missing": int((judged["verdict"] == "MISSING").sum()),
        "least_effect": LEAST_EFFECT,
        "cross_validated": processes >= LEAST_TO_CROSS_VALIDATE,
        "rows": called[list(_CALL_COLUMNS)].to_dict("records"),
    }


def repeatability(table: pd.DataFrame, pairs: pd.DataFrame, worst: int = 5) -> dict[str, Any]:
    """Return how well the medians (time_us_p50) of rows of REPEATABLE_FROM_US and longer repeat,
    rows whose clock was held down apart; those also at equal clock, by the ratios of `pairs`.

    A row's spread is the largest of its processes' medians over the smallest, minus 1; at equal
    clock it is the largest ratio of two processes, minus 1. `share` counts rows whose spread is
    within REPEATABLE, `share_of_pairs` every two processes of a row on their own. None where no
    row is long enough.
    """
    ok = table[table["status"] == "ok"]
    medians = _by_process(table, ok, "time_us_p50")
    medians = medians[(medians.median(axis=1) >= REPEATABLE_FROM_US) & (medians.count(axis=1) > 1)]
    limited = _limited(ok, medians.index)
    equal = pairs[pairs["at_equal_clock"] & (pairs["time_us"] >= REPEATABLE_FROM_US)]
    return {
        "from_us": REPEATABLE_FROM_US,
        "within": REPEATABLE,
        "free": _spreads(medians[~limited], worst),
        "clock_limited": _spreads(medians[limited], worst),
        "equal_clock": _summarise(
            np.expm1(equal.groupby(ROW)["effect"].max()),
            np.expm1(equal["effect"]),
            equal.groupby(ROW)["time_us"].first(),
            worst,
        ),
    }


def _spreads(medians: pd.DataFrame, worst: int) -> dict[str, Any]:
    two = [medians[a] / medians[b] for a, b in itertools.combinations(medians.columns, 2)]
    return _summarise(
        medians.max(axis=1) / medians.min(axis=1) - 1.0,
        np.expm1(np.log(pd.concat(two).dropna()).abs()),
        medians.median(axis=1),
        worst,
    )


def _summarise(
    spread: pd.Series[float], of_pairs: pd.Series[float], times: pd.Series[float], worst: int
) -> dict[str, Any]:
    found = spread.sort_values(ascending=False, kind="stable").head(worst)
    rows = found.rename("spread").reset_index()
    rows["time_us"] = times.loc[found.index].to_numpy()
    return {
        "rows": len(spread),
        "share": float((spread <= REPEATABLE).mean()) if len(spread) else None,
        "pairs": len(of_pairs),
        "share_of_pairs": float((of_pairs <= REPEATABLE).mean()) if len(of_pairs) else None,
        "worst": rows.to_dict("records"),
    }
