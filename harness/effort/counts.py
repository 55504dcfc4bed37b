"""Counts of what was written, per pair, side and scope. docs/productivity.md has the rules.

Tokens, lines and concepts come from tree-sitter on both sides, the cyclomatic number (CCN) and
Halstead's volume from lizard on both sides: one tool in one version for a column.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import lizard

from harness.registry import REPOSITORY, Registry

from .closure import MissingSideError, reached
from .syntax import SyntaxNotReadError
from .units import Unit, read, read_text

TOOLS = ("lizard", "tree-sitter", "tree-sitter-cuda", "tree-sitter-python")


@dataclass(frozen=True)
class Counts:
    """Sums over the functions, types and constants of a scope.

    ccn and halstead_volume (bits) sum over functions, lambdas belong to the one around them;
    ccn_max is the largest of one function. `concepts` are ids of concepts.py.
    """

    tokens: int
    lines: int
    ccn: int
    ccn_max: int
    functions: int
    halstead_volume: float
    concepts: frozenset[str]
    concept_uses: int

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.tokens + other.tokens,
            self.lines + other.lines,
            self.ccn + other.ccn,
            max(self.ccn_max, other.ccn_max),
            self.functions + other.functions,
            self.halstead_volume + other.halstead_volume,
            self.concepts | other.concepts,
            self.concept_uses + other.concept_uses,
        )


NOTHING = Counts(0, 0, 0, 0, 0, 0.0, frozenset(), 0)


@dataclass(frozen=True)
class Effort:
    """One side of a pair. Counts are None where `missing` says why; knobs and configurations are
    None where the op's spec does not tell.

    `rung` is "" for the headline. `shared` is what other ops reach too, `shared_device` and
    `shared_host` its parts; `build` is the same for all ops of a side. `knobs` are the names that
    the tuning search sets, `configurations` how many distinct ones it tries over all bench cases.
    """

    op: str
    side: str
    rung: str
    device: Counts | None
    host: Counts | None
    build: Counts | None
    shared: Counts | None
    knobs: int | None
    configurations: int | None
    missing: str
    problems: tuple[str, ...]
    shared_device: Counts | None = None
    shared_host: Counts | None = None

    @property
    def own(self) -> Counts | None:
        """Device code and host glue of this op alone."""
        if self.device is None or self.host is None:
            return None
        return self.device + self.host

    @property
    def device_whole(self) -> Counts | None:
        """The op's device code and what it reaches of others'."""
        if self.device is None or self.shared_device is None:
            return None
        return self.device + self.shared_device

    @property
    def whole(self) -> Counts | None:
        """All that the op reaches but the build."""
        return None if self.own is None or self.shared is None else self.own + self.shared


def versions() -> dict[str, str]:
    return {tool: metadata.version(tool) for tool in TOOLS}


def effort_of(registry: Registry, op: str, side: str, rung: str = "") -> Effort:
    """Count one side of an op, or a rung of its ladder. Raises nothing for sources that are
    missing or broken: `missing` says so."""
    knobs, configurations = (None, None) if rung else _tuning(registry, op, side)
    try:
        found = reached(registry, op, side, rung)
        built = build(side)
    except (MissingSideError, SyntaxNotReadError) as error:
        return Effort(op, side, rung, None, None, None, None, knobs, configurations, str(error), ())
    problems: dict[str, None] = dict.fromkeys(found.problems)
    if built is None:
        problems["setup.py: not beside the package, so the build is not counted"] = None
    device, host, shared_device, shared_host = (
        _count(units, side, problems)
        for units in (found.device, found.host, found.shared_device, found.shared_host)
    )
    return Effort(
        op,
        side,
        rung,
        device,
        host,
        built,
        shared_device + shared_host,
        knobs,
        configurations,
        "",
        tuple(problems),
        shared_device,
        shared_host,
    )


def build(side: str) -> Counts | None:
    """What the build of a side takes: setup.py for CUDA, None where it is not in this checkout.
    Triton compiles itself: nothing."""
    if side == "triton":
        return NOTHING
    if not (REPOSITORY / "setup.py").is_file():
        return None
    script = read(REPOSITORY / "setup.py", "triton", "setup.py")
    counts = _count(script.units, "triton", {})
    # A Python file of the CUDA side: Triton's concepts do not occur in it, CUDA's are not sought.
    return Counts(**{**counts.__dict__, "concepts": frozenset(), "concept_uses": 0})


def count_text(text: str, side: str) -> Counts:
    """All that a text holds, whatever its scope. Raises SyntaxNotReadError."""
    source = read_text(Path(f"text.{'cu' if side == 'cuda' else 'py'}"), text, side, "text")
    return _count(source.units, side, {})


def _count(units: Iterable[Unit], side: str, problems: dict[str, None]) -> Counts:
    tokens = functions = uses = ccn = ccn_max = 0
    volume = 0.0
    lines: set[tuple[str, int]] = set()
    concepts: set[str] = set()
    for unit in units:
        tokens += unit.tokens
        lines |= {(str(unit.file), line) for line in unit.lines}
        concepts |= {use.concept for use in unit.concepts}
        uses += len(unit.concepts)
        for text in unit.functions:
            measured = _measure(text, side)
            if measured is None:
                name = ", ".join(sorted(unit.names)) or "a function"
                problems[f"{unit.file.name}: lizard does not see {name}; no CCN of it"] = None
                continue
            count, total, largest, of_text = measured
            functions += count
            ccn += total
            ccn_max = max(ccn_max, largest)
            volume += of_text
    return Counts(tokens, len(lines), ccn, ccn_max, functions, volume, frozenset(concepts), uses)


@functools.lru_cache(maxsize=4096)
def _measure(text: str, side: str) -> tuple[int, int, int, float] | None:
    """(functions, sum and largest of their CCN, sum of their volumes) of one function's text.

    By name, since lizard chooses its reader by that and has none for .cu.
    """
    analyzer = lizard.FileAnalyzer(lizard.get_extensions(["halstead"]))
    found = analyzer.analyze_source_code("f.cpp" if side == "cuda" else "f.py", text).function_list
    if not found:
        return None
    numbers = [function.cyclomatic_complexity for function in found]
    return (
        len(found),
        sum(numbers),
        max(numbers),
        float(sum(function.halstead_volume for function in found)),
    )


def _tuning(registry: Registry, op: str, side: str) -> tuple[int | None, int | None]:
    """(knobs, distinct configurations) that `tune` would try on this side's bench cases.

    Specs import torch in their functions only, so this needs none; a spec of another root that
    cannot be read here leaves both unknown.
    """
    try:
        spec = registry.spec(op)
        grid = spec.tuning.get(side)
        if grid is None:
            return 0, 0
        found = [
            config
            for case in spec.bench_cases
            for dtype in spec.dtypes
            for config in grid(case, dtype)
        ]
    except Exception:
        return None, None
    distinct = {tuple(sorted(config.items())) for config in found}
    return len({name for config in found for name in config}), len(distinct)
