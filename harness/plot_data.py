"""What each figure draws, taken from a run's rows: sweeps, curves, roofs, and what is left out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

# Rows that differ in one of these are never joined by one line.
SPLIT_BY = ("math_mode", "distribution", "cache", "flush")
MAX_PANELS = 3
_STEM_LENGTH = 200  # bytes that every file system takes, with room for the format's ending
_STEPS_PER_OCTAVE = 16  # cases closer than this share a place on a log2 axis: one is drawn


def stem(*parts: str) -> str:
    """Return the parts as one file name without its ending; other characters become dashes."""
    text = "_".join(parts)[:_STEM_LENGTH]
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in text)


@dataclass(frozen=True, eq=False)
class Group:
    """All rows of one figure: one op and dtype, and one value of each SPLIT_BY column."""

    op: str
    dtype: str
    suffix: str
    compute: bool
    rows: pd.DataFrame

    @property
    def name(self) -> str:
        """Return the file stem, such as bandwidth_softmax_bf16."""
        kind = "throughput" if self.compute else "bandwidth"
        return stem(kind, self.op, f"{self.dtype}{self.suffix}")


@dataclass(frozen=True, eq=False)
class Sweep:
    """Cases that form one curve: `x` by case name; `bytes_axis` when x is bytes moved."""

    label: str
    bytes_axis: bool
    x: dict[str, float]


@dataclass(frozen=True, eq=False)
class Curve:
    """One implementation's rates along a sweep; low/high from the p80/p20 times."""

    backend: str
    variant: str
    headline: bool
    x: list[float]
    rate: list[float]
    low: list[float]
    high: list[float]

    @property
    def name(self) -> str:
        """Return the row's name, such as cuda or cuda:naive."""
        return f"{self.backend}:{self.variant}" if self.variant else self.backend


def groups(rows: pd.DataFrame) -> list[Group]:
    """Return one Group a figure, in the order of the file."""
    found = []
    rows = _as_timed(rows)
    for (op, dtype), part in rows.groupby(["op", "dtype"], sort=False):
        splitting = [c for c in SPLIT_BY if part[c].nunique() > 1]
        pieces = part.groupby(splitting, sort=False) if splitting else [((), part)]
        for values, piece in pieces:
            suffix = "".join(f"_{v or 'plain'}" for v in values)
            compute = bool(((piece["bound"] == "compute") | (piece["family"] == "matmul")).any())
            found.append(Group(str(op), str(dtype), suffix, compute, piece))
    return found


def _as_timed(rows: pd.DataFrame) -> pd.DataFrame:
    """Give rows that were never timed the cache and flush of their op's first row that was.

    Else an absent row, whose cache is empty, would split its op's figure and rename it.
    """
    filled = {}
    for column in ("cache", "flush"):
        known = rows[column].where(rows[column] != "")
        first = known.groupby([rows["op"], rows["dtype"]]).transform("first")
        filled[column] = known.fillna(first).fillna("")
    timed: pd.DataFrame = rows.assign(**filled)
    return timed


def work(rows: pd.DataFrame, compute: bool) -> pd.Series[float]:
    """Return each row's flops, or its distinct bytes; NaN where unknown or not positive."""
    if compute:
        amount = rows["flops"].astype("float64")
    else:
        amount = rows["bytes_read"].astype("float64") + rows["bytes_written"].astype("float64")
    # More than an exabyte is a damaged cell, and would make an axis of it alone.
    positive: pd.Series[float] = amount.where((amount > 0) & (amount < (1e24 if compute else 1e18)))
    return positive


def sweeps(group: Group) -> tuple[list[Sweep], list[str]]:
    """Return the group's curves' axes, largest work first, and the names of cases left out.

    The axis is the size or dimension that tells most cases apart. Where every combination of the
    other dimensions sweeps it completely (a matmul's K for each M = N), each gets a panel.
    """
    cases = _cases(group)
    if cases.empty:
        return [], []
    axes = {} if group.compute else {"bytes": cases["work"]}
    dims = [str(c) for c in cases.columns if str(c).startswith("dim ")]
    axes |= {c: cases[c] for c in dims if cases[c].nunique() > 1}
    axes = axes or {"bytes": cases["bytes"]}
    # Size and the innermost dimension (row width, K) are what readers look for: another must
    # tell half as many cases again apart to take their place.
    usual = {"bytes", *dims[-1:]}
    axis = max(axes, key=lambda a: _buckets(axes[a]).nunique() * (1.5 if a in usual else 1.0))
    found: list[Sweep] = []
    for part in _panels(cases, axis, [d for d in dims if d != axis]):
        values = part["bytes" if axis == "bytes" else axis]
        ordered = part.assign(x=values, bucket=_buckets(values), length=part["case"].str.len())
        ordered = ordered[(ordered["x"] > 0) & np.isfinite(ordered["x"])].sort_values(
            ["bucket", "work", "length"], ascending=[True, False, True], kind="stable"
        )
        kept = ordered.drop_duplicates("bucket")
        x = dict(zip(kept["case"], kept["x"].astype(float), strict=True))
        found.append(Sweep(_axis_label(axis, kept, dims), axis == "bytes", x))
    drawn = {case for sweep in found for case in sweep.x}
    return found, [case for case in cases["case"] if case not in drawn]


def _cases(group: Group) -> pd.DataFrame:
    """Return one line a case that has an ok row: case, work, bytes, and a column a dimension."""
    ok = group.rows[group.rows["status"] == "ok"]
    table: pd.DataFrame = pd.DataFrame(
        {
            "case": ok["case"],
            "dims": ok["dims"],
            "work": work(ok, group.compute),
            "bytes": work(ok, False),
        }
    )
    table = table.sort_values("work", na_position="last").drop_duplicates("case").sort_index()
    table = table[table["work"].notna()].reset_index(drop=True)
    extents = [_extents(text) for text in table["dims"]]
    for name in dict.fromkeys(name for one in extents for name in one):
        table[f"dim {name}"] = [one.get(name, math.nan) for one in extents]
    return table


def _extents(dims: object) -> dict[str, float]:
    """Return "M=4096;N=8192" as numbers by name; parts that are no number are skipped."""
    pairs = (part.partition("=") for part in str(dims).split(";"))
    return {name.strip(): float(e) for name, _, e in pairs if e.strip().isdigit()}


def _buckets(values: pd.Series[float]) -> pd.Series[float]:
    positive = values.where(values > 0).astype("float64")
    steps: pd.Series[float] = (np.log2(positive) * _STEPS_PER_OCTAVE).round()
    return steps


def _panels(cases: pd.DataFrame, axis: str, others: list[str]) -> list[pd.DataFrame]:
    """Return the cases split by the other dimensions when each part is a whole sweep."""
    n_steps = _buckets(cases["bytes"] if axis == "bytes" else cases[axis]).nunique()
    if axis != "bytes" and others and n_steps >= 3:
        parts = [part for _, part in cases.groupby(others, dropna=False)]
        whole = [p for p in parts if _buckets(p[axis]).nunique() == n_steps]
        if len(whole) > 1:
            whole.sort(key=lambda p: -float(p["work"].max()))
            return whole[:MAX_PANELS]
    return [cases]


def _axis_label(axis: str, kept: pd.DataFrame, dims: list[str]) -> str:
    if axis == "bytes":
        return "bytes read and written"
    same = [d for d in dims if d == axis or (kept[d] == kept[axis]).all()]
    fixed: dict[str, list[str]] = {}
    for d in dims:
        if d not in same and kept[d].nunique() == 1:
            fixed.setdefault(f"{kept[d].iloc[0]:.0f}", []).append(d[4:])
    text = " = ".join(d[4:] for d in same)
    notes = [" = ".join([*names, value]) for value, names in fixed.items()]
    return f"{text}   ({', '.join(notes)})" if notes else text


def curves(group: Group, sweep: Sweep, share: bool = False) -> Iterator[Curve]:
    """Yield the ok rows' curves along a sweep, headlines last so that they lie on top.

    `share`: of percent of the row's own roof in place of rates.
    """
    rows = group.rows
    rows = rows[(rows["status"] == "ok") & rows["case"].isin(list(sweep.x))]
    amount = work(rows, group.compute)
    if share:  # such that dividing by the time gives percent
        scale = 100.0 * (1e6 if group.compute else 1e3)
        amount = rows["roof_us"].where(rows["roof_us"] > 0) * scale
    table = pd.DataFrame({c: rows[c] for c in ("backend", "variant", "headline")})
    table["x"] = rows["case"].map(sweep.x)
    table["rate"] = rate(amount, rows["time_us_p50"], group.compute)
    table["low"] = rate(amount, rows["time_us_p80"], group.compute).fillna(table["rate"])
    table["high"] = rate(amount, rows["time_us_p20"], group.compute).fillna(table["rate"])
    table = table[table["rate"].notna() & table["x"].notna()].sort_values("x", kind="stable")
    found = []
    for (backend, variant), part in table.groupby(["backend", "variant"], sort=True):
        # Baselines have one plain form; it is their headline whether or not a row says so.
        main = bool(part["headline"].fillna(False).any()) or (
            backend not in ("cuda", "triton") and not variant
        )
        columns = [part[c].astype(float).tolist() for c in ("x", "rate", "low", "high")]
        found.append(Curve(str(backend), str(variant), main, *columns))
    yield from sorted(found, key=lambda c: c.headline)


def roof(group: Group, sweep: Sweep) -> tuple[str, list[float], list[float]]:
    """Return the roof's name (of the largest case) and its rate along the sweep."""
    rows = group.rows[group.rows["case"].isin(list(sweep.x))]
    table = pd.DataFrame(
        {
            "x": rows["case"].map(sweep.x),
            "rate": rate(work(rows, group.compute), rows["roof_us"], group.compute),
            "name": rows["roof_name"],
        }
    )
    table = table[table["rate"].notna()].sort_values(["x", "rate"], kind="stable")
    table = table.drop_duplicates("x", keep="last")
    name = str(table["name"].iloc[-1]) if len(table) else ""
    return name, table["x"].astype(float).tolist(), table["rate"].astype(float).tolist()


def rate(amount: pd.Series[float], time_us: pd.Series[float], compute: bool) -> pd.Series[float]:
    """Return TFLOP/s (1e12) or GB/s (1e9); NaN for a time that is not a positive number."""
    positive = time_us.where((time_us > 0) & np.isfinite(time_us))
    rates: pd.Series[float] = amount / positive / (1e6 if compute else 1e3)
    # Beyond this nothing was measured, and no axis could show it beside anything else.
    possible: pd.Series[float] = rates.where(rates.between(1e-9, 1e9))
    return possible


def left_out(group: Group, cases: list[str]) -> str:
    """Return the caption that counts what a figure does not show; "" when it shows all."""
    counts = group.rows.loc[group.rows["status"] != "ok", "status"].value_counts()
    parts = [f"{counts[s]} {s}" for s in sorted(counts.index)]
    text = f"rows not drawn: {', '.join(parts)}" if parts else ""
    if cases:
        names = ", ".join(cases[:4]) + (", ..." if len(cases) > 4 else "")
        text += ("; " if text else "") + f"{len(cases)} cases off this sweep: {names}"
    return text
