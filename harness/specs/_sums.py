"""What the specs of sums over many terms share: inputs whose sum is not near zero, and how float32
errs on them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.spec import random_tensor, torch_dtype

if TYPE_CHECKING:
    import torch

# Running sums that every implementation has at least where their length begins to matter: 16-byte
# accumulators in some tens of thousands of threads.
_RUNNING_SUMS = 1 << 19


def terms(shape: tuple[int, ...], n_terms: int, dtype: str, device: str, seed: int) -> torch.Tensor:
    """normal(4/sqrt(n_terms), 1): a sum of n_terms is about 4 of its standard deviations.

    So no sum is near zero, where a relative error says nothing; and yet the running sums are small
    enough for a single term that is left out, or added twice, to show among millions.
    """
    mean = 4.0 * max(n_terms, 1) ** -0.5
    return random_tensor(shape, "f32", device, seed).add_(mean).to(torch_dtype(dtype))


def tree_growth(n_terms: int) -> float:
    """By how much rounding errors grow up a tree of additions, each of half an ulp at most and in
    random directions: the root of its depth."""
    return 0.5 * math.sqrt(math.log2(max(n_terms, 1)))


def run_growth(n_terms: int) -> float:
    """The same for terms of random signs, which also pass n_terms / _RUNNING_SUMS additions in a
    row; terms of one sign hardly err there, where sums are small beside the total."""
    return 0.5 * math.sqrt(math.log2(max(n_terms, 1)) + n_terms / _RUNNING_SUMS)


def drift_of_sum(n_terms: int) -> float:
    """Relative to the sum, which is larger than the root of the summed squares, with few exceptions
    that the sampling noise covers."""
    return tree_growth(n_terms) + run_growth(n_terms)
