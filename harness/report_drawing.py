"""A pair's drawing in words and cells: how the work of one launch lies on the card.

Every number belongs to the kernel that was timed; one that is not known is left out, never 0.
report_svg.py draws what is said here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.explain.fact_file import TimedLaunch
from harness.explain.timed import TimedPair, TimedSide
from harness.report_text import binary, count, mapping
from harness.sides import NAMES

_WARP = 32
_MOST_CELLS = 12  # of a row with labels; more waves than this lose their middle
_TILE = re.compile(r"block_?(?:size|[a-z])", re.IGNORECASE)
# CUDA's author writes for one thread of a block, Triton's for one program: the words differ.
_WORDS = {
    "cuda": ("block", "blocks", "A thread works out from threadIdx which elements are its own"),
    "triton": ("program", "programs", "The compiler deals the tile out to the lanes"),
}


@dataclass(frozen=True)
class Cell:
    """A box in a row; filled: the share of it that is tinted, from the left."""

    label: str = ""
    filled: float = 1.0


@dataclass(frozen=True)
class Level:
    """One scale of the drawing (grid, SM, block or warp): words, and a row of cells below them."""

    scale: str
    lines: tuple[str, ...]
    cells: tuple[Cell, ...] = ()


@dataclass(frozen=True)
class Panel:
    """One side. note: which of several launches, or why nothing is known."""

    side: str
    title: str
    note: str
    levels: tuple[Level, ...] = ()


@dataclass(frozen=True)
class Drawing:
    """Both sides of one case."""

    title: str
    panels: tuple[Panel, ...]

    @property
    def words(self) -> str:
        """All that the drawing says, for who cannot see it."""
        said = []
        for panel in self.panels:
            lines = [line for level in panel.levels for line in level.lines]
            said += [f"{text}." for text in (panel.title, panel.note, *lines) if text]
        return " ".join(said)


def drawing(pair: TimedPair, gpu: object) -> Drawing:
    """gpu: meta.json's entry of the card, for its number of SMs."""
    n_sms = mapping(gpu).get("sm_count")
    known_sms = n_sms if type(n_sms) is int and n_sms > 0 else None
    return Drawing(
        f"How {pair.op} {pair.case} {pair.dtype} lies on the card, CUDA beside Triton",
        tuple(_panel(side, known_sms) for side in pair.sides),
    )


def _panel(side: TimedSide, n_sms: int | None) -> Panel:
    name = NAMES[side.backend]
    launch = side.shown
    if launch is None:
        why = side.unknown or "no grid is recorded"
        return Panel(side.backend, name, f"Not known: {why}")
    n = len(side.launches)
    note = f"{side.launches.index(launch) + 1} of {n} launches of a call" if n > 1 else ""
    levels = [
        _grid(side.backend, launch, n_sms),
        _sm(side.backend, launch, n_sms),
        _block(side, launch),
        _warp(side.backend, launch),
    ]
    shown = tuple(level for level in levels if level is not None)
    return Panel(side.backend, f"{name}: {launch.function}", note, shown)


def _grid(backend: str, launch: TimedLaunch, n_sms: int | None) -> Level | None:
    if launch.launch.grid is None:
        return None
    grid = " × ".join(str(n) for n in launch.launch.grid)
    one, many, _ = _WORDS[backend]
    many = "program instances" if backend == "triton" else many
    one = "program instance" if backend == "triton" else one
    lines = [f"Grid: {grid} = {count(launch.n_blocks or 0, one, many)}"]
    if launch.waves is None or launch.waves <= 0:
        return Level("grid", tuple(lines))
    where = f" over {n_sms} SMs" if n_sms else ""
    lines.append(f"{_waves(launch.waves)}{where}: {_fill(launch.waves)}")
    return Level("grid", tuple(lines), _wave_cells(launch.waves))


def _waves(waves: float) -> str:
    if waves < 0.01:
        return "less than 0.01 waves"
    text = f"{waves:.2f}".rstrip("0").rstrip(".")
    about = "about " if _parts(waves)[1] and text.isdigit() else ""
    return f"{about}{text} {'wave' if text == '1' else 'waves'}"


def _fill(waves: float) -> str:
    full, last = _parts(waves)
    if not last:
        return "full" if full == 1 else f"all {full} full"
    share = f"{100 * last:.0f} %"
    share = "less than 1 %" if share == "0 %" else "more than 99 %" if share == "100 %" else share
    return f"{full} full, the last {share} full" if full else f"the only one {share} full"


def _parts(waves: float) -> tuple[int, float]:
    """(full waves, share of the last one that is filled, 0 where all are full)."""
    near = round(waves)
    if near and abs(waves - near) < 1e-9 * near:
        return near, 0.0
    return math.floor(waves), waves - math.floor(waves)


def _wave_cells(waves: float) -> tuple[Cell, ...]:
    full, last = _parts(waves)
    cells = [Cell(str(n), 1.0) for n in range(1, min(full, _MOST_CELLS) + 1)]
    if full + bool(last) > _MOST_CELLS:
        n_first = _MOST_CELLS - 2 - bool(last)
        cells = [*cells[:n_first], Cell("…", 1.0), Cell(str(full), 1.0)]
    if last:
        cells.append(Cell(str(full + 1), last))
    return tuple(cells)


def _sm(backend: str, launch: TimedLaunch, n_sms: int | None) -> Level | None:
    blocks = launch.launch.blocks_per_sm
    if not blocks:
        return None
    one, many, _ = _WORDS[backend]
    lines = [f"One SM{f' of {n_sms}' if n_sms else ''}: {count(blocks, one, many)} at a time"]
    limits = []
    if launch.limiter:
        limits.append(f"limited by {' and '.join(launch.limiter.split('+'))}")
    if launch.occupancy is not None:
        limits.append(f"occupancy {100 * launch.occupancy:.3g} %")
    if limits:
        text = ", ".join(limits)
        lines.append(f"{text[0].upper()}{text[1:]}")
    return Level("SM", tuple(lines), (Cell(),) * blocks)


def _block(side: TimedSide, launch: TimedLaunch) -> Level | None:
    threads = launch.launch.threads
    one, _, _ = _WORDS[side.backend]
    lines: list[str] = []
    cells: tuple[Cell, ...] = ()
    if threads:
        n_warps = -(-threads // _WARP)
        cells = (Cell(),) * n_warps
        warps = f"{count(n_warps, 'warp')} of {_WARP} lanes"
        asked = launch.launch.options.get("num_warps")
        if side.backend == "cuda":
            lines.append(f"One block: {threads} threads = {warps}")
        else:
            lines.append(
                f"One program: {warps}" + (f", by num_warps={asked}" if asked == n_warps else "")
            )
    has = []
    if launch.launch.registers:
        has.append(f"{launch.launch.registers} registers a thread")
    if launch.shared_bytes is not None:
        has.append(f"{binary(launch.shared_bytes) if launch.shared_bytes else 'no'} shared memory")
    if has:
        lines.append(", ".join(has))
    if owned := _owned(side, launch):
        lines.append(f"A {one} owns {owned}")
    if tile := _tile(side.row):
        lines.append(f"Tile: {tile}")
    return Level("block", tuple(lines), cells) if lines else None


def _warp(backend: str, launch: TimedLaunch) -> Level | None:
    if not launch.launch.threads:
        return None
    n_lanes = min(_WARP, launch.launch.threads)
    lines = [f"One warp: {count(n_lanes, 'lane')}", _WORDS[backend][2]]
    if width := widest_load(launch):
        lines.insert(1, f"The widest load moves {width} B a lane, {width * n_lanes} B a warp")
    return Level("warp", tuple(lines), (Cell(),) * n_lanes)


def widest_load(launch: TimedLaunch) -> int | None:
    """Bytes a lane of the widest load or asynchronous copy from global memory; None if unknown."""
    counts = launch.kernel.instructions if launch.kernel else None
    return max([*counts.loads, *counts.async_bytes], default=None) if counts else None


def _owned(side: TimedSide, launch: TimedLaunch) -> str:
    """The work of one block, where one launch does all of it and the grid divides it."""
    n = elements(side.row or {})
    if n is None or not launch.n_blocks or len(side.launches) != 1 or n % launch.n_blocks:
        return ""
    return f"{count(n // launch.n_blocks, 'element')} of {n}"


def elements(row: Mapping[str, Any]) -> int | None:
    """The extents' product: of a product of matrices that of its result, K being summed over."""
    sizes: dict[str, int] = {}
    for part in filter(None, str(row.get("dims") or "").split(";")):
        name, _, text = part.partition("=")
        if not text.isdigit() or not int(text):
            return None
        sizes[name] = int(text)
    if {"M", "N", "K"} <= sizes.keys():
        del sizes["K"]
    return math.prod(sizes.values()) if sizes else None


def _tile(row: Mapping[str, Any] | None) -> str:
    """The tile's extents as the configuration names them."""
    try:
        found = json.loads(str((row or {}).get("config") or ""))
    except ValueError:
        return ""
    sizes = {k: v for k, v in mapping(found).items() if type(v) is int and _TILE.fullmatch(str(k))}
    return ", ".join(f"{name}={n}" for name, n in sizes.items())
