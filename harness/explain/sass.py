"""Machine code as text to counts, from `nvdisasm -c` or `cuobjdump -sass`.

The opcode is matched whole at the start of the instruction, after an optional predicate: LDG is a
prefix of LDGSTS and of LDGDEPBAR, and BAR sits inside DEPBAR. What no class knows stays in the
mix under its own name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from .facts import Instructions

_INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*);", re.M
)
_FUNCTION = re.compile(r"^(?:\s+Function : (\S+)|\.text\.(\S+):)\s*$", re.M)
_REGISTER = re.compile(r"(?<![\w.])R(\d+)((?:\.\w+)*)")
_WIDTH_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "32": 4, "64": 8, "128": 16, "256": 32}
_MATRIX = (
    ("tcgen05", re.compile(r"UTC\w*MMA")),
    ("wgmma", re.compile(r"[HIQB]GMMA")),
    ("mma", re.compile(r"[HIDQBO]MMA")),
)
_ASYNC = (
    ("tma", re.compile(r"UTMA(?:LDG|STG|REDG)")),
    ("bulk", re.compile(r"UBLK(?:CP|RED)")),
    ("cp.async", re.compile(r"LDGSTS")),
)
_BARRIERS = re.compile(r"BAR|WARPSYNC|WARPGROUP|UCGABAR_\w+|CGABAR\w*")
_SHUFFLES = re.compile(r"SHFL|REDUX|CREDUX|VOTE|VOTEU|MATCH")
_ATOMICS = re.compile(r"ATOM|ATOMG|ATOMS|RED|REDG|REDS|UTMAREDG|UBLKRED")
# Ends a straight piece of code: what lies behind need not run after what lies before.
_ENDS = re.compile(r"BRA|BRX|JMP|JMX|EXIT|RET|CALL|BSYNC|BREAK|WARPSYNC|BAR")


def functions(text: str) -> dict[str, str]:
    """Kernel symbol -> its part of a disassembly."""
    found: dict[str, str] = {}
    headers = list(_FUNCTION.finditer(text))
    ends = [header.start() for header in headers[1:]] + [len(text)]
    for header, end in zip(headers, ends, strict=False):  # no header, no end
        name = header[1] or header[2]
        # nvdisasm prints the section's name again as a label before other sections.
        found[name] = found.get(name, "") + text[header.end() : end]
    return found


def instructions(text: str) -> list[tuple[str, str, str]]:
    """(opcode with modifiers, operands, predicate), without the padding behind the last EXIT."""
    found = [(m[2], m[3].strip(), m[1] or "") for m in _INSTRUCTION.finditer(text)]
    while found and found[-1][0] == "NOP":
        found.pop()
    if len(found) > 1 and found[-1][0].startswith("BRA") and found[-2][0] in ("EXIT", "NOP", "BRA"):
        found.pop()  # the endless loop that follows the end of every kernel
        while found and found[-1][0] == "NOP":
            found.pop()
    return found


def count(text: str) -> Instructions:
    """Facts of one kernel from its disassembly."""
    code = instructions(text)
    mix = Counter(opcode.split(".")[0] for opcode, _, _ in code)
    return Instructions(
        loads=_widths(code, ("LDG", "LD")),
        stores=_widths(code, ("STG", "ST")),
        async_copy=_names(_ASYNC, mix),
        async_bytes=_widths(code, ("LDGSTS",)),
        matrix=_names(_MATRIX, mix),
        barriers=_total(_BARRIERS, mix),
        shuffles=_total(_SHUFFLES, mix),
        atomics=_total(_ATOMICS, mix),
        local_accesses=mix["LDL"] + mix["STL"],
        in_flight_bytes=in_flight(code),
        mix=dict(sorted(mix.items())),
    )


def width_bytes(opcode: str) -> int:
    """Bytes a thread that a memory instruction moves; 4 where it names no width."""
    return next((_WIDTH_BYTES[m] for m in opcode.split(".")[1:] if m in _WIDTH_BYTES), 4)


def _widths(code: Iterable[tuple[str, str, str]], opcodes: tuple[str, ...]) -> dict[int, int]:
    found = Counter(width_bytes(opcode) for opcode, _, _ in code if opcode.split(".")[0] in opcodes)
    return dict(sorted(found.items()))


def _names(table: Iterable[tuple[str, re.Pattern[str]]], mix: Iterable[str]) -> tuple[str, ...]:
    opcodes = list(mix)
    return tuple(name for name, pattern in table if any(pattern.fullmatch(o) for o in opcodes))


def _total(pattern: re.Pattern[str], mix: Counter[str]) -> int:
    return sum(n for opcode, n in mix.items() if pattern.fullmatch(opcode))


def in_flight(code: Iterable[tuple[str, str, str]]) -> int:
    """Most bytes of global loads outstanding before one of them is used; see Instructions."""
    most = asked = 0
    waited_for: set[int] = set()
    for opcode, operands, predicate in code:
        plain = opcode.split(".")[0]
        if plain in ("LDG", "LD"):
            target, _, address = operands.partition(",")
            if waited_for & set(_registers(address)):
                asked, waited_for = 0, set()
            first = next(_registers(target), None)
            if first is not None:
                width = width_bytes(opcode)
                asked += width
                waited_for |= set(range(first, first + max(1, width // 4)))
                most = max(most, asked)
        elif (_ENDS.fullmatch(plain) and not predicate) or waited_for & set(_registers(operands)):
            asked, waited_for = 0, set()
    return most


def _registers(operands: str) -> Iterator[int]:
    """Numbers of the registers that the text names, second halves of pairs included."""
    for match in _REGISTER.finditer(operands):
        yield int(match[1])
        if ".64" in match[2]:
            yield int(match[1]) + 1
