"""How the matmul family computes a shape where no tuned configuration says: form, tile, stages."""

import functools
from dataclasses import dataclass, replace

import torch
import triton

MAX_SHARED_BYTES_SM80 = 163 * 1024  # what a block may use on an A100; assumed without a device
HOPPER = 90


@dataclass(frozen=True)
class Target:
    """What a configuration must fit. shared_bytes: what one block may use."""

    arch: int
    shared_bytes: int
    multiprocessors: int


@dataclass(frozen=True)
class MatmulConfig:
    """USE_DESCRIPTORS 0 is the pointer form, to which the two below mean nothing.

    PROGRAMS: how many walk the tiles, at most one a tile; given to a launcher, at least 1.
    EPILOGUE_SUBTILE: in how many parts out leaves, 1 or 2.
    """

    BLOCK_M: int
    BLOCK_N: int
    BLOCK_K: int
    num_warps: int
    num_stages: int
    GROUP_M: int = 8
    USE_DESCRIPTORS: int = 0
    EPILOGUE_SUBTILE: int = 1
    PROGRAMS: int = 0


@functools.lru_cache(maxsize=16)
def _gpu(device: torch.device) -> Target:
    found = torch.cuda.get_device_properties(device)
    shared_bytes = found.shared_memory_per_block_optin
    return Target(10 * found.major + found.minor, shared_bytes, found.multi_processor_count)


def target_of(device: torch.device) -> Target:
    """The GPU; for CPU tensors what an offline compile names, else a Hopper, as the interpreter
    knows descriptors."""
    if device.type == "cuda":
        return _gpu(device)
    arch = HOPPER
    if not triton.knobs.runtime.interpret:
        arch = triton.runtime.driver.active.get_current_target().arch
    return Target(arch, 227 * 1024 if arch >= HOPPER else MAX_SHARED_BYTES_SM80, 132)


@functools.lru_cache(maxsize=1024)
def default_config(M: int, N: int, K: int, descriptors: bool, target: Target) -> MatmulConfig:
    """The largest tile that gives most multiprocessors one."""
    return _descriptors(M, N, target) if descriptors else _pointers(M, N, K, target)


_DESCRIPTORS = (
    MatmulConfig(128, 256, 64, 8, 4, EPILOGUE_SUBTILE=2),  # four stages leave room for half of out
    MatmulConfig(128, 128, 64, 4, 4),
    MatmulConfig(64, 128, 128, 4, 4),  # 1.01 of torch.mm's speed at 1024 cubed on an H200
    MatmulConfig(64, 64, 128, 4, 3),  # 1.02 at 512 cubed, where five stages of 64 had 0.91
    MatmulConfig(64, 64, 64, 4, 5),  # 88 KiB: fits every GPU
)


def _descriptors(M: int, N: int, target: Target) -> MatmulConfig:
    """The smallest tiles have two programs a multiprocessor, where they find room."""
    for config in _DESCRIPTORS:
        n_tiles = _cdiv(M, config.BLOCK_M) * _cdiv(N, config.BLOCK_N)
        resident = 2 if config in _DESCRIPTORS[3:] else 1
        enough = n_tiles >= target.multiprocessors * resident * 15 // 16 or config.BLOCK_N == 64
        if enough and resident * _shared_bytes(config) <= target.shared_bytes:
            break
    return replace(
        config,
        USE_DESCRIPTORS=1,
        PROGRAMS=_even_programs(n_tiles, target.multiprocessors * resident),
    )


def _even_programs(n_tiles: int, most: int) -> int:
    """The fewest that need no more turns than `most`: on an H200 128 beat 132 at 4096 cubed."""
    return max(1, _cdiv(n_tiles, _cdiv(n_tiles, most)))


def _shared_bytes(config: MatmulConfig) -> int:
    """The stages, the tile of out on its way, and barriers."""
    stage = (config.BLOCK_M + config.BLOCK_N) * config.BLOCK_K
    out = config.BLOCK_M * config.BLOCK_N // config.EPILOGUE_SUBTILE
    return 2 * (config.num_stages * stage + out) + 1024


# Of two tiles of one size, wgmma takes the wider; the taller spills no registers with mma.sync.
_HOPPER_POINTERS = (
    MatmulConfig(128, 256, 64, 8, 3),
    MatmulConfig(128, 128, 64, 8, 4),
    MatmulConfig(128, 64, 64, 4, 4),
)
_AMPERE_POINTERS = (
    MatmulConfig(256, 128, 64, 8, 3),
    MatmulConfig(128, 128, 64, 8, 4),
    MatmulConfig(64, 128, 64, 4, 4),
)


def _pointers(M: int, N: int, K: int, target: Target) -> MatmulConfig:
    ladder = _HOPPER_POINTERS if target.arch >= HOPPER else _AMPERE_POINTERS
    if N % 16 or K % 16:  # the addresses of the largest tile would spill
        ladder = ladder[1:]
    # Each element has a load of its own. With K in steps of 64, a third faster on an H200 at
    # 4095x4097x4093 with Triton 3.6, the addresses spill with Triton 3.8: left to tuning.
    if N % 2 or K % 2:
        ladder = tuple(replace(config, BLOCK_K=32) for config in ladder)
    # 128 tiles are about one for each multiprocessor of an A100 (108), H100 or H200 (132).
    for config in ladder:
        stage_bytes = (config.BLOCK_M + config.BLOCK_N) * config.BLOCK_K * 2
        n_stages_that_fit = target.shared_bytes // stage_bytes
        n_tiles = _cdiv(M, config.BLOCK_M) * _cdiv(N, config.BLOCK_N)
        if n_tiles >= 128 and n_stages_that_fit >= 2:
            return replace(config, num_stages=min(config.num_stages, n_stages_that_fit))
    return MatmulConfig(64, 64, 64, 4, 5)  # 80 KiB: fits every GPU since sm_80


def _cdiv(a: int, b: int) -> int:
    return (a + b - 1) // b  # triton.cdiv would take 1.6 us of host time a call
