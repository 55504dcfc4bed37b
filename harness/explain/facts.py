"""What is known of one kernel's machine code and of one launch of it. Unknown is None, never 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from .typed import MisfitError, made


class ExplainError(Exception):
    """A file, arch or selection that cannot be explained, in one line."""


@dataclass(frozen=True)
class Instructions:
    """Static counts of one kernel's instructions: a loop's body counts once, so none of these is
    work done.

    loads, stores: global accesses by bytes a thread. mix: opcode -> count, all of them.
    in_flight_bytes: most bytes of global loads that a thread has asked for before it uses one of
    them, in one straight piece of code; an estimate. source: sass or ptx.
    """

    loads: dict[int, int] = field(default_factory=dict)
    stores: dict[int, int] = field(default_factory=dict)
    async_copy: tuple[str, ...] = ()  # cp.async, bulk, tma
    async_bytes: dict[int, int] = field(default_factory=dict)  # cp.async by bytes a thread
    matrix: tuple[str, ...] = ()  # mma, wgmma, tcgen05
    barriers: int = 0
    shuffles: int = 0
    atomics: int = 0
    local_accesses: int | None = None
    in_flight_bytes: int | None = None
    mix: dict[str, int] = field(default_factory=dict)
    source: str = "sass"


@dataclass(frozen=True)
class KernelFacts:
    """One kernel (CUDA: one template instance; Triton: one compiled variant) for one arch.

    registers, stack_bytes, spill bytes: a thread. static_shared_bytes: what the author or compiler
    declared, reserved_shared_bytes: what the driver adds to each block; both a block. hash: of
    the machine code and its name. sources: fact -> where it came from.
    """

    name: str
    symbol: str
    side: str
    op: str
    arch: str
    hash: str
    registers: int | None = None
    stack_bytes: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    static_shared_bytes: int | None = None
    reserved_shared_bytes: int | None = None
    max_threads: int | None = None  # a block, where the author gave launch bounds
    instructions: Instructions | None = None
    warnings: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def spill_bytes(self) -> int | None:
        """The larger of what is stored and what is loaded again; None when unknown."""
        known = [v for v in (self.spill_store_bytes, self.spill_load_bytes) if v is not None]
        return max(known) if known else None


@dataclass(frozen=True)
class Launch:
    """How a kernel was, or would be, launched. Bytes a block; grid and block in x, y, z."""

    symbol: str
    hash: str = ""
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    dynamic_shared_bytes: int | None = None
    # As the driver tells, for a kernel that is loaded.
    registers: int | None = None
    local_bytes: int | None = None
    static_shared_bytes: int | None = None
    binary_arch: str = ""
    blocks_per_sm: int | None = None
    # Triton's own
    cubin: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def threads(self) -> int | None:
        return None if self.block is None else self.block[0] * self.block[1] * self.block[2]


def to_json(facts: KernelFacts | Launch | Instructions) -> dict[str, Any]:
    """Plain JSON; unknown facts are left out."""
    return {key: _plain(value) for key, value in asdict(facts).items() if _is_known(value)}


def _is_known(value: Any) -> bool:
    return value is not None and value not in ("", (), {})


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items() if v is not None}
    return list(value) if isinstance(value, tuple) else value


def kernel_from_json(data: Mapping[str, Any]) -> KernelFacts:
    """The inverse of to_json. Raises ExplainError for what is no kernel's facts."""
    try:
        kept = {"op": ""} | dict(data)
        if "instructions" in kept:
            kept["instructions"] = _instructions_from_json(kept["instructions"])
        kernel = made(KernelFacts, kept)
    except (TypeError, ValueError, AttributeError) as error:
        raise ExplainError(f"not a kernel's facts: {error}") from None
    return replace(kernel, warnings=tuple(kernel.warnings))


def _instructions_from_json(data: Mapping[str, Any]) -> Instructions:
    kept = dict(data)
    for key in ("loads", "stores", "async_bytes"):
        kept[key] = {int(width): count for width, count in kept.get(key, {}).items()}
    counts = made(Instructions, kept)
    return replace(counts, async_copy=tuple(counts.async_copy), matrix=tuple(counts.matrix))


def launch_from_json(data: Mapping[str, Any]) -> Launch:
    """The inverse of to_json. Raises ExplainError for what is no launch."""
    try:
        launch = made(Launch, data)
    except MisfitError as error:
        raise ExplainError(f"not a launch: {error}") from None
    grid, block = (None if size is None else _triple(size) for size in (launch.grid, launch.block))
    return replace(launch, grid=grid, block=block)


def _triple(size: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = size
    return x, y, z
