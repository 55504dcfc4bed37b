"""Writes whole groups of four and forgets the rest: sizes off the vector show it."""

from harness.spec import Case
from tests.bad_kernels.caught import Caught
from tests.bad_kernels.cuda_library import launch

CAUGHT = Caught(
    "skips the tail",
    by="check",
    reason="NaN where the reference has none",
    passes=Case({"N": 4096}),
)


def vector_add(x, y, out):
    launch("skips_tail", x, y, out, x.numel())
