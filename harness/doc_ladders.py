"""Tables in the documents that are made of the committed reference run: what each rung gained.

A document asks with a comment, `<!-- ladder: <op> <case> <dtype> -->`, and the table stands between
it and `<!-- /ladder -->`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .doc_facts import REFERENCE, UNKNOWN, FactsError

if TYPE_CHECKING:
    import pandas as pd

    from .results import Run

_TABLE = re.compile(
    r"<!-- ladder: (?P<asked>[^>]*?) -->\n(?P<table>.*?)<!-- /ladder -->", re.DOTALL
)
_HEADER = (
    "| Side | Rung | Time, µs | Times the rung below | TFLOP/s | % of torch's speed |\n"
    "|---|---|--:|--:|--:|--:|\n"
)
_HEADLINE = "headline"


def with_ladders(text: str, folder: Path = REFERENCE) -> str:
    """Return the document with its ladders made anew from the run in `folder`.

    A case that the run has not timed gets a line that says so. Raises FactsError for a run that
    cannot be read and for a comment that asks for nothing.
    """
    if not _TABLE.search(text):
        return text
    from .results import ResultsError, read_run

    try:
        run = read_run(folder)
    except ResultsError as error:
        raise FactsError(str(error)) from None

    def table(match: re.Match[str]) -> str:
        asked = match["asked"].split()
        if len(asked) != 3:
            wanted = "wanted <op> <case> <dtype>"
            raise FactsError(f"a ladder asks for {match['asked']!r}, {wanted}")
        body = "".join(_lines(run, *asked))
        if body:
            body = _HEADER + body
        else:
            body = f"The committed reference run has no ladder of `{match['asked']}` yet.\n"
        return f"<!-- ladder: {match['asked']} -->\n{body}<!-- /ladder -->"

    return _TABLE.sub(table, text)


def _lines(run: Run, op: str, case: str, dtype: str) -> Iterator[str]:
    rows = run.rows
    same = (rows["op"] == op) & (rows["case"] == case) & (rows["dtype"] == dtype)
    known, timed = rows[same], rows[same & (rows["status"] == "ok")]
    torch_us = _time_us(timed, "torch", "")
    ladders = run.meta.get("ladders")
    of_op = ladders.get(op, {}) if isinstance(ladders, dict) else {}
    for side, rungs in of_op.items():
        of_side = set(known[known["backend"] == side]["variant"].fillna(""))
        names = [str(rung["name"]) for rung in rungs if rung["name"] in of_side]
        if not any(math.isfinite(_time_us(timed, side, name)) for name in names):
            continue
        below_us = math.nan
        for name in [*names, ""]:
            time_us = _time_us(timed, side, name)
            flops = float(timed["flops"].max())
            yield _line(side, name or _HEADLINE, time_us, below_us, torch_us, flops)
            below_us = time_us


def _time_us(timed: pd.DataFrame, side: str, variant: str) -> float:
    found = timed[(timed["backend"] == side) & (timed["variant"].fillna("") == variant)]
    return math.nan if found.empty else float(found.iloc[0]["time_us_p50"])


def _line(
    side: str, name: str, time_us: float, below_us: float, torch_us: float, flops: float
) -> str:
    """A row; what was not timed, or has nothing below it, is a dash."""
    cells: list[Any] = [
        side,
        f"`{name}`" if name != _HEADLINE else name,
        _number(time_us, 1),
        _number(below_us / time_us, 2),
        _number(flops / time_us * 1e-6, 0 if flops / time_us >= 1e7 else 1),
        _number(100 * torch_us / time_us, 1),
    ]
    return f"| {' | '.join(cells)} |\n"


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else UNKNOWN
