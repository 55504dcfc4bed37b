"""Works on a stream of its own: events on the caller's would time nothing."""

from tests.bad_kernels.caught import Caught
from tests.bad_kernels.cuda_library import launch

CAUGHT = Caught(
    "works on a side stream",
    by="check",
    reason="earlier work of the current stream|a stream that the current one does not wait for",
)


def vector_add(x, y, out):
    launch("side_stream", x, y, out, x.numel())
