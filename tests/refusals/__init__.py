"""What both sides refuse before anything is launched, by the families of csrc/bindings/."""

from __future__ import annotations

from . import cross_entropy, movement, norms, product, quant, rows, streams, sums
from .calls import Refusal
from .triton_alone import TRITON_REFUSALS

__all__ = ["REFUSALS", "TRITON_REFUSALS", "Refusal"]

REFUSALS = tuple(
    refusal
    for family in (streams, rows, norms, cross_entropy, sums, movement, quant, product)
    for refusal in family.REFUSALS
)
