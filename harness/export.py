"""`results export`: a run as one JSON or Parquet file that carries the unit of every column."""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .options import UsageError

if TYPE_CHECKING:
    import pandas as pd

    from .results import Run


def export(options: argparse.Namespace) -> int:
    """Write the file and say where; returns the exit code."""
    from .results import read_run
    from .run_repair import write_atomically

    if options.format == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise UsageError(
            "--format parquet needs pyarrow, which is not installed: pip install pyarrow, or "
            "pip install '.[parquet]' in the checkout; --format json needs nothing"
        )
    run = read_run(options.run)
    make = parquet_bytes if options.format == "parquet" else json_bytes
    data = make(run, options.table)
    if options.out == "-":
        sys.stdout.buffer.write(data)
        return 0
    path = Path(options.out or run.path / f"{options.table}.{options.format}")
    try:
        if path.is_dir():
            raise UsageError(f"--out {path} is a folder, wanted a file or - for standard output")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as error:
        raise UsageError(
            f"--out {path}: cannot be written ({error.strerror or error}); choose another place"
        ) from error
    if not run.complete:
        print(f"warning: {run.path} is not a finished run; what it holds is in", file=sys.stderr)
    print(f"wrote {path}")
    return 0


def json_bytes(run: Run, table: str = "bench") -> bytes:
    """Return {"schema", "table", "units", "meta", "rows"}: null is unknown, no digit is lost."""
    frame, units = _table(run, table)
    head = {"schema": run.meta["schema"], "table": table, "units": units, "meta": run.meta}
    columns = [_plain(frame[name]) for name in frame]
    names = list(frame)
    rows = (
        json.dumps(dict(zip(names, cells, strict=True)), ensure_ascii=False, allow_nan=False)
        for cells in zip(*columns, strict=True)
    )
    text = json.dumps(_finite(head), indent=1, ensure_ascii=False, allow_nan=False)
    text = text.removesuffix("\n}") + ',\n "rows": [\n' + ",\n".join(rows) + "\n]}\n"
    return text.encode()


def parquet_bytes(run: Run, table: str = "bench") -> bytes:
    """Return a Parquet file: `unit` in each field's metadata, meta.json in the schema's."""
    import pyarrow as pa
    from pyarrow import parquet

    frame, units = _table(run, table)
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    fields = [field.with_metadata({"unit": units[field.name]}) for field in arrow.schema]
    facts = {"meta": json.dumps(_finite(run.meta)), "schema": str(run.meta["schema"])}
    arrow = arrow.cast(pa.schema(fields)).replace_schema_metadata(facts)
    stream = io.BytesIO()
    parquet.write_table(arrow, stream)
    return stream.getvalue()


def _table(run: Run, table: str) -> tuple[pd.DataFrame, dict[str, str]]:
    from .units import unit

    if table == "bench":
        frame = run.rows.rename_axis("row").reset_index()
    else:
        frame = run.rounds
    return frame, {str(name): unit(str(name)) for name in frame}


def _plain(column: pd.Series[Any]) -> list[Any]:
    """A column's cells as JSON has them: text as it is, unknown numbers as null."""
    if column.dtype.kind not in "fiub":
        return [str(value) for value in column]
    missing = column.isna()
    return [None if gap else _cell(value) for value, gap in zip(column, missing, strict=True)]


def _cell(value: Any) -> Any:
    number = value.item() if hasattr(value, "item") else value
    return number if not isinstance(number, float) or math.isfinite(number) else None


def _finite(value: Any) -> Any:
    """`value` without NaN and infinity, which JSON has not."""
    if isinstance(value, Mapping):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
