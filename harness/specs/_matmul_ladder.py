"""The ladders of matmul, the simplest form first; docs/matmul.md tells them as a story."""

from __future__ import annotations

from harness.spec import Rung

_BF16 = ("bf16",)
_FLOPS_OF_4096 = (
    2 * 4096**3
)  # at 8192 cubed they would cool the card between the turns of the headline

CUDA_RUNGS: tuple[Rung, ...] = (
    Rung("naive", "one thread an output, the threads of a warp a row apart", _BF16, _FLOPS_OF_4096),
    Rung("coalesced", "the threads of a warp side by side in w and out", _BF16, _FLOPS_OF_4096),
    Rung(
        "shared_tile",
        "tiles of 32 x 32 in shared memory, each element for 32 sums",
        _BF16,
        _FLOPS_OF_4096,
    ),
    Rung("register_tile", "8 x 8 outputs a thread, 16-byte loads", _BF16, _FLOPS_OF_4096),
    Rung("mma", "tensor cores by mma.sync, fed by cp.async", _BF16, _FLOPS_OF_4096),
    Rung(
        "tma_wgmma",
        "tensor cores by wgmma out of shared memory, tiles by TMA",
        _BF16,
        _FLOPS_OF_4096,
    ),
    Rung("ring", "a producer warp that copies ahead in a ring of stages", _BF16, _FLOPS_OF_4096),
    Rung(
        "wide",
        "tiles of 128 x 256, two multiplying warpgroups, registers by role",
        _BF16,
        _FLOPS_OF_4096,
    ),
    Rung("persistent", "blocks that stay and take tiles in bands", _BF16, _FLOPS_OF_4096),
    Rung("multicast", "clusters of two that share their tiles of w", _BF16, _FLOPS_OF_4096),
)

TRITON_RUNGS: tuple[Rung, ...] = (
    Rung("tutorial", "one tile a program by masked pointers, row by row", _BF16, _FLOPS_OF_4096),
    Rung(
        "tuned",
        "a tile of 128 x 256, three stages, grouped order, no mask in the loop",
        _BF16,
        _FLOPS_OF_4096,
    ),
    Rung("persistent", "programs that stay and walk tiles", _BF16, _FLOPS_OF_4096),
    Rung(
        "descriptors",
        "the copy engine fetches and stores whole tiles, and runs into the next",
        _BF16,
        _FLOPS_OF_4096,
    ),
)
