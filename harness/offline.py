"""Compile, without a GPU, the very Triton kernels that a launcher would launch.

The real launcher runs on CPU tensors under a driver that only names a target: pointer alignment,
divisible integers and default configurations select the same specialisation as on the device.

    python -m harness.offline softmax --arch 90 --dtype bf16
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class CompileOnlyDriver:
    """What Triton asks of an active driver while it compiles: a target, never a device."""

    compiles_only = True  # the launchers' argument checks let CPU tensors pass on this

    def __init__(self, arch: int) -> None:
        from triton.backends.compiler import GPUTarget

        self.target = GPUTarget("cuda", arch, 32)

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> str:
        """Key of the per-device kernel caches; no real device has a string for a number."""
        return f"offline-sm_{self.target.arch}"

    def get_current_stream(self, device: str) -> int:
        return 0


@contextlib.contextmanager
def compile_only(arch: int = 90) -> Iterator[list[Any]]:
    """Turn every launch inside into a compile for sm_`arch`; yields the growing kernel list.

    Raises RuntimeError when Triton was told to interpret: interpreted kernels cannot compile.
    """
    import triton
    from triton.runtime.jit import JITFunction

    if triton.knobs.runtime.interpret:
        raise RuntimeError(
            "offline: TRITON_INTERPRET is set, so kernels run in Triton's interpreter and cannot "
            "be compiled, wanted it unset; compile in a process of its own without it"
        )
    compiled: list[Any] = []
    functions: list[Any] = []
    driver = CompileOnlyDriver(arch)
    real_run = JITFunction.run
    real_driver = triton.runtime.driver._active

    def compile_instead(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        functions.append(self)
        kernel = real_run(self, *args, grid=grid, warmup=True, **kwargs)
        compiled.append(kernel)
        return kernel

    JITFunction.run = compile_instead
    triton.runtime.driver.set_active(driver)
    try:
        yield compiled
    finally:
        JITFunction.run = real_run
        triton.runtime.driver._active = real_driver
        for function in functions:
            function.device_caches.pop(driver.get_current_device(), None)


def compile_launch(
    launcher: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    arch: int = 90,
) -> list[Any]:
    """Call `launcher` on CPU tensors; returns the CompiledKernel of each launch it would make."""
    with compile_only(arch) as compiled:
        launcher(*args, **(kwargs or {}))
    return compiled


@dataclass(frozen=True)
class KernelFacts:
    """What the compiler made of one kernel; bytes a thread for `stack`, a block for `shared`."""

    name: str
    registers: int
    stack_bytes: int
    shared_bytes: int
    num_warps: int
    loads_16_bytes: int
    stores_16_bytes: int
    cp_async_16_bytes: int
    tma_copies: int
    matrix_instruction: str

    def line(self) -> str:
        """One line for a terminal."""
        return (
            f"{self.name}: {self.registers} registers, {self.stack_bytes} B stack, "
            f"{self.shared_bytes} B shared, {self.num_warps} warps, "
            f"16-byte loads {self.loads_16_bytes}, stores {self.stores_16_bytes}, "
            f"cp.async {self.cp_async_16_bytes}, TMA {self.tma_copies}, "
            f"{self.matrix_instruction or 'no matrix unit'}"
        )


def wide_accesses(ptx: str, operation: str) -> int:
    """Global loads ("ld") or stores ("st") that move 16 bytes or more a thread."""
    pattern = rf"\b{operation}\.global[\w.:]*\.v(\d)\.[bfsu](\d+)"
    return sum(int(n) * int(bits) >= 128 for n, bits in re.findall(pattern, ptx))


def facts_of(kernel: Any) -> KernelFacts:
    """Read a CompiledKernel's PTX, metadata and machine code; needs no GPU."""
    ptx = kernel.asm["ptx"]
    registers, stack_bytes = resource_usage(kernel.asm["cubin"])
    instructions = {"wgmma": "wgmma.mma_async", "tcgen05": "tcgen05.mma", "mma.sync": "mma.sync"}
    return KernelFacts(
        name=kernel.metadata.name,
        registers=registers,
        stack_bytes=stack_bytes,
        shared_bytes=kernel.metadata.shared,
        num_warps=kernel.metadata.num_warps,
        loads_16_bytes=wide_accesses(ptx, "ld"),
        stores_16_bytes=wide_accesses(ptx, "st"),
        cp_async_16_bytes=len(re.findall(r"cp\.async\.c[ag]\.shared\.global.*0x10,", ptx)),
        tma_copies=len(re.findall(r"cp\.async\.bulk\.tensor", ptx)),
        matrix_instruction=next((k for k, v in instructions.items() if v in ptx), ""),
    )


def resource_usage(cubin: bytes) -> tuple[int, int]:
    """(registers, stack bytes) a thread, from the cuobjdump that comes with Triton.

    A kernel that indexes no local array has a stack only for spilled registers.
    """
    import triton

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(path)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    if found is None:
        raise RuntimeError(f"offline: cuobjdump printed no register count, got {text!r}")
    return int(found[1]), int(found[2])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line for each kernel that an op's launcher would launch."""
    parser = argparse.ArgumentParser(prog="python -m harness.offline", description=__doc__)
    parser.add_argument("stem", help="an op, such as softmax")
    parser.add_argument("--arch", type=int, default=90, help="compute capability as 80, 90, 100")
    parser.add_argument("--dtype", help="one of the op's dtypes; its first by default")
    parser.add_argument("--case", help="name of a bench or test case; the first bench case")
    parser.add_argument("--kernels", action="append", type=Path, default=[], help="another root")
    options = parser.parse_args(arguments)

    from .machine import writable_triton_cache
    from .registry import Registry, RegistryError
    from .spec import empty_outputs

    writable_triton_cache()

    registry = Registry(tuple(options.kernels))
    try:
        spec = registry.spec(options.stem)
    except RegistryError as error:
        parser.error(str(error))
    cases = {case.name: case for case in (*spec.bench_cases, *spec.test_cases)}
    name = options.case or spec.bench_cases[0].name
    dtype = options.dtype or spec.dtypes[0]
    if name not in cases:
        parser.error(f"unknown case {name!r}; known cases: {', '.join(cases)}")
    if dtype not in spec.dtypes:
        parser.error(f"{spec.stem} has no dtype {dtype!r}; it has {', '.join(spec.dtypes)}")

    inputs = spec.make_inputs(cases[name], dtype, "cpu", 0)
    outs = empty_outputs(spec, cases[name], dtype)
    launcher = getattr(registry.triton_module(spec.stem), spec.stem)
    try:
        compiled = compile_launch(launcher, (*inputs.values(), *outs), arch=options.arch)
    except RuntimeError as error:
        parser.error(str(error))
    for kernel in compiled:
        print(f"{spec.stem} {name} {dtype} sm_{options.arch}: {facts_of(kernel).line()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
