"""Keeps the answer to each pair of pointers; new values behind them go unnoticed."""

import torch

from harness.spec import Case
from tests.bad_kernels.caught import Caught

CAUGHT = Caught(
    "caches by pointer",
    by="repeat",
    reason="right (before timing, wrong after it|at first, wrong when run again)",
    needs_gpu=False,
    case=Case({"N": 1023}),
)


_answers: dict[tuple[int, int], torch.Tensor] = {}


def vector_add(x, y, out):
    key = x.data_ptr(), y.data_ptr()
    if key not in _answers:
        _answers[key] = x + y
    out.copy_(_answers[key])
