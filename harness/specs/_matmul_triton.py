"""The configurations of the Triton side that are worth trying on a matrix product."""

from __future__ import annotations

from harness.spec import Case, Config


def triton_configs(case: Case, dtype: str) -> list[Config]:
    """Tiles whose stages fit the 227 KB of shared memory a Hopper block may use."""
    return [
        {
            "BLOCK_M": block_m,
            "BLOCK_N": block_n,
            "BLOCK_K": block_k,
            "GROUP_M": group_m,
            "num_warps": warps,
            "num_stages": stages,
        }
        for block_m, block_n, block_k, warps, stages in (
            (128, 256, 64, 8, 3),
            (128, 256, 64, 8, 4),
            (256, 128, 64, 8, 3),
            (256, 128, 64, 8, 4),
            (128, 256, 128, 8, 2),
            (128, 128, 128, 8, 3),
            (128, 128, 64, 4, 3),
            (128, 128, 64, 4, 4),
            (128, 128, 64, 8, 4),
            (64, 256, 64, 4, 4),
            (128, 64, 64, 4, 4),
        )
        for group_m in ((8, 16) if block_m * block_n == 32768 else (8,))
    ]
