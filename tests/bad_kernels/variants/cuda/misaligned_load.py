"""16-byte loads whatever the address: views that start one element in fault."""

from harness.spec import Case
from tests.bad_kernels.caught import Caught
from tests.bad_kernels.cuda_library import launch

CAUGHT = Caught(
    "misaligned vector load",
    by="parent",
    status="error",
    reason="misaligned address",
    case=Case({"N": 65537}, layout="offset1"),
    passes=Case({"N": 65537}),
)


def vector_add(x, y, out):
    launch("misaligned_load", x, y, out, x.numel())
