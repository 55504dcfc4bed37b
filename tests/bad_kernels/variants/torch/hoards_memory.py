"""Keeps all memory that it can get, and is still right: nobody else finds any."""

import torch

from tests.bad_kernels.caught import Caught

CAUGHT = Caught(
    "hoards memory",
    by="parent",
    status="error",
    reason="GB of GPU memory after its call",
)


_CHUNKS = (1 << 30, 1 << 26, 1 << 21)
_hoard: list[torch.Tensor] = []


def vector_add(x, y, out):
    torch.add(x, y, out=out)
    for chunk in _CHUNKS if not _hoard else ():
        try:
            while True:
                _hoard.append(torch.empty(chunk, dtype=torch.uint8, device=out.device))
        except torch.cuda.OutOfMemoryError:
            pass
