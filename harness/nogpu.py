"""`bench` and `check` on a machine without a GPU: prove all that can be proved there.

The CUDA side is built and imported, every interpretable Triton kernel is checked on small
shapes against float64, and each Triton kernel is compiled for sm_90. Nothing is timed.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .console import Progress
from .machine import software_facts, source_facts, timestamp
from .plan import Unit
from .protocol import Contender
from .registry import REPOSITORY, Registry
from .rows import RowMaker
from .run_writer import RunWriter
from .supervisor import Supervisor
from .sweep import SweepOptions, request_for, written

_MAX_ELEMENTS = 1 << 17
_COMPILE_TIMEOUT_S = 300


@dataclass(frozen=True)
class Compiled:
    """The offline compilation of one op's Triton side in one dtype."""

    stem: str
    dtype: str
    ok: bool
    text: str


def small_units(units: Sequence[Unit]) -> list[Unit]:
    """The units that the interpreter finishes in about a second."""
    return [unit for unit in units if math.prod(unit.spec.output_shape(unit.case)) <= _MAX_ELEMENTS]


def run_checks(
    registry: Registry,
    units: Sequence[Unit],
    out: Path | None,
    options: SweepOptions,
    progress: Progress,
    resume: bool = False,
) -> tuple[Path, Counter[str]]:
    """Check `units` on the CPU into `out` (default results/no-gpu/<time>)."""
    run_dir = out or Path("results") / "no-gpu" / timestamp()
    statuses: Counter[str] = Counter()
    meta = {"gpu": {"name": "none"}, **software_facts(), "seed": options.seed}
    meta |= source_facts(registry, tuple(dict.fromkeys(u.spec.stem for u in units)))
    maker = RowMaker(registry, meta["gpu"], options.device, roofs=None)
    with (
        RunWriter.create(run_dir, meta, resume=resume) as writer,
        Supervisor(silence_s=options.timeout_s, module="harness.cpu_worker") as supervisor,
    ):
        for unit in progress.units(units, lambda u: u.label):
            if all(written(unit, contender, writer) for contender in unit.contenders):
                continue
            answered = supervisor.run(request_for(unit, options, timed=False))
            events = maker.complete(unit, answered)
            for event in events:
                row = event["row"]
                if written(unit, Contender(row["backend"], row["variant"]), writer):
                    continue
                writer.append(event["row"], [], [])
                statuses[event["row"]["status"]] += 1
            progress.unit_done(unit.label, [event["row"] for event in events])
        writer.finish({})
    return run_dir, statuses


def compile_offline(units: Sequence[Unit], arch: int = 90) -> list[Compiled]:
    """Compile each op's Triton side for `arch` in a process of its own, one per dtype."""
    wanted = dict.fromkeys((unit.spec.stem, unit.dtype) for unit in units)
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    results = []
    for stem, dtype in wanted:
        done = _run(
            [sys.executable, "-m", "harness.offline", stem, "--arch", str(arch), "--dtype", dtype],
            environment,
        )
        results.append(Compiled(stem, dtype, *done))
    return results


def _run(command: list[str], environment: dict[str, str]) -> tuple[bool, str]:
    """(did it succeed, the last line it printed)."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=environment,
            cwd=REPOSITORY,
            timeout=_COMPILE_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return False, f"not done after {_COMPILE_TIMEOUT_S} s"
    text = done.stdout if done.returncode == 0 else done.stderr
    return done.returncode == 0, (text.strip().splitlines() or ["printed nothing"])[-1]
