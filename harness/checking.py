"""`check` on a GPU: every implementation on the test cases, untimed, one verdict a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from .console import Progress, stdout
from .explanation_view import take_lines
from .plan import Unit
from .supervisor import Supervisor
from .sweep import SweepOptions, request_for

_GOOD = ("untimed", "unsupported", "absent")


def check_units(
    units: Sequence[Unit], options: SweepOptions, progress: Progress
) -> list[tuple[Unit, dict[str, Any]]]:
    """(unit, row) for every contender of every unit."""
    found = []
    with Supervisor(options.device, options.timeout_s) as supervisor:
        for unit in progress.units(units, lambda u: u.label):
            for event in supervisor.run(request_for(unit, options, timed=False)):
                found.append((unit, event["row"]))
    return found


def check_on_gpu(units: Sequence[Unit], options: SweepOptions) -> int:
    """Print each failure with its reason, then the counts; 1 when anything is wrong.

    With options.explain every row is printed, with the numbers behind its verdict.
    """
    found = check_units(units, options, Progress())
    counts = Counter(row["status"] for _, row in found)
    for unit, row in found:
        if options.explain:
            stdout.print("\n".join(take_lines(unit.label, row)), markup=False)
        elif row["status"] not in _GOOD:
            stdout.print(
                f"{unit.label} {row['backend']}: {row['status']}: {row['reason']}", markup=False
            )
    right = counts["untimed"]
    others = "".join(f", {n} {status}" for status, n in counts.items() if status != "untimed")
    stdout.print(f"{right} right{others}")
    return 1 if any(status not in _GOOD for status in counts) else 0
