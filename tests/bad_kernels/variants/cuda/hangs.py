"""Spins for 45 s, which is longer than the parent waits here."""

from tests.bad_kernels.caught import Caught
from tests.bad_kernels.cuda_library import launch

CAUGHT = Caught("hang", by="parent", status="timeout", reason="no answer in")


def vector_add(x, y, out):
    launch("hangs", x, y, out, x.numel())
