"""The report's verdicts: a few sentences an op, the gaps counted, and the figures behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness import experiments, report_ops
from harness.experiments import EvidenceError, Experiment
from harness.explain.timed import Facts, facts_of
from harness.pair_table import line
from harness.pair_words import Piece, brief, experiment_words, sentence, with_code
from harness.pairs import Pair, confounds, pairs
from harness.reasons import GAP, KINDS, NEAR_ROOF_PCT, Counts, Verdict, counts, judge
from harness.report_map import SideMap
from harness.report_ops import Value
from harness.report_text import count
from harness.results import Run, gpu_names


@dataclass(frozen=True)
class Group:
    """Verdicts that one sentence tells. status: "confirmed", "not explained" or "" for no gap.
    evidence: what was measured or is suspected, a line each; next: the next experiment; brief:
    a gap's side, cases and ratio."""

    anchor: str
    op: str
    status: str
    n: int
    sentence: list[Piece]
    evidence: list[list[Piece]] = field(default_factory=list)
    next: list[Piece] = field(default_factory=list)
    brief: str = ""


@dataclass(frozen=True)
class OpVerdicts:
    """One op's sentences, gaps first, and its table of figures."""

    anchor: str
    groups: list[Group]
    rows: list[list[Value]]
    hidden: int


@dataclass(frozen=True)
class Page:
    """What the page says of gaps. counted: the sentence on top; confounds: what else differs
    between the sides; notes: what could not be read."""

    counts: Counts
    counted: list[str]
    groups: list[Group]
    by_op: dict[str, OpVerdicts]
    confounds: list[str]
    notes: list[str]
    least_pct: float = 100 * GAP


def verdicts(
    run: Run, sides: SideMap, folder: Path = experiments.FOLDER, facts: Facts | None = None
) -> Page:
    """Judge every headline pair of the run; `folder` holds the experiments by GPU."""
    facts = facts or facts_of(run)
    found = pairs(run, sides, facts)
    made, notes = _experiments(run, folder)
    if facts.problem and found:
        notes.append(f"No facts of the compilers: {facts.detail}.")
    judged = [judge(pair, made) for pair in found]
    links = _Links(run, found)
    by_op: dict[str, OpVerdicts] = {}
    groups: list[Group] = []
    for op in dict.fromkeys(pair.op for pair in found):
        own = [v for v in judged if v.pair.op == op]
        told = _groups(own, links, len(groups))
        groups += told
        shown = [v for v in own if links(v.pair, "code")]
        lines = [line(v, links(v.pair, "code").lstrip("#")) for v in shown]
        by_op[op] = OpVerdicts(links.table(op), told, lines, len(own) - len(shown))
    total = counts(judged)
    gaps = [group for group in groups if group.status]
    return Page(total, _counted(total), gaps, by_op, confounds(facts, found), notes)


def _experiments(run: Run, folder: Path) -> tuple[list[Experiment], list[str]]:
    names = gpu_names(run)
    if len(names) != 1:
        return [], []
    try:
        return experiments.of_gpu(names[0], folder), []
    except EvidenceError as error:
        return [], [f"Evidence is not read: {str(error).replace(f'{folder}/', '')}."]


def _counted(n: Counts) -> list[str]:
    """Return the sentences that count; the first is the one on top of the page."""
    if not n.gaps + n.level + n.unclear + n.launch + n.untimed:
        return []
    verb = ("is", "are")[n.confirmed != 1], ("is", "are")[n.unexplained != 1]
    said = [
        f"Of {count(n.gaps, 'gap')} above {100 * GAP:g} % between the sides, {n.confirmed} "
        f"{verb[0]} confirmed by an ablation or a counter and {n.unexplained} {verb[1]} not "
        "explained.",
        f"No gap: {n.level} level, {n.launch} that only compare launches, {n.unclear} that the "
        f"intervals cannot tell, {n.untimed} without a time on both sides.",
    ]
    if n.with_roof:
        said.append(
            f"Another question: {n.below_roof} of {count(n.with_roof, 'headline row')} that are "
            f"not launch-bound stay below {NEAR_ROOF_PCT:g} % of their roof."
        )
    return said


class _Links:
    """Where a pair's figures stand; "" for rows that the page is too large for."""

    def __init__(self, run: Run, found: Sequence[Pair]) -> None:
        ops = list(run.rows["op"].drop_duplicates())
        places = {op: i for i, op in enumerate(ops)}
        order = run.rows["op"].map(places).sort_values(kind="stable").index
        self._shown = {int(row) for row in order[: report_ops.MAX_ROWS]}
        self._tables = {str(op): f"op-{i + 1}-figures" for i, op in enumerate(ops)}

    def __call__(self, pair: Pair, which: str) -> str:
        side = pair.sides.get("cuda" if which == "code" else which)
        side = side or (next(iter(pair.sides.values())) if which == "code" else None)
        if side is None or side.row not in self._shown:
            return ""
        return f"#{'code' if which == 'code' else 'row'}-{side.row}"

    def table(self, op: str) -> str:
        return self._tables[op]


def _groups(own: Sequence[Verdict], links: _Links, before: int) -> list[Group]:
    """Verdicts of one op with the same kind, and gaps with the same side, evidence and rule."""
    parts: dict[tuple[object, ...], list[Verdict]] = {}
    for kind in KINDS:
        for verdict in own:
            if verdict.kind == kind:
                parts.setdefault(_alike(verdict), []).append(verdict)
    return [
        _group(part, links, f"verdict-{before + i + 1}") for i, part in enumerate(parts.values())
    ]


def _alike(verdict: Verdict) -> tuple[object, ...]:
    if verdict.kind != "gap":
        return (verdict.kind,)
    told = (verdict.confirming, verdict.earlier, verdict.insufficient, verdict.suspected)
    ids = tuple(tuple(e.id for e in each) for each in told)
    rule = verdict.next.rule if verdict.next else ""
    return (verdict.kind, verdict.pair.dtype, verdict.pair.slower, ids, rule)


def _group(part: Sequence[Verdict], links: _Links, anchor: str) -> Group:
    first = part[0]
    words = sentence(part, links, f"#{links.table(first.pair.op)}")
    if first.kind != "gap":
        return Group(anchor, first.pair.op, "", len(part), words)
    measured = [*first.confirming, *first.insufficient, *first.suspected]
    evidence = [experiment_words(e, part) for e in measured]
    evidence += [
        [Piece("Was confirmed for an earlier version of the kernel. "), *experiment_words(e, part)]
        for e in first.earlier
    ]
    return Group(
        anchor,
        first.pair.op,
        "confirmed" if first.confirmed else "not explained",
        len(part),
        words,
        evidence,
        _next(part),
        brief(part),
    )


def _next(part: Sequence[Verdict]) -> list[Piece]:
    """The next experiment, of the group's largest case: the others follow the same rule."""
    largest = max(part, key=lambda v: v.pair.size)
    if largest.next is None:
        return []
    by_rule = len({v.next.text for v in part if v.next}) > 1
    where = f"at {largest.pair.name}: " if by_rule else ""
    return with_code(f"{where}{largest.next.text}.")
