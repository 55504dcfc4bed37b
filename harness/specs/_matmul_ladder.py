"""The ladders of matmul, the simplest rung first: what each step of optimisation buys."""

from __future__ import annotations

from harness.spec import Rung

TRITON_RUNGS = (
    Rung("tutorial", "one tile a program by masked pointers, row by row"),
    Rung("tuned", "a tile of 128 x 256, three stages, grouped order, no mask in the loop"),
    Rung("persistent", "programs that stay and walk tiles"),
    Rung("descriptors", "tensor descriptors: the copy engine fetches tiles, no lane an address"),
)
