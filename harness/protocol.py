"""What parent and worker say to each other: one JSON object a line.

The parent sends a request for one case; the worker answers with events and ends with "done".
A worker that dies leaves the last "stage" event to tell whose fault it was.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from dataclasses import asdict, dataclass, field
from typing import IO, Any

from .spec import Config


@dataclass(frozen=True)
class Contender:
    """An implementation to run; `config` None takes the tuned one.

    Backend and variant identify it: they alone are hashed and compared.
    """

    backend: str
    variant: str = ""
    config: Config | None = field(default=None, compare=False)

    @property
    def label(self) -> str:
        return f"{self.backend}:{self.variant}" if self.variant else self.backend


@dataclass(frozen=True)
class Request:
    """One case of one op, all contenders in one process.

    `dims` and `layout` name the case; `timed` False only checks. `settings` names the
    measuring effort in measure.SETTINGS, `flush` the L2's state in schema.FLUSHES. `explain`
    asks for the numbers behind each verdict, as the row's "explanation": no column of a run.
    """

    op: str
    dims: dict[str, int]
    layout: str
    dtype: str
    contenders: tuple[Contender, ...]
    seed: int
    timed: bool = True
    settings: str = "default"
    flush: str = "clean"
    kernels: tuple[str, ...] = field(default_factory=tuple)
    explain: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Request:
        contenders = tuple(Contender(**contender) for contender in data["contenders"])
        return cls(**(data | {"contenders": contenders, "kernels": tuple(data["kernels"])}))


def one_line(error: BaseException) -> str:
    """The error's type and the first line of its text: what fits a row's reason."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else 'no message'}"


WAIT_VARIABLE = "CVT_WAIT"


def wait_until_wanted() -> None:
    """In a worker that was started ahead of its turn: import what takes seconds, then wait for a
    line on standard input. The GPU is not touched before; somebody else may be timing on it."""
    if os.environ.get(WAIT_VARIABLE) and not sys.stdin.readline():
        sys.exit(0)  # the parent is gone


_PR_SET_PDEATHSIG = 1


def open_answers() -> IO[str]:
    """The worker's channel to its parent; called once, first.

    From then on standard output goes to standard error: a kernel's printf must not end up
    between the answers. And a parent that is killed must not leave a worker behind on the GPU
    (Linux, prctl(2)).
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have been killed before: then the other end of standard input is closed already, and
    # nothing was asked.
    parent = select.poll()
    parent.register(0, select.POLLIN)
    if any(event & select.POLLHUP and not event & select.POLLIN for _, event in parent.poll(0)):
        sys.exit(0)
    return answers
