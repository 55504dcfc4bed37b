"""The table and the closing lines of `crosscheck`."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .crosscheck_rows import (
    CLOCK_BOUND,
    EMPTY,
    LEAST_SHORT,
    OFFSET_BOUND_US,
    SHORT_US,
    SPREAD_BOUND_US,
    Judged,
    Verdict,
    worst,
)
from .measure import FULL_CLOCK


def render(verdict: Verdict, timer: str, console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("op", "case", "dtype", "side"):
        table.add_column(name)
    for name in ("ours us", "- overhead", timer, "diff us", "diff %", "bound us"):
        table.add_column(name, justify="right")
    table.add_column("within")
    for judged in verdict.rows:
        row = judged.row
        cells = (
            row.op,
            row.case,
            row.dtype,
            row.backend,
            _number(row.ours_us),
            _number(judged.net_us),
            _number(row.other_us),
            _number(judged.difference_us, signed=True),
            _number(judged.difference_pct, signed=True),
            _number(judged.bound_us),
            _within(judged),
        )
        # Not markup: a reason may hold brackets.
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
    for line in summary(verdict, timer):
        console.print(line, markup=False)


def summary(verdict: Verdict, timer: str) -> list[str]:
    """The verdict with rows within and offset; then a line on rows that nobody judged."""
    n_within = sum(one.within for one in verdict.judged)
    text = f"{n_within} of {len(verdict.judged)} kernels{_span(verdict)} within bounds of {timer}"
    if all(one.row.op == EMPTY for one in verdict.judged):
        text += ", no other than the empty one was judged"
    text += "; " + (_constant(verdict, timer) if verdict.profiler else _offset(verdict))
    lines = [f"{'PASS' if verdict.passed else 'FAIL'}: {text}"]
    return lines + _not_judged(verdict)


def _span(verdict: Verdict) -> str:
    times = [one.row.other_us for one in verdict.judged if one.row.other_us is not None]
    return f" from {min(times):.3g} to {max(times):.4g} us" if times else ""


def _offset(verdict: Verdict) -> str:
    if verdict.offset_us is None:
        return "no short kernel was timed, so nothing tells the offset"
    return (
        f"ours is {verdict.offset_us:.2f} us above it, measured overhead "
        f"{verdict.overhead_us:.2f} us (may differ by {OFFSET_BOUND_US} us)"
    )


def _constant(verdict: Verdict, timer: str) -> str:
    if verdict.spread_us is None or verdict.n_short < LEAST_SHORT:
        return (
            f"{verdict.n_short} kernels below {SHORT_US:.0f} us were judged, wanted {LEAST_SHORT} "
            "to see whether the offset is constant; widen the filters"
        )
    text = (
        f"the offset {verdict.overhead_us:.2f} us was taken off; over {verdict.n_short} kernels "
        f"below {SHORT_US:.0f} us it varies by {verdict.spread_us:.2f} us (may by "
        f"{SPREAD_BOUND_US} us)"
    )
    empty = verdict.empty
    if empty is None or empty.ours_us is None or empty.other_us is None:
        return text
    return f"{text}; the empty kernel: ours {empty.ours_us:.2f}, {timer} {empty.other_us:.2f} us"


def _not_judged(verdict: Verdict) -> list[str]:
    lines = []
    if verdict.exempt:
        n_within = sum(one.within for one in verdict.exempt)
        text = (
            f"not judged: {len(verdict.exempt)} compute-bound kernels whose SM clock was below "
            f"{100 * FULL_CLOCK:.0f} % of the card's highest or more than {100 * CLOCK_BOUND:.0f} "
            f"% apart under the two timers; {n_within} of them are within bounds"
        )
        largest = worst(verdict.exempt)
        if largest is not None:
            text += (
                f", the largest difference is {_number(largest.difference_us, signed=True)} us "
                f"({_number(largest.difference_pct, signed=True)} %) of {largest.row.label}"
            )
        lines.append(text)
    if verdict.too_large:
        names = ", ".join(one.row.label for one in verdict.too_large)
        lines.append(f"not timed, too large for this GPU's memory: {names}")
    return lines


def _number(value: float | None, signed: bool = False) -> str:
    if value is None:
        return "-"
    return f"{value:+.2f}" if signed else f"{value:.2f}"


def _within(judged: Judged) -> str:
    row = judged.row
    if row.status != "ok":
        return f"{row.status}: {row.reason}" if row.reason else row.status
    if judged.exempt:
        clocks = f"{_mhz(row.ours_sm_mhz)} MHz against {_mhz(row.other_sm_mhz)}"
        return f"not judged, {judged.exempt}: {clocks}"
    if not row.hidden:
        return "NO: a launch was not hidden"
    return "yes" if judged.within else "NO"


def _mhz(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0f}"
