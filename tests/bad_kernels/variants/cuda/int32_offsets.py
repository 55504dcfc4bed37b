"""Offsets of rows in 32 bits: a row far enough away is read from elsewhere, without a fault."""

from harness.spec import Case
from tests.bad_kernels.caught import Caught
from tests.bad_kernels.cuda_library import launch

CAUGHT = Caught(
    "int32 offset overflow",
    by="check",
    reason="error above the allowance",
    op="relu_rows",
    case=Case({"M": 3, "N": 1000}, layout="far"),
    dtype="bf16",
    passes=Case({"M": 3, "N": 1000}),
)


def relu_rows(x, out):
    launch("int32_offsets", x, out, *x.shape, x.stride(0))
