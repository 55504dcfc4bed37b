"""An assertion in the kernel does not hold; every later call of the process fails."""

from tests.bad_kernels.caught import Caught
from tests.bad_kernels.cuda_library import launch

CAUGHT = Caught("device assert", by="parent", status="error", reason="device-side assert")


def vector_add(x, y, out):
    launch("device_assert", x, y, out, x.numel())
