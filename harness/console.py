"""What a person sees and may press: progress with time left, one plain line a case, Ctrl-C."""

from __future__ import annotations

import contextlib
import os
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
for _console in (stdout, stderr):
    if _console.width < 1:  # COLUMNS=0: rich would print nothing at all
        _console.width = 80


class Progress:
    """Reports a sweep on `console`; the bar shows only on a terminal."""

    def __init__(self, console: Console = stderr) -> None:
        self._console = console
        self._done = 0
        self._total = 0

    def note(self, text: str) -> None:
        # A terminal that was closed must not cost the rows that are still to come. rich leaves
        # by SystemExit when a pipe is broken.
        with contextlib.suppress(OSError, SystemExit):
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
    """Within, Ctrl-C asks the sweep to stop after the case in hand; a second one stops now, and
    so do SIGTERM and the SIGHUP of a terminal that closes, unless nohup ignores that."""
    stopped: list[bool] = []

    def on_interrupt(_signal: int, _frame: object) -> None:
        if stopped:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            raise KeyboardInterrupt
        stopped.append(True)
        with contextlib.suppress(OSError):
            os.write(2, b"\nstopping after the case in hand; Ctrl-C again stops now\n")

    def on_end(number: int, _frame: object) -> None:
        # Once is enough: what is left is to stop the worker, close the files and say so.
        for other in ends:
            signal.signal(other, signal.SIG_IGN)
            del previous[other]
        raise KeyboardInterrupt(signal.Signals(number).name)

    ends = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    previous = {number: signal.signal(number, on_end) for number in ends}
    previous[signal.SIGINT] = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield stopped
    finally:
        if stopped:  # what is left is short, and says how to go on
            previous[signal.SIGINT] = signal.SIG_IGN
        for number, handler in previous.items():
            signal.signal(number, handler)
