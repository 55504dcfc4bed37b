"""What parent and worker say to each other: one JSON object a line.

The parent sends a request for one case; the worker answers with events and ends with "done".
A worker that dies leaves the last "stage" event to tell whose fault it was.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

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
    measuring effort, "quick" or "default".
    """

    op: str
    dims: dict[str, int]
    layout: str
    dtype: str
    contenders: tuple[Contender, ...]
    seed: int
    timed: bool = True
    settings: str = "default"
    kernels: tuple[str, ...] = field(default_factory=tuple)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Request:
        contenders = tuple(Contender(**contender) for contender in data["contenders"])
        return cls(**(data | {"contenders": contenders, "kernels": tuple(data["kernels"])}))
