"""What processes of one build say about noise: floors by duration, calls, repeatability.

Pure arithmetic over the table that aa.csv holds, one line for a row in a process, of two
processes at least.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from harness import stats
from harness.compare_rows import join_rows, judge
from harness.schema import CLOCK_LIMITED, KEY

ROW = [*KEY, "dims"]
COLUMNS = (
    "process",
    *ROW,
    "status",
    "reason",
    "cache",
    "flush",
    "config",
    "kernel_hash",
    "throttled",
    "warnings",
    "n_rounds",
    "time_us_p50",
    "mean_us",
    "mean_kcycles",
    "round_means_us",
    "round_sm_mhz",
)

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


def table_line(
    process: int,
    row: Mapping[str, Any],
    means_us: Sequence[float],
    sm_mhz: Sequence[float | None] = (),
) -> list[Any]:
    """Return one line of the table in COLUMNS order.

    `row`: the columns of bench.csv. `means_us`, `sm_mhz`: of each round, the clock None where it
    is unknown. `mean_us` is the geometric mean over blocks of rounds, the one that ratios are made
    of; `mean_kcycles` the same of time x SM clock, NaN where a clock is unknown.
    """
    clocks = [math.nan if mhz is None else mhz for mhz in sm_mhz] or [math.nan] * len(means_us)
    own = {
        "process": process,
        "n_rounds": len(means_us),
        "mean_us": _block_mean(means_us),
        "mean_kcycles": _block_mean(np.multiply(means_us, clocks)) / 1e3,
        "round_means_us": _joined(means_us),
        "round_sm_mhz": _joined(clocks),
    }
    text = dict.fromkeys(COLUMNS, "") | {"time_us_p50": math.nan}
    found = {c: row[c] for c in COLUMNS if row.get(c) is not None}
    return list((text | found | own).values())


def _block_mean(values: ArrayLike) -> float:
    return float(np.exp(stats.block_means(np.log(values)).mean())) if np.size(values) else math.nan


def _joined(values: Sequence[float]) -> str:
    return ";".join(repr(float(value)) for value in values)


def _split(text: str) -> list[float]:
    return [float(value) for value in text.split(";") if value]


def read_table(path: Path) -> pd.DataFrame:
    """Return aa.csv as it was measured, to the last digit; unknown text is "", numbers NaN."""
    table: pd.DataFrame = pd.read_csv(path, keep_default_na=False, dtype=str)
    # Python's own parser: pandas' is off by a last bit in some versions.
    for column in ("time_us_p50", "mean_us", "mean_kcycles"):
        table[column] = [float(text or "nan") for text in table[column]]
    for column in ("process", "n_rounds"):
        table[column] = table[column].astype("int64")
    return table


def pair_effects(table: pd.DataFrame, tick_us: float) -> pd.DataFrame:
    """Return |log ratio| between the row means of every two processes.

    One line a row and pair, ok on both sides: ROW, base, new, time_us (median over processes of
    the row's p50), below_us (upper edge of its duration class), limited (the clock was held down
    in one of the two), effect, which is of cycles where limited and known. No effect is known
    better than to a timer tick: it is never below `tick_us` over the row's time.
    """
    ok = table[table["status"] == "ok"].assign(
        limited=lambda rows: rows["warnings"].str.contains(CLOCK_LIMITED).astype(float)
    )
    means, cycles = (_by_process(table, ok, column) for column in ("mean_us", "mean_kcycles"))
    marks = _by_process(table, ok, "limited")
    times = ok.groupby(ROW)["time_us_p50"].median().reindex(means.index).to_numpy(dtype=float)
    parts = []
    for base, new in itertools.combinations(means.columns, 2):
        part = pd.DataFrame(index=means.index)
        part["base"], part["new"], part["time_us"] = base, new, times
        part["below_us"] = _class_of(times)
        part["limited"] = marks[[base, new]].max(axis=1) > 0
        by_time, by_cycles = ((of[new] / of[base]).map(math.log).abs() for of in (means, cycles))
        part["effect"] = by_cycles.where(part["limited"] & by_cycles.notna(), by_time)
        parts.append(part[part["effect"].notna()].reset_index())
    effects: pd.DataFrame = pd.concat(parts, ignore_index=True)
    effects["effect"] = np.maximum(effects["effect"], tick_us / effects["time_us"])
    return effects


def _by_process(table: pd.DataFrame, ok: pd.DataFrame, column: str) -> pd.DataFrame:
    """One line a row that is ok anywhere, one column a process, NaN where it is not ok."""
    wide = ok.pivot(index=ROW, columns="process", values=column)
    whole: pd.DataFrame = wide.reindex(columns=sorted(table["process"].unique()))
    return whole


def _limited(ok: pd.DataFrame, index: pd.Index[Any]) -> pd.Series[bool]:
    """For each row of `index`: was its clock held down in any process?"""
    marked = ok["warnings"].str.contains(CLOCK_LIMITED)
    return marked.groupby([ok[column] for column in ROW]).any().reindex(index).astype(bool)


def _class_of(times_us: Any) -> Any:
    edges = [below for below, _ in stats.DEFAULT_NOISE_FLOORS]
    return np.select([times_us < edge for edge in edges], edges, edges[-1])


def floor_classes(effects: pd.DataFrame, least_pairs: int = LEAST_PAIRS) -> Classes:
    """Return the noise floor of each duration class, rising, as `compare` reads them.

    floor: relative, MARGIN times the PERCENTILE of the effects of rows at full clock. A class of
    fewer than `least_pairs` pairs keeps the default floor and says so in `source`; `measured` is
    then what the few pairs gave.
    """
    free = effects[~effects["limited"]]
    return [
        {"below_us": below_us if math.isfinite(below_us) else None}
        | _class(free[free["below_us"] == below_us], default, least_pairs)
        for below_us, default in stats.DEFAULT_NOISE_FLOORS
    ]


def equal_clock_class(effects: pd.DataFrame, least_pairs: int = LEAST_PAIRS) -> dict[str, Any]:
    """Return the noise floor of the rows whose SM clock was held down, at equal clock."""
    return _class(effects[effects["limited"]], stats.DEFAULT_EQUAL_CLOCK_FLOOR, least_pairs)


def _class(part: pd.DataFrame, default: float, least_pairs: int) -> dict[str, Any]:
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


def judge_pairs(table: pd.DataFrame, effects: pd.DataFrame, tick_us: float) -> pd.DataFrame:
    """Return the verdict on every row of every two processes, as `compare` would call it.

    ROW, base, new, base_us, new_us, ratio, low, high, band, verdict; rows that were ok in one of
    the two only are MISSING. With LEAST_TO_CROSS_VALIDATE processes the floor of a pair is made
    without its two processes: a floor covers the data that it came from by construction.
    """
    processes = sorted(table["process"].unique())
    cross = len(processes) >= LEAST_TO_CROSS_VALIDATE
    # A class that has pairs enough as a whole is judged by what is left of them, not by a default.
    all_pairs = math.comb(len(processes), 2)
    left_pairs = math.comb(len(processes) - 2, 2) if cross else all_pairs
    least_pairs = max(1, LEAST_PAIRS * left_pairs // all_pairs)
    sides = {process: _side(table, process) for process in processes}
    judged = []
    for base, new in itertools.combinations(processes, 2):
        involved = effects["base"].isin((base, new)) | effects["new"].isin((base, new))
        floor = noise_floor(effects[~involved] if cross else effects, least_pairs)
        rows = join_rows(sides[base][0], sides[new][0], ROW)
        rounds = (sides[base][1], sides[new][1])
        judge(rows, rounds, [floor], LEAST_EFFECT, tick_us)
        judged.append(rows.assign(base=base, new=new))
    columns = ["base", "new", "base_us", "new_us", "ratio", "low", "high", "band", "verdict"]
    every: pd.DataFrame = pd.concat(judged, ignore_index=True)[[*ROW, *columns]]
    return every


def noise_floor(effects: pd.DataFrame, least_pairs: int = LEAST_PAIRS) -> stats.NoiseFloor:
    """Return the floors as `compare` would read them from a run's meta.json."""
    found = floor_classes(effects, least_pairs)
    classes = tuple((c["below_us"] or math.inf, c["floor"]) for c in found)
    return stats.NoiseFloor(classes, equal_clock_class(effects, least_pairs)["floor"])


def _side(table: pd.DataFrame, process: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One process as a run: its rows, and its rounds by row id."""
    rows = table[table["process"] == process].reset_index(drop=True).assign(bound="")
    means, clocks = ([_split(t) for t in rows[c]] for c in ("round_means_us", "round_sm_mhz"))
    ids = np.repeat(np.arange(len(rows)), [len(row) for row in means])
    every = {"mean_us": itertools.chain(*means), "sm_mhz": itertools.chain(*clocks)}
    return rows, pd.DataFrame({"row": ids} | {name: list(v) for name, v in every.items()})


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
        "rows": called.to_dict("records"),
    }


def repeatability(table: pd.DataFrame, worst: int = 5) -> dict[str, Any]:
    """Return how well the medians (time_us_p50) of rows of REPEATABLE_FROM_US and longer repeat,
    rows whose clock was held down apart: those in time and, at equal clock, in cycles.

    A row's spread is the largest of its processes' medians over the smallest, minus 1. `share`
    counts rows whose spread is within REPEATABLE, `share_of_pairs` every two processes of a row
    on their own. None where no row is long enough.
    """
    ok = table[table["status"] == "ok"]
    medians = _by_process(table, ok, "time_us_p50")
    medians = medians[(medians.median(axis=1) >= REPEATABLE_FROM_US) & (medians.count(axis=1) > 1)]
    limited = _limited(ok, medians.index)
    cycles = _by_process(table, ok, "mean_kcycles").loc[medians.index][limited]
    return {
        "from_us": REPEATABLE_FROM_US,
        "within": REPEATABLE,
        "free": _spreads(medians[~limited], worst),
        "clock_limited": _spreads(medians[limited], worst),
        "equal_clock": _spreads(cycles[cycles.count(axis=1) > 1], worst),
    }


def _spreads(medians: pd.DataFrame, worst: int) -> dict[str, Any]:
    spread = medians.max(axis=1) / medians.min(axis=1) - 1.0
    two = [medians[a] / medians[b] for a, b in itertools.combinations(medians.columns, 2)]
    pairs = np.expm1(np.log(pd.concat(two).dropna()).abs())
    found = spread.sort_values(ascending=False, kind="stable").head(worst)
    rows = found.rename("spread").reset_index()
    rows["median"] = medians.loc[found.index].median(axis=1).to_numpy()
    return {
        "rows": len(spread),
        "share": float((spread <= REPEATABLE).mean()) if len(spread) else None,
        "pairs": len(pairs),
        "share_of_pairs": float((pairs <= REPEATABLE).mean()) if len(pairs) else None,
        "worst": rows.to_dict("records"),
    }
