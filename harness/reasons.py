"""What each headline pair's difference is worth: a gap or none, confirmed or not, what to try.

Judges from a run's files and the recorded experiments alone; needs neither torch nor a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.experiments import Experiment
from harness.next_experiments import Next, next_experiment
from harness.pairs import Pair

GAP = 0.05  # |time CUDA / time Triton - 1| from here on wants a reason
NEAR_ROOF_PCT = 90.0
KINDS = ("gap", "level", "unclear", "launch", "untimed")


@dataclass(frozen=True)
class Verdict:
    """One pair judged. kind: gap (more than GAP apart, and the interval says that it is real),
    level, unclear (the interval cannot tell), launch (compares launches), untimed (a side has no
    time).

    confirming: experiments on these very kernels whose figures account for the gap. earlier:
    those that did, on an earlier version. insufficient: those whose figures do not. suspected:
    what is thought but was not measured. next: the next experiment of a gap that none confirms.
    """

    pair: Pair
    kind: str
    confirming: tuple[Experiment, ...] = ()
    earlier: tuple[Experiment, ...] = ()
    insufficient: tuple[Experiment, ...] = ()
    suspected: tuple[Experiment, ...] = ()
    next: Next | None = None

    @property
    def confirmed(self) -> bool:
        """Whether an ablation or a counter accounts for the gap."""
        return bool(self.confirming)


@dataclass(frozen=True)
class Counts:
    """Of the headline pairs: gaps, those confirmed and not explained, and the other kinds.

    below_roof: headline rows timed on kernels (not launches) below NEAR_ROOF_PCT of their roof,
    of `with_roof` that have one.
    """

    gaps: int
    confirmed: int
    unexplained: int
    level: int
    unclear: int
    launch: int
    untimed: int
    below_roof: int
    with_roof: int


def judge(pair: Pair, experiments: Iterable[Experiment] = ()) -> Verdict:
    """Return the verdict on one pair; `experiments` are those made on the run's model of GPU."""
    kind = kind_of(pair)
    if kind != "gap":
        return Verdict(pair, kind)
    about = [e for e in experiments if e.covers(pair.op, pair.case, pair.dtype)]
    hashes = {name: side.kernel_hash for name, side in pair.sides.items()}
    now = [e for e in about if e.holds_for(hashes)]
    measured = [e for e in now if e.kind != "open"]
    confirming = tuple(e for e in measured if e.confirms(pair.case, pair.ratio))
    if confirming:
        return Verdict(pair, kind, confirming)
    earlier = tuple(
        e for e in about if e.kind != "open" and e not in now and e.confirms(pair.case, pair.ratio)
    )
    suspected = tuple(e for e in now if e.kind == "open")
    return Verdict(
        pair,
        kind,
        earlier=earlier,
        insufficient=tuple(measured),
        suspected=suspected,
        next=_next(pair, earlier, [*suspected, *measured]),
    )


def kind_of(pair: Pair) -> str:
    """Return which of KINDS the pair is."""
    if not math.isfinite(pair.ratio) or pair.ratio <= 0:
        return "untimed"
    if pair.bound == "launch":
        return "launch"
    if pair.verdict == "UNCLEAR":
        return "unclear"
    return "gap" if abs(pair.ratio - 1.0) > GAP else "level"


def counts(verdicts: Sequence[Verdict]) -> Counts:
    """Return how many of each kind there are."""
    of = {kind: [v for v in verdicts if v.kind == kind] for kind in KINDS}
    confirmed = sum(v.confirmed for v in of["gap"])
    shares = [
        side.pct_roof
        for v in verdicts
        if v.pair.bound != "launch"
        for side in v.pair.sides.values()
        if math.isfinite(side.time_us) and math.isfinite(side.pct_roof)
    ]
    n = {kind: len(found) for kind, found in of.items()}
    return Counts(
        n["gap"],
        confirmed,
        n["gap"] - confirmed,
        n["level"],
        n["unclear"],
        n["launch"],
        n["untimed"],
        sum(share < NEAR_ROOF_PCT for share in shares),
        len(shares),
    )


def _next(pair: Pair, earlier: Sequence[Experiment], known: Sequence[Experiment]) -> Next:
    """People's own next experiment comes first, then one made again, then the rules."""
    for experiment in known:
        if experiment.next:
            return Next(experiment.id, experiment.next)
    if earlier:
        what = earlier[0]
        return Next(f"again {what.id}", f"repeat {what.id} on these kernels: `{what.command}`")
    return next_experiment(pair)
