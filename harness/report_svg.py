"""The drawing of a pair as inline SVG: boxes, cells and words, coloured by the page's own style."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup, escape

from harness.plot_text import fit
from harness.report_drawing import Cell, Drawing, Level, Panel

# All in the drawing's own units, which are pixels at full size.
PANEL = 460.0
GAP = 20.0
MARGIN = 8.0
PAD = 12.0
LINE = 17.0
TEXT = 12.0
TITLE = 14.0
SMALL = 9.0
CELL = 16.0
HEAD = 2 * LINE + 4
BETWEEN = 22.0  # from a level to the one below, crossed by the lines that show what is magnified


def svg(drawing: Drawing, anchor: str) -> Markup:
    """Return the drawing; `anchor` makes its ids unique in the page."""
    heights: dict[str, float] = {}  # of a scale: the same on both sides, so that scales are level
    for level in (level for panel in drawing.panels for level in panel.levels):
        heights[level.scale] = max(heights.get(level.scale, 0.0), _level_height(level))
    height = 2 * MARGIN + max(_height(panel, heights) for panel in drawing.panels)
    width = 2 * MARGIN + len(drawing.panels) * PANEL + (len(drawing.panels) - 1) * GAP
    parts = [
        Markup('<svg class="drawing" viewBox="0 0 {} {}" role="img" aria-label="{}" ').format(
            _n(width), _n(height), drawing.title
        ),
        Markup('aria-describedby="{0}-words"><desc id="{0}-words">{1}</desc>\n').format(
            anchor, drawing.words
        ),
    ]
    for place, panel in enumerate(drawing.panels):
        parts.append(Markup('<g class="d-{}">\n').format(panel.side))
        parts += _panel(panel, heights, MARGIN + place * (PANEL + GAP), MARGIN)
        parts.append(Markup("</g>\n"))
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def _height(panel: Panel, heights: Mapping[str, float]) -> float:
    between = BETWEEN * max(len(panel.levels) - 1, 0)
    return HEAD + sum(heights[level.scale] for level in panel.levels) + between


def _level_height(level: Level) -> float:
    return 2 * PAD - 4 + LINE * len(level.lines) + (CELL + 6 if level.cells else 0)


def _panel(panel: Panel, heights: Mapping[str, float], left: float, top: float) -> Iterator[Markup]:
    yield _text(left, top + TITLE, panel.title, PANEL, TITLE, "head", bold=True)
    yield _text(left, top + TITLE + LINE, panel.note, PANEL, TEXT, "soft")
    top += HEAD
    for place, level in enumerate(panel.levels):
        height = heights[level.scale]
        yield _rect(left, top, PANEL, height, "frame")
        baseline = top + PAD
        for line in level.lines:
            baseline += LINE
            yield _text(left + PAD, baseline - 6, line, PANEL - 2 * PAD, TEXT)
        cell_top = baseline + 2
        yield from _cells(level.cells, left + PAD, cell_top)
        if place + 1 < len(panel.levels):
            below = top + height + BETWEEN
            right = left + PAD + _cell_width(level.cells) if level.cells else left + PANEL
            start = cell_top + CELL if level.cells else top + height
            yield _line(left + PAD if level.cells else left, start, left, below)
            yield _line(right, start, left + PANEL, below)
        top += height + BETWEEN


def _cell_width(cells: Sequence[Cell]) -> float:
    room = PANEL - 2 * PAD
    space = 2.0
    return min(48.0, (room - space * (len(cells) - 1)) / len(cells))


def _cells(cells: Sequence[Cell], left: float, top: float) -> Iterator[Markup]:
    for cell in cells:
        width = _cell_width(cells)
        if cell.filled > 0:
            yield _rect(left, top, max(1.0, width * cell.filled), CELL, "on")
        yield _rect(left, top, width, CELL, "edge")
        if cell.label:
            middle = left + width / 2
            yield _text(middle, top + CELL - 4.5, cell.label, width - 2, SMALL, "small")
        left += width + 2.0


def _text(
    x: float, y: float, text: str, room: float, size: float, kind: str = "", bold: bool = False
) -> Markup:
    """Words in `room`, cut in the middle where they are longer: the description has them whole."""
    if not text:
        return Markup("")
    shown = escape(fit(text, room / 72, size, bold))
    return Markup('<text{} x="{}" y="{}">{}</text>\n').format(
        Markup(' class="{}"').format(kind) if kind else "", _n(x), _n(y), shown
    )


def _rect(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>\n').format(
        kind, _n(x), _n(y), _n(width), _n(height)
    )


def _line(x1: float, y1: float, x2: float, y2: float) -> Markup:
    return Markup('<path class="zoom" d="M{} {}L{} {}"/>\n').format(*map(_n, (x1, y1, x2, y2)))


def _n(value: float) -> str:
    """A coordinate, the same digits on every machine."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
