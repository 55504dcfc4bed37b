"""Optional: counters of Nsight Compute, for bytes that really moved. Never a time.

A profiled kernel runs with other clocks, caches and neighbours, so no figure from here stands
beside a time; `--clock-control none` at least leaves the card's clocks alone. Counters need a
permission that containers and clouds seldom give.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .facts import ExplainError

# Base names; releases and archs lack some, and a missing one is an empty cell.
METRICS = (
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "launch__registers_per_thread",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__waves_per_multiprocessor",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "smsp__inst_executed_op_local_ld.sum",
)
_COLUMNS = ("ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value")
_NO_PERMISSION = "ERR_NVGPUCTRPERM"
_SCALES = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12, "": 1.0}
_TIME_WORDS = ("time", "duration", "cycles", "per_second", "elapsed", "frequency", "hz")


@dataclass(frozen=True)
class Profile:
    """One profiled launch: metric -> value in its base unit; bytes for byte metrics."""

    kernel: str
    values: dict[str, float] = field(default_factory=dict)

    @property
    def dram_bytes(self) -> float | None:
        """Read and written; None when one is missing."""
        parts = [self.values.get(f"dram__bytes_{way}.sum") for way in ("read", "write")]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None


def unavailable() -> str:
    """Why ncu cannot be used, before it is tried; "" when it may work."""
    if shutil.which("ncu") is None:
        return "not available: no ncu on PATH; it comes with NVIDIA Nsight Compute"
    try:
        import torch
    except ImportError:
        return "not available: torch cannot be imported"
    return "" if torch.cuda.is_available() else "not available: no GPU is visible"


def command(program: Sequence[str], kernel: str, launches: int = 1) -> list[str]:
    """The ncu call for the first launches of a kernel whose name holds `kernel`."""
    return [
        "ncu",
        "--csv",
        "--clock-control",
        "none",
        "--metrics",
        ",".join(METRICS),
        "--kernel-name",
        f"regex:{kernel}",
        "--launch-count",
        str(launches),
        *program,
    ]


def parse(text: str) -> list[Profile]:
    """Profiles from ncu's CSV output, the program's own lines before it included.

    Raises ExplainError: "not available: ..." when ncu says why it measured nothing, else what is
    wrong with the table.
    """
    if _NO_PERMISSION in text:
        raise ExplainError(
            "not available: the driver keeps counters from this user (ERR_NVGPUCTRPERM); see "
            "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
        )
    rows = text.splitlines()
    start = next((i for i, row in enumerate(rows) if row.startswith('"ID"')), None)
    if start is None:
        said = next((row for row in rows if row.startswith("==ERROR==")), "it printed no table")
        raise ExplainError(f"not available: {said.removeprefix('==ERROR==').strip()}")
    profiles: dict[str, Profile] = {}
    for row in _table(rows, start):
        name, value = row["Metric Name"], _number(row)
        profile = profiles.setdefault(row["ID"], Profile(row["Kernel Name"]))
        if value is not None and not is_time(name):
            profile.values[name] = value
    if not profiles:
        raise ExplainError("its table has a header and no row; profile a launch")
    return list(profiles.values())


def _table(rows: Sequence[str], start: int) -> Iterator[dict[str, str]]:
    """The rows under the header at `start`, ncu's own remarks left out, each whole."""
    header = next(csv.reader([rows[start]]))
    missing = [name for name in _COLUMNS if name not in header]
    if missing:
        raise ExplainError(
            f"its table lacks the column {', '.join(missing)}; record it with ncu --csv --metrics"
        )
    for number, row in enumerate(rows[start + 1 :], start + 2):
        if not row.strip() or row.startswith("=="):
            continue
        try:
            cells = next(csv.reader([row], strict=True))
        except csv.Error:
            cells = []
        if not cells or not row.rstrip().endswith('"'):  # ncu quotes every cell
            raise ExplainError(f"line {number} is cut; record it again")
        if len(cells) != len(header):
            raise ExplainError(
                f"line {number} has {len(cells)} cells, want {len(header)}; record it again"
            )
        yield dict(zip(header, cells, strict=True))


def is_time(metric: str) -> bool:
    """Times of a profiled run are dropped at the door."""
    return any(word in metric.lower() for word in _TIME_WORDS)


def _number(row: dict[str, str]) -> float | None:
    try:
        value = float(row["Metric Value"].replace(",", ""))
    except ValueError:  # "n/a"
        return None
    return value * _SCALES.get(row["Metric Unit"], 1.0)


def lines(file: Path) -> list[str]:
    """What a recorded ncu CSV holds, a line a launch. Raises ExplainError where there is none."""
    try:
        profiles = parse(file.read_text(errors="replace"))
    except OSError as error:
        raise ExplainError(f"{file}: {error.strerror}; name ncu's CSV output") from None
    except ExplainError as error:
        raise ExplainError(f"{file}: {error}") from None
    return [f"{p.kernel}: {_values(p.values.items())}" for p in profiles]


def _values(values: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in values) or "no value"
