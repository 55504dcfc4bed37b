"""Writes its answer when first called and nothing ever after."""

import torch

from harness.spec import Case
from tests.bad_kernels.caught import Caught

CAUGHT = Caught(
    "writes only when first called",
    by="repeat",
    reason="right (before timing, wrong after it|at first, wrong when run again)",
    needs_gpu=False,
    case=Case({"N": 1023}),
)


_calls: list[int] = []


def vector_add(x, y, out):
    if not _calls:
        torch.add(x, y, out=out)
    _calls.append(1)
