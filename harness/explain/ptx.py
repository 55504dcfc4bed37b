"""The same counts from PTX, for where no disassembler is: what ptxas makes of it stays unknown."""

from __future__ import annotations

import re
from collections import Counter

from .facts import Instructions

_OPCODE = re.compile(r"^\s*(?:@!?%p\w*\s+)?([a-z][\w]*(?:\.[\w:]+)*)\s", re.M)
_ACCESS = re.compile(r"\b(ld|st)\.(?:[\w:]+\.)*global(?:\.[\w:]+)*?(?:\.v(\d))?\.[bfsu](\d+)\b")
_CP_ASYNC = re.compile(
    r"cp\.async\.c[ag]\.shared\S*\s+\[[^\]]*\],\s*\[[^\]]*\],\s*(0x)?([0-9a-f]+)"
)
_MATRIX = {"tcgen05": r"tcgen05\.mma", "wgmma": r"wgmma\.mma_async", "mma": r"\bmma\.sync"}
_ASYNC = {
    "tma": r"cp\.(?:reduce\.)?async\.bulk\.tensor",
    "bulk": r"cp\.(?:reduce\.)?async\.bulk\.(?!tensor|commit|wait|prefetch)",
    "cp.async": r"cp\.async\.c[ag]\.",
}


def count(text: str) -> Instructions:
    """Facts of a module with one kernel. Spills and unused code do not show in PTX."""
    widths: dict[str, Counter[int]] = {"ld": Counter(), "st": Counter()}
    for operation, lanes, bits in _ACCESS.findall(text):
        widths[operation][int(lanes or 1) * int(bits) // 8] += 1
    copies = Counter(int(n, 16 if hexa else 10) for hexa, n in _CP_ASYNC.findall(text))
    mix = Counter(".".join(opcode.split(".")[:2]) for opcode in _OPCODE.findall(text))
    return Instructions(
        loads=dict(sorted(widths["ld"].items())),
        stores=dict(sorted(widths["st"].items())),
        async_copy=tuple(name for name, p in _ASYNC.items() if re.search(p, text)),
        async_bytes=dict(sorted(copies.items())),
        matrix=tuple(name for name, p in _MATRIX.items() if re.search(p, text)),
        barriers=len(re.findall(r"\bbar(?:rier)?\.(?:warp\.)?(?:sync|red|arrive)", text)),
        shuffles=len(re.findall(r"\b(?:shfl|redux|vote|match)\.", text)),
        atomics=len(re.findall(r"\b(?:atom|red)\.(?:[\w:]+\.)*(?:global|shared)", text)),
        mix=dict(sorted(mix.items())),
        source="ptx",
    )
