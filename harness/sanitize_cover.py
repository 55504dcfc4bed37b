"""Which instructions that a sanitizer may not see are in the kernels' machine code or PTX."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from .explain import tools

_SASS = {
    "wgmma": r"[HIQB]GMMA",
    "cp.async.bulk": r"UBLK(?:CP|RED|PF)",
    "cp.async.bulk.tensor": r"UTMA(?:LDG|STG|REDG|PF)",
    "mbarrier": r"SYNCS",
    "tcgen05": r"UTC\w*MMA|UTCCP|UTCBAR|LDTM|STTM",
    "cp.async": r"LDGSTS",
}
# Also read in the sources, where inline assembly spells them the same way.
_PTX = {
    "wgmma": r"wgmma\.mma_async",
    "cp.async.bulk": r"cp\.(?:reduce\.)?async\.bulk\.(?!tensor|commit|wait|prefetch)",
    "cp.async.bulk.tensor": r"cp\.(?:reduce\.)?async\.bulk\.(?:prefetch\.)?tensor",
    "mbarrier": r"\bmbarrier\.|cuda::barrier",
    "tcgen05": r"tcgen05\.",
    "cp.async": r"cp\.async\.c[ag]\.|memcpy_async",
}
_OPCODE = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)", re.M)


def in_ptx(text: str) -> set[str]:
    """Instructions of _PTX in PTX or in a source with inline assembly."""
    return {name for name, pattern in _PTX.items() if re.search(pattern, text)}


def in_sass(text: str) -> set[str]:
    opcodes = set(_OPCODE.findall(text))
    return {
        name
        for name, pattern in _SASS.items()
        if any(re.fullmatch(pattern, opcode) for opcode in opcodes)
    }


def by_function(dump: str, capability: str) -> dict[str, set[str]]:
    """Mangled kernel name -> instructions, from `cuobjdump --dump-sass`.

    capability: "90"; where the binary has no code for it, that of every architecture counts.
    """
    found: dict[str, dict[str, set[str]]] = {}
    arch = ""
    for part in re.split(r"^(?=arch = |\s+Function : )", dump, flags=re.M):
        if match := re.match(r"arch = sm_(\d+)", part):
            arch = match[1]
        elif match := re.match(r"\s+Function : (\S+)", part):
            found.setdefault(arch, {}).setdefault(match[1], set()).update(in_sass(part))
    chosen = [found[capability]] if capability in found else list(found.values())
    merged: dict[str, set[str]] = {}
    for functions in chosen:
        for name, instructions in functions.items():
            merged.setdefault(name, set()).update(instructions)
    return merged


def of_extension(binary: Path, capability: str) -> dict[str, set[str]]:
    """by_function of the built extension; empty when no cuobjdump can read it."""
    tool = tools.find("cuobjdump")
    dump = tools.run([tool, "--dump-sass", str(binary)]) if tool else None
    return by_function(dump, capability) if dump else {}


def of_op(functions: dict[str, set[str]], stem: str, stems: Sequence[str]) -> set[str] | None:
    """Instructions of an op's kernels, by their mangled names; None when there is no kernel of
    it among those of all `stems`."""
    own = [
        found
        for name, found in functions.items()
        if tools.op_of(tools.short_name(name), stems) == stem
    ]
    return set().union(*own) if own else None


def of_sources(files: Iterable[Path]) -> set[str]:
    return set().union(*(in_ptx(file.read_text()) for file in files))
