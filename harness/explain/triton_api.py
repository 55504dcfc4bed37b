"""All that is asked of Triton's own interfaces, in one place: an adapter from 3.6 to 3.8.

Where an interface changed, one small function here knows both spellings; metadata is read by name
with a default, because fields come and go. Nothing here needs a GPU, and importing this module
does not import Triton.
"""

from __future__ import annotations

import inspect
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import elf, tools

_OPTIONS = (
    "num_warps",
    "num_stages",
    "num_ctas",
    "maxnreg",
    "enable_fp_fusion",
    "enable_reflect_ftz",
    "default_dot_input_precision",
    "ptx_version",
    "ptx_options",
)
# Flags that releases add to ptxas beside those that options name: 3.8 works around a fault.
_PTXAS_EXTRAS: tuple[tuple[str, ...], ...] = ((), ("--regAllocOptLevel=2",))
_FIRST_BLACKWELL = 100


def version() -> str:
    """Triton's version; "" where it cannot be imported."""
    try:
        import triton
    except ImportError:
        return ""
    return str(triton.__version__)


def ptxas(arch: int) -> str:
    """Path of the ptxas that Triton uses for `arch`, TRITON_PTXAS_PATH and its twin included."""
    from triton import knobs

    tool = knobs.nvidia.ptxas_blackwell if arch >= _FIRST_BLACKWELL else knobs.nvidia.ptxas
    return str(tool.path)


@contextmanager
def recorded_launches() -> Iterator[list[Any]]:
    """The compiled kernel of every launch inside, in order: what the JIT cache gave, not what a
    second compile would give."""
    from triton.runtime.jit import JITFunction

    launched: list[Any] = []
    real_run = JITFunction.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        kernel = real_run(self, *args, **kwargs)
        launched.append(kernel)
        return kernel

    JITFunction.run = run
    try:
        yield launched
    finally:
        JITFunction.run = real_run


def compile_kernel(
    function: Any,
    signature: Mapping[str, str],
    constants: Mapping[str, Any],
    divisible_by_16: tuple[str, ...],
    arch: int,
    **options: Any,
) -> Any:
    """Compile a @triton.jit function without a launch or a GPU; returns the CompiledKernel.

    signature: argument -> type ("*fp32", "i32") of every argument that is no constant.
    """
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    names = function.arg_names
    whole = {name: signature.get(name, "constexpr") for name in names}
    attributes = {(names.index(n),): [["tt.divisibility", 16]] for n in divisible_by_16}
    # 3.2 and older called it constants; releases since keep the new name.
    word = "constexprs" if "constexprs" in inspect.signature(ASTSource).parameters else "constants"
    source = ASTSource(fn=function, signature=whole, attrs=attributes, **{word: dict(constants)})
    return compile(source, target=GPUTarget("cuda", arch, 32), options=options)


@dataclass(frozen=True)
class Compiled:
    """What a CompiledKernel holds. arch: as built, "90a". options: by name, where they exist."""

    name: str
    arch: str
    cubin: bytes
    ptx: str
    cubin_path: str = ""
    shared_bytes: int = 0
    threads: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    triton_version: str = ""


def facts_of(kernel: Any) -> Compiled:
    """Read a CompiledKernel; it need not be loaded."""
    metadata = kernel.metadata
    arch = int(metadata.target.arch)
    ptx = str(kernel.asm["ptx"]) if "ptx" in kernel.asm else ""
    target = re.search(r"^\.target\s+sm_(\w+)", ptx, re.M)
    warps = int(metadata.num_warps)
    options = {name: getattr(metadata, name, None) for name in _OPTIONS}
    group = getattr(kernel, "metadata_group", None) or {}
    return Compiled(
        name=str(metadata.name),
        arch=target[1] if target else f"{arch}{'a' if arch >= 90 else ''}",
        cubin=bytes(kernel.asm["cubin"]),
        ptx=ptx,
        cubin_path=next((str(p) for n, p in group.items() if n.endswith(".cubin")), ""),
        shared_bytes=int(metadata.shared),
        threads=32 * warps,
        options={name: value for name, value in options.items() if value is not None},
        triton_version=str(getattr(metadata, "triton_version", version())),
    )


def ptxas_log(compiled: Compiled) -> str:
    """What ptxas -v says while it makes the same cubin again; "" when it makes another one. Raises
    ExplainError when it does not come to an end.

    Triton keeps no log and skips ptxas where its cache has the cubin. Which flags its release
    added is not asked: those that give the same machine code were the ones.
    """
    code = _code(compiled.cubin)
    fusion = () if compiled.options.get("enable_fp_fusion", True) else ("--fmad=false",)
    given = tuple(str(compiled.options.get("ptx_options") or "").split())
    tool = ptxas(int(re.sub(r"\D", "", compiled.arch)))
    for extra in _PTXAS_EXTRAS:
        with tempfile.TemporaryDirectory() as folder:
            source, binary = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
            source.write_text(compiled.ptx)
            flags = ["-lineinfo", "-v", *fusion, *extra, *given, f"--gpu-name=sm_{compiled.arch}"]
            done = tools.call([tool, *flags, str(source), "-o", str(binary)])
            if done.returncode == 0 and _code(binary.read_bytes()) == code:
                return done.stderr
    return ""


def _code(cubin: bytes) -> list[bytes]:
    return [s.data for name, s in elf.sections(cubin).items() if name.startswith(".text.")]


def flags() -> dict[str, str]:
    """What shapes the Triton side's machine code beside each kernel's options."""
    if not version():
        return {}
    found = {"triton": version()}
    for name, arch in (("triton_ptxas", 90), ("triton_ptxas_blackwell", 100)):
        try:
            found[name] = tools.version(ptxas(arch))
        except (AttributeError, RuntimeError):  # a wheel without that tool
            continue
    names = ("TRITON_PTXAS_PATH", "TRITON_DEFAULT_FP_FUSION", "DISABLE_PTXAS_OPT")
    return found | {name: os.environ[name] for name in names if name in os.environ}
