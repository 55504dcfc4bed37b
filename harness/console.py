"""What a person sees and may press: progress with time left, one plain line a case, Ctrl-C."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

Item = TypeVar("Item")

# rich reads NO_COLOR itself.
stdout = Console(highlight=False, soft_wrap=True)
stderr = Console(stderr=True, highlight=False, soft_wrap=True)


class Progress:
    """Reports a sweep on `console`; the bar shows only on a terminal."""

    def __init__(self, console: Console = stderr) -> None:
        self._console = console
        self._done = 0
        self._total = 0

    def note(self, text: str) -> None:
        self._console.print(text, markup=False)

    def units(self, items: Sequence[Item], label: Callable[[Item], str]) -> Iterator[Item]:
        self._total = len(items)
        if not self._console.is_terminal:
            for self._done, item in enumerate(items, 1):
                yield item
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Bar(*columns, console=self._console, transient=True) as bar:
            task = bar.add_task("", total=len(items))
            for self._done, item in enumerate(items, 1):
                bar.update(task, description=label(item))
                yield item
                bar.advance(task)

    def unit_done(self, label: str, rows: Sequence[Mapping[str, Any]]) -> None:
        cells = "  ".join(_cell(row) for row in rows)
        stamp = time.strftime("%H:%M:%S")
        self.note(f"{stamp} [{self._done}/{self._total}] {label}: {cells}")


def _cell(row: Mapping[str, Any]) -> str:
    name = f"{row['backend']}:{row['variant']}" if row.get("variant") else row["backend"]
    if row["status"] == "ok":
        return f"{name} {row['time_us_p50']:.4g} us"
    return f"{name} {row['status']}"


@contextmanager
def interruptible() -> Iterator[list[bool]]:
    """Within, Ctrl-C asks the sweep to stop after the case in hand; a second one stops now."""
    stopped: list[bool] = []

    def on_interrupt(_signal: int, _frame: object) -> None:
        if stopped:
            raise KeyboardInterrupt
        stopped.append(True)

    previous = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, previous)
