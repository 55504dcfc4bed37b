"""How wide a text is, before anything is drawn: texts are cut or wrapped to the room they have."""

from __future__ import annotations

from functools import lru_cache

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

_ELLIPSIS = "…"
_HINTING = 1.04  # pixels round each letter's width: at 7 points a line comes out wider


@lru_cache(maxsize=20_000)
def width_of(text: str, size_pt: float, bold: bool = False) -> float:
    """Return the text's width in inches, in the bundled font: at least what is drawn."""
    font = FontProperties(family="DejaVu Sans", size=size_pt, weight="bold" if bold else "normal")
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72.0 * _HINTING


def fit(text: str, room: float, size_pt: float, bold: bool = False) -> str:
    """Return the text, its middle cut out where it is wider than `room` inches.

    Names of one family begin alike and differ at their ends, so both ends stay.
    """
    if width_of(text, size_pt, bold) <= room:
        return text
    short, long = 0, len(text)
    while short < long:
        kept = (short + long + 1) // 2
        if width_of(_cut(text, kept), size_pt, bold) <= room:
            short = kept
        else:
            long = kept - 1
    return _cut(text, short)


def widest(texts: list[str], size_pt: float) -> float:
    """Return the width of the widest text in inches, 0 without texts."""
    return max((width_of(text, size_pt) for text in texts), default=0.0)


def wrap(text: str, room: float, size_pt: float) -> list[str]:
    """Return the text in lines no wider than `room` inches; a longer word is cut."""
    lines = [""]
    for word in text.split():
        piece = fit(word, room, size_pt)
        longer = f"{lines[-1]} {piece}" if lines[-1] else piece
        if width_of(longer, size_pt) <= room:
            lines[-1] = longer
        else:
            lines.append(piece)
    return lines


def _cut(text: str, kept: int) -> str:
    tail = kept // 2
    return text[: kept - tail] + _ELLIPSIS + (text[-tail:] if tail else "")
