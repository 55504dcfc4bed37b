"""Sentences about headline pairs, in pieces that each point to their figure on the page."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from harness.experiments import Experiment
from harness.pairs import Code, Pair
from harness.reasons import Verdict
from harness.report_text import UNKNOWN, listing, short
from harness.sides import NAMES, SIDES

MOST_NAMED = 4  # cases of a sentence; the figures' table names all


@dataclass(frozen=True)
class Piece:
    """A part of a sentence: `href` is where its figure stands, "" for plain words."""

    text: str
    href: str = ""
    code: bool = False


Link = Callable[[Pair, str], str]
"""(pair, "cuda", "triton" for that side's row, or "code" for the facts) -> href, "" for none."""


def sentence(verdicts: Sequence[Verdict], link: Link, rest: str) -> list[Piece]:
    """Return one sentence about verdicts of one op and kind; `rest` links to all of their cases.

    Figures with a slash are CUDA / Triton; of several cases each is the least to the greatest.
    """
    pairs = [verdict.pair for verdict in verdicts]
    kind = verdicts[0].kind
    begin = {
        "gap": f"{NAMES[pairs[0].slower]} behind at ",
        "level": "Level at ",
        "unclear": "Not to be told at ",
        "launch": "Only launches are compared at ",
        "untimed": "Not timed on both sides at ",
    }[kind]
    clauses = [_time(pairs, link), _roofs(pairs, link)]
    if kind == "gap":
        clauses[0] = [Piece(f"{_difference(pairs)} ("), *clauses[0], Piece(")")]
    if kind in ("unclear", "untimed"):
        reasons = list(dict.fromkeys(p.reason for p in pairs if p.reason))
        clauses.append([Piece(listing(reasons, 2))] if reasons else [])
    if kind in ("gap", "level"):
        clauses += _code_clauses(pairs, link)
    pieces = [Piece(begin), *_cases(pairs, link, rest)]
    for i, clause in enumerate(clause for clause in clauses if clause):
        pieces += [Piece("; " if i else ": "), *clause]
    return [*pieces, Piece(".")]


def brief(verdicts: Sequence[Verdict]) -> str:
    """Return which side is behind in these gaps, where, and by how much, for a list of them."""
    pairs = [verdict.pair for verdict in verdicts]
    cases = "".join(piece.text for piece in _cases(pairs, lambda pair, which: "", ""))
    return f"{pairs[0].op} {cases}, {NAMES[pairs[0].slower]} behind ({_ratio(pairs)})"


def _cases(pairs: Sequence[Pair], link: Link, rest: str) -> list[Piece]:
    """Name the cases, a dtype once for those that follow each other in it."""
    named = list(pairs if len(pairs) <= MOST_NAMED + 1 else pairs[:MOST_NAMED])
    pieces: list[Piece] = []
    for i, pair in enumerate(named):
        last = i + 1 == len(named)
        dtype = f" {pair.dtype}" if last or named[i + 1].dtype != pair.dtype else ""
        pieces += [Piece(f"{pair.name}{dtype}", link(pair, "cuda")), Piece("" if last else ", ")]
    if left := len(pairs) - len(named):
        pieces += [Piece(" and "), Piece(f"{left} more", rest)]
    return [piece for piece in pieces if piece.text]


def _difference(pairs: Sequence[Pair]) -> str:
    """How much less or more time CUDA takes than Triton."""
    word = "less" if pairs[0].ratio < 1 else "more"
    return f"CUDA takes {_range([100 * abs(p.ratio - 1) for p in pairs], _whole)} % {word} time"


def _time(pairs: Sequence[Pair], link: Link) -> list[Piece]:
    known = [p for p in pairs if math.isfinite(p.ratio)]
    if not known:
        return []
    text = _ratio(known)
    if len(known) == 1 and math.isfinite(known[0].high):
        text += f", 99 %: {known[0].low:.3f} to {known[0].high:.3f}"
    return [Piece(text, link(known[0], "cuda"))]


def _ratio(pairs: Sequence[Pair]) -> str:
    return f"CUDA / Triton {_range([p.ratio for p in pairs], lambda v: f'{v:.3f}')}"


def _roofs(pairs: Sequence[Pair], link: Link) -> list[Piece]:
    texts = [_range(_shares(pairs, side), _whole) for side in SIDES]
    if texts == [UNKNOWN, UNKNOWN]:
        return []
    pieces = []
    for side, text in zip(SIDES, texts, strict=True):
        least = [p for p in pairs if side in p.sides and math.isfinite(p.sides[side].pct_roof)]
        worst = min(least, key=lambda p: p.sides[side].pct_roof, default=None)
        pieces.append(Piece(text, link(worst, side) if worst is not None else ""))
    return [pieces[0], Piece("/"), pieces[1], Piece(" % of the roof")]


def _shares(pairs: Sequence[Pair], side: str) -> list[float]:
    return [p.sides[side].pct_roof for p in pairs if side in p.sides]


def _code_clauses(pairs: Sequence[Pair], link: Link) -> list[list[Piece]]:
    """What the compilers' facts say, one clause a fact; those of one value on both sides once."""
    codes = {side: [c for p in pairs if (c := _code(p, side))] for side in SIDES}
    href = link(pairs[0], "code")
    if not any(codes.values()):
        return [[Piece("no facts of the compilers are recorded")]]
    texts = [
        _kinds(codes, lambda c: c.matrix, "", "matrix units "),
        _numbers(codes, lambda c: c.widest_load, "widest loads", " B", _whole),
        _kinds(codes, lambda c: c.staging, "none", "loads staged by "),
        _numbers(codes, lambda c: c.registers, "registers", "", _whole),
        _spills(codes),
        _numbers(codes, lambda c: _percent(c.occupancy), "occupancy", " %", _whole),
        _numbers(codes, lambda c: c.waves, "waves", "", waves_text),
        _configurations(pairs),
    ]
    return [[Piece(text, href)] for text in texts if text]


def _code(pair: Pair, side: str) -> Code | None:
    return pair.sides[side].code if side in pair.sides else None


def _numbers(
    codes: dict[str, list[Code]],
    of: Callable[[Code], float | None],
    words: str,
    unit: str,
    show: Callable[[float], str],
) -> str:
    texts = [_range([v for c in codes[s] if (v := of(c)) is not None], show) for s in SIDES]
    return "" if texts == [UNKNOWN, UNKNOWN] else f"{words} {_both(texts, unit)}"


def _kinds(
    codes: dict[str, list[Code]],
    of: Callable[[Code], tuple[str, ...] | None],
    none: str,
    words: str,
) -> str:
    """Kinds of instructions on both sides; "" where neither has any."""
    texts = []
    for side in SIDES:
        found = dict.fromkeys(
            "+".join(kinds) or "none" for c in codes[side] if (kinds := of(c)) is not None
        )
        texts.append(" or ".join(found) or UNKNOWN)
    return "" if set(texts) <= {"none", UNKNOWN} else words + _both(texts)


def _spills(codes: dict[str, list[Code]]) -> str:
    values = {s: [c.spill_bytes for c in codes[s]] for s in SIDES}
    known = [v for s in SIDES for v in values[s] if v is not None]
    if not known or len(known) < sum(map(len, values.values())):
        return ""
    if not any(known):
        return "no spills"
    return f"spilled bytes a thread {_both([_range(_real(values[s]), _whole) for s in SIDES])}"


def _real(values: Iterable[int | None]) -> list[float]:
    return [v for v in values if v is not None]


def _configurations(pairs: Sequence[Pair]) -> str:
    """Only where a side runs with what was not tuned for the case."""
    texts = []
    for side in SIDES:
        sources = (p.sides[side].config_source.partition(":")[0] for p in pairs if side in p.sides)
        words = {"tuned": "tuned", "nearest": "borrowed", "default": "default"}
        texts.append(" or ".join(dict.fromkeys(words.get(s, UNKNOWN) for s in sources)) or UNKNOWN)
    plain = ({"tuned"}, {UNKNOWN}, {"tuned", UNKNOWN})
    return "" if set(texts) in plain else f"configuration {_both(texts)}"


def _both(texts: Sequence[str], unit: str = "") -> str:
    if texts[0] == texts[1]:
        return f"{texts[0]}{unit} on both sides"
    return f"{texts[0]}/{texts[1]}{unit}"


def waves_text(waves: float) -> str:
    """Return how many waves; below ten the part of one matters."""
    return _whole(waves) if waves >= 10 else f"{waves:.2f}"


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _whole(value: float) -> str:
    return f"{value:.0f}"


def _range(values: Iterable[float], show: Callable[[float], str]) -> str:
    known = [v for v in values if math.isfinite(v)]
    if not known:
        return UNKNOWN
    low, high = show(min(known)), show(max(known))
    return low if low == high else f"{low} to {high}"


def experiment_words(experiment: Experiment, verdicts: Sequence[Verdict]) -> list[Piece]:
    """Return an entry of the evidence: what was measured, and what it says of these gaps."""
    if experiment.kind == "open":
        return [Piece(f"Suspected, not measured: {experiment.claim} ({experiment.source}).")]
    names = ("as it is", "changed") if experiment.kind == "ablation" else ("CUDA", "Triton")
    what = "µs" if experiment.kind == "ablation" else experiment.counter
    figures = [
        f"{m.case} {short(m.first, 4)} {names[0]}, {short(m.second, 4)} {names[1]}"
        for m in experiment.measured
    ]
    side = f" of {NAMES[experiment.side]}" if experiment.side else ""
    head = f"{experiment.kind.capitalize()}{side}, {experiment.id}: {experiment.claim}."
    return [
        Piece(f"{head} Measured, {what}: {listing(figures)}. {_worth(experiment, verdicts)} "),
        Piece(experiment.command, code=True),
        Piece(f", {experiment.date}, {experiment.card}; {experiment.source}."),
    ]


def _worth(experiment: Experiment, verdicts: Sequence[Verdict]) -> str:
    pairs = [v.pair for v in verdicts]
    shares = [s for p in pairs if (s := experiment.share(p.case, p.ratio)) is not None]
    if experiment.kind == "counter":
        wrong = "" if min(shares, default=-1.0) > 0 else "not "
        return f"The slower side does {wrong}have the worse value."
    if max(shares, default=0.0) <= 0:
        return "It does not account for the gap: the change goes the other way."
    return f"It accounts for {_range([100 * s for s in shares], _whole)} % of the gap."


def with_code(text: str) -> list[Piece]:
    """Return a text whose commands stand between backticks as pieces."""
    parts = re.split(r"`([^`]*)`", text)
    pieces = [Piece(part, code=bool(i % 2)) for i, part in enumerate(parts)]
    return [piece for piece in pieces if piece.text]
