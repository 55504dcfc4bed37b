"""What a reader must know before believing a comparison: a line each, above its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from harness.results import Run, meta_fact, meta_value
from harness.schema import META_FACTS

# Facts whose difference explains a difference in time; the rest only identifies.
_TOOLS = ("driver", "CUDA", "nvcc", "nvcc's ptxas", "nvcc flags", "torch", "triton")
COMPARED = (*_TOOLS, "triton's ptxas", "Python", "seed")

# Which tools compile or dispatch a backend's rows.
_TOOLS_OF = {
    "cuda": ("CUDA", "nvcc", "nvcc's ptxas", "nvcc flags"),
    "triton": ("triton", "triton's ptxas"),
    "torch": ("torch", "CUDA"),
    "library": ("torch", "CUDA"),
    "compile": ("torch", "triton", "triton's ptxas"),
}


def values_of(runs: Sequence[Run], fact: str) -> list[str]:
    """Return what the runs record of one of META_FACTS, each value once; [] for nothing."""
    recorded = (meta_fact(run.meta, fact) for run in runs)
    return sorted({_text(value) for value in recorded if value is not None})


def card_labels(base: Sequence[Run], new: Sequence[Run]) -> list[str]:
    """Return the label of several cards of one GPU model, or [] for one or unrecorded ones."""
    before, now = (values_of(runs, "gpu id") for runs in (base, new))
    if not before or not now or values_of(base, "gpu name") != values_of(new, "gpu name"):
        return []
    if before == now:
        return _index_labels(base, new)
    return [
        f"two cards of one model: base {' / '.join(before)}, new {' / '.join(now)}; a noise floor "
        "between processes of one card does not cover differences between cards"
    ]


def _index_labels(base: Sequence[Run], new: Sequence[Run]) -> list[str]:
    """The same card under another index: no difference, but one that a reader may stumble on."""
    before, now = (
        sorted({str(i) for run in runs for i in run.rows["device"].dropna().unique()})
        for runs in (base, new)
    )
    if not before or not now or before == now:
        return []
    return [
        f"device index: base {' / '.join(before)}, new {' / '.join(now)}; the same card, so "
        "compared as usual"
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
    base: Sequence[Run], new: Sequence[Run], given: float | None = None, recorded: bool = True
) -> list[str]:
    """Return the lines that say which noise floor counts and where it was measured.

    given: the user's own floor, relative. recorded: whether any run holds one. A record
    without a date, which no A/A measurement writes, gets no line.
    """
    if given is not None:
        return [f"noise floor: {100 * given:g} % as given"]
    if not recorded:
        return ["noise floor: not measured in either run (A/A); conservative defaults used"]
    texts: dict[str, list[str]] = {}
    for side, runs in (("base", base), ("new", new)):
        for run in runs:
            floor = meta_value(run.meta, "noise_floor")
            if isinstance(floor, Mapping) and floor.get("measured_utc"):
                of = texts.setdefault(_floor_text(floor, run), [])
                of += [] if side in of else [side]
    larger = (
        [f"the larger of {_COUNTS.get(len(texts), len(texts))} noise floors counts in each row"]
        if len(texts) > 1
        else []
    )
    names = {text: "both runs" if len(of) > 1 else of[0] for text, of in texts.items()}
    return [f"noise floor of {side}: {text}" for text, side in names.items()] + larger


_COUNTS = {2: "two", 3: "three", 4: "four"}


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


def environment_labels(base: Sequence[Run], new: Sequence[Run]) -> list[str]:
    """Return one line for each recorded difference, dirty tree and set of unrecorded facts."""
    labels = []
    for fact in COMPARED:
        before, now = values_of(base, fact), values_of(new, fact)
        if before and now and before != now:
            labels.append(f"{fact}: base {' / '.join(before)}, new {' / '.join(now)}")
    for side, runs in (("base", base), ("new", new)):
        if any(meta_fact(run.meta, "git dirty") for run in runs):
            labels.append(f"{side} was built from a dirty tree")
        missing = [f for f in META_FACTS if any(meta_fact(run.meta, f) is None for run in runs)]
        if missing:
            labels.append(f"{side} does not record: {', '.join(missing)}")
    return labels


def changed_tools(base: Sequence[Run], new: Sequence[Run]) -> dict[str, bool]:
    """Return for each known backend whether a recorded tool behind its rows changed."""

    def differs(tool: str) -> bool:
        before, now = values_of(base, tool), values_of(new, tool)
        return bool(before and now and before != now)

    return {backend: any(map(differs, tools)) for backend, tools in _TOOLS_OF.items()}


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
