"""What each bad kernel says of itself: how it is wrong, and which layer must notice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.spec import Case

Layer = Literal["check", "repeat", "guard", "parent", "sanitizer"]


@dataclass(frozen=True)
class Caught:
    """`kind` is one of catalogue.KINDS. `by` names the layer that catches it:

    check      the verdict on one run: poison, float64, inputs, streams, whatever it raises
    repeat     a further run, on other values behind the same pointers
    guard      the bytes around the output and behind the inputs
    parent     the worker dies or goes silent; the parent names the author and starts another
    sanitizer  only compute-sanitizer's `tool` is sure to see it: the answer is mostly right

    `status` is the row's, or several with `|` between; `reason` is a regular expression found in
    its reason. In `passes`, where there is one, the same kernel is right: it is the awkward
    case that catches it. `missing` says what the harness still lacks to catch it.
    """

    kind: str
    by: Layer
    status: str = "mismatch"
    reason: str = ""
    op: str = "vector_add"
    case: Case = Case({"N": 65537})  # noqa: RUF009 - frozen
    dtype: str = "f32"
    passes: Case | None = None
    tool: str = ""
    needs_gpu: bool = True
    missing: str = ""
