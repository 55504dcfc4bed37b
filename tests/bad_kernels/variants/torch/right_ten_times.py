"""Right ten times, then off by one percent."""

import torch

from harness.spec import Case
from tests.bad_kernels.caught import Caught

CAUGHT = Caught(
    "right ten times then wrong",
    by="repeat",
    reason="right (before timing, wrong after it|at first, wrong when run again)",
    needs_gpu=False,
    case=Case({"N": 1023}),
)


_calls: list[int] = []


def vector_add(x, y, out):
    torch.add(x, y, out=out)
    _calls.append(1)
    if len(_calls) > 10:
        out.mul_(1.01)
