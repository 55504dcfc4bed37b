"""Asks for memory until there is none."""

import torch

from tests.bad_kernels.caught import Caught

CAUGHT = Caught("exhausts memory", by="check", status="oom", reason="out of memory")


_CHUNK = 1 << 30


def vector_add(x, y, out):
    chunks = []
    while True:
        chunks.append(torch.empty(_CHUNK, dtype=torch.uint8, device=out.device))
