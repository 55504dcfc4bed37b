"""What `make tune` tries on the Triton side of the matmul family.

Every candidate compiles for sm_90 with Triton 3.6 to 3.8 without spills, in at most 227 KB of
shared memory: stages of (BLOCK_M + BLOCK_N) * BLOCK_K elements, and the tile of out on its way.
"""

from __future__ import annotations

from harness.spec import Case, Config

_SHORT_K = 1024  # the store of a tile is a large part of its time
_FEW_TILES = 66  # of 128 x 128: half the multiprocessors of a Hopper


def triton_configs(case: Case, dtype: str) -> list[Config]:
    """Candidates for a case; large products try large tiles, small ones those that make more."""
    m, n = case.dims["M"], case.dims["N"]
    n_tiles = -(-m // 128) * -(-n // 128)
    if n_tiles <= _FEW_TILES:
        return [*_small(), *_specialized_small()]
    if n_tiles <= 4 * _FEW_TILES:  # at most two tiles of 128 x 128 a multiprocessor
        return [*_large((132,), (8,)), *_specialized((132,), (8,)), *_small()]
    others = _overlapping() if case.dims["K"] <= _SHORT_K else _fewer_programs()
    return [*_large((132,), (8,)), *_specialized((132, 128), (8, 16)), *_pointers(), *others]


def _specialized(programs: tuple[int, ...], groups: tuple[int, ...]) -> list[Config]:
    """Warps with roles. Four stages leave no room for out's whole tile: pointers store it."""
    return [
        _config(
            (block_m, block_n, 64, 4, stages),
            WARP_SPECIALIZE=1,
            DESCRIPTOR_STORE=descriptor_store,
            PROGRAMS=count,
            GROUP_M=group_m,
        )
        for block_m, block_n, stages, descriptor_store in (
            (128, 256, 3, 1),
            (128, 256, 4, 0),
            (256, 128, 3, 1),
            (256, 128, 4, 0),
        )
        for count in programs
        for group_m in groups
    ]


def _specialized_small() -> list[Config]:
    return [
        _config((block_m, block_n, 64, 4, stages), WARP_SPECIALIZE=1, PROGRAMS=132)
        for block_m, block_n, stages in ((128, 128, 5), (128, 64, 6), (64, 128, 6))
    ]


def _large(programs: tuple[int, ...], groups: tuple[int, ...]) -> list[Config]:
    """The loops over tiles and over K as one, by all warps."""
    return [
        _config(
            (block_m, block_n, block_k, 8, stages),
            EPILOGUE_SUBTILE=subtile,
            PROGRAMS=count,
            GROUP_M=group_m,
        )
        for block_m, block_n, block_k, stages, subtile in (
            (128, 256, 64, 3, 1),
            (128, 256, 64, 4, 2),
            (256, 128, 64, 3, 1),
            (256, 128, 64, 4, 2),
        )
        for count in programs
        for group_m in groups
    ]


def _small() -> list[Config]:
    """More programs than one a multiprocessor where two find room."""
    return [
        _config(tile, PROGRAMS=count)
        for tile, count in (
            ((128, 128, 64, 8, 4), 132),
            ((128, 128, 64, 4, 4), 132),
            ((128, 128, 128, 8, 3), 132),
            ((128, 64, 64, 4, 4), 264),
            ((128, 64, 128, 4, 4), 132),
            ((64, 128, 64, 4, 4), 264),
            ((64, 128, 128, 4, 4), 132),
            ((64, 64, 64, 4, 6), 264),
            ((64, 64, 128, 4, 3), 264),
            ((64, 64, 128, 4, 5), 132),
            ((64, 32, 128, 4, 4), 264),
        )
    ]


def _overlapping() -> list[Config]:
    """Two programs a multiprocessor: one stores while the other multiplies."""
    return [
        _config((128, 128, 64, warps, 3), EPILOGUE_SUBTILE=2, PROGRAMS=264, GROUP_M=8)
        for warps in (4, 8)
    ]


def _fewer_programs() -> list[Config]:
    """A card at its power limit may run fewer multiprocessors at a higher clock."""
    return [
        _config(
            (128, 256, 64, 4, 4), WARP_SPECIALIZE=1, DESCRIPTOR_STORE=0, PROGRAMS=120, GROUP_M=8
        ),
        _config((128, 256, 64, 8, 4), EPILOGUE_SUBTILE=2, PROGRAMS=128, GROUP_M=8),
    ]


def _pointers() -> list[Config]:
    return [_config((128, 256, 64, 8, 3), USE_DESCRIPTORS=0)]


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
        "WARP_SPECIALIZE": 0,
        **others,
    }
