"""Source text as HTML: what pygments knows of it and marks of our own, one line at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup, escape
from pygments.lexer import Lexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType

# Kind of token -> class of its span, the first that fits. What is not here has no span: names and
# blanks are most of a file.
_STYLES = (
    (Comment.Preproc, "p"),
    (Comment.PreprocFile, "p"),
    (Comment, "c"),
    (String.Doc, "c"),
    (Name.Decorator, "p"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (String, "s"),
    (Number, "m"),
    (Name.Function, "f"),
    (Name.Class, "f"),
    (Name.Builtin, "f"),
)


@dataclass(frozen=True)
class Mark:
    """Columns `start` to `end` (0-based, characters, the end excluded) of a 1-based line."""

    line: int
    start: int
    end: int
    kind: str
    title: str


def split_lines(text: str) -> list[str]:
    """Return the lines as a lexer and an editor count them: form feeds and the like end none."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")


def code_lines(text: str, lexer: Lexer, marks: Sequence[Mark] = ()) -> list[Markup]:
    """Return a line of HTML for each line of `text`, escaped, its spans closed.

    The lexer must be made with stripnl=False. Where marks overlap the narrower one shows: a mark
    is cut, never nested in another, and token spans lie inside marks. Of two marks of one place the
    kind is the first one's and the title both.
    """
    lines = split_lines(text)
    of_line: dict[int, list[Mark]] = {}
    for mark in marks:
        of_line.setdefault(mark.line, []).append(mark)
    styled = _styled(lines, lexer)
    html = [
        Markup("").join(_line(line, styles, of_line.get(number, [])))
        for number, (line, styles) in enumerate(zip(lines, styled, strict=True), 1)
    ]
    return html[:-1] if lines[-1] == "" else html


def _styled(lines: Sequence[str], lexer: Lexer) -> list[list[str]]:
    """Return for each line the class of each of its characters."""
    found: list[list[str]] = [[]]
    for kind, value in lexer.get_tokens("\n".join(lines)):
        style = _style(kind)
        for place, part in enumerate(value.split("\n")):
            if place:
                found.append([])
            found[-1] += [style] * len(part)
    # A lexer may end the text with one line feed more or less; it never changes another character.
    found = found[: len(lines)] + [[] for _ in lines[len(found) :]]
    return [
        styles if len(styles) == len(line) else [""] * len(line)
        for styles, line in zip(found, lines, strict=True)
    ]


def _style(kind: _TokenType) -> str:
    return next((style for known, style in _STYLES if kind in known), "")


def _line(line: str, styles: Sequence[str], marks: Sequence[Mark]) -> Iterator[Markup]:
    shown = _narrowest(len(line), marks)
    places = zip(line, styles, shown, strict=True)
    for mark, of_mark in groupby(places, key=lambda place: place[2]):
        inner = Markup("").join(
            _span(style, "".join(place[0] for place in run))
            for style, run in groupby(of_mark, key=lambda place: place[1])
        )
        if mark is None:
            yield inner
        else:
            opened = Markup('<mark class="{}" title="{}">').format(*mark)
            yield opened + inner + Markup("</mark>")


def _span(style: str, text: str) -> Markup:
    return Markup('<span class="{}">{}</span>').format(style, text) if style else escape(text)


def _narrowest(length: int, marks: Sequence[Mark]) -> list[tuple[str, str] | None]:
    """Return (kind, title) of the mark that shows at each character."""
    by_place: dict[tuple[int, int], list[Mark]] = {}
    for mark in marks:
        place = (max(mark.start, 0), min(mark.end, length))
        if place[0] < place[1]:
            by_place.setdefault(place, []).append(mark)
    shown: list[tuple[str, str] | None] = [None] * length
    # Wide ones first, so that narrower ones write over them.
    for (start, end), same in sorted(by_place.items(), key=lambda item: item[0][0] - item[0][1]):
        titles = dict.fromkeys(mark.title for mark in same)
        shown[start:end] = [(same[0].kind, "; ".join(titles))] * (end - start)
    return shown
