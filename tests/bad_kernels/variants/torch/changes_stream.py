"""Right, but leaves another stream current than it found."""

import torch

from tests.bad_kernels.caught import Caught

CAUGHT = Caught(
    "changes current device or stream", by="check", reason="another device or stream current"
)


def vector_add(x, y, out):
    torch.add(x, y, out=out)
    torch.cuda.set_stream(torch.cuda.Stream())
