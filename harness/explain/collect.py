"""What `explain` shows: both sides' kernels for one arch, with what follows from them."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..extension_probe import build_info
from ..registry import Registry
from ..sides import SIDES
from . import cubin, extension, nvcc, triton_api, variants
from .book import tools_of_both_sides
from .fact_file import SCHEMA
from .facts import ExplainError, KernelFacts, Launch, to_json
from .occupancy import limits_of, occupancy, waves
from .variants import Variant


@dataclass
class Explained:
    """arch: of the GPU that is meant, as a number ("90"). n_sms: of the visible one, 0 for the
    arch's usual card. tools: versions of what made the code. notes: what is missing, and why."""

    arch: str
    n_sms: int = 0
    tools: dict[str, Any] = field(default_factory=dict)
    variants: list[Variant] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The layout of a run's facts.json, with `variants` in the place of `rows`."""
        kernels = {v.kernel.hash: to_json(v.kernel) for v in self.variants}
        return {
            "schema": SCHEMA,
            "arch": self.arch,
            "tools": self.tools,
            "problems": self.notes,
            "kernels": kernels,
            "variants": [variant_json(v, self.arch, self.n_sms) for v in self.variants],
        }


def collect(
    registry: Registry, stems: Sequence[str], arch: str, sides: Sequence[str] = SIDES
) -> Explained:
    """Both sides' kernels. What one side lacks is a note; ExplainError for an unknown arch."""
    limits_of(str(cubin.arch_number(arch)))
    found = Explained(str(cubin.arch_number(arch)))
    for side in sides:
        try:
            add = _cuda if side == "cuda" else _triton
            found.variants += add(registry, stems, found)
        except ExplainError as error:
            found.notes.append(f"{side}: {error}")
    found.tools = tools_of_both_sides(_build_info(found))
    return found


def _build_info(found: Explained) -> dict[str, Any]:
    try:
        facts, problem = build_info(extension.binary())
    except ExplainError:  # said already where the CUDA side was asked for
        return {}
    if problem:
        found.notes.append(problem)
    return facts


def _triton(registry: Registry, stems: Sequence[str], found: Explained) -> list[Variant]:
    if not triton_api.version():
        raise ExplainError("triton is not installed; pip install triton")
    try:
        return variants.of_triton(registry, stems, found.arch)
    except RuntimeError as error:
        raise ExplainError(str(error).splitlines()[0]) from None


def _cuda(registry: Registry, stems: Sequence[str], found: Explained) -> list[Variant]:
    binary = extension.binary()
    chosen, text = extension.code_for(found.arch, extension.contents(binary))
    if chosen:
        kernels = _with_spills(
            extension.kernels(binary, chosen, registry.stems), chosen, found.notes
        )
    else:
        found.notes.append(f"cuda on sm_{found.arch}: {text}")
        target = found.arch + ("a" if found.arch == "90" else "")
        kernels = nvcc.kernels(target, registry.stems)
        found.notes.append(
            f"cuda facts for sm_{target}: the sources compiled now, not what was built"
        )
    return [Variant(kernel) for kernel in kernels if kernel.op in stems]


def _with_spills(kernels: list[KernelFacts], arch: str, notes: list[str]) -> list[KernelFacts]:
    """The kernels, with what ptxas says of a second compile for those that have a stack."""
    if not any(kernel.stack_bytes for kernel in kernels):
        return kernels
    problems: dict[str, None] = {}
    for source in nvcc.sources():
        try:
            _, log = nvcc.compile_source(source, arch)
        except ExplainError as error:  # without an nvcc it stays unknown
            problems[str(error)] = None
            continue
        kernels = nvcc.with_spills(kernels, log, same_build=False)
    notes += [f"cuda spills of kernels with a stack: {problem}" for problem in problems]
    return kernels


def matching(found: Sequence[Variant], pattern: str) -> list[Variant]:
    """Variants one of whose names the glob fits: `*` and `?` alone are special, for `[` stands in
    the tables for itself."""
    whole = f"*{pattern.replace('[', '[[]')}*"
    return [v for v in found if any(fnmatch.fnmatchcase(name, whole) for name in v.names)]


@dataclass(frozen=True)
class Fit:
    """What a launch makes of an SM. in_flight_bytes: an estimate for one SM: global loads asked
    for at once, or the shared memory that an asynchronous pipeline fills. upper: dynamic shared
    memory is not known, so fewer blocks may fit."""

    occupancy: float
    blocks: int
    limiter: str
    waves: float | None
    in_flight_bytes: int | None
    upper: bool


def fit_of(kernel: KernelFacts, launch: Launch | None, arch: str, n_sms: int = 0) -> Fit | None:
    """None where registers or threads are unknown. n_sms: 0 takes the arch's usual card."""
    threads = (launch.threads if launch else None) or kernel.max_threads
    if kernel.registers is None or threads is None:
        return None
    dynamic = launch.dynamic_shared_bytes if launch else None
    shared = (kernel.static_shared_bytes or 0) + (dynamic or 0)
    estimate = occupancy(arch, kernel.registers, shared, threads)
    grid = launch.grid if launch else None
    filled = None
    if grid is not None:
        card = n_sms or limits_of(arch).n_sms
        filled = waves(grid[0] * grid[1] * grid[2], estimate.blocks, card)
    return Fit(
        estimate.share,
        estimate.blocks,
        estimate.limiter,
        filled,
        _in_flight(kernel, dynamic, threads, estimate.blocks),
        dynamic is None,
    )


def _in_flight(kernel: KernelFacts, dynamic: int | None, threads: int, blocks: int) -> int | None:
    counts = kernel.instructions
    if counts is None:
        return None
    if counts.async_copy:
        return None if dynamic is None else dynamic * blocks
    return None if counts.in_flight_bytes is None else counts.in_flight_bytes * threads * blocks


def variant_json(variant: Variant, arch: str, n_sms: int = 0) -> dict[str, Any]:
    """One entry of `variants`."""
    kernel = variant.kernel
    entry: dict[str, Any] = {
        "op": kernel.op,
        "side": kernel.side,
        "name": kernel.name,
        "hash": kernel.hash,
        "cases": list(variant.cases),
        "config": variant.config,
    }
    if variant.launch is not None:
        entry["launch"] = to_json(replace(variant.launch, cubin=""))  # a path of this machine
    fit = fit_of(kernel, variant.launch, arch, n_sms)
    if fit is not None:
        entry |= {"occupancy": fit.occupancy, "limiter": fit.limiter, "waves": fit.waves}
        entry["in_flight_bytes_per_sm"] = fit.in_flight_bytes
        if fit.upper:
            entry["occupancy_is_upper_bound"] = True
    return entry
