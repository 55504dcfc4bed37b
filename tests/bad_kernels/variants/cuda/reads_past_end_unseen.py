"""Reads behind its input and drops what it read: no answer shows it, memcheck does."""

from tests.bad_kernels.caught import Caught
from tests.bad_kernels.cuda_library import launch

CAUGHT = Caught(
    "reads past the end, unseen", by="sanitizer", tool="memcheck", reason="Invalid __global__ read"
)


def vector_add(x, y, out):
    launch("reads_past_end_unseen", x, y, out, x.numel())
