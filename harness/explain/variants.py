"""The variants of every pair without a GPU: what its launchers would launch on the bench cases."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..backends import watch_compilations
from ..offline import compile_only
from ..registry import Registry
from ..spec import Case, OpSpec, empty_outputs
from ..tuned_configs import tuned_config
from . import triton_api, triton_side
from .cubin import arch_number
from .facts import KernelFacts, Launch

# Whose tuned configurations stand for an arch where no GPU says; others borrow, as bench does.
_SLUGS = {90: "nvidia-h200"}


@dataclass(frozen=True)
class Variant:
    """One kernel as one configuration uses it. cases: labels of the bench cases that do, none
    where the build alone is known. compile_ms: None where Triton's cache had the kernel."""

    kernel: KernelFacts
    launch: Launch | None = None
    cases: tuple[str, ...] = ()
    config: str = ""
    cache_hit: bool | None = None
    compile_ms: float | None = None


def of_triton(registry: Registry, stems: Sequence[str], arch: str, slug: str = "") -> list[Variant]:
    """Distinct kernels that the Triton side would launch on the default bench cases."""
    number = arch_number(arch)
    slug = slug or _SLUGS.get(number, "")
    found: dict[tuple[Any, ...], Variant] = {}
    for stem in stems:
        spec = registry.spec(stem)
        if "triton" in spec.absent:
            continue
        launcher = getattr(registry.triton_module(stem), stem)
        for dtype in spec.dtypes:
            for case in (c for c in spec.bench_cases if c.level != "full"):
                config, _ = tuned_config(slug, spec, "triton", dtype, case)
                for variant in _compile(launcher, spec, case, dtype, config, number, registry):
                    launch = variant.launch
                    assert launch is not None
                    key = (variant.kernel.hash, launch.block, launch.dynamic_shared_bytes, dtype)
                    seen = found.get(key)
                    if seen is not None:
                        variant = replace(seen, cases=(*seen.cases, *variant.cases))
                    found[key] = variant
    return list(found.values())


def _compile(
    launcher: Any,
    spec: OpSpec,
    case: Case,
    dtype: str,
    config: dict[str, int],
    arch: int,
    registry: Registry,
) -> Iterator[Variant]:
    arguments = empty_arguments(spec, case, dtype)
    with compile_only(arch) as kernels, grids() as launched, watch_compilations() as seen:
        launcher(*arguments, **config)
    compile_ms = seen.compile_us / 1e3 if seen.count else None
    text = " ".join(f"{name}={value}" for name, value in config.items())
    for kernel, grid in zip(kernels, launched, strict=True):
        compiled = triton_api.facts_of(kernel)
        facts = triton_side.kernel_facts(compiled, registry.stems)
        launch = triton_side.launch_of(compiled, facts.hash, grid)
        yield Variant(facts, launch, (f"{case.name} {dtype}",), text, not seen.count, compile_ms)


@contextlib.contextmanager
def grids() -> Iterator[list[tuple[int, int, int]]]:
    """The grid of every launch inside."""
    from triton.runtime.jit import JITFunction

    found: list[tuple[int, int, int]] = []
    real_run = JITFunction.run

    def run(self: Any, *args: Any, grid: Any, **kwargs: Any) -> Any:
        sizes = tuple(grid) if not callable(grid) else ()
        x, y, z = (*sizes, 1, 1, 1)[:3]
        found.append((x, y, z))
        return real_run(self, *args, grid=grid, **kwargs)

    JITFunction.run = run
    try:
        yield found
    finally:
        JITFunction.run = real_run


def empty_arguments(spec: OpSpec, case: Case, dtype: str) -> list[Any]:
    """Inputs and outputs of the case's shapes, layouts and alignments, without values: memory that
    nobody touches is never taken."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        inputs = spec.make_inputs(case, dtype, "cpu", 0)
    made = []
    for name in spec.arguments:
        fake = inputs[name]
        n_bytes = fake.untyped_storage().nbytes()
        storage = torch.empty(n_bytes, dtype=torch.uint8).untyped_storage()
        empty = torch.empty(0, dtype=fake.dtype)
        made.append(empty.set_(storage, fake.storage_offset(), fake.shape, fake.stride()))
    return [*made, *empty_outputs(spec, case, dtype)]
