"""The command line: parsing and exit codes; the commands themselves are in commands.py.

Exit code 1 is a command's own finding, such as a slower row: no error of ours may end in it.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from . import compare_options
from .explain import options as explain_options
from .output import complain, finished, is_lost, lost

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller: `>&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    return finished(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    """The command's exit code; an error becomes one line. Raises OSError for lost output."""
    try:
        options = _parser().parse_args(arguments)
    except SystemExit:
        sys.stdout.flush()  # what --help printed
        raise
    try:
        from . import commands

        code: int = getattr(commands, options.command)(options)
        return code
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _OURS_TO_NAME:
            return _unexpected(error)
        complain(
            f"error: {error.name} is not installed: pip install {error.name}; or `make bench`, "
            "which installs all that is needed into .venv"
        )
        return 2
    except Exception as error:
        if isinstance(error, OSError) and is_lost(error):
            raise
        if type(error).__name__ not in _ONE_LINE_ERRORS:
            return _unexpected(error)
        complain(f"error: {error}")
        return 2


def _unexpected(error: Exception) -> int:
    """Say in one line what no check foresaw; with CVT_DEBUG the traceback comes first."""
    try:
        sys.stdout.flush()
    except OSError as full:
        lost(full)
    if os.environ.get("CVT_DEBUG"):
        complain("".join(traceback.format_exception(error)).rstrip())
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".rstrip(": ")
    complain(
        f"error: unexpected {text} ({Path(last.filename).name}, line {last.lineno}); set "
        "CVT_DEBUG=1 for the traceback and report it"
    )
    return 2


_OURS_TO_NAME = (
    "lizard",
    "matplotlib",
    "numpy",
    "pandas",
    "rich",
    "scipy",
    "torch",
    "tree_sitter",
    "tree_sitter_cuda",
    "tree_sitter_python",
    "triton",
)

# By name: importing their modules here would cost every --help their imports.
_ONE_LINE_ERRORS = (
    "UsageError",
    "PlanError",
    "RegistryError",
    "ResultsError",
    "ComparisonRefused",
    "PlotError",
    "ReportError",
    "WorkerDiedError",
    "ExplainError",
)


class _Parser(argparse.ArgumentParser):
    """An error is one line, without the usage before it; help that cannot be printed is one."""

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        (file or sys.stdout).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; `{self.prog} --help` lists what there is\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m harness",
        description="CUDA and Triton kernels, checked and timed in pairs.",
        epilog="CVT_DEBUG=1 in the environment shows the traceback of an unexpected error.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, function: str, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=function)
        return sub

    listing = add("list", "list_cases", "list ops, cases and implementations")
    _add_selection(listing)
    add("doctor", "doctor", "say what works on this machine and why the rest does not")
    check = add("check", "check", "check every implementation against float64, untimed")
    _add_selection(check)
    _add_running(check)
    check.add_argument(
        "--explain",
        action="store_true",
        help="every row with its worst element, the share of the allowance it uses, what is wrong",
    )
    bench = add("bench", "bench", "check and time, write CSV, plots and report")
    _add_selection(bench)
    _add_running(bench)
    bench.add_argument("--dry-run", action="store_true", help="print what would run, and how long")
    bench.add_argument("--resume", action="store_true", help="go on with the run in --out")
    bench.add_argument(
        "--flush",
        choices=("clean", "write", "none"),
        default="clean",
        help="L2 before each sample: clean (written and read back), write (dirty lines left, as "
        "most timers do), none (warm); every row names it",
    )
    bench.add_argument(
        "--same-ptxas",
        action="store_true",
        help="let nvcc's ptxas assemble Triton's kernels too, so that both sides share it; the "
        "run's facts name both versions",
    )
    bench.add_argument("--no-plots", action="store_true", help="write CSV files, no report")
    bench.add_argument(
        "--aa",
        action="store_true",
        help="compare the build with itself: about 70 rows in fresh processes, for the noise floor "
        "of later runs. Exit code: 0 at most one row of two processes in a thousand is called "
        "FASTER or SLOWER, 1 more are or a row failed",
    )
    bench.add_argument(
        "--processes", type=_whole, metavar="N", help="with --aa: how many, 2 or more (default 5)"
    )
    tuning = add("tune", "tune", "search configurations on this GPU, write harness/tuned/")
    _add_selection(tuning)
    _add_running(tuning)
    crosscheck = add(
        "crosscheck",
        "crosscheck",
        "time the same kernels with another timer too and compare. Exit code: 0 all within bounds, "
        "1 not, 2 the other timer cannot be used here",
    )
    _add_selection(crosscheck)
    _add_running(crosscheck)
    crosscheck.add_argument(
        "--timer", choices=("nvbench", "proton"), default="nvbench", help="default nvbench"
    )
    text = "run compute-sanitizer's tools over both sides of every op"
    _add_sanitize(add("sanitize", "sanitize", f"{text}. Exit code: {SANITIZE_CODES}"))
    text = "what the compilers made of both sides: registers, spills, occupancy, instructions"
    explain_options.add_explain(
        add("explain", "explain", f"{text}; needs no GPU. Exit code: {explain_options.EXIT_CODES}")
    )
    _add_effort(
        add(
            "effort",
            "effort",
            "what both sides cost to write: tokens, lines, control flow, hardware concepts. Exit "
            "code: 0, 1 a source does not parse, 2 wrong usage",
        )
    )
    plot = add("plot", "plot", "draw a run's figures from its files")
    plot.add_argument("run", type=Path, help="a run's folder or its bench.csv")
    plot.add_argument("--out", type=Path, help="folder of the figures (default RUN/plots)")
    plot.add_argument("--format", action="append", choices=("png", "svg"), dest="formats")
    text = "compare two runs, several runs a side, or the two sides of one"
    compare = add("compare", "compare", f"{text}. Exit code: {compare_options.EXIT_CODES}")
    compare_options.add_compare(compare, _share)
    results = commands.add_parser("results", help="a run's files in other formats")
    actions = results.add_subparsers(required=True, metavar="ACTION")
    text = "write a run as JSON or Parquet, with the unit of every column"
    export = actions.add_parser("export", help=text, description=text)
    export.set_defaults(command="export")
    compare_options.add_export(export)
    report = add("report", "report", "write a run's report: one HTML page that needs no network")
    report.add_argument("run", type=Path, help="a run's folder or its bench.csv")
    report.add_argument("--base", type=Path, help="an earlier run to compare with")
    report.add_argument("--out", type=Path, help="the page (default RUN/report.html)")
    readme = add("readme", "readme", "write the README's results table from a run")
    readme.add_argument("run", type=Path)
    readme.add_argument("--readme", type=Path, default=Path("README.md"))
    readme.add_argument("--check", action="store_true", help="only say whether it is up to date")
    return parser


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--op", action="append", default=[], help="an op's stem; repeatable")
    parser.add_argument("--dtype", action="append", default=[], help="such as bf16; repeatable")
    parser.add_argument(
        "--case",
        action="append",
        default=[],
        help="'N>=4096', 'M=2^13,K<1024' or a name's glob; given twice, both must hold",
    )
    parser.add_argument("--backend", action="append", default=[], help="cuda, triton, torch, ...")
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument(
        "--quick", action="store_const", dest="level", const="quick", help="under a minute"
    )
    effort.add_argument(
        "--full",
        action="store_const",
        dest="level",
        const="full",
        help="every case, every baseline",
    )
    parser.add_argument(
        "--kernels",
        action="append",
        type=Path,
        default=[],
        metavar="DIR",
        help="another root with harness/specs and triton_kernels",
    )
    parser.set_defaults(level="default")


SANITIZE_CODES = "0 nothing found, 1 findings, 2 something could not be run"


def _add_sanitize(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--op", action="append", default=[], help="an op's stem; repeatable")
    parser.add_argument("--dtype", action="append", default=[], help="such as bf16; repeatable")
    parser.add_argument(
        "--backend", action="append", default=[], choices=("cuda", "triton"), help="one side only"
    )
    parser.add_argument(
        "--tool",
        action="append",
        choices=("memcheck", "racecheck", "initcheck", "synccheck"),
        help="repeatable; default all four",
    )
    parser.add_argument(
        "--kernels", action="append", type=Path, default=[], metavar="DIR", help="another root"
    )
    parser.add_argument("--device", type=_whole, default=0, help="CUDA device index (default 0)")
    parser.add_argument(
        "--timeout",
        type=_positive,
        default=300.0,
        metavar="S",
        help="seconds one tool may take (default 300)",
    )


def _add_effort(parser: argparse.ArgumentParser) -> None:
    explain_options.add_ops(parser)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the counts; - is stdout")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the same as JSON")
    parser.add_argument(
        "--compile-cost",
        action="store_true",
        help="time the extension's build, in a copy, and Triton's compile, cold and warm",
    )
    parser.add_argument(
        "--kernels", action="append", type=Path, default=[], metavar="DIR", help="another root"
    )


def _number(
    text: str, kind: Callable[[str], float], fits: Callable[[float], bool], wanted: str
) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if not fits(value):
        raise argparse.ArgumentTypeError(f"got {text!r}, wanted {wanted}")
    return value


def _positive(text: str) -> float:
    return _number(text, float, lambda v: 0 < v < math.inf, "a number above 0")


def _whole(text: str) -> int:
    return int(_number(text, int, lambda v: not math.isnan(v), "a whole number"))


def _seed(text: str) -> int:
    wanted = "a whole number from 0 to 2^62 - 1"
    return int(_number(text, int, lambda v: 0 <= v < 1 << 62, wanted))


def _share(text: str) -> float:
    return _number(text, float, lambda v: 0 <= v < 1, "a share of 1, such as 0.02 for 2 %")


def _add_running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", type=_whole, default=0, help="CUDA device index (default 0)")
    parser.add_argument("--out", type=Path, help="the run's folder (default results/<gpu>/<time>)")
    parser.add_argument("--seed", type=_seed, default=20240117, help="seed of the inputs")
    parser.add_argument(
        "--timeout",
        type=_positive,
        default=180.0,
        metavar="S",
        help="seconds a worker may be silent (default 180)",
    )
