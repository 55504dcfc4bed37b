"""One CSV file of a run as a table: whole lines only, every digit kept, faults named by column."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
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
    header = text.decode("utf-8-sig", errors="replace").partition("\n")[0].strip().split(",")
    absent = [c for c in columns if c not in header]
    missing = [c for c in absent if SINCE_MINOR.get(c, 0) <= minor(version)]
    if missing:
        more = f" and {len(missing) - 4} more" if len(missing) > 4 else ""
        raise ResultsError(
            f"{path} lacks the column {', '.join(missing[:4])}{more}; schema "
            f"{SCHEMA_VERSION} wants {len(columns)} columns: was it written by this harness?"
        )
    refuse_cut_lines(path, text, len(header))
    # Columns that this version does not know are kept as text. Floats go through Python's own
    # parser: the CSV reader's default is off by a last bit in some pandas versions.
    dtypes: dict[str, Any] = {name: kinds.get(name, "str") for name in header}
    floats = [name for name in header if dtypes[name] == "float64"]
    others = {name: kind for name, kind in dtypes.items() if kind != "float64"}
    try:
        table = pd.read_csv(
            io.BytesIO(text),
            dtype=others,
            converters=dict.fromkeys(floats, _number),
            na_values={name: [""] for name, kind in others.items() if kind != "str"},
            keep_default_na=False,
            encoding="utf-8-sig",
        )
        table = table.astype(dict.fromkeys(floats, "float64"))
        return _filled(table, absent, columns, kinds) if absent else table
    except (ValueError, TypeError) as error:
        raise ResultsError(
            f"{path} does not parse: {' '.join(str(error).split())}; repair or copy it again"
        ) from error


def refuse_cut_lines(path: Path, text: bytes, n_cells: int) -> None:
    """Raise ResultsError for the first line without `n_cells` cells: its row would read as one
    whose last columns are unknown."""
    lines = csv.reader(io.StringIO(text.decode("utf-8-sig", errors="replace")))
    for number, cells in enumerate(lines, 1):
        if cells and len(cells) != n_cells:
            raise ResultsError(
                f"{path}: line {number} has {len(cells)} cells, want {n_cells}; repair or copy it "
                "again"
            )


def _number(cell: str) -> float:
    return float(cell) if cell else math.nan


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
