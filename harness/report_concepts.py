"""The concepts that both sources of an op name, aligned by aspect, and where each stands.

The list and the search are effort's; where tree-sitter is not installed there is none of this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.effort.concepts import ASPECTS, Use, concepts
from harness.report_code import Mark
from harness.sides import SIDES

MAX_PLACES = 4  # links of one concept; the sources have all
COMPILERS = "nothing: the compiler's work"
UNUSED = "not used here"
# One letter an aspect, for margins and legends: a colour alone is not read by everybody.
KEYS = {aspect: chr(ord("A") + place) for place, aspect in enumerate(ASPECTS)}


@dataclass(frozen=True)
class Place:
    """A line of a source: `file` is "" for the side's own, `anchor` is its id in the page."""

    file: str
    line: int
    anchor: str


@dataclass(frozen=True)
class Named:
    """A concept that one side names: where first, and in how many further lines."""

    name: str
    places: list[Place]
    more: int

    def by_file(self) -> list[tuple[str, list[Place]]]:
        """The places of each file, in order."""
        return [(file, list(same)) for file, same in groupby(self.places, lambda p: p.file)]


@dataclass(frozen=True)
class Aspect:
    """A line of the legend: each side's concepts, or the words for a side that has none."""

    key: str
    kind: str
    name: str
    named: dict[str, list[Named]]
    without: dict[str, str]

    def places(self) -> Iterator[Place]:
        """All places that the line links to."""
        for concepts_of_side in self.named.values():
            for concept in concepts_of_side:
                yield from concept.places


def uses_of(text: str, side: str) -> list[Use]:
    """Return all uses in a text. Raises ImportError where tree-sitter is not installed."""
    from harness.effort.concepts import uses

    return uses(text, side)


def kind_of(aspect: str) -> str:
    """Return the CSS class that has the aspect's colour."""
    return f"a{ASPECTS.index(aspect)}"


def marks(uses: Sequence[Use], side: str) -> list[Mark]:
    """Return what is highlighted for these uses."""
    known = {concept.id: concept for concept in concepts(side)}
    return [
        Mark(
            use.line,
            use.column,
            use.end_column,
            kind_of(known[use.concept].aspect),
            f"{known[use.concept].aspect}: {known[use.concept].name}",
        )
        for use in uses
    ]


def keys_of_lines(uses: Sequence[Use], side: str) -> dict[int, str]:
    """Return for each line with a use the letters of its aspects, in their order."""
    aspect = {concept.id: concept.aspect for concept in concepts(side)}
    found: dict[int, set[str]] = {}
    for use in uses:
        found.setdefault(use.line, set()).add(KEYS[aspect[use.concept]])
    return {line: "".join(sorted(letters)) for line, letters in found.items()}


def legend(uses: Mapping[str, Sequence[tuple[Use, Place]]]) -> list[Aspect]:
    """Return a line for each aspect that a side names; a side that is not in `uses` is not shown,
    so nothing is said of it."""
    found = []
    for aspect in ASPECTS:
        named = {side: _named(uses.get(side, ()), side, aspect) for side in SIDES}
        if any(named.values()):
            without = {side: _without(side, aspect, side in uses) for side in SIDES}
            found.append(Aspect(KEYS[aspect], kind_of(aspect), aspect, named, without))
    return found


def unnamed(lines: Sequence[Aspect]) -> list[str]:
    """Return the aspects that no side names."""
    named = {line.name for line in lines}
    return [aspect for aspect in ASPECTS if aspect not in named]


def _named(uses: Sequence[tuple[Use, Place]], side: str, aspect: str) -> list[Named]:
    found = []
    for concept in concepts(side):
        if concept.aspect != aspect:
            continue
        places = list(dict.fromkeys(place for use, place in uses if use.concept == concept.id))
        if places:
            shown = places[:MAX_PLACES]
            found.append(Named(concept.name, shown, len(places) - len(shown)))
    return found


def _without(side: str, aspect: str, shown: bool) -> str:
    """The words for a side without a use: a language that has no word for it leaves it to its
    compiler; one that has a word did not use it."""
    if not shown:
        return "its source is not shown"
    has_words = any(concept.aspect == aspect for concept in concepts(side))
    return COMPILERS if side == "triton" and not has_words else UNUSED
