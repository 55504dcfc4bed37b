"""The CUDA side as it was built: the extension's own cubins, and which of them a GPU would run."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..extension_probe import damage
from . import cubin, elf, store, tools
from .facts import ExplainError, KernelFacts, kernel_from_json, to_json

_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Contents:
    """Archs of the cubins ("90a") and of the PTX ("80") inside a built extension."""

    cubins: tuple[str, ...]
    ptx: tuple[str, ...]


def binary() -> Path:
    """The built extension. Raises ExplainError where there is none."""
    found = importlib.util.find_spec("harness._cuda")
    if found is None or not found.origin or not found.origin.endswith(".so"):
        raise ExplainError("the CUDA extension is not built; run `make build`")
    # An editable install of another checkout answers for any that has none of its own.
    if Path(found.origin).resolve().parent != _PACKAGE:
        raise ExplainError(
            f"the CUDA extension is not built here ({found.origin} is another checkout's); "
            "run `make build`"
        )
    return Path(found.origin)


def _cuobjdump() -> str:
    tool = tools.find("cuobjdump")
    if not tool:
        raise ExplainError("no cuobjdump on PATH or beside Triton; pip install triton")
    return tool


def contents(path: Path) -> Contents:
    """Raises ExplainError without a cuobjdump, and for a file in which it finds no GPU code."""
    if reason := damage(path):
        raise ExplainError(f"{reason}; run `make clean build`")
    tool = _cuobjdump()
    elf_list = tools.run([tool, "-lelf", str(path)])
    if elf_list is None:
        raise ExplainError(
            f"{path}: cuobjdump finds no GPU code in it, so it may be damaged; "
            "run `make clean build`"
        )
    ptx_list = tools.run([tool, "-lptx", str(path)]) or ""
    return Contents(
        tuple(dict.fromkeys(re.findall(r"\.sm_(\w+)\.cubin", elf_list))),
        tuple(dict.fromkeys(re.findall(r"\.sm_(\w+)\.ptx", ptx_list))),
    )


def code_for(arch: str, inside: Contents) -> tuple[str, str]:
    """(arch of the cubin that a GPU of `arch` would run, "" for none; what happens, in words).

    A cubin runs on GPUs of its major version from its minor one up, one for an `a` target on
    that GPU alone; PTX is compiled by the driver for any later GPU.
    """
    number = cubin.arch_number(arch)
    exact = [c for c in inside.cubins if cubin.arch_number(c) == number]
    if exact:
        chosen = max(exact, key=len)  # 90a before 90: what the driver takes too
        return chosen, f"the cubin for sm_{chosen}"
    near = [
        c
        for c in inside.cubins
        if not c.endswith("a")
        and cubin.arch_number(c) // 10 == number // 10
        and cubin.arch_number(c) < number
    ]
    if near:
        chosen = max(near, key=cubin.arch_number)
        return chosen, f"the cubin for sm_{chosen}, an older GPU of the same generation"
    older = [p for p in inside.ptx if not p.endswith("a") and cubin.arch_number(p) <= number]
    built = ", ".join(f"sm_{c}" for c in inside.cubins) or "nothing"
    if older:
        best = max(older, key=cubin.arch_number)
        return "", (
            f"no cubin (built for {built}): the driver would compile the PTX of compute_{best} at "
            "the first call"
        )
    return "", f"nothing: built for {built}, without PTX that a GPU of sm_{number} could use"


def kernels(path: Path, arch: str, stems: Sequence[str]) -> list[KernelFacts]:
    """Facts of the extension's kernels in its cubins for exactly `arch` ("90a"), cached."""
    key = [hashlib.sha256(path.read_bytes()).hexdigest(), arch, *stems]
    key += [tools.version(tools.find(t)) for t in ("cuobjdump", "nvdisasm")]
    data = store.remember(
        "extension",
        key,
        lambda: [to_json(k) for k in _read(path, arch, stems)],
        whole=lambda entries: all(cubin.is_whole(entry) for entry in entries),
    )
    return [kernel_from_json(entry) for entry in data]


def _read(path: Path, arch: str, stems: Sequence[str]) -> list[KernelFacts]:
    cubins = [code for part in elf.fat_binaries(path.read_bytes()) for code in _cubins(part, arch)]
    return cubin.read_all(cubins, arch, "cuda", stems)


def _cubins(fat_binary: bytes, arch: str) -> list[bytes]:
    tool = _cuobjdump()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = folder / "whole.fatbin"
        whole.write_bytes(fat_binary)
        # Names of extracted files hold the arch; `-arch` would not tell 90 from 90a.
        if tools.run([tool, "-xelf", f".sm_{arch}.cubin", str(whole)], cwd=folder) is None:
            raise ExplainError(f"{tool} cannot read the extension; run `make clean build`")
        return [file.read_bytes() for file in sorted(folder.glob(f"*.sm_{arch}.cubin"))]
