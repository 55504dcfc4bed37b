"""What a sweep would run: filters, cases, contenders, and how long it should take."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .backends import implementations
from .protocol import Contender
from .registry import Registry
from .spec import BACKENDS, PEER_PACKAGES, Case, Level, OpSpec

_TERM = re.compile(r"^\s*([A-Za-z_]\w*)\s*(>=|<=|==|!=|=|>|<)\s*(\d{1,18})(?:\^(\d{1,2}))?\s*$")
_OPERATORS = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "=": lambda a, b: a == b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
}


class PlanError(Exception):
    """A filter that cannot be read or selects nothing, in one line."""


@dataclass(frozen=True)
class Filters:
    """What the user asked for; empty means all. `cases` are ANDed comparisons or name globs."""

    ops: Sequence[str] = ()
    dtypes: Sequence[str] = ()
    cases: Sequence[str] = ()
    backends: Sequence[str] = ()


@dataclass(frozen=True)
class Unit:
    """One case of one op in one dtype: what one request to the worker runs."""

    spec: OpSpec
    case: Case
    dtype: str
    contenders: tuple[Contender, ...]

    @property
    def label(self) -> str:
        return f"{self.spec.stem} {self.case.name} {self.dtype}"


def matches(case: Case, expressions: Sequence[str]) -> bool:
    """Does `case` fulfil every expression, such as "N>=4096", "M=2^13" or the glob "2^2*"?"""
    return all(
        _matches_one(case, term) for text in expressions for term in re.split(r"[,;&]", text)
    )


def _refuse_unknown_dims(expressions: Sequence[str], specs: Sequence[OpSpec]) -> None:
    """Raise PlanError for a comparison of a dimension that no case has: it would select nothing."""
    cases = [case for spec in specs for case in (*spec.bench_cases, *spec.test_cases)]
    known = dict.fromkeys(dim for case in cases for dim in case.dims)
    for term in (term for text in expressions for term in re.split(r"[,;&]", text)):
        found = _TERM.match(term)
        if found and found[1] not in known:
            raise PlanError(
                f"--case {term.strip()!r}: no case of {', '.join(spec.stem for spec in specs)} has "
                f"a dimension {found[1]!r}, wanted one of {', '.join(known)}"
            )


def _matches_one(case: Case, expression: str) -> bool:
    found = _TERM.match(expression)
    if not found:
        if any(sign in expression for sign in "<>=!"):
            raise PlanError(
                f"--case {expression!r}: not understood, wanted DIM>=NUMBER such as 'N>=4096' or "
                "'N=2^20', joined by commas, or a glob on the case's name"
            )
        return fnmatch.fnmatchcase(case.name, expression.strip())
    dim, operator, base, exponent = found.groups()
    if dim not in case.dims:
        return False
    wanted = int(base) ** int(exponent) if exponent else int(base)
    return bool(_OPERATORS[operator](case.dims[dim], wanted))


def plan(registry: Registry, filters: Filters, level: Level, tests: bool = False) -> list[Unit]:
    """The units to run, in the order of the specs; with `tests` the test cases.

    Raises PlanError when a filter names something unknown or nothing is left.
    """
    _refuse_unknown("--op", filters.ops, registry.stems)
    _refuse_unknown("--backend", filters.backends, (*BACKENDS, *PEER_PACKAGES))
    specs = [registry.spec(stem) for stem in registry.stems if stem in (filters.ops or [stem])]
    _refuse_unknown_dims(filters.cases, specs)
    known_dtypes = sorted({dtype for spec in specs for dtype in spec.dtypes})
    _refuse_unknown("--dtype", filters.dtypes, known_dtypes)
    units = [
        Unit(spec, case, dtype, _contenders(spec, case, dtype, filters, level, tests))
        for spec in specs
        for case in (spec.test_cases if tests else _selected(spec, filters, level))
        if matches(case, filters.cases)
        for dtype in spec.dtypes
        if dtype in (filters.dtypes or _dtypes(spec, case, level, tests))
    ]
    units = [unit for unit in units if unit.contenders]
    if not units:
        raise PlanError(
            f"nothing matches ops={list(filters.ops) or 'all'} "
            f"dtypes={list(filters.dtypes) or 'all'} "
            f"cases={list(filters.cases) or 'all'} "
            f"backends={list(filters.backends) or 'all'}; `python -m harness list` "
            "shows what there is"
        )
    return units


def _dtypes(spec: OpSpec, case: Case, level: Level, tests: bool) -> tuple[str, ...]:
    if level == "quick" and not tests:
        return spec.dtypes[:1]
    if tests or level == "full" or case.all_dtypes:
        return spec.dtypes
    return tuple(d for d in spec.dtypes if d not in spec.full_dtypes)


def _selected(spec: OpSpec, filters: Filters, level: Level) -> tuple[Case, ...]:
    # A --case filter is a wish for exactly those cases, whatever level they belong to.
    return spec.bench_cases if filters.cases else spec.bench_cases_at(level)


def _contenders(
    spec: OpSpec, case: Case, dtype: str, filters: Filters, level: Level, tests: bool
) -> tuple[Contender, ...]:
    if tests:
        names: tuple[str, ...] = ("cuda", "triton")
    else:
        names = implementations(spec, case, everywhere=level == "full")
        # A peer that is asked for by name and not installed gets a row that says so.
        names += tuple(p for p in spec.peers if p in filters.backends and p not in names)
        # torch.compile takes seconds a case.
        headline = level == "default" and case.level == "quick" and dtype == spec.dtypes[0]
        if not (level == "full" or headline or "compile" in filters.backends):
            names = tuple(name for name in names if name != "compile")
    with_rungs = tests or (case.baselines and case.level == "quick" and level != "quick")
    return tuple(
        contender
        for name in names
        if name in (filters.backends or names)
        for contender in (Contender(name), *(_rungs(spec, name, case, dtype) if with_rungs else ()))
    )


def _rungs(spec: OpSpec, backend: str, case: Case, dtype: str) -> Iterator[Contender]:
    for rung in spec.ladders.get(backend, ()):
        if dtype in (rung.dtypes or spec.dtypes) and spec.flops(case) <= rung.most_flops:
            yield Contender(backend, rung.name)


def _refuse_unknown(option: str, wanted: Sequence[str], known: Sequence[str]) -> None:
    for name in wanted:
        if name not in known:
            raise PlanError(f"{option} {name!r}: unknown, wanted one of {', '.join(known)}")


def estimate_s(units: Sequence[Unit], level: Level) -> float:
    """Seconds a sweep should take: means of the quick and default runs on an H200, no promise."""
    per_row = 0.33 if level == "quick" else 0.6
    present = [c for u in units for c in u.contenders if c.backend not in u.spec.absent]
    compiled = sum(contender.backend == "compile" for contender in present)
    start_and_roofs = 24.0
    return start_and_roofs + len(present) * per_row + compiled * 0.8
