"""Writes one element too many, into the guard bytes behind the output."""

from tests.bad_kernels.caught import Caught
from tests.bad_kernels.cuda_library import launch

CAUGHT = Caught("writes into the guard", by="guard", reason="guard bytes behind the output")


def vector_add(x, y, out):
    launch("writes_past_end", x, y, out, x.numel())
