"""Whether two runs may be compared; what a reader must know besides is in compare_labels.py."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from harness.compare_rows import differ
from harness.results import KEY, Run, gpu_names

# A mean and the middle of its interval differ by the order of adding alone.
_SAME_MEAN = 1e-6


class ComparisonRefused(Exception):  # noqa: N818  # an outcome with its own exit code
    """The runs cannot be compared; the text is one line that says why and what to do."""


def refuse_unfinished(run: Run, name: str, force: bool = False) -> list[str]:
    """Return the label of a forced run that was cut short, or [] for a whole one.

    Raises ComparisonRefused for a run without rows and, unless `force`, for one that did not end
    or lost its last line: the rows that it has are whole, and those it lacks will be MISSING.
    """
    if run.rows.empty:
        raise ComparisonRefused(f"{name} ({run.path}) has no rows; run the benchmark again")
    if run.truncated:
        text = f"the last line of {name} ({run.path}) is torn"
    elif not run.complete:
        text = (
            f"{name} ({run.path}) is incomplete: its meta.json says complete="
            f"{run.meta.get('complete')!r}"
        )
    else:
        return []
    if not force:
        raise ComparisonRefused(
            f"{text}; finish that run with --resume, or --force compares the rows that it has"
        )
    return [f"CUT SHORT (forced): {text}"]


def refuse_other_rounds(run: Run) -> None:
    """Raise ComparisonRefused when rounds.csv does not belong to the rows of bench.csv.

    Rounds name rows by their position: a bench.csv that was sorted or has lost lines would
    otherwise be judged by the rounds of other rows. Each ok row's rounds must be as many as it
    says, and have the middle of its interval as their mean.
    """
    ok = run.rows[run.rows["status"] == "ok"]
    found = run.rounds.groupby("row")["mean_us"].agg(["size", "mean"]).reindex(ok.index)
    middle = (ok["ci_low_us"] + ok["ci_high_us"]) / 2
    n_rounds = ok["n_rounds"].astype("float64")
    few = n_rounds.notna() & (found["size"].fillna(0) != n_rounds)
    off = middle.notna() & ((found["mean"] / middle - 1).abs() > _SAME_MEAN)
    wrong = ok.index[(few | off).to_numpy(dtype=bool)]
    if len(wrong):
        raise ComparisonRefused(
            f"{run.path}: the rounds of {len(wrong)} of {len(ok)} ok rows in rounds.csv are not "
            f"those of bench.csv (first: line {wrong[0] + 2}); was a file sorted or cut? Copy the "
            "run again"
        )


def refuse_other_gpu(base: Sequence[Run], new: Sequence[Run], force: bool) -> list[str]:
    """Return the label of a forced comparison across GPU models, or [] for one model.

    The device index does not matter. Raises ComparisonRefused for other models without `force`,
    and always for a side that mixes models.
    """
    sides = {"base": base, "new": new}
    names = {side: sorted({g for r in runs for g in gpu_names(r)}) for side, runs in sides.items()}
    for side, found in names.items():
        if len(found) > 1:
            raise ComparisonRefused(
                f"{side} holds {len(found)} GPU models ({', '.join(found)}) in column gpu; keep "
                "the rows of one"
            )
    base_gpu, new_gpu = ((found or ["not recorded"])[0] for found in names.values())
    if names["base"] and base_gpu == new_gpu:
        return []
    text = f"GPU: base {base_gpu}, new {new_gpu}"
    if not force:
        raise ComparisonRefused(f"{text}; times of different cards say nothing; --force compares")
    return [f"CROSS-DEVICE (forced): {text}"]


def keys_in_common(
    base: pd.DataFrame, new: pd.DataFrame, force: bool
) -> tuple[list[str], list[str]]:
    """Return the columns to join two tables on, and the label of a forced choice.

    Raises ComparisonRefused when they have no row in common; where that is for the distribution
    of their inputs alone, `force` joins them without it.
    """
    on = [*KEY, "dims"]
    without = [column for column in on if column != "distribution"]
    if not _common(base, new, on).empty:
        return on, []
    found = _common(base, new, without)
    if found.empty:
        raise ComparisonRefused(
            f"no common row: base has {len(base)}, new has {len(new)}, and no "
            f"{'/'.join(on)} is in both; compare runs of the same cases"
        )
    before, now = (" / ".join(sorted(set(t["distribution"]))) or "none" for t in (base, new))
    text = f"distribution of the inputs: base {before}, new {now}"
    # Two rows of one side that only their distribution tells apart have no one partner.
    if not force or base.duplicated(without).any() or new.duplicated(without).any():
        raise ComparisonRefused(
            f"{text}; no common row: other values draw other power and run at other clocks; "
            "measure both alike" + ("" if force else ", or --force compares")
        )
    return without, [f"OTHER INPUTS (forced): {text}"]


def _common(base: pd.DataFrame, new: pd.DataFrame, on: list[str]) -> pd.DataFrame:
    found: pd.DataFrame = base[on].merge(new[on], on=on, how="inner")
    return found


def refuse_other_cache(rows: pd.DataFrame, both: pd.Series[bool], force: bool) -> list[str]:
    """Return the labels of forced rows whose caches differ before each sample, or [] for none.

    rows: as join_rows returns them; both: which of them are on both sides. Rows that do not
    record their cache or flush are let through. Raises ComparisonRefused without `force`.
    """
    labels = []
    for column, name in (("cache", "COLD AGAINST WARM"), ("flush", "FLUSHED DIFFERENTLY")):
        odd = rows[both & differ(rows, column)]
        if odd.empty:
            continue
        before, now = odd[f"base_{column}"].iloc[0], odd[f"new_{column}"].iloc[0]
        text = f"{column}: {len(odd)} of {int(both.sum())} common rows are {before} on one side, "
        text += f"{now} on the other"
        if not force:
            raise ComparisonRefused(f"{text}; measure both alike, or --force compares")
        labels.append(f"{name} (forced): {text}")
    return labels
