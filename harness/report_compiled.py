"""What the compilers made of one side of an op, over the rows of a run, in a sentence."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from harness.explain.fact_file import row_key
from harness.explain.facts import Instructions
from harness.explain.run_view import mismatches
from harness.explain.timed import Facts
from harness.report_text import mapping, number, sequence


def sentence(rows: pd.DataFrame, facts: Facts) -> str:
    """Return registers, shared memory, threads and classes of instructions of the kernels that
    these rows timed; "" where nothing is known. Only what is recorded is said."""
    launches = []
    for row in rows[rows["status"] == "ok"].to_dict("records"):
        entry = mapping(facts.rows.get(row_key({str(k): v for k, v in row.items()})))
        recorded = [mapping(launch) for launch in sequence(entry.get("launches"))]
        if recorded and all(isinstance(launch.get("symbol"), str) for launch in recorded):
            cells = {str(k): str(v) for k, v in row.items()}
            if not mismatches(cells, {**entry, "launches": recorded}):
                launches += recorded
    known = {
        str(launch.get("hash")): facts.kernels.get(str(launch.get("hash"))) for launch in launches
    }
    counts = [k.instructions for k in known.values() if k is not None and k.instructions]
    threads = (_product(launch.get("block")) for launch in launches)
    parts = [
        _range(rows["registers"], "registers a thread"),
        _range(rows["shared_bytes"], "shared bytes a block"),
        _range(threads, "threads a block"),
    ]
    text = ", ".join(part for part in parts if part)
    found = _instructions(counts)
    if found:
        text += f"{'; ' if text else ''}in the machine code {found}"
    return text


def _instructions(counts: list[Instructions]) -> str:
    if not counts:
        return ""
    widths = sorted({width for c in counts for width in c.loads}, reverse=True)
    kinds = sorted({name for c in counts for name in (*c.async_copy, *c.matrix)})
    loads = f"global loads of {', '.join(map(str, widths))} bytes" if widths else "no global load"
    return ", ".join(
        [
            loads,
            *kinds,
            _range((c.barriers for c in counts), "barriers", "barrier"),
            _range((c.shuffles for c in counts), "shuffles", "shuffle"),
        ]
    )


def _product(extents: object) -> float:
    product = 1.0
    for extent in sequence(extents):
        product *= number(extent)
    return product if sequence(extents) else float("nan")


def _range(values: Iterable[object], unit: str, one: str = "") -> str:
    known = [int(v) for v in map(number, values) if v == v and abs(v) < 2**53]
    if not known:
        return ""
    low, high = min(known), max(known)
    if low == high:
        return f"{low} {one if one and low == 1 else unit}"
    return f"{low} to {high} {unit}"
