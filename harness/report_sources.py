"""Both sources of an op beside each other, only where they are what the run was made from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd
from markupsafe import Markup
from pygments.lexers import CudaLexer, PythonLexer

from harness import report_compiled, report_concepts
from harness.effort.concepts import Use
from harness.explain.timed import Facts
from harness.machine import source_problem
from harness.registry import Registry
from harness.report_code import code_lines, split_lines
from harness.report_concepts import Aspect, Place
from harness.sides import NAMES

_MAX_BYTES = 200_000
_LEXERS = {"cuda": CudaLexer, "triton": PythonLexer}
_FOLDERS = {"cuda": "csrc", "triton": "triton_kernels"}
NO_TREES = (
    "Concepts are not marked, and files shared with other ops not shown: tree-sitter is not "
    'installed here. pip install "cuda-vs-triton[effort]", then write the report again.'
)


@dataclass(frozen=True)
class Line:
    """A line of HTML, the letters of the aspects in it, and its anchor where a link goes to it."""

    html: Markup
    keys: str = ""
    anchor: str = ""


@dataclass(frozen=True)
class Part:
    """A stretch of a file; `before`: how many lines stand before it there."""

    before: int
    lines: list[Line]


@dataclass(frozen=True)
class File:
    """A file: the whole of it, or of a shared one the parts that the kernel reaches by name."""

    path: str
    n_lines: int
    parts: list[Part]

    @property
    def n_shown(self) -> int:
        return sum(len(part.lines) for part in self.parts)


@dataclass(frozen=True)
class Source:
    """One side: its files, its own first, their hash as in the rows, and what became of them."""

    side: str
    digest: str
    files: list[File]
    compiled: str


@dataclass(frozen=True)
class Sources:
    """Both sides. missing: a line for each that is not shown. legend: a line an aspect that a side
    names, `unnamed` the others; both empty where `unmarked` says why."""

    found: list[Source] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    legend: list[Aspect] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    unmarked: str = ""

    def anchors(self) -> dict[str, str]:
        """Return path:line -> id of every line that a link can go to."""
        return {
            f"{file.path}:{part.before + place}": line.anchor
            for source in self.found
            for file in source.files
            for part in file.parts
            for place, line in enumerate(part.lines, 1)
            if line.anchor
        }


@dataclass(frozen=True)
class _Text:
    """A file as read: its text, the (first, last) lines that are shown, the uses in these."""

    path: str
    text: str
    stretches: Sequence[tuple[int, int]]
    uses: Sequence[Use]

    @property
    def n_shown(self) -> int:
        return sum(last - first + 1 for first, last in self.stretches)


class _UnreadError(Exception):
    """A source whose tree cannot be made, in one line."""


def sources(
    rows: pd.DataFrame,
    op: str,
    registry: Registry,
    anchor: str,
    facts: Facts,
    wanted: Collection[str] = (),
) -> Sources:
    """Return the sources that the op's rows were made from; anchor: the id of its section. wanted:
    further lines that links go to, as path:line."""
    headline = rows[rows["variant"] == ""]  # a rung of a ladder has a file of its own
    texts: dict[str, list[_Text]] = {}
    digests: dict[str, str] = {}
    missing: list[str] = []
    unmarked = ""
    for side, name in NAMES.items():
        hashes = {h for h in headline.loc[headline["backend"] == side, "kernel_hash"] if h}
        if not hashes:
            continue
        if problem := source_problem(registry, op, side, hashes):
            missing.append(f"{name}: {problem}.")
            continue
        files = registry.kernel_files(op, side)
        if files[0].stat().st_size > _MAX_BYTES:
            missing.append(f"{name}: {files[0].name} is too large to be shown here.")
        else:
            digests[side] = hashes.pop()
            try:
                texts[side] = _texts(registry, op, side, files)
            except ImportError:
                texts[side], unmarked = [_own(side, files[0])], NO_TREES
            except _UnreadError as error:
                texts[side], unmarked = [_own(side, files[0])], f"Concepts are not marked: {error}."
    if unmarked:  # half a legend would say of one side what it does not know
        texts = {side: [replace(of_side[0], uses=[])] for side, of_side in texts.items()}
    legend = [] if unmarked else _legend(texts, anchor)
    linked = {place.anchor for line in legend for place in line.places()}
    found = [
        Source(
            NAMES[side],
            digests[side],
            [
                _file(each, side, f"{anchor}-{side}{at}", linked, wanted)
                for at, each in enumerate(of_side)
            ],
            report_compiled.sentence(headline[headline["backend"] == side], facts),
        )
        for side, of_side in texts.items()
    ]
    unnamed = report_concepts.unnamed(legend) if found and not unmarked else []
    return Sources(found, missing, legend, unnamed, unmarked if found else "")


def _own(side: str, file: Path) -> _Text:
    text = _read(file)
    return _Text(_path(side, file), text, [(1, _n_lines(text))], [])


def _texts(registry: Registry, op: str, side: str, files: Sequence[Path]) -> list[_Text]:
    """The own file and what it reaches of shared ones, with their uses of concepts: of the same
    units as effort counts. Raises ImportError where tree-sitter is not installed and
    _UnreadError for a source that does not parse."""
    from harness.effort.closure import MissingSideError, reached

    try:
        found = reached(registry, op, side)
    except MissingSideError as error:
        raise _UnreadError(str(error)) from None
    units = (*found.device, *found.host, *found.shared_device, *found.shared_host)
    own = _own(side, files[0])
    texts = [_Text(own.path, own.text, own.stretches, report_concepts.uses_of(own.text, side))]
    for file in files[1:]:
        text = _read(file)
        lines = [(min(u.lines), max(u.lines)) for u in units if u.file == file and u.lines]
        if lines:
            uses = [use for unit in units if unit.file == file for use in unit.concepts]
            uses.sort(key=lambda use: (use.line, use.column))
            texts.append(_Text(_path(side, file), text, _stretches(lines, text, side), uses))
    # What holds most of the kernel first, so that both sides' main helpers stand side by side.
    return [texts[0], *sorted(texts[1:], key=lambda each: -each.n_shown)]


def _stretches(found: Sequence[tuple[int, int]], text: str, side: str) -> list[tuple[int, int]]:
    """Lines of definitions, each with the comment right above it, in order; those with two lines
    between them at most are one stretch."""
    comment = "//" if side == "cuda" else "#"
    lines = text.split("\n")
    joined: list[tuple[int, int]] = []
    for first, last in sorted(found):
        while first > 1 and lines[first - 2].lstrip().startswith(comment):
            first -= 1
        if joined and first <= joined[-1][1] + 3:
            before = joined.pop()
            first, last = before[0], max(last, before[1])
        joined.append((first, last))
    return joined


def _legend(texts: Mapping[str, Sequence[_Text]], anchor: str) -> list[Aspect]:
    uses: dict[str, list[tuple[Use, Place]]] = {}
    for side, of_side in texts.items():
        uses[side] = []
        for at, each in enumerate(of_side):
            shared = Path(each.path).name if at else ""
            uses[side] += [
                (use, Place(shared, use.line, f"{anchor}-{side}{at}-{use.line}"))
                for use in each.uses
            ]
    return report_concepts.legend(uses)


def _file(each: _Text, side: str, anchor: str, linked: set[str], wanted: Collection[str]) -> File:
    marks = report_concepts.marks(each.uses, side)
    html = code_lines(each.text, _LEXERS[side](stripnl=False), marks)
    keys = report_concepts.keys_of_lines(each.uses, side)

    def line(number: int) -> Line:
        target = f"{anchor}-{number}"
        is_linked = target in linked or f"{each.path}:{number}" in wanted
        return Line(html[number - 1], keys.get(number, ""), target if is_linked else "")

    parts = [
        Part(first - 1, [line(n) for n in range(first, min(last, len(html)) + 1)])
        for first, last in each.stretches
    ]
    return File(each.path, len(html), parts)


def _read(file: Path) -> str:
    return "\n".join(split_lines(file.read_text(encoding="utf-8", errors="replace")))


def _n_lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _path(side: str, file: Path) -> str:
    """From the folder of its side on: a path of this machine tells nothing."""
    return f"{_FOLDERS[side]}/{'common/' if file.suffix == '.cuh' else ''}{file.name}"
