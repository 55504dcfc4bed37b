"""Knows its inputs by their first and last elements; a change between them goes unnoticed."""

import torch

from harness.spec import Case
from tests.bad_kernels.caught import Caught

CAUGHT = Caught(
    "caches by content",
    by="repeat",
    reason="right (before timing, wrong after it|at first, wrong when run again)",
    needs_gpu=False,
    case=Case({"N": 1023}),
)


_answers: dict[tuple[float, ...], torch.Tensor] = {}


def vector_add(x, y, out):
    key = (*x[:2].tolist(), *x[-2:].tolist(), *y[:2].tolist(), *y[-2:].tolist())
    if key not in _answers:
        _answers[key] = x + y
    out.copy_(_answers[key])
