"""The end of the report: the machine, the roofs, what was asked for, and the rows that failed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.report_map import floor_words
from harness.report_text import UNKNOWN, binary, count, cut, mapping, number, sequence
from harness.results import (
    BENCH_NAME,
    META_NAME,
    ROUNDS_NAME,
    SAMPLES_NAME,
    WATCH_NAME,
    Run,
    meta_fact,
    meta_value,
)

Facts = list[tuple[str, str]]
NOT_RECORDED = "not recorded"
_FILES = {
    BENCH_NAME: "one row a case and implementation",
    ROUNDS_NAME: "the rounds' means, which intervals come from",
    META_NAME: "machine, settings, roofs",
    SAMPLES_NAME: "every sample",
    WATCH_NAME: "power, temperature and clock during the run",
    "facts.json": "compiler facts of the kernels",
}
_OPTIONAL = ("facts.json",)


@dataclass(frozen=True)
class File:
    """A file of the run; `digest` is empty where it is missing."""

    name: str
    what: str
    digest: str


@dataclass(frozen=True)
class RoofLine:
    """A roof at one size: rate at the start, at the end, and how far it moved."""

    name: str
    at: str
    start: str
    end: str
    moved: str


def machine(run: Run) -> Facts:
    """Return what the run was measured on and with."""
    gpu = mapping(run.meta.get("gpu"))
    facts = {
        "GPU": meta_fact(run.meta, "gpu name"),
        "Card (hash of its id)": meta_fact(run.meta, "gpu id"),
        "Multiprocessors": gpu.get("sm_count"),
        "L2": _known(binary, gpu.get("l2_bytes")),
        "Memory": _known(binary, gpu.get("memory_bytes")),
        "Highest SM clock": _known(lambda v: f"{number(v) / 1e3:.0f} MHz", gpu.get("sm_khz_max")),
        "System": run.meta.get("os"),
        "Driver": meta_fact(run.meta, "driver"),
        "CUDA": meta_fact(run.meta, "CUDA"),
        "nvcc": meta_fact(run.meta, "nvcc"),
        "ptxas of nvcc": meta_fact(run.meta, "nvcc's ptxas"),
        "nvcc flags": meta_fact(run.meta, "nvcc flags"),
        "Architectures": run.meta.get("arch_list"),
        "torch": meta_fact(run.meta, "torch"),
        "Triton": meta_fact(run.meta, "triton"),
        "ptxas of Triton": meta_fact(run.meta, "triton's ptxas"),
        "Python": meta_fact(run.meta, "Python"),
        "Host compiler": run.meta.get("host_compiler"),
    }
    return [(name, _text(value)) for name, value in facts.items()]


def settings(run: Run) -> Facts:
    """Return what was asked for and how long it took."""
    dirty = " with uncommitted changes" if run.meta.get("git_dirty") is True else ""
    facts = {
        "Begun": meta_value(run.meta, "started_utc"),
        "Took": _known(lambda v: f"{number(v):.0f} s", run.meta.get("elapsed_s")),
        "Complete": "yes" if run.complete else "no",
        "Command": run.meta.get("command"),
        "Effort": run.meta.get("settings"),
        "Flush before each sample": run.meta.get("flush"),
        "Seed": run.meta.get("seed"),
        "Inputs": _pairs(run.meta.get("distributions")),
        "Commit": f"{_text(run.meta.get('git_commit'))}{dirty}",
        "Workers restarted": run.meta.get("worker_restarts"),
    }
    return [(name, _text(value)) for name, value in facts.items()]


def clock(run: Run) -> Facts:
    """Return the timer's own properties and the noise floor; only what is recorded."""
    roofs = mapping(run.meta.get("roofs"))
    facts: Facts = []
    for name, key in (
        ("Launch floor (an empty kernel)", "launch_floor_us"),
        ("An empty pair of events", "event_overhead_us"),
        ("Timer's tick", "tick_us"),
    ):
        value = number(roofs.get(key, run.meta.get(key)))
        if math.isfinite(value):
            facts.append((name, f"{value:.3f} µs"))
    floor = run.meta.get("noise_floor")
    if isinstance(floor, int | float):
        facts.append(("Noise floor between processes", f"{100 * floor:.2g} %"))
    known = mapping(floor)
    classes = [floor_words(entry) for entry in sequence(known.get("classes"))]
    for name, key in (("at equal clock", "equal_clock"), ("clock held down", "clock_limited")):
        entry = mapping(known.get(key))
        classes.append(floor_words(entry, name) if entry else "")
    text = "; ".join(words for words in classes if words)
    if text:
        facts.append(("Noise floor between processes", text))
        facts.append(("Noise floor measured", _text(known.get("measured_utc"))))
    elif floor is None:
        facts.append(("Noise floor between processes", "not measured; compare uses its defaults"))
    return facts + _health(run)


def _health(run: Run) -> Facts:
    cases = [mapping(c) for c in mapping(run.meta.get("gpu_health")).values()]
    if not cases:
        return []
    hottest = max((number(c.get("celsius_max")) for c in cases), default=math.nan)
    slowest = min((number(c.get("sm_mhz_min")) for c in cases), default=math.nan)
    reasons: dict[str, int] = {}
    for case in cases:
        for reason in mapping(case.get("reasons")):
            reasons[str(reason)] = reasons.get(str(reason), 0) + 1
    told = ", ".join(f"{r} in {count(n, 'case')}" for r, n in sorted(reasons.items()))
    return [
        ("Highest temperature", f"{hottest:.0f} °C" if math.isfinite(hottest) else UNKNOWN),
        ("Lowest SM clock seen", f"{slowest:.0f} MHz" if math.isfinite(slowest) else UNKNOWN),
        ("Reasons for a lower clock", told or "none seen"),
    ]


def roofs(run: Run) -> tuple[list[RoofLine], str]:
    """Return the measured roofs, from small to large, and how they were measured."""
    start, end = mapping(run.meta.get("roofs")), mapping(run.meta.get("roofs_end"))
    lines = []
    for name, points in mapping(start.get("curves_us")).items():
        later = dict(_points(mapping(end.get("curves_us")).get(name)))
        for size, us in _points(points):
            rate, now = size / us / 1e3, later.get(size)
            then = size / now / 1e3 if now else math.nan
            lines.append(_roof_line(name, binary(size), rate, then, "GB/s"))
    for name, rate in mapping(start.get("matrix_tflops")).items():
        then = number(mapping(end.get("matrix_tflops")).get(name))
        lines.append(_roof_line(f"matrix {name}", "8192 cubed", number(rate), then, "TFLOP/s"))
    return lines, str(start.get("method") or "")


def _points(points: object) -> list[tuple[float, float]]:
    pairs = [(number(p[0]), number(p[1])) for p in sequence(points) if len(sequence(p)) == 2]
    return [(size, us) for size, us in pairs if size > 0 and us > 0]


def _roof_line(name: str, at: str, rate: float, end: float, unit: str) -> RoofLine:
    moved = 100 * (end / rate - 1) if math.isfinite(end) and rate else math.nan
    start, then = (f"{v:.0f} {unit}" if math.isfinite(v) else UNKNOWN for v in (rate, end))
    return RoofLine(name, at, start, then, f"{moved:+.1f} %" if math.isfinite(moved) else UNKNOWN)


def failures(run: Run) -> list[tuple[str, str, str, int, str]]:
    """Return the rows without a time: op, row, status, how many, reason; each reason once."""
    counts: dict[tuple[str, str, str, str], int] = {}
    for row in run.rows[run.rows["status"] != "ok"].to_dict("records"):
        name = f"{row['backend']}:{row['variant']}" if row["variant"] else str(row["backend"])
        key = (str(row["op"]), name, str(row["status"]), str(row["reason"]))
        counts[key] = counts.get(key, 0) + 1
    most = list(counts.items())[:500]
    return [(op, name, status, n, cut(reason)) for (op, name, status, reason), n in most]


def files(run: Run) -> list[File]:
    """Return the run's files with a hash of each, so that a page can be told from another's."""
    found = []
    for name, what in _FILES.items():
        path = run.path / name
        if name in _OPTIONAL and not path.is_file():
            continue
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else ""
        found.append(File(name, what, digest))
    return found


def _known(form: Any, value: object) -> str | None:
    return None if value is None or number(value) != number(value) else str(form(value))


def _pairs(value: object) -> str | None:
    known: Mapping[str, Any] = mapping(value)
    return "; ".join(f"{k}: {v}" for k, v in known.items()) or None


def _text(value: object) -> str:
    if value is None or value == "":
        return NOT_RECORDED
    return cut(" ".join(map(str, value)) if isinstance(value, list) else value)


def drift(run: Run) -> str:
    """Return how far the roofs moved while the run went on, "" where it is not recorded."""
    known = mapping(run.meta.get("roof_drift"))
    worst = number(known.get("worst_pct"))
    if not math.isfinite(worst):
        return ""
    moved = [str(line) for line in sequence(known.get("above_2_pct"))]
    text = f"From start to end the roofs moved by at most {worst:+.1f} % ({_text(known.get('at'))})"
    return f"{text}; by more than 2 %: {', '.join(moved)}." if moved else f"{text}."
