"""`check --explain`: the numbers behind each verdict, in a few plain lines a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

EXPLANATION = "explanation"  # a key of a row on its way from the worker, never a column


def lines(label: str, row: Mapping[str, Any], explanation: Mapping[str, Any]) -> list[str]:
    """What to print of one row; `explanation` as Comparison.explanation gives it, or empty."""
    right = row["status"] == "untimed" and (explanation or not row["reason"])
    verdict = "right" if right else f"{row['status']}: {row['reason']}"
    head = f"{label} {row['backend']}: {verdict}"
    if not explanation:
        return [f"{head}, without an element to compare" if right else head]
    n_bad = explanation["bad"]
    counted = [f"  bad        {n_bad} of {explanation['elements']} elements"] if n_bad else []
    return [
        head,
        _worst(explanation["worst"]),
        *_masks(explanation),
        *(_bias(bias) for bias in explanation["bias"]),
        *counted,
        *_first_bad(explanation["first_bad"]),
    ]


def take_lines(label: str, row: dict[str, Any]) -> list[str]:
    """`lines` of a row; its explanation, if it has one, is taken out of it."""
    return lines(label, row, row.pop(EXPLANATION, None) or {})


def _worst(worst: Mapping[str, Any]) -> str:
    return (
        f"  worst      {_index(worst)}: got {worst['got']:.9g} expected {worst['expected']:.9g}, "
        f"error {worst['error']:.3g} is {worst['share']:.1%} of the {worst['allowed']:.3g} allowed"
    )


def _masks(explanation: Mapping[str, Any]) -> list[str]:
    found = [
        f"  {kind:<10} expected {mask['expected']}, got {mask['got']}, misplaced {mask['wrong']}"
        for kind, mask in explanation["masks"].items()
        if mask["expected"] or mask["got"]
    ]
    if explanation["wrong_zeros"]:
        found.append(f"  zeros      {explanation['wrong_zeros']} of the wrong sign")
    return found


def _bias(bias: Mapping[str, Any]) -> str:
    return (
        f"  bias       {bias['direction']}: {bias['ulps']:+.3g} ulp of the summed magnitude, "
        f"{bias['allowed']:.3g} allowed"
    )


def _first_bad(elements: Sequence[Mapping[str, Any]]) -> list[str]:
    if not elements:
        return []
    cells: list[tuple[str, ...]] = [("index", "got", "expected", "error", "allowed")]
    cells += [
        (_index(e), *(f"{e[k]:.9g}" for k in ("got", "expected", "error", "allowed")))
        for e in elements
    ]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return [
        "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in cells
    ]


def _index(element: Mapping[str, Any]) -> str:
    return "(" + ", ".join(str(i) for i in element["index"]) + ")"
