"""The variants of every pair without a GPU: what its launchers would launch on the bench cases."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

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
    where the build alone is known."""

    kernel: KernelFacts
    launch: Launch | None = None
    cases: tuple[str, ...] = ()
    config: str = ""

    @property
    def label(self) -> str:
        """What the table calls it. The form of a kernel stands first, such as [looped], where its
        name says more than its op."""
        if not self.cases:
            return self.kernel.name
        form = self.kernel.name.removeprefix(f"{self.kernel.op}_").removesuffix("kernel")
        more = f" +{len(self.cases) - 1}" if len(self.cases) > 1 else ""
        head = f"[{form.rstrip('_')}] " if form.rstrip("_") else ""
        return f"{head}{self.cases[0]}{more}{f': {self.config}' if self.config else ''}"

    @property
    def names(self) -> tuple[str, ...]:
        """All that it may be chosen by."""
        return (self.kernel.name, self.label, self.config, *self.cases)


@dataclass(frozen=True)
class _Compiled:
    """One launch's kernel, and its facts as soon as the tools have read them."""

    compiled: triton_api.Compiled
    facts: Future[KernelFacts]
    grid: tuple[int, int, int]
    dtype: str
    variant: Callable[[KernelFacts, Launch], Variant]


def of_triton(registry: Registry, stems: Sequence[str], arch: str, slug: str = "") -> list[Variant]:
    """Distinct kernels that the Triton side would launch on the default bench cases, all dtypes.

    NVIDIA's disassembler, a process of its own, takes longer for a kernel than Triton's compiler
    in this one: the former reads kernels while the latter makes the next ones.
    """
    number = arch_number(arch)
    slug = slug or _SLUGS.get(number, "")
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as readers:
        try:
            launches = [
                launch
                for stem in stems
                if "triton" not in registry.spec(stem).absent
                for launch in _launches_of(registry, stem, number, slug, readers)
            ]
        except BaseException:  # Ctrl-C must not wait for all that is queued
            readers.shutdown(wait=False, cancel_futures=True)
            raise
    found: dict[tuple[Any, ...], Variant] = {}
    for each in launches:
        facts = each.facts.result()
        launch = triton_side.launch_of(each.compiled, facts.hash, each.grid)
        variant = each.variant(facts, launch)
        key = (facts.hash, launch.block, launch.dynamic_shared_bytes, each.dtype)
        seen = found.get(key)
        if seen is not None:
            variant = replace(seen, cases=(*seen.cases, *variant.cases))
        found[key] = variant
    return list(found.values())


def _launches_of(
    registry: Registry, stem: str, arch: int, slug: str, readers: ThreadPoolExecutor
) -> Iterator[_Compiled]:
    spec = registry.spec(stem)
    launcher = getattr(registry.triton_module(stem), stem)
    for dtype in spec.dtypes:
        for case in (c for c in spec.bench_cases if c.level != "full"):
            config, _ = tuned_config(slug, spec, "triton", dtype, case)
            arguments = empty_arguments(spec, case, dtype)
            with compile_only(arch) as kernels, grids() as sizes:
                launcher(*arguments, **config)
            make = functools.partial(
                Variant,
                cases=(f"{case.name} {dtype}",),
                config=" ".join(f"{name}={value}" for name, value in config.items()),
            )
            for kernel, grid in zip(kernels, sizes, strict=True):
                compiled = triton_api.facts_of(kernel)
                facts = readers.submit(triton_side.kernel_facts, compiled, registry.stems)
                yield _Compiled(compiled, facts, grid, dtype, make)


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
