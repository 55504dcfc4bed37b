"""The ladders of matmul, the simplest form first; docs/matmul.md tells them as a story."""

from __future__ import annotations

from harness.spec import Rung

_MOST_FLOPS = 2 * 4096**3  # at 8192 cubed rungs would cool the card between the headline's turns


def _rung(name: str, step: str) -> Rung:
    return Rung(name, step, ("bf16",), _MOST_FLOPS)


CUDA_RUNGS: tuple[Rung, ...] = (
    _rung("naive", "one thread an output, the threads of a warp a row apart"),
    _rung("coalesced", "the threads of a warp side by side in w and out"),
    _rung("shared_tile", "tiles of 32 x 32 in shared memory, each element for 32 sums"),
    _rung("register_tile", "8 x 8 outputs a thread, 16-byte loads"),
    _rung("mma", "tensor cores by mma.sync, fed by cp.async"),
    _rung("tma_wgmma", "tensor cores by wgmma out of shared memory, tiles by TMA"),
    _rung("ring", "a producer warp that copies ahead in a ring of stages"),
    _rung("wide", "tiles of 128 x 256, two multiplying warpgroups, registers by role"),
    _rung("persistent", "blocks that stay and take tiles in bands"),
    _rung("multicast", "clusters of two that share their tiles of w"),
)

TRITON_RUNGS: tuple[Rung, ...] = (
    _rung("tutorial", "one tile a program by masked pointers, row by row"),
    _rung("tuned", "a tile of 128 x 256, three stages, grouped order, no mask in the loop"),
    _rung("persistent", "programs that stay and walk tiles"),
    _rung("descriptors", "the copy engine fetches and stores whole tiles, and runs into the next"),
)
