"""What ptxas says while the CUDA side compiles: spills, and matrix instructions put in a row.

A built extension no longer tells its spills, so the same sources are compiled once more with the
same flags and ptxas -v; the answer is kept under build/explain.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from .. import compilers
from ..registry import REPOSITORY
from . import cubin, elf, store, tools
from .facts import ExplainError, KernelFacts

# As setup.py builds, which torch completes with flags that do not touch these sources.
FLAGS = ("-std=c++17", "-O3", "-lineinfo")
_TIMEOUT_S = 600
_FUNCTION = re.compile(r"(?:Function properties for|Compiling entry function) '?([\w$]+)'?")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
# C7508 to C7519: wgmma instructions that ptxas had to put one after the other.
_SERIAL = re.compile(r"^.*\(?\bC75(?:0[89]|1\d)\)?.*$", re.M)


@dataclass(frozen=True)
class PtxasEntry:
    """One function of a ptxas -v log; bytes a thread."""

    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    registers: int | None = None


def parse_log(log: str) -> dict[str, PtxasEntry]:
    """Symbol -> what ptxas -v said of it."""
    found: dict[str, PtxasEntry] = {}
    symbol = ""
    for line in log.splitlines():
        if match := _FUNCTION.search(line):
            symbol = match[1]
        elif match := _SPILLS.search(line):
            found[symbol] = PtxasEntry(*(int(number) for number in match.groups()))
        elif (match := _REGISTERS.search(line)) and symbol in found:
            found[symbol] = replace(found[symbol], registers=int(match[1]))
    return found


def serialised(log: str) -> list[str]:
    """ptxas' notes that wgmma instructions run one after the other, a line each."""
    return [line.strip() for line in _SERIAL.findall(log)]


def sources() -> list[Path]:
    csrc = REPOSITORY / "csrc"
    return sorted([*csrc.glob("*.cu"), *csrc.glob("*/*.cu")])


def compile_source(source: Path, arch: str, extra: Sequence[str] = ()) -> tuple[bytes, str]:
    """(cubin, ptxas' log) of one .cu for one arch, kept. Raises ExplainError when it fails."""
    found = compilers.find_nvcc(os.environ)
    if found is None:
        raise ExplainError("no nvcc on PATH, in NVIDIA's wheels or /usr/local/cuda")
    # Not the headers of csrc/bindings/: no kernel includes them.
    csrc = REPOSITORY / "csrc"
    headers = sorted(csrc.glob("*.h")) + sorted(csrc.rglob("*.cuh"))
    parts: list[bytes | str] = [compilers.ptxas_version(found.home), arch, *FLAGS, *extra]
    parts += [file.read_bytes() for file in (source, *headers)]
    stem = store.folder() / f"{source.stem}-{arch}-{store.digest(parts)}"
    binary, log = stem.with_suffix(".cubin"), stem.with_suffix(".log")
    kept = _kept(binary, log)
    if kept is not None:
        return kept
    command = [found.path, *FLAGS, *extra, f"-I{csrc}", "-Xptxas", "-v"]
    # Not -arch=sm_90a: nvcc 13.0 refuses wgmma with it.
    command += [f"-gencode=arch=compute_{arch},code=sm_{arch}", "-cubin", str(source)]
    try:
        binary.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=binary.parent, prefix=".nvcc-") as folder:
            made = Path(folder, "kernels.cubin")
            done = tools.call([*command, "-o", str(made)], _TIMEOUT_S)
            if done.returncode != 0:
                first = next(iter(done.stderr.strip().splitlines()), f"code {done.returncode}")
                raise ExplainError(f"nvcc cannot compile {source.name} for sm_{arch}: {first}")
            cubin_bytes = made.read_bytes()
        store.write(log, done.stderr.encode())
        store.write(binary, cubin_bytes)
    except OSError as error:
        raise ExplainError(
            f"{binary.parent} cannot hold compiled kernels ({error.strerror}), wanted a folder "
            "with room; set CVT_EXPLAIN_CACHE to one"
        ) from None
    return cubin_bytes, done.stderr


def _kept(binary: Path, log: Path) -> tuple[bytes, str] | None:
    """What an earlier call wrote; None where there is none, or a full disk or a crash cut it."""
    try:
        kept = binary.read_bytes(), log.read_text(errors="replace")
        elf.sections(kept[0])
    except (OSError, ExplainError):
        return None
    return kept if kept[1] else None


def kernels(arch: str, stems: Sequence[str]) -> list[KernelFacts]:
    """Facts of the CUDA sources compiled now for `arch`, with spills from ptxas' log."""
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        compiled = list(pool.map(lambda source: compile_source(source, arch), sources()))
    found: list[KernelFacts] = []
    for binary, log in compiled:
        found += with_spills(cubin.read(binary, arch, "cuda", stems), log, same_build=True)
    return found


def with_spills(facts: Sequence[KernelFacts], log: str, same_build: bool) -> list[KernelFacts]:
    """`facts` with the spill bytes of a ptxas log, matched by readable name, where it knows them.

    Of another build it is believed only where registers and stack are the same.
    """
    by_name = {tools.short_name(symbol): entry for symbol, entry in parse_log(log).items()}
    completed = []
    for kernel in facts:
        entry = by_name.get(kernel.name)
        alike = entry is not None and (entry.registers, entry.stack_bytes) == (
            kernel.registers,
            kernel.stack_bytes,
        )
        if entry is None or not (same_build or alike):
            completed.append(kernel)
            continue
        completed.append(
            replace(
                kernel,
                spill_store_bytes=entry.spill_store_bytes,
                spill_load_bytes=entry.spill_load_bytes,
                sources=kernel.sources | {"spills": "ptxas log"},
            )
        )
    return completed
