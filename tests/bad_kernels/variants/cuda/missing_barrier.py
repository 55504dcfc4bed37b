"""No barrier between one warp's store to shared memory and another's load."""

from tests.bad_kernels.caught import Caught
from tests.bad_kernels.cuda_library import launch

CAUGHT = Caught("missing barrier", by="sanitizer", tool="racecheck", reason="hazard")


def vector_add(x, y, out):
    launch("missing_barrier", x, y, out, x.numel())
