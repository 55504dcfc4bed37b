"""The facts as a table for a terminal: a line a variant, instances of one template in one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..sides import SIDES
from .collect import Explained, fit_of
from .facts import Instructions
from .occupancy import limits_of, waves_in_words
from .variants import Variant

_HEADER = (
    "kernel",
    "regs",
    "spill B",
    "shared B",
    "threads",
    "occupancy",
    "loads B",
    "stores B",
    "async B",
    "matrix",
    "bar",
    "shfl",
    "atom",
    "in flight/SM",
    "waves",
)
# What a launch decides: the build of the CUDA side tells none of it, but threads by launch bounds.
_OF_A_LAUNCH = ("threads", "occupancy", "in flight/SM", "waves")
_UNKNOWN, _NONE = "?", "-"


def lines(found: Explained, each: bool) -> list[str]:
    """Tables of all ops. each: a line for every template instance, else one a template."""
    text = []
    ops = dict.fromkeys(variant.kernel.op for variant in found.variants)
    for op in ops:
        for side in SIDES:
            of_side = [v for v in found.variants if (v.kernel.op, v.kernel.side) == (op, side)]
            if not of_side:
                continue
            built = ", ".join(dict.fromkeys(f"sm_{v.kernel.arch}" for v in of_side))
            text += ["", f"{op} {side} ({built}, {len(of_side)} variants)"]
            grouped = side == "cuda" and not each and len(of_side) > 4
            groups = _groups(of_side) if grouped else [[v] for v in of_side]
            text += _table([_cells(group, found) for group in groups])
            text += [f"  warning: {w}" for w in _warnings(of_side)]
    text += ["", _legend(found), *(f"note: {note}" for note in found.notes)]
    return text[1:]


def _legend(found: Explained) -> str:
    limits = limits_of(found.arch)
    card = f"{found.n_sms or limits.n_sms} SMs" + ("" if found.n_sms else f" of {limits.card}")
    return (
        "legend: regs, spill a thread; shared a block; loads, stores, async: bytes a thread; "
        "bar, shfl, atom: instructions in the code, a loop's once; in flight: an estimate; "
        f"waves on {card}; {_UNKNOWN} unknown, {_NONE} none"
    )


def _warnings(found: Iterable[Variant]) -> list[str]:
    return [f"{v.label}: {w}" for v in found for w in v.kernel.warnings]


def _groups(found: Sequence[Variant]) -> list[list[Variant]]:
    """Instances of one template with the same element type and the same kinds of accesses."""
    groups: dict[tuple[object, ...], list[Variant]] = {}
    for variant in found:
        kernel = variant.kernel
        head = kernel.name.split(",")[0]
        counts = kernel.instructions
        kinds = (tuple(counts.loads), counts.async_copy, counts.matrix) if counts else ()
        groups.setdefault((head, kinds), []).append(variant)
    return list(groups.values())


def _cells(group: Sequence[Variant], found: Explained) -> tuple[str, ...]:
    kernels = [v.kernel for v in group]
    counts = [k.instructions for k in kernels if k.instructions is not None]
    every = (fit_of(v.kernel, v.launch, found.arch, found.n_sms) for v in group)
    fits = [fit for fit in every if fit is not None]
    dynamic = [v.launch.dynamic_shared_bytes if v.launch else None for v in group]
    shared = [
        None if k.static_shared_bytes is None else k.static_shared_bytes + (d or 0)
        for k, d in zip(kernels, dynamic, strict=True)
    ]
    threads = [(v.launch.threads if v.launch else None) or v.kernel.max_threads for v in group]
    share = _range(round(100 * f.occupancy, 1) for f in fits)
    limiters = "/".join(dict.fromkeys(f.limiter for f in fits))
    upper = "<=" if any(f.upper for f in fits) else ""
    return (
        _name(group),
        _range(k.registers for k in kernels),
        _range(k.spill_bytes for k in kernels),
        _range(shared) + ("+?" if None in dynamic and any(c.async_copy for c in counts) else ""),
        _range(threads),
        f"{upper}{share}% {limiters}" if fits else _UNKNOWN,
        _kinds(counts, filter(None, [_widths(c.loads for c in counts)])),
        _kinds(counts, filter(None, [_widths(c.stores for c in counts)])),
        _kinds(
            counts,
            (
                f"{n} {_widths([c.async_bytes]) if n == 'cp.async' else ''}".strip()
                for c in counts
                for n in c.async_copy
            ),
        ),
        _kinds(counts, (n for c in counts for n in c.matrix)),
        _range(c.barriers for c in counts),
        _range(c.shuffles for c in counts),
        _range(c.atomics for c in counts),
        _kib(f.in_flight_bytes for f in fits),
        _range(None if f.waves is None else float(waves_in_words(f.waves)) for f in fits),
    )


def _name(group: Sequence[Variant]) -> str:
    if len(group) == 1:
        return group[0].label
    head = group[0].kernel.name.split(",")[0]
    return f"{head}, ...> x{len(group)}"


def _range(values: Iterable[float | None]) -> str:
    known = [v for v in values if v is not None]
    if not known:
        return _UNKNOWN
    low, high = min(known), max(known)
    return f"{low:g}" if low == high else f"{low:g}-{high:g}"


def _kib(values: Iterable[int | None]) -> str:
    text = _range(None if v is None else round(v / 1024, 1) for v in values)
    return text if text == _UNKNOWN else f"{text} KiB"


def _widths(histograms: Iterable[dict[int, int]]) -> str:
    return "/".join(str(w) for w in sorted({w for h in histograms for w in h}, reverse=True))


def _kinds(counts: Sequence[Instructions], names: Iterable[str]) -> str:
    return ("+".join(dict.fromkeys(names)) or _NONE) if counts else _UNKNOWN


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The columns in which a cell says something, and a line for those that nobody knows."""
    columns = list(zip(*rows, strict=True))
    kept = [i for i, cells in enumerate(columns) if i == 0 or {*cells} - {_UNKNOWN, _NONE}]
    unknown = [_HEADER[i] for i, cells in enumerate(columns) if {*cells} == {_UNKNOWN}]
    table = [tuple(_HEADER[i] for i in kept), *(tuple(row[i] for i in kept) for row in rows)]
    wide = [max(len(row[i]) for row in table) for i in range(len(kept))]
    text = [
        "  " + "  ".join(cell.ljust(w) for cell, w in zip(row, wide, strict=True)).rstrip()
        for row in table
    ]
    launch = [name for name in unknown if name in _OF_A_LAUNCH]
    if launch:
        text.append(
            f"  unknown: {', '.join(launch)}: the launch decides, and the build does not tell; "
            "`explain --run` shows a run's"
        )
    code = [name for name in unknown if name not in _OF_A_LAUNCH]
    if code:
        text.append(f"  unknown: {', '.join(code)}: no tool here has told; `make doctor`")
    return text
