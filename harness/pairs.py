"""Both sides of each headline case as one thing: times, shares of the roof, compilers' facts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.explain.fact_file import row_key
from harness.explain.facts import KernelFacts
from harness.explain.run_view import mismatches
from harness.explain.timed import Facts, facts_of
from harness.report_map import SideMap, case_names
from harness.report_text import mapping, number
from harness.results import KEY, Run
from harness.sides import NAMES, SIDES

_CASE_KEY = tuple(c for c in KEY if c not in ("backend", "variant"))


@dataclass(frozen=True)
class Code:
    """What facts.json holds of a row's first kernel; None is unknown.

    widest_load: bytes a thread, of ordinary and asynchronous loads. staging, matrix: kinds of
    asynchronous copies and matrix instructions. in_flight: bytes a thread has asked for at most
    before it uses one, times the threads on an SM, where nothing is copied asynchronously.
    occupancy: share of an SM's warps. waves: how often the grid fills the card. n_kernels: how
    many the launch has.
    """

    name: str
    n_kernels: int
    arch: str = ""
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    widest_load: int | None = None
    staging: tuple[str, ...] | None = None
    matrix: tuple[str, ...] | None = None
    in_flight: float | None = None
    occupancy: float | None = None
    limiter: str = ""
    waves: float | None = None
    fusion: bool | None = None


@dataclass(frozen=True)
class Side:
    """One side's headline row; `row` is its id in bench.csv."""

    row: int
    kernel_hash: str
    config_source: str
    time_us: float
    pct_roof: float
    code: Code | None


@dataclass(frozen=True)
class Pair:
    """One op, case and dtype. ratio: time CUDA / Triton, NaN where a side has no time, with the
    99 % interval low to high; verdict as compare gives it for CUDA against Triton."""

    op: str
    case: str
    name: str  # the case, with what else tells it from others
    dtype: str
    bound: str
    verdict: str
    ratio: float
    low: float
    high: float
    size: tuple[float, float]  # flops, then distinct bytes: what the README ranks cases by
    sides: Mapping[str, Side]
    reason: str = ""

    @property
    def slower(self) -> str:
        """The side that takes more time."""
        return "cuda" if self.ratio > 1 else "triton"

    @property
    def faster(self) -> str:
        """The side that takes less time."""
        return "triton" if self.ratio > 1 else "cuda"


def pairs(run: Run, sides: SideMap, facts: Facts | None = None) -> list[Pair]:
    """Return the headline pairs in file order, [] where the sides cannot be compared."""
    if sides.refused:
        return []
    facts = facts or facts_of(run)
    rows = run.rows
    main = rows[rows["backend"].isin(SIDES) & rows["headline"].fillna(False).astype(bool)]
    by_case: dict[tuple[str, ...], dict[str, Side]] = {}
    sizes: dict[tuple[str, ...], tuple[float, float]] = {}
    for place, row in zip(main.index, main.to_dict("records"), strict=True):
        key = tuple(str(row[c]) for c in _CASE_KEY)
        by_case.setdefault(key, {})[str(row["backend"])] = _side(int(place), row, facts)
        sizes[key] = max(size_of(row), sizes.get(key, (0.0, 0.0)))
    found = []
    records = sides.rows.to_dict("records")
    for row, name in zip(records, case_names(sides.rows), strict=True):
        key = tuple(str(row[c]) for c in _CASE_KEY)
        if key in by_case:
            found.append(_pair(row, name, by_case[key], sizes[key]))
    return found


def size_of(row: Mapping[Any, Any]) -> tuple[float, float]:
    """Return a row's flops and distinct bytes, 0 where unknown."""
    amounts = number(row["flops"]), number(row["bytes_read"]) + number(row["bytes_written"])
    flops, moved = (amount if math.isfinite(amount) else 0.0 for amount in amounts)
    return flops, moved


def _pair(
    row: Mapping[Any, Any], name: str, sides: Mapping[str, Side], size: tuple[float, float]
) -> Pair:
    return Pair(
        str(row["op"]),
        str(row["case"]),
        name,
        str(row["dtype"]),
        str(row["bound"]),
        str(row["verdict"]),
        number(row["ratio"]),
        number(row["low"]),
        number(row["high"]),
        size,
        sides,
        str(row.get("reason") or ""),
    )


def _side(place: int, row: Mapping[Any, Any], facts: Facts) -> Side:
    return Side(
        place,
        str(row["kernel_hash"]),
        str(row["config_source"]),
        number(row["time_us_p50"]) if row["status"] == "ok" else math.nan,
        number(row["pct_roof"]),
        _code(row, facts),
    )


def _code(row: Mapping[Any, Any], facts: Facts) -> Code | None:
    """The first kernel whose machine code is known: the ones behind it only finish its work."""
    entry = mapping(facts.rows.get(row_key(row)))
    launches = [mapping(launch) for launch in entry.get("launches", ())]
    try:
        stale = mismatches({k: str(row[k]) for k in ("kernel_hash", "config")}, entry)
    except (KeyError, TypeError):
        return None
    known = [launch for launch in launches if launch.get("hash") in facts.kernels]
    if stale or not known:
        return None
    launch = known[0]
    kernel = facts.kernels[launch["hash"]]
    code = kernel.instructions
    widths = [*code.loads, *code.async_bytes] if code is not None else []
    fusion = mapping(launch.get("options")).get("enable_fp_fusion")
    return Code(
        kernel.name,
        len(known),
        kernel.arch,
        _whole(launch.get("registers", kernel.registers)),
        kernel.spill_bytes,
        _sum(launch.get("static_shared_bytes"), launch.get("dynamic_shared_bytes")),
        max(widths) if widths else None,
        None if code is None else tuple(code.async_copy),
        None if code is None else tuple(code.matrix),
        _in_flight(launch, kernel),
        _real(launch.get("occupancy")),
        str(launch.get("limiter") or ""),
        _real(launch.get("waves")),
        fusion if isinstance(fusion, bool) else None,
    )


def _in_flight(launch: Mapping[str, Any], kernel: KernelFacts) -> float | None:
    code = kernel.instructions
    if code is None or code.async_copy or code.in_flight_bytes is None:
        return None
    blocks, block = number(launch.get("blocks_per_sm")), launch.get("block")
    if not math.isfinite(blocks) or not isinstance(block, list | tuple):
        return None
    return code.in_flight_bytes * blocks * math.prod(block)


def _whole(value: object) -> int | None:
    known = number(value)
    return int(known) if math.isfinite(known) else None


def _real(value: object) -> float | None:
    known = number(value)
    return known if math.isfinite(known) else None


def _sum(*values: object) -> int | None:
    known = [_whole(value) for value in values]
    return None if None in known else sum(v for v in known if v is not None)


def confounds(facts: Facts, found: list[Pair]) -> list[str]:
    """Return what differs between the sides besides the kernels: assemblers, arch, fusion."""
    cuda, triton = (mapping(facts.tools.get(side)) for side in SIDES)
    told = []
    ptxas = str(cuda.get("ptxas") or ""), str(triton.get("triton_ptxas") or "")
    if all(ptxas) and ptxas[0] != ptxas[1]:
        told.append(f"ptxas {ptxas[0]} made the CUDA side's machine code, {ptxas[1]} Triton's")
    arches = {
        side: sorted({code.arch for p in found if (code := _code_of(p, side))} - {""})
        for side in SIDES
    }
    if all(arches.values()) and arches["cuda"] != arches["triton"]:
        words = (f"sm_{', sm_'.join(arches[side])} ({NAMES[side]})" for side in SIDES)
        told.append(f"compiled for {' against '.join(words)}")
    fused = {code.fusion for p in found if (code := _code_of(p, "triton"))} - {None}
    by_nvcc = "-fmad=false" not in str(cuda.get("flags") or "").replace("--", "-")
    if cuda.get("flags") is not None and fused and fused != {by_nvcc}:
        told.append(
            f"multiplications and additions are {'fused' if by_nvcc else 'kept apart'} on the "
            f"CUDA side, {'fused' if True in fused else 'kept apart'} on Triton's"
            + (" in some kernels" if len(fused) > 1 else "")
        )
    return told


def _code_of(pair: Pair, side: str) -> Code | None:
    return pair.sides[side].code if side in pair.sides else None
