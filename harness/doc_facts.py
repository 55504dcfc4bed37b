"""Tables in the documents that are made of the committed reference run: what was launched.

A document asks with a comment, `<!-- facts: <op> <case> <dtype>; ... -->`, and the table stands
between it and `<!-- /facts -->`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .explain.fact_file import FACTS_NAME, read
from .explain.facts import ExplainError, KernelFacts
from .registry import REPOSITORY

REFERENCE = REPOSITORY / "results" / "nvidia-h200" / "reference"
UNKNOWN = "–"
_TABLE = re.compile(r"<!-- facts: (?P<asked>[^>]*?) -->\n(?P<table>.*?)<!-- /facts -->", re.DOTALL)
_HEADER = (
    "| Case | Side | Kernels a call | Blocks | Threads a block | Registers a thread | "
    "Shared bytes a block | Global loads, bytes | Copies to shared | Matrix unit |\n"
    "|---|---|--:|--:|--:|--:|--:|---|---|---|\n"
)
_SIDES = ("cuda", "triton", "torch")


class FactsError(Exception):
    """A table that cannot be made, in one line."""


def with_facts(text: str, run: Path = REFERENCE) -> str:
    """Return the document with its tables made anew from facts.json of `run`.

    Raises FactsError for a run without that file and for a case without a row.
    """
    if not _TABLE.search(text):
        return text
    try:
        facts = read(run / FACTS_NAME)
    except ExplainError as error:
        raise FactsError(str(error)) from None

    def table(match: re.Match[str]) -> str:
        asked = [case.split() for case in match["asked"].split(";")]
        lines = [line for case in asked for line in _lines(case, facts.kernels, facts.rows)]
        return f"<!-- facts: {match['asked']} -->\n{_HEADER}{''.join(lines)}<!-- /facts -->"

    return _TABLE.sub(table, text)


def _lines(
    case: Sequence[str], kernels: Mapping[str, KernelFacts], rows: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    if len(case) != 3:
        raise FactsError(f"a table asks for {' '.join(case)!r}, wanted <op> <case> <dtype>")
    op, name, dtype = case
    found = []
    for side in _SIDES:
        for key, row in rows.items():
            # op, case, distribution, dtype, math mode, backend, variant; "" is the headline.
            parts = key.split("/")
            if parts[:2] == [op, name] and parts[-4] == dtype and parts[-2:] == [side, ""]:
                found.append(_line(" ".join(case), side, row["launches"], kernels))
    if not found:
        raise FactsError(f"the reference run has no {' '.join(case)}; ask for a case of it")
    return found


def _line(
    case: str, side: str, launches: Sequence[Mapping[str, Any]], kernels: Mapping[str, KernelFacts]
) -> str:
    cells = [case, side, str(len(launches))]
    if len(launches) == 1:
        (launch,) = launches
        known = kernels.get(launch.get("hash", ""))
        counts = known.instructions if known is not None else None
        cells += [
            _product(launch.get("grid")),
            _product(launch.get("block")),
            str(launch.get("registers", UNKNOWN)),
            _shared(launch),
        ]
        if counts is not None:
            cells.append("/".join(map(str, sorted(counts.loads, reverse=True))) or "none")
            cells += [", ".join(names) or "none" for names in (counts.async_copy, counts.matrix)]
    cells += [UNKNOWN] * (10 - len(cells))
    return f"| {' | '.join(cells)} |\n"


def _product(extents: Sequence[int] | None) -> str:
    if not extents:
        return UNKNOWN
    x, y, z = extents
    return str(x * y * z)


def _shared(launch: Mapping[str, Any]) -> str:
    parts = [launch.get(f"{kind}_shared_bytes") for kind in ("static", "dynamic")]
    return UNKNOWN if None in parts else str(sum(int(part) for part in parts if part is not None))
