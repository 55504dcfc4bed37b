"""From an op and a backend's name to a closure that only launches.

`bind` does all that is slow: import, compile, attribute setting.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .availability import peer_is_installed
from .registry import Registry, RegistryError
from .spec import BACKENDS, Case, Config, OpSpec
from .tuned_configs import tuned_config

if TYPE_CHECKING:
    import torch

    from .check import Problem


@dataclass
class Compilations:
    """What Triton compiled while the listener was on: how often, how long, which kernels."""

    count: int = 0
    compile_us: float = 0.0
    symbols: list[str] = field(default_factory=list)
    ptx: list[str] = field(default_factory=list)
    shared_bytes: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Bound:
    """A launch without arguments, and where its answer is.

    `produced()` is the output of the last launch: the problem's own, or what a baseline returned;
    a tuple where the op has several.
    """

    backend: str
    variant: str
    call: Callable[[], Any]
    produced: Callable[[], Any]
    config: Config
    config_source: str
    form: str
    unfused: bool = False  # does it round as the kernels of torch's expression do?


def implementations(spec: OpSpec, case: Case, everywhere: bool) -> tuple[str, ...]:
    """The backends to run on `case`; torch.compile, the library and peers that are installed only
    on marked cases unless `everywhere`."""
    own = ("cuda", "triton", "torch")
    if not (everywhere or case.baselines):
        return own
    return (*BACKENDS, *(peer for peer in spec.peers if peer_is_installed(peer)))


def bind(
    registry: Registry,
    problem: Problem,
    backend: str,
    variant: str,
    config: Config | None,
    gpu_slug: str,
) -> Bound:
    """Make the launching closure. `config` None takes the tuned one for this GPU; a variant has
    none, and one without a file of its own is the headline under a given configuration."""
    spec = problem.spec
    arguments = tuple(problem.tensors[name] for name in spec.arguments)
    further = _further(registry, spec, backend, variant) if variant else None
    source = "given"
    if config is None:
        config, source = {}, "default"
        if not variant:
            config, source = tuned_config(gpu_slug, spec, backend, problem.dtype, problem.case)
        elif further is None:
            raise RegistryError(f"{spec.stem}: no variants/{backend}/{variant}.py in any root")
    if further or backend in ("cuda", "triton"):
        launcher, form = (further, "") if further else _own_launcher(registry, spec, backend)
        call = functools.partial(launcher, *arguments, *problem.outs, **config)
        return Bound(backend, variant, call, lambda: problem.produced, config, source, form)
    return _bind_baseline(problem, backend, arguments)


def _further(
    registry: Registry, spec: OpSpec, backend: str, variant: str
) -> Callable[..., Any] | None:
    if any(rung.name == variant for rung in spec.ladders.get(backend, ())):
        return registry.rung(spec.stem, backend, variant)
    return registry.variant(spec.stem, backend, variant)


def _own_launcher(registry: Registry, spec: OpSpec, backend: str) -> tuple[Callable[..., Any], str]:
    if backend == "cuda":
        from . import _cuda

        # Which matrix form ran, the kernel's name says later.
        return getattr(_cuda, spec.stem), "" if spec.compute_bound else "simt"
    return getattr(registry.triton_module(spec.stem), spec.stem), ""


def _bind_baseline(problem: Problem, backend: str, arguments: tuple[torch.Tensor, ...]) -> Bound:
    spec = problem.spec
    function = spec.eager
    if backend == "library":
        assert spec.library is not None
        outs = dict(zip((o.name for o in spec.outputs), problem.outs, strict=True))
        function = functools.partial(spec.library, **outs)
    elif backend == "compile":
        function = _compiled(spec.eager)
    elif backend in spec.peers:
        function = spec.peers[backend]
    latest: list[Any] = []

    def call() -> None:
        latest[:] = [function(*arguments)]

    unfused = backend in ("torch", "compile", *spec.unfused_peers)
    return Bound(backend, "", call, lambda: latest[0], {}, "", "", unfused)


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch.compile for one static shape.

    Dynamo quietly runs eager after eight shapes of one function, so its memory is reset for
    every case, and a graph break is an error rather than a fallback.
    """
    import torch
    import torch._dynamo

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, dynamic=False)
    return torch.no_grad()(compiled)


@contextmanager
def watch_compilations() -> Iterator[Compilations]:
    """Count what Triton compiles inside the block and keep the facts of each kernel."""
    seen = Compilations()
    try:
        from triton import knobs
    except ImportError:
        yield seen
        return

    def listener(
        *, src: Any, metadata: dict[str, Any], metadata_group: Any, times: Any, cache_hit: bool
    ) -> None:
        if not cache_hit:
            seen.count += 1
            seen.compile_us += float(times.total)
        seen.symbols.append(str(metadata.get("name", "")))
        for name, path in metadata_group.items():
            if name.endswith(".ptx"):
                seen.ptx.append(Path(path).read_text())
        seen.shared_bytes.append(int(metadata.get("shared", 0)))

    previous = knobs.compilation.listener
    knobs.compilation.listener = listener
    try:
        yield seen
    finally:
        knobs.compilation.listener = previous


def matrix_form(ptx: str) -> str:
    """The code path of a kernel's matrix unit, read from its PTX."""
    for needle, form in (
        ("tcgen05", "tcgen05"),
        ("wgmma", "wgmma"),
        ("mma.sync", "mma.sync"),
    ):
        if needle in ptx:
            return form
    return "simt"


def timed(call: Callable[[], Any]) -> float:
    """Host milliseconds of `call` including the work it queued."""
    import torch

    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3
