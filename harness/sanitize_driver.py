"""What runs under compute-sanitizer: every op's kernels on small awkward cases, nothing of torch's.

Inputs are made on the host and copied: a fill or a random number on the device would be a kernel
that the tools do not watch, and initcheck would miss its writes. Memory comes straight from
cudaMalloc, in exact sizes, because the parent turns torch's caching allocator off.

    python -m harness.sanitize_driver --say FILE --pair softmax:cuda --pair softmax:triton
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .availability import unavailable
from .backends import watch_compilations
from .protocol import one_line
from .registry import Registry
from .sanitize_cover import in_ptx
from .spec import Case, Config, OpSpec, empty_outputs
from .tuned_configs import TUNED

if TYPE_CHECKING:
    import torch

_MAX_ELEMENTS = 1 << 17
_MAX_TRITON_CONFIGS = 4  # each costs a compilation


def cases_of(spec: OpSpec) -> list[Case]:
    """The test cases that a tool which slows a kernel down a hundredfold ends in time."""
    return [c for c in spec.test_cases if spec.n_output_elements(c) <= _MAX_ELEMENTS]


def launches(spec: OpSpec, side: str, dtypes: list[str]) -> Iterator[tuple[Case, str, Config]]:
    """Each small case with the default configuration, and one case with the others."""
    for dtype in spec.dtypes:
        if dtype not in (dtypes or [dtype]):
            continue
        for case in cases_of(spec):
            yield case, dtype, {}
        for case in (*spec.mutant_cases, *cases_of(spec)):
            configs = _configs(spec, side, case, dtype)
            yield from ((case, dtype, config) for config in configs)
            if configs:
                break


def _configs(spec: OpSpec, side: str, case: Case, dtype: str) -> list[Config]:
    grid = [dict(c) for c in spec.tuning[side](case, dtype)] if side in spec.tuning else []
    if side == "cuda":
        return grid  # all are compiled already
    files = sorted(TUNED.glob(f"*/{spec.stem}.json"))
    entries = [entry for file in files for entry in json.loads(file.read_text())["entries"]]
    tuned = [e["config"] for e in entries if e["backend"] == side and e["config"] in grid]
    distinct = list({json.dumps(config, sort_keys=True): config for config in tuned}.values())
    return (distinct or grid)[:_MAX_TRITON_CONFIGS]


def on_device(host: torch.Tensor) -> torch.Tensor:
    """The same view of a copy of the storage, which is exactly as long."""
    import torch

    storage = torch.empty(0, dtype=host.dtype).set_(host.untyped_storage())
    return storage.cuda().as_strided(host.size(), host.stride(), host.storage_offset())


def run_pair(registry: Registry, spec: OpSpec, side: str, dtypes: list[str]) -> dict[str, Any]:
    """Launch all; returns how many launches, the kernels' names and instructions (Triton's)."""
    import torch

    launcher = _launcher(registry, spec, side)
    count = 0
    with watch_compilations() as seen:
        for case, dtype, config in launches(spec, side, dtypes):
            made = spec.make_inputs(case, dtype, "cpu", 1)
            inputs = [on_device(made[name]) for name in spec.arguments]
            # Not written before: a kernel that reads its output shows.
            launcher(*inputs, *empty_outputs(spec, case, dtype, "cuda"), **config)
            torch.cuda.synchronize()
            count += 1
    instructions = sorted(set().union(*map(in_ptx, seen.ptx)))
    kernels = sorted(set(seen.symbols))
    major, minor = torch.cuda.get_device_capability()
    return {
        "launches": count,
        "kernels": kernels,
        "instructions": instructions,
        "capability": f"{major}{minor}",
    }


def _launcher(registry: Registry, spec: OpSpec, side: str) -> Callable[..., Any]:
    if side == "cuda":
        from . import _cuda

        return getattr(_cuda, spec.stem)  # type: ignore[no-any-return]
    return getattr(registry.triton_module(spec.stem), spec.stem)  # type: ignore[no-any-return]


def main(arguments: list[str] | None = None) -> int:
    """Say before each pair which one follows: the last one said is the one at fault."""
    parser = argparse.ArgumentParser(prog="python -m harness.sanitize_driver")
    parser.add_argument("--say", type=Path, required=True)
    parser.add_argument("--pair", action="append", default=[])
    parser.add_argument("--dtype", action="append", default=[])
    parser.add_argument("--kernels", action="append", type=Path, default=[])
    parser.add_argument("--device", type=int, default=0)
    options = parser.parse_args(arguments)
    registry = Registry(tuple(options.kernels))
    with options.say.open("a", buffering=1) as lines:

        def say(event: str, **facts: Any) -> None:
            lines.write(json.dumps({"event": event, **facts}) + "\n")

        for pair in options.pair:
            stem, side = pair.rsplit(":", 1)
            say("stage", pair=pair)
            if reason := unavailable(side):
                say("failed", pair=pair, reason=reason)
                continue
            try:
                import torch

                torch.cuda.set_device(options.device)
                facts = run_pair(registry, registry.spec(stem), side, options.dtype)
            except Exception as error:  # after a fault the context is lost: nothing can follow
                say("failed", pair=pair, reason=one_line(error))
                return 1
            say("done", pair=pair, **facts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
