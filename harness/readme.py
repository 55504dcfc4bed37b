"""The README's results table: made from a run, checked against it, never typed by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from harness.results import ResultsError, Run, gpu_names, meta_fact, meta_value, varying
from harness.run_repair import write_atomically

BEGIN = "<!-- results:begin -->"
END = "<!-- results:end -->"
MAX_ROWS = 23  # one for each op; the README has 150 lines at most

_SIDES = ("cuda", "triton", "torch", "library")
_CASE = ["op", "dtype", "math_mode", "distribution", "case"]
_NOT_RECORDED = "not recorded"


def results_table(run: Run) -> str:
    """Return the Markdown between the markers: the largest headline cases of each op.

    At most MAX_ROWS lines; times in microseconds are medians with a cold cache, roofs measured in
    the same run. A side that was not timed shows its status instead.
    """
    cases = _cases(run.rows)
    shown = _selected(cases)
    telling = varying(run.rows, ("math_mode", "distribution"))
    lines = [
        "| op | case | dtype | CUDA µs | Triton µs | torch µs | library µs | CUDA / Triton time "
        "| CUDA % of roof | Triton % of roof |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|--:|",
        *(_line(run.rows, case, telling) for case in shown.to_dict("records")),
        "",
        _provenance(run),
    ]
    n_further = len(cases) - len(shown)
    if n_further:
        are = "case is" if n_further == 1 else "cases are"
        lines[-1] += f" {n_further} further {are} in bench.csv."
    return "\n".join(lines)


def update_readme(readme_path: Path, run: Run) -> None:
    """Replace the text between the markers; raises ResultsError when they are missing."""
    path = Path(readme_path)
    before, _, after = _split(path)
    if not run.complete:
        raise ResultsError(
            f"{run.path} is not complete, and a table of a part would pass for the whole; finish "
            "the run with `bench --resume`"
        )
    if not (run.rows["status"] == "ok").any():
        raise ResultsError(f"{run.path} holds no timed row; pass a run that was made on a GPU")
    write_atomically(path, f"{before}{_block(run)}{after}".encode())


def check_readme(readme_path: Path, run: Run) -> bool:
    """Return whether the README shows exactly this run; raises ResultsError without markers."""
    return _split(Path(readme_path))[1] == _block(run)


def _block(run: Run) -> str:
    return f"{BEGIN}\n{results_table(run)}\n{END}"


def _split(path: Path) -> tuple[str, str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"cannot read {path}: {error.strerror}") from error
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ResultsError(f"{path} needs the lines {BEGIN} and {END}, once each, in this order")
    before, _, rest = text.partition(BEGIN)
    inside, _, after = rest.partition(END)
    return before, f"{BEGIN}{inside}{END}", after


def _headline(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that stand for their side: headlines, and torch's plain form."""
    flag = rows["headline"].fillna(False).astype(bool)
    plain = (rows["backend"] == "torch") & (rows["variant"] == "")
    kept: pd.DataFrame = rows[rows["backend"].isin(_SIDES) & (flag | plain)]
    return kept


def _cases(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one line a case with a timed CUDA or Triton headline row, with its size."""
    main = _headline(rows)
    timed = main[(main["status"] == "ok") & main["backend"].isin(["cuda", "triton"])]
    moved = timed["bytes_read"].astype("float64") + timed["bytes_written"].astype("float64")
    sized = timed[_CASE].assign(flops=timed["flops"].fillna(0.0), moved=moved.fillna(0.0))
    cases: pd.DataFrame = sized.drop_duplicates(_CASE)
    return cases


def _selected(cases: pd.DataFrame) -> pd.DataFrame:
    """Return at most MAX_ROWS cases: each op's largest first, then the next largest, in op order.

    Within an op all dtypes' largest cases come before any dtype's second.
    """
    by_size = cases.sort_values(["flops", "moved"], ascending=False, kind="stable")
    rank = by_size.groupby(["op", "dtype", "math_mode", "distribution"], sort=False).cumcount()
    by_size = by_size.assign(rank=rank).sort_values("rank", kind="stable")
    turn = by_size.groupby("op", sort=False).cumcount()
    chosen = by_size.assign(turn=turn).sort_values("turn", kind="stable").head(MAX_ROWS)
    ops = {op: i for i, op in enumerate(cases["op"].drop_duplicates())}
    chosen = chosen.assign(place=chosen["op"].map(ops))
    result: pd.DataFrame = chosen.sort_values(
        ["place", "dtype", "flops", "moved"], ascending=[True, True, False, False], kind="stable"
    )
    return result


def _line(rows: pd.DataFrame, case: Any, telling: Mapping[str, set[str]]) -> str:
    same = _headline(rows)
    for column in _CASE:
        same = same[same[column] == case[column]]
    sides = {b: _first(same[same["backend"] == b]) for b in _SIDES}
    times = {b: _time(row) for b, row in sides.items()}
    ratio = "–"
    if not (math.isnan(times["cuda"]) or math.isnan(times["triton"])):
        ratio = f"{times['cuda'] / times['triton']:.2f}"
    mode = " ".join(str(case[c]) for c, ops in telling.items() if case["op"] in ops)
    cells = [
        f"`{case['op']}`",
        _escape(case["case"]),
        _escape(f"{case['dtype']} {mode}".strip()),
        *(_time_text(sides[b], times[b]) for b in _SIDES),
        ratio,
        *(_roof_text(sides[b], times[b]) for b in ("cuda", "triton")),
    ]
    return f"| {' | '.join(cells)} |"


def _first(rows: pd.DataFrame) -> dict[str, Any] | None:
    return None if rows.empty else {str(k): v for k, v in rows.iloc[0].items()}


def _time(row: dict[str, Any] | None) -> float:
    time = float(row["time_us_p50"]) if row and row["status"] == "ok" else math.nan
    return time if math.isfinite(time) and time > 0 else math.nan


def _time_text(row: dict[str, Any] | None, time: float) -> str:
    """Return three or four significant digits; a timer's tick hides any more."""
    if row is None:
        return "–"
    if math.isnan(time):
        return str(row["status"])
    digits = 0 if time >= 1000 else 1 if time >= 100 else 2 if time >= 1 else 4
    return f"{time:.{digits}f}"


def _roof_text(row: dict[str, Any] | None, time: float) -> str:
    roof = float(row["roof_us"]) if row else math.nan
    if math.isnan(time) or not (math.isfinite(roof) and roof > 0):
        return "–"
    return f"{100.0 * roof / time:.0f}"


def _provenance(run: Run) -> str:
    """Return the line that says what was measured on, with what, and when."""
    gpu = " and ".join(gpu_names(run)) or f"GPU {_NOT_RECORDED}"
    facts = [
        f"{label} {meta_fact(run.meta, name) or _NOT_RECORDED}"
        for label, name in (
            ("driver", "driver"),
            ("torch", "torch"),
            ("Triton", "triton"),
            ("CUDA", "CUDA"),
        )
    ]
    started = str(meta_value(run.meta, "started_utc") or f"date {_NOT_RECORDED}")[:30]
    return _escape(f"{gpu}, {', '.join(facts)}, {started}. Median of cold-cache launches.")


def _escape(text: object) -> str:
    return str(text).replace("|", "\\|")
