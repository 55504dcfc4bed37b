"""The table and the summary line of `crosscheck`."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .crosscheck_rows import OFFSET_BOUND_US, Judged, Verdict


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
    console.print(summary(verdict, timer), markup=False)


def summary(verdict: Verdict, timer: str) -> str:
    """One line: rows within, offset against overhead, verdict."""
    share = f"{verdict.n_within} of {verdict.n_compared} kernels within bounds of {timer}"
    if verdict.n_other_clock:
        share += f" ({verdict.n_other_clock} more, at other or power-limited clocks, not judged)"
    if verdict.offset_us is None:
        return f"FAIL: {share}; nothing was timed"
    offset = (
        f"ours is {verdict.offset_us:.2f} us above it, measured overhead "
        f"{verdict.overhead_us:.2f} us (may differ by {OFFSET_BOUND_US} us)"
    )
    return f"{'PASS' if verdict.passed else 'FAIL'}: {share}; {offset}"


def _number(value: float | None, signed: bool = False) -> str:
    if value is None:
        return "-"
    return f"{value:+.2f}" if signed else f"{value:.2f}"


def _within(judged: Judged) -> str:
    row = judged.row
    if row.status != "ok":
        return f"{row.status}: {row.reason}" if row.reason else row.status
    if judged.other_clock:
        return f"not judged: {row.ours_sm_mhz:.0f} MHz against {row.other_sm_mhz:.0f}"
    if not row.hidden:
        return "NO: a launch was not hidden"
    return "yes" if judged.within else "NO"
