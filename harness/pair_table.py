"""The table behind a page's verdicts: both sides' figures of each headline pair, a line each."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.pair_words import waves_text
from harness.pairs import Code
from harness.reasons import GAP, Verdict
from harness.report_ops import Column, Value
from harness.report_text import UNKNOWN, fixed, interval
from harness.sides import SIDES

KIND_WORDS = {
    "gap": "gap",
    "level": "level",
    "unclear": "cannot be told",
    "launch": "launches only",
    "untimed": "not timed",
}
COLUMNS = (
    Column("Case", False, "shape and layout"),
    Column("Dtype", False),
    Column("Verdict", False, f"gap: more than {100 * GAP:g} % apart, and the interval tells it"),
    Column("CUDA / Triton", True, "ratio of times with its 99 % interval"),
    Column("% of roof", False, "CUDA / Triton, as all that follow"),
    Column("Kernels", False, "facts are of the first"),
    Column("Registers", False, "a thread"),
    Column("Spilled bytes", False, "a thread"),
    Column("Shared bytes", False, "a block, static and dynamic"),
    Column("Widest load", False, "bytes a thread"),
    Column("Staging", False, "kinds of asynchronous copies"),
    Column("Matrix unit", False),
    Column("Occupancy %", False, "share of an SM's warps, and what limits it"),
    Column("Waves", False, "how often the grid fills the card"),
    Column("Configuration", False, "tuned for the case, borrowed from the nearest, or default"),
)


def line(verdict: Verdict, anchor: str) -> list[Value]:
    """Return a pair's cells; `anchor` is the id of its line."""
    pair = verdict.pair
    ratio = pair.ratio
    known = math.isfinite(ratio)
    codes = [pair.sides[s].code if s in pair.sides else None for s in SIDES]
    return [
        Value(pair.name, anchor=anchor),
        Value(pair.dtype),
        Value(KIND_WORDS[verdict.kind], note=_status(verdict)),
        Value(fixed(ratio, 3), repr(ratio) if known else "", interval(pair.low, pair.high)),
        Value(_slash([fixed(pair.sides[s].pct_roof, 0) if s in pair.sides else "" for s in SIDES])),
        *(Value(_slash([_text(code, name) for code in codes])) for name in _NAMES),
        Value(_slash([_occupancy(code) for code in codes])),
        Value(_slash([_waves(code) for code in codes])),
        Value(
            _slash(
                [
                    pair.sides[s].config_source.partition(":")[0] if s in pair.sides else ""
                    for s in SIDES
                ]
            )
        ),
    ]


_NAMES = (
    "n_kernels",
    "registers",
    "spill_bytes",
    "shared_bytes",
    "widest_load",
    "staging",
    "matrix",
)


def _status(verdict: Verdict) -> str:
    if verdict.kind != "gap":
        return ""
    return "confirmed" if verdict.confirmed else "not explained"


def _text(code: Code | None, name: str) -> str:
    value = getattr(code, name) if code is not None else None
    if isinstance(value, tuple):
        return "+".join(value) or "none"
    return UNKNOWN if value is None else str(value)


def _occupancy(code: Code | None) -> str:
    if code is None or code.occupancy is None:
        return UNKNOWN
    limiter = f" ({code.limiter})" if code.limiter else ""
    return f"{100 * code.occupancy:.0f}{limiter}"


def _waves(code: Code | None) -> str:
    return UNKNOWN if code is None or code.waves is None else waves_text(code.waves)


def _slash(texts: Sequence[str]) -> str:
    return " / ".join(text or UNKNOWN for text in texts)
