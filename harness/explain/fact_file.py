"""Files of facts as they are read: a run's facts.json, and what `explain --json` wrote.

Whatever is damaged in one becomes an ExplainError that names the file, the place and the fault.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..schema import KEY
from .facts import ExplainError, KernelFacts, Launch, kernel_from_json, launch_from_json
from .typed import MisfitError, member, shown

FACTS_NAME = "facts.json"
SCHEMA = "1.0"


@dataclass(frozen=True)
class FactFile:
    """kernels: by hash. rows: by row_key, as they stand in a run's file. variants: of `explain
    --json`, None in a run's file; arch: the GPU that it was asked for."""

    path: Path
    kernels: dict[str, KernelFacts] = field(default_factory=dict)
    rows: dict[str, Any] = field(default_factory=dict)
    variants: list[Any] | None = None
    arch: str = ""
    tools: dict[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class TimedLaunch:
    """One kernel of a call, as it was launched. occupancy: share of an SM's warps. waves: how often
    its blocks fill the card; both None where unknown."""

    name: str
    launch: Launch
    kernel: KernelFacts | None = None
    occupancy: float | None = None
    limiter: str = ""
    waves: float | None = None

    @property
    def function(self) -> str:
        """The kernel's name in its source."""
        return self.name.partition("<")[0]

    @property
    def n_blocks(self) -> int | None:
        return math.prod(self.launch.grid) if self.launch.grid else None

    @property
    def shared_bytes(self) -> int | None:
        """A block's, static and dynamic, without what the driver reserves; None when unknown."""
        known = (self.launch.static_shared_bytes, self.launch.dynamic_shared_bytes)
        return None if None in known else sum(n for n in known if n is not None)


def row_key(row: Mapping[str, Any]) -> str:
    """The columns of schema.KEY joined by `/`: what names a row in facts.json."""
    return "/".join(str(row.get(column) or "") for column in KEY)


def read(path: Path) -> FactFile:
    """Read either kind of file, every kernel checked. Raises ExplainError for anything else."""
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ExplainError(f"{path}: cannot be read ({error.strerror}); want facts") from None
    except (ValueError, RecursionError) as error:
        what = "it is empty" if not path.stat().st_size else f"no JSON: {_first_line(error)}"
        raise ExplainError(f"{path}: cannot be read as facts ({what}); write it again") from None
    try:
        return _checked(path, data)
    except (ExplainError, MisfitError) as error:
        raise ExplainError(f"{path}: cannot be read as facts ({error}); write it again") from None


def _checked(path: Path, data: Any) -> FactFile:
    version = str(member(data, "schema", object))
    if version.split(".")[0] != SCHEMA.split(".")[0]:
        raise ExplainError(f"schema {version}, this harness knows {SCHEMA}")
    kernels = {}
    for name, entry in member(data, "kernels", dict).items():
        kernels[name] = kernel_from_json(_object(entry, f"kernel {name}"))
    problems = member(data, "problems", list, [])
    return FactFile(
        path,
        kernels,
        member(data, "rows", dict, {}),
        member(data, "variants", list) if "variants" in data else None,
        member(data, "arch", str, ""),
        member(data, "tools", dict, {}),
        tuple(str(problem) for problem in problems),
    )


def launches_of(entry: Any, kernels: Mapping[str, KernelFacts]) -> tuple[TimedLaunch, ...]:
    """The launches of a row's entry. Raises ExplainError for what is none."""
    try:
        launches = member(entry, "launches", list)
        return tuple(_launch(_object(data, "a launch"), kernels) for data in launches)
    except MisfitError as error:
        raise ExplainError(str(error)) from None


def variant_of(
    entry: Any, kernels: Mapping[str, KernelFacts]
) -> tuple[KernelFacts, Launch | None, list[str]]:
    """(kernel, launch, labels of its cases) of one of `variants`. Raises ExplainError."""
    try:
        name = member(entry, "hash", str)
        launch = launch_from_json(_object(entry["launch"], "launch")) if "launch" in entry else None
        cases = [str(case) for case in member(entry, "cases", list, [])]
        for fact in ("side", "name"):
            member(entry, fact, str)
    except MisfitError as error:
        raise ExplainError(str(error)) from None
    if name not in kernels:
        raise ExplainError(f"its hash {name!r} is not among the file's kernels")
    return kernels[name], launch, cases


def _launch(data: dict[str, Any], kernels: Mapping[str, KernelFacts]) -> TimedLaunch:
    launch = launch_from_json(data)
    return TimedLaunch(
        str(data.get("name") or launch.symbol),
        launch,
        kernels.get(launch.hash),
        _number(data.get("occupancy")),
        str(data.get("limiter") or ""),
        _number(data.get("waves")),
    )


def _object(data: Any, what: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise MisfitError(f"{what} is {shown(data)}, want an object")
    return data


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
