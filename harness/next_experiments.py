"""What to try next on a gap that nothing accounts for: rules over the compilers' facts.

They name what differs and by how much, and the command; that a difference is the cause is never
said here. Needs neither torch nor a GPU.
"""

from __future__ import annotations

import glob
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from harness.explain import ncu
from harness.pairs import Code, Pair
from harness.sides import NAMES, SIDES

_TELLING = 1.25  # of occupancies and bytes in flight: less apart, they explain no gap
_FEW_WAVES = 8.0  # with more, a last wave that is not full costs little
_TELLING_WAVES = 1.05


@dataclass(frozen=True)
class Next:
    """The next experiment on a gap. rule: which of the rules, or whose words it is, so that cases
    with the same next experiment can be told together. Commands stand between backticks."""

    rule: str
    text: str


def next_experiment(pair: Pair) -> Next:
    """Return what to try next, from the first difference in the facts that is known to cost time.

    A side that was not tuned for the case comes first, since that is cheap to mend; where the
    facts tell no difference, the bytes that really moved are counted.
    """
    slow, fast = (pair.sides[side].code for side in (pair.slower, pair.faster))
    name, other = NAMES[pair.slower], NAMES[pair.faster]
    tuned = pair.sides[pair.slower].config_source
    if tuned and not tuned.startswith("tuned:"):
        words = "has the default" if tuned == "default" else "borrows a neighbour's"
        tune = _command("tune", pair, [pair.slower])
        return Next("tune", f"{name} {words} configuration: `{tune}`, then `{again(pair)}`")
    if slow is not None and fast is not None:
        for rule in _RULES:
            if words := rule(slow, fast, name, other):
                return Next(rule.__name__.strip("_"), f"{words}, then `{again(pair)}`")
    told = "the facts tell no difference that is known to cost time"
    if slow is None or fast is None:
        told = "the compilers' facts are not known on both sides"
    call = shlex.join(ncu.command(_words("bench", pair, [pair.slower]), pair.op))
    return Next(
        "counter",
        f"{told}; count the bytes that each side moves: `{call}`, and the same with "
        f"`--backend {pair.faster}`",
    )


def again(pair: Pair) -> str:
    """Return the command that times the pair again."""
    return _command("bench", pair, SIDES)


def _command(command: str, pair: Pair, sides: Sequence[str]) -> str:
    return shlex.join(_words(command, pair, sides))


def _words(command: str, pair: Pair, sides: Sequence[str]) -> list[str]:
    words = ["python", "-m", "harness", command, "--op", pair.op, "--dtype", pair.dtype]
    return [*words, "--case", glob.escape(pair.case), *(w for s in sides for w in ("--backend", s))]


def _spills(slow: Code, fast: Code, name: str, other: str) -> str:
    if not slow.spill_bytes or slow.spill_bytes <= (fast.spill_bytes or 0):
        return ""
    return (
        f"{name} spills {slow.spill_bytes} bytes a thread: give it fewer elements a thread or "
        "more warps until it spills nothing"
    )


def _matrix(slow: Code, fast: Code, name: str, other: str) -> str:
    if slow.matrix is None or fast.matrix is None or slow.matrix == fast.matrix:
        return ""
    own, better = ("+".join(kinds) or "no matrix unit" for kinds in (slow.matrix, fast.matrix))
    return (
        f"{other} computes with {better}, {name} with {own}: hold {other} to {own} at the same "
        "tile and see whether it falls back as far"
    )


def _loads(slow: Code, fast: Code, name: str, other: str) -> str:
    if not slow.widest_load or not fast.widest_load or slow.widest_load >= fast.widest_load:
        return ""
    return (
        f"{name}'s widest load is {slow.widest_load} bytes a thread, {other}'s "
        f"{fast.widest_load}: widen it, or narrow {other}'s to {slow.widest_load}"
    )


def _staging(slow: Code, fast: Code, name: str, other: str) -> str:
    if slow.staging is None or fast.staging is None or slow.staging or not fast.staging:
        return ""
    return (
        f"{other} copies by {'+'.join(fast.staging)} while it computes, {name} loads and waits: "
        f"stage {name}'s loads, or take {other}'s staging away"
    )


def _occupancy(slow: Code, fast: Code, name: str, other: str) -> str:
    if not slow.occupancy or not fast.occupancy or fast.occupancy < _TELLING * slow.occupancy:
        return ""
    return (
        f"{name} fills {100 * slow.occupancy:.0f} % of an SM's warps (limit: "
        f"{slow.limiter or 'unknown'}), {other} {100 * fast.occupancy:.0f} %: raise it by fewer "
        f"registers or less shared memory a block, or hold {other} to as few warps"
    )


def _waves(slow: Code, fast: Code, name: str, other: str) -> str:
    own, better = (_filled(code.waves) for code in (slow, fast))
    if own is None or better is None or better < _TELLING_WAVES * own:
        return ""
    return (
        f"{name}'s {slow.waves:.2f} waves leave {100 * (1 - own):.0f} % of the card's turns "
        f"empty, {other}'s {fast.waves:.2f} leave {100 * (1 - better):.0f} %: choose a grid of "
        "whole waves"
    )


def _filled(waves: float | None) -> float | None:
    """Return which share of its whole waves a grid fills."""
    if not waves:
        return None
    return 1.0 if waves > _FEW_WAVES else waves / math.ceil(waves)


def _in_flight(slow: Code, fast: Code, name: str, other: str) -> str:
    if not slow.in_flight or not fast.in_flight or fast.in_flight < _TELLING * slow.in_flight:
        return ""
    return (
        f"{name} has {slow.in_flight / 1024:.0f} KiB of loads under way on an SM, {other} "
        f"{fast.in_flight / 1024:.0f} KiB: ask for more before the first use, or hold {other} to "
        "as few"
    )


# What costs time for certain comes first; each names sizes, so that it can be checked.
_RULES = (_spills, _matrix, _loads, _staging, _occupancy, _waves, _in_flight)
