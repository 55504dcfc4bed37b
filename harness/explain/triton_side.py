"""Triton's kernels to facts: from the CompiledKernel that was launched, or would be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from . import cubin, nvcc, ptx, store, tools, triton_api
from .facts import ExplainError, KernelFacts, Launch, kernel_from_json, to_json

_STACK_WITHOUT_MATRIX_UNIT = (
    "no matrix unit: the product runs on plain multiply-adds with a stack of {stack} bytes"
)


def kernel_facts(compiled: triton_api.Compiled, stems: Sequence[str]) -> KernelFacts:
    """Facts of one compiled variant, cached by its cubin."""
    key: list[bytes | str] = [compiled.cubin, compiled.ptx, compiled.arch, *stems]
    key += [tools.version(tools.find(t)) for t in ("cuobjdump", "nvdisasm")]
    entry = store.remember(
        "triton", key, lambda: to_json(_read(compiled, stems)), whole=cubin.is_whole
    )
    return kernel_from_json(entry)


def _read(compiled: triton_api.Compiled, stems: Sequence[str]) -> KernelFacts:
    found = cubin.read(compiled.cubin, compiled.arch, "triton", stems)
    kernel = next((k for k in found if k.symbol == compiled.name), None)
    if kernel is None:
        raise ExplainError(f"Triton's cubin holds no kernel {compiled.name}; clear Triton's cache")
    # All of Triton's shared memory is dynamic: the cubin shows none, or only the system's part.
    kernel = replace(kernel, static_shared_bytes=0)
    if kernel.instructions is None and compiled.ptx:
        kernel = replace(
            kernel,
            instructions=ptx.count(compiled.ptx),
            sources=kernel.sources | {"instructions": "ptx"},
        )
    if kernel.stack_bytes and compiled.ptx:
        kernel = _with_spills(kernel, compiled)
    return replace(kernel, warnings=tuple(_warnings(kernel)))


def _with_spills(kernel: KernelFacts, compiled: triton_api.Compiled) -> KernelFacts:
    try:
        log = triton_api.ptxas_log(compiled)
    except ExplainError as error:
        return replace(kernel, sources=kernel.sources | {"spills": f"{cubin.UNTOLD}: {error}"})
    return nvcc.with_spills([kernel], log, same_build=True)[0]


def _warnings(kernel: KernelFacts) -> list[str]:
    found = []
    if kernel.spill_bytes:
        found.append(f"spills {kernel.spill_bytes} bytes a thread")
    counts = kernel.instructions
    if kernel.stack_bytes and counts and not counts.matrix and counts.mix.get("FFMA", 0) > 1000:
        found.append(_STACK_WITHOUT_MATRIX_UNIT.format(stack=kernel.stack_bytes))
    return found


def launch_of(compiled: triton_api.Compiled, facts_hash: str, grid: Any = None) -> Launch:
    """How Triton launches it: shared memory and threads are the compiler's choice."""
    return Launch(
        symbol=compiled.name,
        hash=facts_hash,
        grid=grid,
        block=(compiled.threads, 1, 1),
        dynamic_shared_bytes=compiled.shared_bytes,
        options=compiled.options,
        cubin=compiled.cubin_path,
    )
