"""One CSV file of a run as a table: whole lines only, every digit kept, faults named by column."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.run_repair import whole_lines
from harness.schema import SCHEMA_VERSION, SINCE_MINOR, ResultsError, minor

if TYPE_CHECKING:
    import pandas as pd


def read_text(path: Path) -> tuple[bytes, bool]:
    """Return a CSV file's whole lines and whether a torn last line was dropped."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ResultsError(
            f"{path} is missing; a run is bench.csv, rounds.csv and meta.json together"
        ) from None
    except OSError as error:
        raise ResultsError(f"cannot read {path}: {error.strerror}") from error
    whole = whole_lines(data)
    return whole, len(whole) != len(data)


def flags(path: Path, texts: pd.Series[str]) -> pd.Series[bool]:
    """Return "1"/"0"/"" as a nullable boolean column; spreadsheets' True/False are accepted."""
    known = {"1": True, "0": False, "true": True, "false": False, "": None}
    lowered = texts.str.lower()
    bad = sorted(set(lowered.unique()) - set(known))
    if bad:
        raise ResultsError(f"{path}: column {texts.name}: got {bad[0]!r}, want 1, 0 or empty")
    return lowered.map(known).astype("boolean")


def read_csv(
    path: Path, text: bytes, columns: Sequence[str], kinds: Mapping[str, str], version: object
) -> pd.DataFrame:
    """Parse a CSV without losing a digit; raises ResultsError that names the column at fault.

    kinds: pandas dtype by column, else "str". A column that came after schema `version` and is
    not in the file is added with unknown values.
    """
    try:
        import pandas as pd
    except ImportError:
        raise ResultsError(
            "reading results needs pandas; install it with: pip install pandas"
        ) from None
    if not text:
        raise ResultsError(
            f"{path} is empty or was cut within its first line, want a header and rows; copy the "
            "run again"
        )
    first = text[: text.index(b"\n")] if b"\n" in text else text
    header = first.decode("utf-8-sig", errors="replace").strip().split(",")
    absent = [c for c in columns if c not in header]
    missing = [c for c in absent if SINCE_MINOR.get(c, 0) <= minor(version)]
    if missing:
        more = f" and {len(missing) - 4} more" if len(missing) > 4 else ""
        raise ResultsError(
            f"{path} lacks the column {', '.join(missing[:4])}{more}; schema "
            f"{SCHEMA_VERSION} wants {len(columns)} columns: was it written by this harness?"
        )
    refuse_cut_lines(path, text, len(header))
    # Columns that this version does not know are kept as text.
    dtypes: dict[str, Any] = {name: kinds.get(name, "str") for name in header}
    try:
        table = pd.read_csv(
            io.BytesIO(text),
            dtype=dtypes,
            na_values={name: [""] for name, kind in dtypes.items() if kind != "str"},
            keep_default_na=False,
            encoding="utf-8-sig",
            **_exact_floats(pd.__version__),
        )
        return _filled(table, absent, columns, kinds) if absent else table
    except (ValueError, TypeError) as error:
        raise ResultsError(
            f"{path} does not parse: {' '.join(str(error).split())}; repair or copy it again"
        ) from error


def _exact_floats(version: str) -> dict[str, Any]:
    """The option with which pandas loses no bit of a float: its default did before 3.1, whose
    default is exact and which warns of the option."""
    parts = tuple(int(part) for part in version.split(".")[:2])
    return {} if parts >= (3, 1) else {"float_precision": "round_trip"}


def refuse_cut_lines(path: Path, text: bytes, n_cells: int) -> None:
    """Raise ResultsError for the first line without `n_cells` cells: its row would read as one
    whose last columns are unknown."""
    for number, n_found in _cells_by_line(text):
        if n_found != n_cells:
            raise ResultsError(
                f"{path}: line {number} has {n_found} cells, want {n_cells}; repair or copy it "
                "again"
            )


def _cells_by_line(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield (line, cells) of one line of each number of cells, and of every line with a quote.

    A parser takes seconds for a hundred thousand lines; commas are counted in a tenth of one.
    """
    import numpy as np

    signs = np.frombuffer(text, dtype=np.uint8)
    ends = np.append(np.flatnonzero(signs == ord("\n")), len(signs))
    starts = np.append(0, ends[:-1] + 1)

    def count(sign: str) -> Any:
        if sign.encode() not in text:
            return np.zeros(len(ends), dtype=np.int64)
        places = np.flatnonzero(signs == ord(sign))
        return np.searchsorted(places, ends) - np.searchsorted(places, starts)

    quotes = count('"')
    if (quotes % 2).any():  # a cell of several lines, as only another program writes them
        rows = csv.reader(io.StringIO(text.decode("utf-8-sig", errors="replace")))
        yield from ((number, len(cells)) for number, cells in enumerate(rows, 1) if cells)
        return
    filled = np.flatnonzero((ends - starts > 1) | (count("\r") < ends - starts))
    commas = count(",")
    plain = filled[quotes[filled] == 0]
    _, firsts = np.unique(commas[plain], return_index=True)
    found = [(int(line) + 1, int(commas[line]) + 1) for line in plain[firsts]]
    quoted = filled[quotes[filled] > 0]
    lines = (text[starts[line] : ends[line]].decode("utf-8", errors="replace") for line in quoted)
    found += [
        (int(line) + 1, len(cells)) for line, cells in zip(quoted, csv.reader(lines), strict=True)
    ]
    yield from sorted(found)


def _filled(
    table: pd.DataFrame, absent: Sequence[str], columns: Sequence[str], kinds: Mapping[str, str]
) -> pd.DataFrame:
    """Return the table with the absent columns in their place, each cell unknown."""
    import pandas as pd

    added = {}
    for name in absent:
        kind = kinds.get(name, "str")
        empty = "" if kind == "str" else math.nan if kind == "float64" else pd.NA
        added[name] = pd.Series([empty] * len(table), index=table.index, dtype=kind)
    others = [c for c in table.columns if c not in columns]
    filled: pd.DataFrame = table.assign(**added)[[*columns, *others]]
    return filled
