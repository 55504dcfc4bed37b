"""One cubin to the facts of its kernels: sections, resource listing, disassembly."""

from __future__ import annotations

import functools
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import elf, sass, tools
from .facts import Instructions, KernelFacts
from .occupancy import RESERVED_SHARED_BYTES

_USAGE = re.compile(r"Function (\S+?):\s*\n\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
_FIRST_ARCH_WITH_RESERVE_LISTED = 90
UNTOLD = "not told"  # begins the source of a fact whose tool was stopped


def resource_usage(text: str) -> dict[str, tuple[int, int, int]]:
    """Symbol -> (registers, stack bytes, shared bytes as listed) from cuobjdump -res-usage."""
    return {m[1]: (int(m[2]), int(m[3]), int(m[4])) for m in _USAGE.finditer(text)}


def user_shared(listed: int, arch: str) -> int:
    """Shared bytes that somebody declared, of those that a listing shows.

    From sm_90 up the listing adds the system's 1 KiB: to every kernel or only to those that use
    shared memory, as the tools' versions have it, but never to a part of what one uses.
    """
    reserved = RESERVED_SHARED_BYTES if arch_number(arch) >= _FIRST_ARCH_WITH_RESERVE_LISTED else 0
    return max(0, listed - reserved)


def arch_number(arch: str) -> int:
    return int(re.sub(r"\D", "", arch) or 0)


def read(cubin: bytes, arch: str, side: str, stems: Sequence[str]) -> list[KernelFacts]:
    """Facts of every kernel in the cubin, in its order; those of no op have op "".

    What no tool here can read is unknown. Raises ExplainError for what is no cubin.
    """
    found = elf.sections(cubin)
    symbols = [name[len(".text.") :] for name in found if name.startswith(".text.")]
    usage, code = _by_tools(cubin)
    facts = []
    for symbol in symbols:
        name = tools.short_name(symbol)
        registers, stack, _ = usage.get(symbol, (None, None, None))
        # A spill needs a stack. A stack may be a local array's: then ptxas' log must tell.
        spills = 0 if stack == 0 else None
        instructions = code.get(symbol)
        sources = {"shared": "cubin"}
        if registers is not None:
            sources["registers"] = "cuobjdump"
        if spills is not None:
            sources["spills"] = "no stack"
        facts.append(
            KernelFacts(
                name=name,
                symbol=symbol,
                side=side,
                op=tools.op_of(name, stems),
                arch=arch,
                hash=elf.code_hash(name, found[f".text.{symbol}"].data),
                registers=registers,
                stack_bytes=stack,
                spill_store_bytes=spills,
                spill_load_bytes=spills,
                static_shared_bytes=user_shared(elf.shared_bytes(found, symbol), arch),
                reserved_shared_bytes=RESERVED_SHARED_BYTES,
                max_threads=elf.max_threads(found, symbol),
                instructions=instructions,
                sources=sources | ({"instructions": "sass"} if instructions else {}),
            )
        )
    return facts


def read_all(
    cubins: Sequence[bytes], arch: str, side: str, stems: Sequence[str]
) -> list[KernelFacts]:
    """Facts of several cubins' kernels, in order; as many tools at once as there are cores."""
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        read_one = functools.partial(read, arch=arch, side=side, stems=stems)
        return [kernel for kernels in pool.map(read_one, cubins) for kernel in kernels]


def is_whole(facts: Mapping[str, Any]) -> bool:
    """Whether each tool that is here has told its part of a kernel's facts, as JSON: one that was
    killed or failed is asked again the next time."""
    cuobjdump, nvdisasm = tools.find("cuobjdump"), tools.find("nvdisasm")
    told = facts.get("registers") is not None or not cuobjdump
    instructions = facts.get("instructions") or {}
    spills = str((facts.get("sources") or {}).get("spills", ""))
    told = told and not spills.startswith(UNTOLD)
    return told and (instructions.get("source") == "sass" or not (cuobjdump or nvdisasm))


def _by_tools(cubin: bytes) -> tuple[dict[str, tuple[int, int, int]], dict[str, Instructions]]:
    """Resource usage and instructions by symbol; empty where no tool can read the cubin."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        cuobjdump = tools.find("cuobjdump")
        listing = tools.run([cuobjdump, "-res-usage", str(path)]) if cuobjdump else None
        text = disassembly(path)
    counts = {name: sass.count(part) for name, part in sass.functions(text or "").items()}
    return resource_usage(listing or ""), {n: c for n, c in counts.items() if c.mix}


def disassembly(path: Path) -> str | None:
    """nvdisasm's text where it is, being a quarter as long, else cuobjdump's; None for neither."""
    nvdisasm, cuobjdump = tools.find("nvdisasm"), tools.find("cuobjdump")
    text = tools.run([nvdisasm, "-c", str(path)]) if nvdisasm else None
    if text is None and cuobjdump:
        text = tools.run([cuobjdump, "-sass", str(path)])
    return text
