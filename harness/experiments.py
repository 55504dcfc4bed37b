"""What people measured to explain a gap: harness/evidence/<gpu>.json, read and checked.

An experiment is believed for the kernels it was made with and no others, and only as far as its
own figures reach: whether they account for a gap is computed here, not claimed in the file.
docs/results-schema.md explains the file, docs/method.md what counts as confirmed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harness.machine import gpu_slug
from harness.schema import DTYPES, ResultsError
from harness.sides import SIDES

FOLDER = Path(__file__).resolve().parent / "evidence"
SCHEMA = "1.0"
KINDS = ("ablation", "counter", "open")
# Of a gap, in logarithms: a change that moves a time by much less, or by much more, is about
# something else than this gap.
LEAST_SHARE, MOST_SHARE = 0.5, 2.0

_FIELDS = {"id", "op", "cases", "dtype", "kernel_hash", "kind", "claim"}
_MEASURED = {"measured", "command", "date", "card", "source"}
_WANTED = {
    "ablation": _FIELDS | _MEASURED | {"side"},
    "counter": _FIELDS | _MEASURED | {"counter", "worse"},
    "open": _FIELDS | {"next", "source"},
}
_FIGURES = {"ablation": ("as_is_us", "changed_us"), "counter": SIDES}
_OPTIONAL = {"next"}


class EvidenceError(ResultsError):
    """The evidence cannot be used as it is; the text is one line that says where and what."""


@dataclass(frozen=True)
class Measured:
    """An experiment's figures at one case. ablation: microseconds as the kernel is and with the
    one thing changed; counter: its value on the CUDA and on the Triton side."""

    case: str
    first: float
    second: float


@dataclass(frozen=True)
class Experiment:
    """One entry of the file. kind "open": nothing measured yet, `claim` is a suspicion and `next`
    the experiment that would decide it. side: whose kernel an ablation changed. worse: whether
    "more" or "less" of a counter costs time."""

    id: str
    op: str
    cases: tuple[str, ...]
    dtype: str
    kernel_hash: Mapping[str, str]
    kind: str
    claim: str
    side: str = ""
    counter: str = ""
    worse: str = ""
    measured: tuple[Measured, ...] = ()
    command: str = ""
    date: str = ""
    card: str = ""
    source: str = ""
    next: str = ""

    def covers(self, op: str, case: str, dtype: str) -> bool:
        """Return whether the entry speaks of this pair at all, whatever the kernels' version."""
        named = any(fnmatchcase(case, pattern) for pattern in self.cases)
        return named and self.op == op and self.dtype == dtype

    def share(self, case: str, ratio: float) -> float | None:
        """Return how much of the gap `ratio` (time CUDA / Triton) the figures account for.

        In logarithms: 1 is all of it, below 0 the figures say the opposite. Of a case that was
        not measured itself, the least of those that were; None for nothing measured or no gap.
        """
        gap = abs(math.log(ratio)) if ratio > 0 else 0.0
        own = [m for m in self.measured if m.case == case] or list(self.measured)
        if not gap or not own:
            return None
        slower = "cuda" if ratio > 1 else "triton"
        return min(self._effect(m, slower) for m in own) / gap

    def _effect(self, measured: Measured, slower: str) -> float:
        """Log of how far the figures lie apart, positive where they say why `slower` is."""
        first, second = measured.first, measured.second
        if self.kind == "ablation":
            # The slower side made faster, or the faster side made slower.
            gained = math.log(first / second)
            return gained if self.side == slower else -gained
        if first == second:
            return 0.0
        apart = math.inf if 0 in (first, second) else abs(math.log(first / second))
        has_more = "cuda" if first > second else "triton"
        return apart if (has_more == slower) == (self.worse == "more") else -apart

    def confirms(self, case: str, ratio: float) -> bool:
        """Return whether the figures account for the gap, half of it at least.

        An ablation may not overshoot twice the gap either; a counter's size proves nothing.
        """
        share = self.share(case, ratio)
        most = MOST_SHARE if self.kind == "ablation" else math.inf
        return share is not None and LEAST_SHARE <= share <= most

    def holds_for(self, hashes: Mapping[str, str]) -> bool:
        """Return whether these are the kernels that it was made with, on both sides."""
        return all(self.kernel_hash[side] == hashes.get(side) for side in SIDES)


def of_gpu(name: str, folder: Path = FOLDER) -> list[Experiment]:
    """Return the experiments made on this model of GPU, [] where none are recorded."""
    path = folder / f"{gpu_slug(name)}.json"
    return read(path) if path.is_file() else []


def read(path: Path) -> list[Experiment]:
    """Return the file's entries; raises EvidenceError for anything that is not as documented."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{path}: cannot be read ({error}); mend or remove it") from None
    if not isinstance(data, dict) or set(data) != {"schema", "experiments"}:
        raise EvidenceError(f"{path}: wanted an object of schema and experiments")
    version = str(data["schema"])
    if version.split(".")[0] != SCHEMA.split(".")[0]:
        raise EvidenceError(f"{path}: schema {version}, this harness knows {SCHEMA}; update it")
    if not isinstance(data["experiments"], list):
        raise EvidenceError(f"{path}: experiments: wanted a list")
    found: dict[str, Experiment] = {}
    for place, entry in enumerate(data["experiments"]):
        where = f"{path}: experiments[{place}]"
        experiment = _experiment(entry, where)
        if experiment.id in found:
            raise EvidenceError(f"{where}: id {experiment.id!r} is taken; choose another")
        if experiment.card and gpu_slug(experiment.card) != path.stem:
            raise EvidenceError(
                f"{where}: card {experiment.card!r} belongs in {gpu_slug(experiment.card)}.json"
            )
        found[experiment.id] = experiment
    return list(found.values())


def _experiment(entry: Any, where: str) -> Experiment:
    if not isinstance(entry, dict):
        raise EvidenceError(f"{where}: wanted an object, got {entry!r}")
    kind = entry.get("kind")
    _one_of(where, "kind", kind, KINDS)
    wanted = _WANTED[str(kind)]
    missing, unknown = wanted - set(entry), set(entry) - wanted - _OPTIONAL
    if missing or unknown:
        told = [f"lacks {', '.join(sorted(missing))}"] if missing else []
        told += [f"has unknown {', '.join(sorted(unknown))}"] if unknown else []
        raise EvidenceError(f"{where}: {'; '.join(told)}; {kind} takes {', '.join(sorted(wanted))}")
    texts = {key: _text(where, key, entry[key]) for key in entry if key not in _NO_TEXT}
    _one_of(where, "dtype", texts["dtype"], DTYPES)
    if kind == "ablation":
        _one_of(where, "side", texts["side"], SIDES)
    if kind == "counter":
        _one_of(where, "worse", texts["worse"], ("more", "less"))
    if "date" in texts and not re.fullmatch(r"\d{4}-\d\d-\d\d", texts["date"]):
        raise EvidenceError(f"{where}: date: got {texts['date']!r}, wanted YYYY-MM-DD")
    hashes = entry["kernel_hash"]
    if not isinstance(hashes, dict) or set(hashes) != set(SIDES):
        raise EvidenceError(f"{where}: kernel_hash: wanted cuda and triton, as in bench.csv")
    cases = entry["cases"]
    if not isinstance(cases, list) or not cases:
        raise EvidenceError(f"{where}: cases: wanted a list of case names or globs")
    return Experiment(
        **texts,
        cases=tuple(_text(where, "cases", case) for case in cases),
        kernel_hash={s: _text(where, f"kernel_hash.{s}", hashes[s]) for s in SIDES},
        measured=_measured(where, str(kind), entry.get("measured", [])),
    )


_NO_TEXT = ("cases", "kernel_hash", "measured")


def _measured(where: str, kind: str, found: Any) -> tuple[Measured, ...]:
    if kind == "open":
        return ()
    names = _FIGURES[kind]
    wanted = f"{where}: measured: wanted a list of case, {' and '.join(names)}"
    if not isinstance(found, Sequence) or isinstance(found, str) or not found:
        raise EvidenceError(wanted)
    figures = []
    for one in found:
        if not isinstance(one, dict) or set(one) != {"case", *names}:
            raise EvidenceError(f"{wanted}; got {one!r}")
        values = [one[name] for name in names]
        least = 0.0 if kind == "counter" else 1e-6
        if not all(
            isinstance(v, int | float) and not isinstance(v, bool) and least <= v < math.inf
            for v in values
        ):
            raise EvidenceError(f"{where}: measured: {values!r} are no figures of {kind}")
        figures.append(Measured(_text(where, "case", one["case"]), *map(float, values)))
    return tuple(figures)


def _text(where: str, key: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\n" in value:
        raise EvidenceError(f"{where}: {key}: got {value!r}, wanted one line of text")
    return value


def _one_of(where: str, key: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise EvidenceError(f"{where}: {key}: got {value!r}, wanted one of {', '.join(allowed)}")
