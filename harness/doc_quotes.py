"""Lines of this repository that the documents quote: do they still stand where a document says?

`python -m harness.doc_quotes` names every quote that does not; `--write` puts right the numbers of
lines that only moved, and the tables made of the reference run (doc_facts.py,
doc_ladders.py). What a line says is
never written: the sentence beside it was about the old words, so a person must look.

A quote is a link to a line with the words that the line holds behind it, or a link to a range that
stands alone above a code block:

    [stream.cuh:170](../csrc/common/stream.cuh#L170) `const int64_t first =`
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .doc_facts import FactsError, with_facts
from .doc_ladders import with_ladders
from .registry import REPOSITORY
from .run_repair import write_atomically

_LINK = (
    r"\[(?P<name>[^\]\n]*?)(?::[\d-]+)?\]\((?P<path>[^)#\s]+)#L(?P<first>\d+)(?:-L(?P<last>\d+))?\)"
)
# Words first: a link above a block has none behind it.
_QUOTE = re.compile(
    _LINK + r"(?:[ ]`(?P<words>[^`\n]+)`|\n+(?P<fence>```+)[^\n]*\n(?P<block>.*?)\n(?P=fence)$)?",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Quote:
    """What a document says of one file. `at`: the document's line; `first`, `last`: the file's,
    all counted from 1; `words`: what they hold, without a block's common indentation."""

    at: int
    path: str
    first: int
    last: int
    words: str
    is_block: bool


def quotes(text: str) -> list[Quote]:
    """Return all quotes of a document in their order."""
    return [_quote(text, match) for match in _QUOTE.finditer(text)]


def _quote(text: str, match: re.Match[str]) -> Quote:
    block = match["block"]
    first = int(match["first"])
    # In a table a bar ends a cell, so it is written with a backslash.
    words = (match["words"] or "").replace("\\|", "|") if block is None else textwrap.dedent(block)
    at = text.count("\n", 0, match.start()) + 1
    return Quote(at, match["path"], first, int(match["last"] or first), words, block is not None)


def found_at(quote: Quote, lines: Sequence[str]) -> list[int]:
    """Return each line, counted from 1, at which the quote stands in a file of `lines`."""
    if not quote.is_block:
        return [n for n, line in enumerate(lines, 1) if quote.words in line]
    length = quote.words.count("\n") + 1
    return [
        n + 1
        for n in range(len(lines) - length + 1)
        if textwrap.dedent("\n".join(lines[n : n + length])) == quote.words
    ]


def problem(quote: Quote, document: Path) -> str:
    """Return what is wrong with a quote and what to do, in one line; "" where nothing is."""
    say = f"{document.name}:{quote.at}: {quote.path}#L{quote.first}"
    file = document.parent / quote.path
    if not file.is_file():
        return f"{say}: no such file; name the one that has it now"
    if not quote.words.strip():
        return f"{say}: nothing says what the line holds; put its words in `` behind the link"
    places = found_at(quote, file.read_text(encoding="utf-8").splitlines())
    shown = quote.words.strip().splitlines()[0]
    if not places:
        return f"{say}: no line is {shown!r} any more; quote what is there, and read what is said"
    if len(places) > 1:
        at = ", ".join(map(str, places))
        return f"{say}: {shown!r} is on the lines {at}; quote more of the line that is meant"
    last = places[0] + (quote.words.count("\n") if quote.is_block else 0)
    if (quote.first, quote.last) != (places[0], last):
        return (
            f"{say}: {shown!r} is on line {places[0]} now; "
            "`python -m harness.doc_quotes --write` moves the link"
        )
    return ""


def moved(document: Path) -> str:
    """Return the document's text with the numbers of lines that only moved put right."""

    def put_right(match: re.Match[str]) -> str:
        quote = _quote(text, match)
        file = document.parent / quote.path
        if not file.is_file() or not quote.words.strip():
            return match[0]
        places = found_at(quote, file.read_text(encoding="utf-8").splitlines())
        if len(places) != 1:
            return match[0]
        first, last = places[0], places[0] + (quote.words.count("\n") if quote.is_block else 0)
        numbers = (f"{first}", f"L{first}")
        if last > first:
            numbers = (f"{first}-{last}", f"L{first}-L{last}")
        rest = match[0].partition(")")[2]
        return f"[{match['name']}:{numbers[0]}]({match['path']}#{numbers[1]}){rest}"

    text = document.read_text(encoding="utf-8")
    return _QUOTE.sub(put_right, text)


def with_tables(text: str) -> str:
    """Return the document with all of its tables made anew. Raises FactsError."""
    return with_ladders(with_facts(text))


def problems(document: Path) -> list[str]:
    """Return a line for each quote and each table that is no longer so, [] where all stand."""
    text = document.read_text(encoding="utf-8")
    found = [line for quote in quotes(text) if (line := problem(quote, document))]
    if not found and moved(document) != text:
        found.append(
            f"{document.name}: a link's name has another line number than the link; "
            "`python -m harness.doc_quotes --write` writes it"
        )
    try:
        if with_tables(text) != text:
            found.append(
                f"{document.name}: a table is not that of the reference run; "
                "`python -m harness.doc_quotes --write` writes it"
            )
    except FactsError as error:
        found.append(f"{document.name}: {error}")
    return found


def documents() -> list[Path]:
    """Return the documents that may quote."""
    return sorted((REPOSITORY / "docs").glob("*.md"))


def write(document: Path) -> bool:
    """Put right what only moved; return whether anything did. Raises FactsError."""
    text = document.read_text(encoding="utf-8")
    new = with_tables(moved(document))
    if new != text:
        write_atomically(document, new.encode())
    return new != text


def main(arguments: Sequence[str] | None = None, say: Callable[[str], None] = print) -> int:
    """Check, or with --write put right first; 0 when every quote stands."""
    parser = argparse.ArgumentParser(prog="python -m harness.doc_quotes", description=__doc__)
    parser.add_argument("documents", nargs="*", type=Path, help="default: docs/*.md")
    parser.add_argument("--write", action="store_true", help="put right what only moved")
    options = parser.parse_args(arguments)
    left = []
    for document in options.documents or documents():
        try:
            if options.write and write(document):
                say(f"{document}: put right")
        except FactsError:
            pass  # problems() says it
        left += problems(document)
    for line in left:
        say(line)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
