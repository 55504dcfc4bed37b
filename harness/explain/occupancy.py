"""How many blocks fit on an SM, and what stops one more: an estimate from a table of limits.

Sources: the table "Technical specifications per compute capability" of NVIDIA's CUDA C++
Programming Guide (13.0), and cuda_occupancy.h of the toolkit for how allocations are rounded:
registers in units of 256 a warp and in four equal parts of the register file, shared memory in
units of 128 bytes beside 1 KiB a block that the system reserves.
"""

from __future__ import annotations

from dataclasses import dataclass

from .facts import ExplainError

RESERVED_SHARED_BYTES = 1024  # a block, from sm_80 up
_REGISTERS_PER_SM = 65536
_REGISTER_UNIT = 256
_PARTITIONS = 4
_SHARED_UNIT = 128
_WARP = 32


@dataclass(frozen=True)
class Limits:
    """What one SM holds. card, n_sms: the usual data-centre card of the arch, for waves where no
    GPU is here."""

    shared_bytes: int
    warps: int
    blocks: int
    card: str
    n_sms: int


LIMITS = {
    "80": Limits(164 * 1024, 64, 32, "A100", 108),
    "86": Limits(100 * 1024, 48, 16, "A10", 72),
    "89": Limits(100 * 1024, 48, 24, "L40S", 142),
    "90": Limits(228 * 1024, 64, 32, "H100/H200", 132),
    "100": Limits(228 * 1024, 64, 32, "B200", 148),
    "103": Limits(228 * 1024, 64, 32, "B300", 148),
    "120": Limits(100 * 1024, 48, 24, "RTX PRO 6000", 188),
}


@dataclass(frozen=True)
class Occupancy:
    """blocks: resident on an SM, 0 where not even one fits. share: of the SM's warps.
    limiter: registers, shared, threads or blocks; several are joined by `+`."""

    blocks: int
    warps: int
    share: float
    limiter: str


def limits_of(arch: str) -> Limits:
    """The limits of `arch` ("90", "90a"). Raises ExplainError for one that the table lacks."""
    number = arch.rstrip("af")
    if number not in LIMITS:
        known = ", ".join(LIMITS)
        raise ExplainError(f"arch {arch}: its limits are unknown, wanted one of {known}")
    return LIMITS[number]


def occupancy(arch: str, registers: int, shared_bytes: int, threads: int) -> Occupancy:
    """registers: a thread. shared_bytes: a block's static and dynamic, without the reserved."""
    limits = limits_of(arch)
    if threads < 1:
        raise ExplainError(f"threads a block: got {threads}, wanted 1 or more")
    warps = -(-threads // _WARP)
    fits = {
        "registers": _blocks_by_registers(max(registers, 1), warps),
        "shared": limits.shared_bytes // _rounded(shared_bytes + RESERVED_SHARED_BYTES),
        "threads": limits.warps // warps,
        "blocks": limits.blocks,
    }
    blocks = min(fits.values())
    limiter = "+".join(name for name, n in fits.items() if n == blocks)
    return Occupancy(blocks, blocks * warps, blocks * warps / limits.warps, limiter)


def _blocks_by_registers(registers: int, warps: int) -> int:
    per_warp = -(-registers * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    return _REGISTERS_PER_SM // _PARTITIONS // per_warp * _PARTITIONS // warps


def _rounded(shared_bytes: int) -> int:
    return -(-shared_bytes // _SHARED_UNIT) * _SHARED_UNIT


def waves_in_words(number: float) -> str:
    """Two digits of a part of a wave, one behind the point of more: never a bare 0."""
    return f"{number:.2g}" if number < 1 else f"{number:.1f}"


def waves(n_blocks: int, blocks_per_sm: int, n_sms: int) -> float | None:
    """How often the card is filled; None where no block fits."""
    room = blocks_per_sm * n_sms
    return n_blocks / room if room else None
