"""What `make tune` tries on the Triton side of the matmul family: what came near the best on an
H200, and what may pass it elsewhere.

Every candidate compiles for sm_90 with Triton 3.6 to 3.8 without spills, in at most 227 KB of
shared memory: stages of (BLOCK_M + BLOCK_N) * BLOCK_K elements, and the tile of out on its way.
But for one: 128x128x64 by pointers, the fastest with Triton 3.6 where N and K are odd, has a stack
of 56 bytes there with Triton 3.8.
"""

from __future__ import annotations

from harness.spec import Case, Config
from harness.specs._matmul_layout import tma_takes

_SHORT_K = 1024  # the store of a tile is a large part of its time
_FEW_TILES = 66  # of 128 x 128: half the multiprocessors of a Hopper


def triton_configs(case: Case, dtype: str) -> list[Config]:
    """Candidates for a case; large products try large tiles, small ones those that make more."""
    if not tma_takes(case):
        return _pointers()
    n_tiles = -(-case.dims["M"] // 128) * -(-case.dims["N"] // 128)
    if n_tiles <= _FEW_TILES:
        return _small()
    if n_tiles <= 4 * _FEW_TILES:  # at most two tiles of 128 x 128 a multiprocessor
        return [*_large(), *_middle()]
    return [*_large(), *(_overlapping() if case.dims["K"] <= _SHORT_K else _long())]


def _large() -> list[Config]:
    """128 programs leave a few multiprocessors idle, which a card at its power limit may repay."""
    return [
        _config((128, 256, 64, 8, 4), EPILOGUE_SUBTILE=2),
        _config((128, 256, 64, 8, 4), EPILOGUE_SUBTILE=2, PROGRAMS=128),
        _config((128, 256, 64, 8, 3)),
        _config((256, 128, 64, 8, 4), EPILOGUE_SUBTILE=2),
    ]


def _long() -> list[Config]:
    return [
        _config((128, 256, 64, 8, 4), EPILOGUE_SUBTILE=2, GROUP_M=16),
    ]


def _overlapping() -> list[Config]:
    """Two programs a multiprocessor: one finishes its tile while the other multiplies."""
    return [
        _config((128, 128, 64, 4, 3), EPILOGUE_SUBTILE=2, PROGRAMS=264),
        _config((128, 128, 32, 4, 5), EPILOGUE_SUBTILE=2, PROGRAMS=264),
        _config((128, 64, 64, 4, 4), PROGRAMS=264),
    ]


def _middle() -> list[Config]:
    return [
        _config((128, 128, 64, 4, 4)),
        _config((128, 128, 64, 8, 4)),
        _config((128, 64, 64, 4, 4), PROGRAMS=264),
        _config((64, 128, 128, 4, 4)),
    ]


def _small() -> list[Config]:
    """More programs than one a multiprocessor where two find room."""
    return [
        _config((64, 128, 128, 4, 4)),
        _config((128, 64, 128, 4, 4)),
        _config((64, 128, 64, 4, 4), PROGRAMS=264),
        _config((128, 64, 64, 4, 4), PROGRAMS=264),
        _config((64, 64, 128, 4, 3), PROGRAMS=264),
        _config((64, 64, 128, 4, 5)),
        _config((64, 32, 128, 4, 4), PROGRAMS=264),
    ]


def _pointers() -> list[Config]:
    """Where descriptors cannot name the operands; rows off 16 bytes spill with larger tiles."""
    return [
        _config(tile, USE_DESCRIPTORS=0)
        for tile in (
            (128, 128, 64, 8, 4),
            (128, 128, 32, 8, 4),
            (128, 64, 32, 4, 4),
            (64, 128, 32, 4, 4),
            (64, 64, 64, 4, 5),
            (64, 64, 32, 4, 6),
        )
    ]


def _config(tile: tuple[int, int, int, int, int], **others: int) -> Config:
    block_m, block_n, block_k, warps, stages = tile
    return {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BLOCK_K": block_k,
        "num_warps": warps,
        "num_stages": stages,
        "GROUP_M": 8,
        "USE_DESCRIPTORS": 1,
        "EPILOGUE_SUBTILE": 1,
        "PROGRAMS": 132,
        **others,
    }
