"""Counts as rows of a table: for CSV and JSON, for a terminal, for the report."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from . import concepts
from .counts import Counts, Effort, versions

MEASURES = ("tokens", "lines", "ccn", "halstead_volume", "concepts", "concept_uses")
TITLES = ("Tokens", "Lines", "CCN", "Volume", "Concepts", "Uses")
# (attribute of Effort, in words)
SCOPES = (
    ("device", "device"),
    ("host", "host glue"),
    ("shared_device", "shared device"),
    ("shared_host", "shared host"),
    ("whole", "all of these"),
)
ALL_SCOPES = ("device", "host", "shared_device", "shared_host", "build")

RULES = (
    "Device: __global__ and __device__ functions, @triton.jit functions, and the types and "
    "constants that they use. Host glue: launchers, checks, and for CUDA the op's part of "
    "kernels.h and of the bindings. Build: setup.py for CUDA, nothing for Triton.",
    "Everything in the op's own file counts, and of the files that it includes or imports the "
    "functions, types and constants that it reaches by name. What more than one op reaches is "
    "shared and listed apart, whole for each op: where a kernel is in shared code, compare all.",
    "Tokens: words, numbers and signs; a string is one, also one that holds PTX; comments, "
    "docstrings, includes, imports and namespaces are none. Lines: those that hold a token, as "
    "formatted here (clang-format, ruff format, 100 columns).",
    "CCN: decisions plus 1, summed over functions. Volume: Halstead's, in bits, summed over "
    "functions; secondary, since its rules differ by language. Concepts: distinct entries of the "
    "list of hardware concepts that the code names; uses: how often.",
)
THREATS = (
    "One author and one style: other hands write either side longer or shorter.",
    "Generality: a side may do more, such as more alignments or forms; compare only equal "
    "features, or the shorter side is the one that does less.",
    "Calls hide work: tl.sum is a token where a reduction by hand is thirty, and PTX in a string "
    "is one.",
    "Size is not time: how long it took to write was not recorded, and nothing here estimates it.",
)


@dataclass(frozen=True)
class Cell:
    """One measure of both sides; None where a side has no counts, ratio None where one is 0."""

    cuda: float | None
    triton: float | None

    @property
    def ratio(self) -> float | None:
        return self.cuda / self.triton if self.cuda and self.triton else None

    def sides(self) -> str:
        """Both numbers; a side that has none is –."""
        return " / ".join("–" if v is None else f"{v:.0f}" for v in (self.cuda, self.triton))

    def words(self) -> str:
        """Both numbers and CUDA / Triton."""
        return self.sides() if self.ratio is None else f"{self.sides()} = {self.ratio:.2f}"


def measure(counts: Counts | None, name: str) -> float | None:
    if counts is None:
        return None
    value = getattr(counts, name)
    return float(len(value) if name == "concepts" else value)


def cells(cuda: Effort, triton: Effort, scope: str) -> list[Cell]:
    """One Cell for each of MEASURES."""
    sides = (getattr(cuda, scope), getattr(triton, scope))
    return [Cell(*(measure(side, name) for side in sides)) for name in MEASURES]


def tuning_words(effort: Effort) -> str:
    if effort.knobs is None or effort.configurations is None:
        return "–"
    return f"{effort.knobs} / {effort.configurations}"


def summary(pairs: Sequence[tuple[Effort, Effort]]) -> str:
    """Ratios of tokens over the pairs that have both sides; "" where none has."""

    def ratios(of: str) -> list[float]:
        found = []
        for pair in pairs:
            ratio = Cell(*(measure(getattr(e, of), "tokens") for e in pair)).ratio
            if ratio is not None:
                found.append(ratio)
        return found

    parts = []
    for of, words in (
        ("device", "device code"),
        ("device_whole", "device code with its shared helpers"),
        ("own", "device code and host glue"),
        ("whole", "these with all shared helpers"),
    ):
        if found := ratios(of):
            parts.append(
                f"{words} {statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"
            )
    n = len(ratios("own"))
    return f"CUDA / Triton in tokens, median of {n} pairs: {'; '.join(parts)}." if parts else ""


def flat(efforts: Sequence[Effort]) -> Iterator[dict[str, Any]]:
    """A row for each side and scope, or one for a side without counts; unknown is ""."""
    tools = versions()
    for effort in efforts:
        common: dict[str, Any] = {"op": effort.op, "side": effort.side, "rung": effort.rung}
        rest = {
            "knobs": "" if effort.knobs is None else effort.knobs,
            "configurations": "" if effort.configurations is None else effort.configurations,
            "missing": effort.missing,
            "problems": "; ".join(effort.problems),
            "concept_list": concepts.VERSION,
            "tools": " ".join(f"{name} {version}" for name, version in tools.items()),
        }
        for scope in ALL_SCOPES if not effort.missing else ("",):
            counts: Counts | None = getattr(effort, scope) if scope else None
            yield common | {"scope": scope} | _numbers(counts) | rest


def _numbers(counts: Counts | None) -> dict[str, Any]:
    names = ("tokens", "lines", "ccn", "ccn_max", "functions")
    if counts is None:
        empty = (*names, "halstead_volume", "concepts", "concept_uses", "concept_ids")
        return dict.fromkeys(empty, "")
    return {name: getattr(counts, name) for name in names} | {
        "halstead_volume": round(counts.halstead_volume, 1),
        "concepts": len(counts.concepts),
        "concept_uses": counts.concept_uses,
        "concept_ids": " ".join(sorted(counts.concepts)),
    }


def as_csv(efforts: Sequence[Effort]) -> str:
    rows = list(flat(efforts))
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_json(efforts: Sequence[Effort]) -> dict[str, Any]:
    return {
        "schema": 1,
        "concept_list": concepts.VERSION,
        "tools": versions(),
        "rules": list(RULES),
        "threats": list(THREATS),
        "sides": [_side_json(effort) for effort in efforts],
    }


def _side_json(effort: Effort) -> dict[str, Any]:
    return {
        "op": effort.op,
        "side": effort.side,
        "rung": effort.rung,
        "missing": effort.missing,
        "problems": list(effort.problems),
        "knobs": effort.knobs,
        "configurations": effort.configurations,
        "scopes": {
            scope: _numbers(counts)
            for scope in ALL_SCOPES
            if (counts := getattr(effort, scope)) is not None
        },
    }
