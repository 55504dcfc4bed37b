"""An exception on the host."""

from tests.bad_kernels.caught import Caught

CAUGHT = Caught(
    "host exception",
    by="check",
    status="error",
    reason="RuntimeError: no such luck",
    needs_gpu=False,
)


def vector_add(x, y, out):
    raise RuntimeError("no such luck")
