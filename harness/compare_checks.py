"""Whether two runs may be compared, and what a reader must know before believing the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.compare_rows import differ
from harness.results import Run, gpu_names, meta_fact, meta_value
from harness.schema import META_FACTS

# Facts whose difference explains a difference in time; the rest only identifies.
_TOOLS = ("driver", "CUDA", "nvcc", "nvcc's ptxas", "nvcc flags", "torch", "triton")
_COMPARED = (*_TOOLS, "triton's ptxas", "Python", "seed")

# Which tools compile or dispatch a backend's rows.
_TOOLS_OF = {
    "cuda": ("CUDA", "nvcc", "nvcc's ptxas", "nvcc flags"),
    "triton": ("triton", "triton's ptxas"),
    "torch": ("torch", "CUDA"),
    "library": ("torch", "CUDA"),
    "compile": ("torch", "triton", "triton's ptxas"),
}


# A mean and the middle of its interval differ by the order of adding alone.
_SAME_MEAN = 1e-6


class ComparisonRefused(Exception):  # noqa: N818  # an outcome with its own exit code
    """The runs cannot be compared; the text is one line that says why and what to do."""


def refuse_unfinished(run: Run, name: str) -> None:
    """Raise ComparisonRefused when `run` is empty, was cut short or lost its last line."""
    if run.truncated:
        raise ComparisonRefused(
            f"the last line of {name} ({run.path}) is torn; finish that run with --resume"
        )
    if not run.complete:
        raise ComparisonRefused(
            f"{name} ({run.path}) is incomplete: its meta.json says complete="
            f"{run.meta.get('complete')!r}; finish that run with --resume"
        )
    if run.rows.empty:
        raise ComparisonRefused(f"{name} ({run.path}) has no rows; run the benchmark again")


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


def refuse_other_gpu(base: Run, new: Run, force: bool) -> list[str]:
    """Return the label of a forced comparison across GPU models, or [] for one model.

    The device index does not matter. Raises ComparisonRefused for other models without `force`,
    and always for a file that mixes models.
    """
    names = {"base": gpu_names(base), "new": gpu_names(new)}
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


def card_labels(base: Run, new: Run) -> list[str]:
    """Return the label of two cards of one GPU model, or [] for one card or unrecorded ones."""
    before, now = (meta_fact(run.meta, "gpu id") for run in (base, new))
    same_model = meta_fact(base.meta, "gpu name") == meta_fact(new.meta, "gpu name")
    if before is None or now is None or before == now or not same_model:
        return []
    return [
        f"two cards of one model: base {before}, new {now}; a noise floor between processes of "
        "one card does not cover differences between cards"
    ]


def unpaired_labels(rows: pd.DataFrame) -> list[str]:
    """Return the line about rows of two sides that could not be compared round by round."""
    apart = int((rows["ratio"].notna() & ~rows["paired"]).sum())
    if not apart:
        return []
    return [
        f"{apart} of {len(rows)} rows were not timed in the same rounds on both sides (the run was "
        "resumed, or rounds were lost): the noise floor between processes counts for them"
    ]


def noise_floor_labels(
    base: Run, new: Run, given: float | None = None, recorded: bool = True
) -> list[str]:
    """Return the lines that say which noise floor counts and where it was measured.

    given: the user's own floor, relative. recorded: whether either run holds one. A record
    without a date, which no A/A measurement writes, gets no line.
    """
    if given is not None:
        return [f"noise floor: {100 * given:g} % as given"]
    if not recorded:
        return ["noise floor: not measured in either run (A/A); conservative defaults used"]
    texts: dict[str, str] = {}
    for side, run in (("base", base), ("new", new)):
        floor = meta_value(run.meta, "noise_floor")
        if isinstance(floor, Mapping) and floor.get("measured_utc"):
            text = _floor_text(floor, run)
            texts[text] = "both runs" if text in texts else side
    larger = ["the larger of two noise floors counts in each row"] if len(texts) > 1 else []
    return [f"noise floor of {side}: {text}" for text, side in texts.items()] + larger


def _floor_text(floor: Mapping[str, Any], run: Run) -> str:
    """Where a recorded floor came from, and what was different there than in the run itself."""
    tools = (f"{tool} {floor.get(tool)}" for tool in ("driver", "torch", "triton"))
    text = f"A/A of {floor['measured_utc']} in {floor.get('processes')} processes, "
    text += f"{floor.get('rows')} rows, {', '.join(tools)}"
    pairs = {
        "another driver": (floor.get("driver"), meta_fact(run.meta, "driver")),
        "another torch": (floor.get("torch"), meta_fact(run.meta, "torch")),
        "another triton": (floor.get("triton"), meta_fact(run.meta, "triton")),
        "another card": (floor.get("gpu_id"), meta_fact(run.meta, "gpu id")),
    }
    odd = [name for name, (then, now) in pairs.items() if then and now and then != now]
    return f"{text}; measured with {', '.join(odd)} than this run" if odd else text


def environment_labels(base: Run, new: Run) -> list[str]:
    """Return one line for each recorded difference, dirty tree and set of unrecorded facts."""
    labels = []
    for fact in _COMPARED:
        before, now = meta_fact(base.meta, fact), meta_fact(new.meta, fact)
        if before is not None and now is not None and before != now:
            labels.append(f"{fact}: base {_short(before)}, new {_short(now)}")
    for side, run in (("base", base), ("new", new)):
        if meta_fact(run.meta, "git dirty"):
            labels.append(f"{side} was built from a dirty tree")
        missing = [fact for fact in META_FACTS if meta_fact(run.meta, fact) is None]
        if missing:
            labels.append(f"{side} does not record: {', '.join(missing)}")
    return labels


def changed_tools(base: Run, new: Run) -> dict[str, bool]:
    """Return for each known backend whether a recorded tool behind its rows changed."""
    return {
        backend: any(_differs(base.meta, new.meta, tool) for tool in tools)
        for backend, tools in _TOOLS_OF.items()
    }


def _differs(base: dict[str, Any], new: dict[str, Any], fact: str) -> bool:
    before, now = meta_fact(base, fact), meta_fact(new, fact)
    return before is not None and now is not None and before != now


def _short(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
