"""Reads one element behind its input with weight zero: harmless until that element is NaN."""

from tests.bad_kernels.caught import Caught
from tests.bad_kernels.cuda_library import launch

CAUGHT = Caught(
    "reads past the end",
    by="guard",
    reason="NaN where the reference has none",
)


def vector_add(x, y, out):
    launch("reads_past_end", x, y, out, x.numel())
