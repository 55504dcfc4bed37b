"""Every eighth block returns before it has written: the poison is still there."""

from tests.bad_kernels.caught import Caught
from tests.bad_kernels.cuda_library import launch

CAUGHT = Caught(
    "leaves part of the output unwritten", by="check", reason="NaN where the reference has none"
)


def vector_add(x, y, out):
    launch("unwritten_part", x, y, out, x.numel())
