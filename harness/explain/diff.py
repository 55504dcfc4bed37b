"""Two files of facts against each other: two builds, two compilers, two Triton versions."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..sides import SIDES
from .cubin import arch_number
from .fact_file import FACTS_NAME, FactFile, launches_of, read, variant_of
from .facts import ExplainError, KernelFacts, Launch

_COMPARED = (
    "registers",
    "stack_bytes",
    "spill_store_bytes",
    "spill_load_bytes",
    "static_shared_bytes",
)
_COUNTED = (
    "loads",
    "stores",
    "async_copy",
    "matrix",
    "barriers",
    "shuffles",
    "atomics",
    "in_flight_bytes",
)
_OF_LAUNCH = ("block", "grid", "dynamic_shared_bytes")


@dataclass
class Differences:
    """tools: of what made and read the code, name -> (old, new). By variant: fact -> (old, new).
    recompiled: same facts, other machine code."""

    tools: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    changed: dict[str, dict[str, tuple[Any, Any]]] = field(default_factory=dict)
    recompiled: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    same: int = 0

    def as_json(self) -> dict[str, Any]:
        return dict(vars(self))


def compare(old: Path, new: Path) -> Differences:
    """Raises ExplainError for what cannot be read, and for files that tell of other things."""
    files = first, second = read(_file(old)), read(_file(new))
    if (first.variants is None) != (second.variants is None):
        words = (
            f"{file.path} has {'the rows of a run' if file.variants is None else 'variants'}"
            for file in files
        )
        raise ExplainError(f"--diff: {', '.join(words)}; want two runs, or two files of --json")
    archs = [_archs(file) for file in files]
    if archs[0] != archs[1]:
        words = (f"{f.path} for sm_{', sm_'.join(a)}" for f, a in zip(files, archs, strict=True))
        raise ExplainError(f"--diff: {', '.join(words)}; want two of one arch")
    found = differences(entries(first), entries(second))
    found.tools = _tool_differences(first, second)
    return found


def _file(path: Path) -> Path:
    """The file that holds the facts of what was named."""
    if not os.path.exists(path):
        raise ExplainError(f"{path}: does not exist; want a run's folder or a file of --json")
    if not path.is_dir():
        return path
    if not (path / FACTS_NAME).is_file():
        raise ExplainError(f"{path}: holds no {FACTS_NAME}; want a run's folder that has it")
    return path / FACTS_NAME


def _archs(file: FactFile) -> list[str]:
    """Numbers of the GPUs that the facts are for: 90 and 90a are one."""
    if file.arch:
        return [file.arch]
    return sorted({str(arch_number(kernel.arch)) for kernel in file.kernels.values()})


def _tool_differences(old: FactFile, new: FactFile) -> dict[str, tuple[Any, Any]]:
    before, after = _made_with(old), _made_with(new)
    names = dict.fromkeys([*before, *after])
    both = {name: (before.get(name), after.get(name)) for name in names}
    return {name: values for name, values in both.items() if values[0] != values[1]}


def _made_with(file: FactFile) -> dict[str, Any]:
    """ "cuda nvcc" -> version, and so on; what the kernels were compiled for as well."""
    found: dict[str, Any] = {}
    for part, facts in file.tools.items():
        inner = facts if isinstance(facts, dict) else {"": facts}
        found |= {f"{part} {name}".strip(): value for name, value in inner.items()}
    for side in SIDES:
        targets = {k.arch for k in file.kernels.values() if k.side == side}
        found[f"{side} target"] = ", ".join(f"sm_{target}" for target in sorted(targets)) or None
    return found


def entries(file: FactFile) -> dict[str, dict[str, Any]]:
    """Variant, or row and number of the launch -> flat facts, from either kind of file.

    Raises ExplainError for entries that are damaged and where there is none.
    """
    found: dict[str, dict[str, Any]] = {}
    for label, part in _parts(file):
        name, number = label, 1
        while name in found:  # a case may launch one kernel several times
            number += 1
            name = f"{label} [{number}]"
        found[name] = part
    if not found:
        what = "row" if file.variants is None else "variant"
        raise ExplainError(f"{file.path}: holds no {what} with the facts of a kernel")
    return found


def _parts(file: FactFile) -> Iterator[tuple[str, dict[str, Any]]]:
    for at, variant in enumerate(file.variants or ()):
        with _place(file, f"variants[{at}]"):
            kernel, launch, cases = variant_of(variant, file.kernels)
        for case in cases or [""]:
            label = " ".join(filter(None, (kernel.side, kernel.name, case)))
            yield label, _flat(kernel, launch, variant)
    for key, row in file.rows.items():
        with _place(file, f"row {key!r}"):
            launches = launches_of(row, file.kernels)
        for at, timed in enumerate(launches):
            if timed.kernel is not None:
                yield f"{key} [{at}]", _flat(timed.kernel, timed.launch, row["launches"][at])


@contextlib.contextmanager
def _place(file: FactFile, where: str) -> Iterator[None]:
    try:
        yield
    except ExplainError as error:
        raise ExplainError(f"{file.path}: {where}: {error}; write it again") from None


def _flat(kernel: KernelFacts, launch: Launch | None, derived: Mapping[str, Any]) -> dict[str, Any]:
    facts = {name: getattr(kernel, name) for name in _COMPARED} | {"hash": kernel.hash}
    if kernel.instructions is not None:
        facts |= {name: getattr(kernel.instructions, name) for name in _COUNTED}
    facts |= {name: getattr(launch, name, None) for name in _OF_LAUNCH}
    return facts | {name: derived.get(name) for name in ("name", "occupancy", "limiter")}


def differences(
    old: Mapping[str, dict[str, Any]], new: Mapping[str, dict[str, Any]]
) -> Differences:
    """What differs between two results of `entries`, in the order of the first."""
    found = Differences(
        added=[name for name in new if name not in old],
        lost=[name for name in old if name not in new],
    )
    for name in (name for name in old if name in new):
        before, after = old[name], new[name]
        differing = {
            fact: (value, after.get(fact))
            for fact, value in before.items()
            if fact != "hash" and value != after.get(fact)
        }
        if differing:
            found.changed[name] = differing
        elif before["hash"] != after["hash"]:
            found.recompiled.append(name)
        else:
            found.same += 1
    return found


def lines(found: Differences) -> list[str]:
    """What made the code first: other tools are the likely reason for all that follows."""
    text = [f"{name}: {_text(a)} -> {_text(b)}" for name, (a, b) in found.tools.items()]
    for name, facts in found.changed.items():
        text.append(name)
        text += [f"    {fact}: {_text(a)} -> {_text(b)}" for fact, (a, b) in facts.items()]
    text += [f"only in the first: {name}" for name in found.lost]
    text += [f"only in the second: {name}" for name in found.added]
    text.append(
        f"{len(found.changed)} changed, {len(found.recompiled)} with other machine code and the "
        f"same facts, {found.same} the same, {len(found.lost)} lost, {len(found.added)} added"
    )
    return text


def _text(value: Any) -> str:
    return "unknown" if value is None else json.dumps(value)
