"""Stores to an address that nobody owns; every later call of the process fails."""

from tests.bad_kernels.caught import Caught
from tests.bad_kernels.cuda_library import launch

CAUGHT = Caught("illegal access", by="parent", status="error", reason="illegal memory access")


def vector_add(x, y, out):
    launch("illegal_access", x, y, out, x.numel())
