"""Two files of facts against each other: two builds, two compilers, two Triton versions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .book import read
from .facts import KernelFacts

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


@dataclass
class Differences:
    """By variant: fact -> (old, new). recompiled: same facts, other machine code."""

    changed: dict[str, dict[str, tuple[Any, Any]]] = field(default_factory=dict)
    recompiled: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    same: int = 0

    def as_json(self) -> dict[str, Any]:
        return dict(vars(self))


def entries(path: Path) -> dict[str, dict[str, Any]]:
    """Variant -> flat facts, from `explain --json` or a run's facts.json.

    Raises ExplainError for a file that holds neither.
    """
    data, kernels, rows = read(path)
    found: dict[str, dict[str, Any]] = {}
    for variant in data.get("variants", []):
        launch = variant.get("launch", {})
        for case in variant.get("cases") or [""]:
            label = " ".join(filter(None, (variant["side"], variant["name"], case)))
            found[label] = _flat(kernels[variant["hash"]], launch, variant)
    for key, row in rows.items():
        for i, launch in enumerate(row.get("launches", [])):
            kernel = kernels.get(launch.get("hash", ""))
            if kernel is not None:
                found[f"{key} [{i}]"] = _flat(kernel, launch, launch)
    return found


def _flat(
    kernel: KernelFacts, launch: Mapping[str, Any], derived: Mapping[str, Any]
) -> dict[str, Any]:
    facts = {name: getattr(kernel, name) for name in _COMPARED} | {"hash": kernel.hash}
    if kernel.instructions is not None:
        facts |= {name: getattr(kernel.instructions, name) for name in _COUNTED}
    facts |= {name: launch.get(name) for name in ("block", "grid", "dynamic_shared_bytes")}
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
    text = []
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
