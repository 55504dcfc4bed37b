"""What the machine code of a side's launches shows of one thing: there, not there, or not told."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from .fact_file import TimedLaunch
from .facts import Instructions
from .timed import TimedSide

# Opcodes as the mix has them: SASS's first word, PTX's first two.
_SHARED = re.compile(
    r"LDS|STS|LDSM|STSM|ATOMS|REDS|(?:ld|st|atom|red)\.shared|(?:ld|st)matrix\.\w+"
)
_ASYNC = re.compile(r"LDGSTS|UBLKCP|UTMALDG|cp\.async")
_MATRIX = re.compile(
    r"[HIDQBO]MMA|[HIQB]GMMA|UTC\w*MMA|w?mma\.(?:sync|mma)|wgmma\.mma_async|tcgen05\.mma"
)
_BARRIERS = re.compile(
    r"BAR|WARPSYNC|WARPGROUP|UCGABAR_\w+|CGABAR\w*|SYNCS|bar\.\w+|barrier\.\w+|mbarrier\.\w+"
)
_SHUFFLES = re.compile(r"SHFL|REDUX|CREDUX|(?:shfl|redux)\.sync")
_VECTOR_BYTES = 16  # wider than any element
_WIDEST_ELEMENT = 8


@dataclass(frozen=True)
class Seen:
    """there: None where it cannot be told. words: the facts as they stand, or why none are."""

    there: bool | None
    words: str


def vector_width(side: TimedSide) -> Seen:
    """Several elements an access: 16 bytes or more, or 8 where loads and stores have it; a lone
    access of 8 bytes may be one 64-bit element."""

    def of(counts: Instructions) -> bool | None:
        loads, stores = {*counts.loads, *counts.async_bytes}, set(counts.stores)
        widest = max(loads | stores, default=0)
        if widest >= _VECTOR_BYTES or (_WIDEST_ELEMENT in loads and _WIDEST_ELEMENT in stores):
            return True
        return None if widest == _WIDEST_ELEMENT else False

    return _of_launches(side, of, _widths, "no global access is counted")


def shared_memory(side: TimedSide) -> Seen:
    """Shared memory a block, and the instructions that use it."""
    launches: list[tuple[TimedLaunch, bool | None, str]] = []
    for launch in side.launches:
        n_bytes = launch.shared_bytes
        counts = launch.kernel.instructions if launch.kernel else None
        opcodes = _found(counts, (_SHARED, _ASYNC)) if counts else {}
        if not n_bytes and not opcodes:
            there = None if n_bytes is None and counts is None else False
            launches.append((launch, there, ""))
            continue
        words = [f"{n_bytes} B a block"] if n_bytes else []
        launches.append((launch, True, ", ".join([*words, *_listed(opcodes)])))
    return _joined(side, launches, "no shared memory")


def async_copies(side: TimedSide) -> Seen:
    """Copies from global to shared memory that a thread does not wait for."""

    def words(counts: Instructions) -> str:
        found = _found(counts, (_ASYNC,))
        if set(found) == {"LDGSTS"} and counts.async_bytes:
            return _accesses("LDGSTS", counts.async_bytes)
        return ", ".join(_listed(found))

    return _of_launches(side, lambda c: bool(_found(c, (_ASYNC,))), words, "no asynchronous copy")


def matrix_unit(side: TimedSide) -> Seen:
    return _opcodes(side, _MATRIX, "no matrix instruction")


def barriers(side: TimedSide) -> Seen:
    return _opcodes(side, _BARRIERS, "no barrier")


def shuffles(side: TimedSide) -> Seen:
    """Not votes and matches: they combine no values."""
    return _opcodes(side, _SHUFFLES, "no shuffle")


def grid(side: TimedSide) -> str:
    """Each launch's grid, and how often it fills the card."""
    words = []
    for launch in side.launches:
        if launch.launch.grid is None:
            continue
        text = "grid " + " × ".join(map(str, launch.launch.grid))
        if launch.waves is not None:
            text += f", {launch.waves:.2f} waves"
        words.append(_named(side, launch, text))
    return "; ".join(words)


def opcodes(side: TimedSide) -> set[str] | None:
    """Those of all launches; None where one of them has no machine code, or PTX alone."""
    found: set[str] = set()
    for launch in side.launches:
        counts = launch.kernel.instructions if launch.kernel else None
        if counts is None or counts.source != "sass":
            return None
        found |= {opcode for opcode, n in counts.mix.items() if n}
    return found


def _opcodes(side: TimedSide, pattern: re.Pattern[str], none: str) -> Seen:
    def words(counts: Instructions) -> str:
        return ", ".join(_listed(_found(counts, (pattern,))))

    return _of_launches(side, lambda counts: bool(_found(counts, (pattern,))), words, none)


def _of_launches(
    side: TimedSide,
    there: Callable[[Instructions], bool | None],
    words: Callable[[Instructions], str],
    none: str,
) -> Seen:
    found: list[tuple[TimedLaunch, bool | None, str]] = []
    for launch in side.launches:
        counts = launch.kernel.instructions if launch.kernel else None
        if counts is None or not counts.mix:
            found.append((launch, None, ""))
        else:
            prefix = "PTX: " if counts.source == "ptx" else ""
            text = words(counts)
            found.append((launch, there(counts), f"{prefix}{text}" if text else ""))
    return _joined(side, found, none)


def _joined(
    side: TimedSide, found: Iterable[tuple[TimedLaunch, bool | None, str]], none: str
) -> Seen:
    """There in any launch is there; not told of one is not told of all."""
    found = list(found)
    states = {state for _, state, _ in found}
    words = "; ".join(_named(side, launch, text) for launch, _, text in found if text)
    if True in states:
        return Seen(True, words)
    if None in states or not states:
        return Seen(None, words or "no facts of the machine code")
    return Seen(False, words or none)


def _named(side: TimedSide, launch: TimedLaunch, text: str) -> str:
    return f"{launch.function}: {text}" if len(side.launches) > 1 else text


def _found(counts: Instructions, patterns: Iterable[re.Pattern[str]]) -> dict[str, int]:
    return {
        opcode: n for p in patterns for opcode, n in counts.mix.items() if n and p.fullmatch(opcode)
    }


def _listed(found: Mapping[str, int]) -> list[str]:
    return [f"{opcode} × {n}" for opcode, n in found.items()]


def _widths(counts: Instructions) -> str:
    if counts.source == "ptx":
        names = ("ld.global", "st.global", "cp.async")
    else:
        # The facts count accesses by generic address among those of global memory.
        generic = [name for name in ("LD", "ST") if counts.mix.get(name)]
        names = (
            "LDG/LD" if "LD" in generic else "LDG",
            "STG/ST" if "ST" in generic else "STG",
            "LDGSTS",
        )
    parts = zip(names, (counts.loads, counts.stores, counts.async_bytes), strict=True)
    return ", ".join(filter(None, (_accesses(name, widths) for name, widths in parts)))


def _accesses(name: str, widths: Mapping[int, int]) -> str:
    """Accesses by bits a thread, the widest first, as the machine code spells them."""
    return ", ".join(
        f"{name}.{8 * n_bytes} × {widths[n_bytes]}" for n_bytes in sorted(widths, reverse=True)
    )
