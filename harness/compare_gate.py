"""What fails a comparison: the terms of `--fail-on`, and the exit code that they give."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from harness.options import UsageError

_TERM = re.compile(r"(\w+)(?::(\d+(?:\.\d*)?|\.\d+)%)?", re.ASCII)
_SIZED = ("slower", "faster")
_NAMES = ("slower", "faster", "missing", "incorrect", "unclear")
GRAMMAR = "slower[:N%], faster[:N%], missing, incorrect, unclear or none, joined by commas"
FAILED, UNCLEAR = 1, 3


@dataclass(frozen=True)
class Outcome:
    """The exit code, and how many rows each term of the gate found."""

    code: int
    counts: dict[str, int]

    @property
    def text(self) -> str:
        """One line for a reader: the code and what led to it."""
        found = ", ".join(f"{n} {name}" for name, n in self.counts.items() if n)
        if not self.counts:
            return "exit code 0: nothing is gated"
        return f"exit code {self.code}: {found or 'no row is ' + ' or '.join(self.counts)}"


@dataclass(frozen=True)
class Gate:
    """Terms that fail a comparison; `slower` and `faster` with the least change that counts."""

    terms: Mapping[str, float] = field(
        default_factory=lambda: {"slower": 0.0, "missing": 0.0, "incorrect": 0.0}
    )

    def judge(self, rows: pd.DataFrame) -> Outcome:
        """Return 1 for any row that a term finds, 3 where only UNCLEAR ones are found, else 0.

        A slower row counts when its verdict is SLOWER and its ratio beyond the term's change: the
        verdict says that it is real, the change that it matters.
        """
        change = rows["ratio"].to_numpy(dtype="float64")
        verdict = rows["verdict"]
        found = {
            "slower": (verdict == "SLOWER") & (change > 1.0 + self.terms.get("slower", 0.0)),
            "faster": (verdict == "FASTER")
            & (change < 1.0 / (1.0 + self.terms.get("faster", 0.0))),
            "missing": rows["lost"],
            "incorrect": rows["failed"],
            "unclear": verdict == "UNCLEAR",
        }
        counts = {_label(name, self.terms[name]): int(found[name].sum()) for name in self.terms}
        bad = any(n for name, n in counts.items() if name != "unclear")
        return Outcome(FAILED if bad else UNCLEAR if counts.get("unclear") else 0, counts)


DEFAULT_GATE = Gate()


def read_gate(texts: Sequence[str], strict: bool = False) -> Gate:
    """Return the gate of --fail-on's values; strict: UNCLEAR rows count too.

    Terms add to the default, so that nobody who raises a threshold lets wrong kernels through;
    `none` clears what stands before it. Raises UsageError for a term that is none.
    """
    terms = dict(DEFAULT_GATE.terms)
    for term in (term.strip() for text in texts for term in text.split(",")):
        if term == "none":
            terms.clear()
            continue
        found = _TERM.fullmatch(term)
        name, percent = (found[1], found[2]) if found else ("", None)
        share = float(percent or 0.0) / 100.0
        if name not in _NAMES or (percent and name not in _SIZED) or not math.isfinite(share):
            raise UsageError(f"--fail-on {term!r}: not understood, wanted {GRAMMAR}")
        terms[name] = share
    if strict:
        terms["unclear"] = 0.0
    return Gate({name: terms[name] for name in _NAMES if name in terms})


def _label(name: str, share: float) -> str:
    return f"{name} by more than {100 * share:g} %" if share else name
