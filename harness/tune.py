"""Search an op's configurations on this GPU and store the best with all that were tried.

Candidates of one case run as contenders of one request, so each is checked on a poisoned output
before it may be timed, and all are interleaved like a bench's backends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .console import Progress
from .machine import gpu_slug, software_facts
from .plan import Unit
from .protocol import Contender
from .sides import SIDES
from .spec import Config
from .supervisor import Supervisor
from .sweep import SweepOptions, request_for
from .tuned_configs import TUNED

_FINALISTS = 4


def tune(units: Sequence[Unit], options: SweepOptions, progress: Progress) -> list[Path]:
    """Tune every op among `units`; returns the files written under harness/tuned/<gpu>/.

    Each case is stored when it is done: an interrupt costs the case in hand.
    """
    software = software_facts()
    versions = {name: software[name] for name in ("torch", "cuda", "triton", "driver")}
    written: dict[Path, None] = {}
    with Supervisor(options.device, options.timeout_s) as supervisor:
        for unit in progress.units(units, lambda u: u.label):
            # Headlines: a rung of a ladder has nothing to choose.
            for side in [c.label for c in unit.contenders if c.label in SIDES]:
                grid_of = unit.spec.tuning.get(side)
                grid = grid_of(unit.case, unit.dtype) if grid_of else ()
                entry = _tune_case(unit, side, grid, supervisor, options) if grid else None
                if entry is not None:
                    folder = TUNED / gpu_slug(supervisor.gpu["name"])
                    written[_store(folder / f"{unit.spec.stem}.json", entry, versions)] = None
                    progress.note(_line(unit, entry))
    return list(written)


def _tune_case(
    unit: Unit, side: str, grid: Sequence[Config], supervisor: Supervisor, options: SweepOptions
) -> dict[str, Any] | None:
    """Quick times of the whole grid, then a careful run of the best few."""
    candidates = [Contender(side, f"c{index}", dict(config)) for index, config in enumerate(grid)]
    quick = replace(options, settings="tune")
    times = _times(replace(unit, contenders=tuple(candidates)), supervisor, quick)
    best_first = sorted(times, key=lambda label: times[label])[:_FINALISTS]
    if not best_first:
        return None
    finalists = tuple(c for c in candidates if c.variant in best_first)
    final = _times(replace(unit, contenders=finalists), supervisor, options)
    if not final:
        return None
    winner = min(final, key=lambda label: final[label])
    by_label = {candidate.variant: candidate.config for candidate in candidates}
    return {
        "backend": side,
        "dtype": unit.dtype,
        "dims": dict(unit.case.dims),
        "layout": unit.case.layout,
        "config": by_label[winner],
        "time_us": final[winner],
        "candidates": [
            {"config": by_label[label], "time_us": times.get(label)} for label in by_label
        ],
    }


def _times(unit: Unit, supervisor: Supervisor, options: SweepOptions) -> dict[str, float]:
    answered = supervisor.run(request_for(unit, options))
    return {
        event["row"]["variant"]: event["row"]["time_us_p50"]
        for event in answered
        if event["row"]["status"] == "ok"
    }


def _line(unit: Unit, entry: dict[str, Any]) -> str:
    tried = sum(c["time_us"] is not None for c in entry["candidates"])
    return (
        f"  {unit.label} {entry['backend']}: {entry['config']} {entry['time_us']:.4g} us, "
        f"best of {tried}"
    )


def _store(file: Path, found: dict[str, Any], versions: dict[str, Any]) -> Path:
    """Write `found` beside the entries of other cases; the file is replaced whole or not at all."""
    kept = json.loads(file.read_text())["entries"] if file.is_file() else []
    entries = [entry for entry in kept if _identity(entry) != _identity(found)] + [found]
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".tmp")
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    temporary.write_text(f'{{"versions": {json.dumps(versions)},\n"entries": [\n{lines}\n]}}\n')
    os.replace(temporary, file)
    return file


def _identity(entry: dict[str, Any]) -> tuple[str, ...]:
    dims = json.dumps(entry["dims"], sort_keys=True)
    return entry["backend"], entry["dtype"], dims, entry["layout"]
