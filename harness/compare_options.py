"""The options of `compare` and of `results export`: parsing alone, as quick as --help must be."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

EXIT_CODES = (
    "0 nothing is slower, 1 a row is SLOWER, lost or newly incorrect (or what --fail-on names), "
    "2 not comparable or another error, 3 nothing of that, but rows are UNCLEAR and --strict was "
    "given"
)
_FAIL_ON = (
    "what gives exit code 1, with commas: slower[:N%%], faster[:N%%], missing, incorrect; unclear "
    "gives 3. Adds to the default, slower,missing,incorrect; `none` clears what stands before it"
)


def add_compare(parser: argparse.ArgumentParser, share: Callable[[str], float]) -> None:
    """Add compare's options; share: reads a share of 1."""
    parser.add_argument("base_run", type=Path, nargs="?", metavar="BASE", help="a run's folder")
    parser.add_argument("new_run", type=Path, nargs="?", metavar="NEW", help="the run to judge")
    for side in ("base", "new"):
        parser.add_argument(
            f"--{side}",
            type=Path,
            nargs="+",
            metavar="RUN",
            help=f"instead of {side.upper()}: one or several runs of one build, pooled",
        )
    parser.add_argument("--side", help="with one run: this backend ...")
    parser.add_argument("--vs", help="... against this one")
    parser.add_argument(
        "--least-effect",
        type=share,
        default=0.02,
        metavar="SHARE",
        help="differences below this are SAME (default 0.02)",
    )
    parser.add_argument(
        "--noise-floor",
        type=share,
        metavar="SHARE",
        help="instead of the runs' own or the default table",
    )
    parser.add_argument("--force", action="store_true", help="turn refusals into labels")
    parser.add_argument("--fail-on", action="append", default=[], metavar="TERMS", help=_FAIL_ON)
    parser.add_argument(
        "--strict", action="store_true", help="UNCLEAR rows give exit code 3, if nothing gives 1"
    )
    parser.add_argument(
        "--markdown",
        nargs="?",
        const="-",
        metavar="FILE",
        help="a table for a pull request; without FILE to standard output",
    )
    parser.add_argument("--csv", metavar="FILE", help="every row; - is standard output")
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="rows, labels, counts, means, commands to run again, exit code; - is standard output",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="PATH", help="the figure: a .png or .svg, or a folder for both"
    )


def add_export(parser: argparse.ArgumentParser) -> None:
    """Add the options of `results export`."""
    parser.add_argument("run", type=Path, help="a run's folder or its bench.csv")
    parser.add_argument("--format", choices=("json", "parquet"), required=True)
    parser.add_argument(
        "--table",
        choices=("bench", "rounds"),
        default="bench",
        help="bench: a line a row (default); rounds: a line a round of each row",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="default RUN/<table>.<format>; - is standard output",
    )
