"""Several runs of one build as one table, and what keeps them from being one side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.compare_checks import ComparisonRefused
from harness.compare_judge import RunRounds
from harness.compare_labels import COMPARED, values_of
from harness.results import KEY, Run
from harness.schema import FAILED

# Build and machine, which the runs of one side should share.
_SIDE_FACTS = ("gpu id", "git commit", *COMPARED)


@dataclass(frozen=True, eq=False)
class Pool:
    """The runs of one side as one table.

    rows: one line a key, as Run.rows, index 0, 1, ...; ids: a line a run, the row id of each key
    in that run, -1 where it lacks it or was not ok there.
    """

    name: str
    runs: tuple[Run, ...]
    rows: pd.DataFrame
    ids: NDArray[np.int64]

    @property
    def path(self) -> str:
        """The runs' folders, joined for a reader."""
        return " + ".join(str(run.path) for run in self.runs)

    def rounds(self, rows: pd.Series[int]) -> list[RunRounds]:
        """Return each run's rounds with the row ids there; rows: places in this table, or -1."""
        places = rows.to_numpy()
        padded = np.hstack([self.ids, np.full((len(self.runs), 1), -1)])
        return [(ids[places], run.rounds) for ids, run in zip(padded, self.runs, strict=True)]

    def subset(self, keep: NDArray[np.bool_]) -> Pool:
        """Return the pool with those rows alone."""
        return replace(self, rows=self.rows[keep].reset_index(drop=True), ids=self.ids[:, keep])


def pool(name: str, runs: Sequence[Run]) -> Pool:
    """Join runs on KEY and dims. A key that failed in one run is a failure of the side; one that
    is not in all of them counts with those that have it."""
    if len(runs) == 1:
        ids = np.arange(len(runs[0].rows))[None, :]
        return Pool(name, (runs[0],), runs[0].rows.assign(n_runs=1), ids)
    table = pd.concat([run.rows.assign(run=i) for i, run in enumerate(runs)])
    table["row_id"] = table.index
    table = table.reset_index(drop=True)
    key = table.groupby([*KEY, "dims"], sort=False, dropna=False).ngroup().to_numpy()
    n_keys = int(key.max(initial=-1)) + 1
    ok = (table["status"] == "ok").to_numpy()
    failed = table["status"].isin(FAILED).to_numpy()
    # The line that stands for its key: a failure before a time, a time before an absence.
    rank = np.where(failed, 0, np.where(ok, 1, 2))
    order = np.lexsort((np.arange(len(table)), rank, key))
    first = order[np.append(True, np.diff(key[order]) > 0)] if n_keys else order
    rows = table.iloc[first].reset_index(drop=True)
    times = table["time_us_p50"].where(ok).groupby(key).mean()
    is_ok = rows["status"] == "ok"
    rows["time_us_p50"] = times.to_numpy()
    rows.loc[~is_ok, "time_us_p50"] = np.nan
    marks = table.groupby(key)["warnings"].agg(";".join).str.strip(";")
    rows["warnings"] = marks.to_numpy()
    rows["n_runs"] = np.where(
        is_ok, np.bincount(key, ok, n_keys), np.bincount(key, failed, n_keys)
    ).astype("int64")
    ids = np.full((len(runs), n_keys), -1)
    ids[table["run"].to_numpy()[ok], key[ok]] = table["row_id"].to_numpy()[ok]
    return Pool(name, tuple(runs), rows.drop(columns=["run", "row_id"]), ids)


def mixed_side_labels(name: str, runs: Sequence[Run], force: bool) -> list[str]:
    """Return the labels of runs that are not quite alike, [] for one run or equals.

    Raises ComparisonRefused for a run given twice and, unless `force`, for kernels that differ:
    the mean of two kernels is the time of none.
    """
    for i, run in enumerate(runs):
        for other in runs[:i]:
            if run.path.resolve() == other.path.resolve() or _copies(run, other):
                raise ComparisonRefused(
                    f"{name}: {run.path} and {other.path} are the same run, which would count its "
                    "rounds twice; give each run once"
                )
    if len(runs) == 1:
        return []
    found = {fact: values_of(runs, fact) for fact in _SIDE_FACTS}
    labels = [
        f"runs of {name} differ in {fact}: {', '.join(values)}"
        for fact, values in found.items()
        if len(values) > 1
    ]
    odd = _other_kernels(runs)
    if odd.empty:
        return labels
    first = odd.iloc[0]
    text = (
        f"runs of {name} hold other kernels: {len(odd)} rows have more than one kernel_hash or "
        f"config (first: {first['op']} {first['case']} {first['dtype']} {first['backend']})"
    )
    if not force:
        raise ComparisonRefused(f"{text}; give runs of one build a side, or --force pools them")
    return [f"OTHER KERNELS POOLED (forced): {text}", *labels]


def _copies(run: Run, other: Run) -> bool:
    """Do both hold the same rounds? No two measurements do."""
    return len(run.rounds) > 0 and run.rounds.equals(other.rounds)


def _other_kernels(runs: Sequence[Run]) -> pd.DataFrame:
    """The keys whose kernel or configuration is not the same in all runs that record it."""
    table = pd.concat([run.rows for run in runs])
    on = [*KEY, "dims"]
    told = table[[*on, "kernel_hash", "config"]].replace("", None)
    counts = told.groupby(on, sort=False, dropna=False)[["kernel_hash", "config"]].nunique()
    odd: pd.DataFrame = counts[(counts > 1).any(axis=1)].reset_index()
    return odd
