"""The options of `explain`: parsing alone, as quick as --help must be."""

from __future__ import annotations

import argparse
from pathlib import Path

from .facts import ExplainError
from .occupancy import LIMITS

EXIT_CODES = (
    "0, 1 --diff found a difference or --run a row whose facts are another kernel's, 2 wrong usage "
    "or a file that cannot be read"
)
# 90a is the GPU of 90, by the name of the code that is built for it.
ARCHS = {number: number for number in LIMITS} | {"90a": "90"}
# What each way of asking can be combined with. The rest would be ignored, so it is refused.
_TAKES = {
    "--by-hand": ("OP", "--side", "--run"),
    "--diff": ("--json",),
    "--run": ("OP", "--side"),
    "--ncu": (),
}


def add_ops(parser: argparse.ArgumentParser) -> None:
    """Ops by position, or by --op as bench spells it; both together are one list."""
    parser.add_argument(
        "ops", nargs="*", action="extend", metavar="OP", help="an op's stem (default all)"
    )
    parser.add_argument("--op", action="append", dest="ops", help="the same, as bench spells it")


def add_explain(parser: argparse.ArgumentParser) -> None:
    add_ops(parser)
    parser.add_argument(
        "--arch",
        type=arch,
        help=f"{_archs()}, each also as sm_80 (default the visible GPU's, else 90)",
    )
    parser.add_argument("--side", choices=("cuda", "triton"), help="one side only")
    parser.add_argument(
        "--variant",
        default="",
        metavar="GLOB",
        help="part of what the table calls a variant, of a kernel's name, a case or a config; * "
        "and ? stand for anything, all else for itself",
    )
    parser.add_argument("--all", action="store_true", help="a line for every template instance")
    parser.add_argument("--json", action="store_true", help="all facts, for --diff and programs")
    parser.add_argument(
        "--by-hand",
        action="store_true",
        help="what each author did by hand, what the compiler did and what nobody did, with the "
        "evidence; of --run, else of the committed reference",
    )
    other = parser.add_mutually_exclusive_group()
    other.add_argument(
        "--run",
        type=Path,
        help="the kernels that this run timed, row by row; exit code 1 where the facts of one are "
        "another kernel's (MISMATCH)",
    )
    other.add_argument(
        "--diff",
        nargs=2,
        type=Path,
        metavar=("A", "B"),
        help="two files of --json or two runs; exit code 1 when their facts differ",
    )
    other.add_argument("--ncu", type=Path, metavar="CSV", help="counters that ncu --csv wrote")


def arch(text: str) -> str:
    """The number of a documented arch; ArgumentTypeError for any other."""
    number = ARCHS.get(text.removeprefix("sm_"))
    if number is None:
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted one of {_archs()}")
    return number


def _archs() -> str:
    return ", ".join(sorted(ARCHS, key=lambda name: (int(ARCHS[name]), name)))


def refuse_ignored(options: argparse.Namespace) -> None:
    """Raise ExplainError for options that the chosen way of asking would not look at."""
    given = [name for name, value in _by_name(options).items() if value]
    way = next((way for way in _TAKES if way in given), "")
    ignored = [name for name in given if way and name not in (way, *_TAKES[way])]
    if ignored:
        taken = ", ".join(_TAKES[way]) or "no other option"
        raise ExplainError(f"{way} takes {taken} with it, got {', '.join(ignored)}; leave it out")


def _by_name(options: argparse.Namespace) -> dict[str, object]:
    return {
        "OP" if name == "ops" else f"--{name.replace('_', '-')}": value
        for name, value in vars(options).items()
        if name != "command"
    }
