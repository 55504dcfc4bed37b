"""The configurations that `make tune` chose, found for a case on this GPU or its neighbours."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from .spec import ITEMSIZE, Case, Config, OpSpec

TUNED = Path(__file__).resolve().parent / "tuned"


def tuned_config(
    gpu_slug: str, spec: OpSpec, backend: str, dtype: str, case: Case
) -> tuple[Config, str]:
    """The configuration that `make tune` chose for the case, and where it came from.

    A case that was not tuned borrows from the nearest one: of the same dtype before one of the
    same size, of this GPU before another (in the order of their folders' names), then by the
    extent that the op sweeps, then by the others. Only what the op's own grid offers for this
    case is borrowed. `tuned:`, `nearest:` or `default` says which of these it was.
    """
    grid_of = spec.tuning.get(backend)
    if grid_of is None:
        return {}, "default"
    grid = [dict(config) for config in grid_of(case, dtype)]
    for folder in [TUNED / gpu_slug, *sorted(TUNED.glob("*/"))]:
        file = folder / f"{spec.stem}.json"
        if not file.is_file():
            continue
        asked = (backend, dtype, dict(case.dims), case.layout)
        entries = [
            entry
            for entry in json.loads(file.read_text())["entries"]
            if entry["backend"] == backend
            and ITEMSIZE[entry["dtype"]] == ITEMSIZE[dtype]
            and entry["dims"].keys() == case.dims.keys()
            and entry["config"] in grid
        ]
        if entries:
            nearest = min(entries, key=lambda e: _distance(spec, dtype, case, e))
            found = tuple(nearest[key] for key in ("backend", "dtype", "dims", "layout"))
            exact = folder.name == gpu_slug and found == asked
            return dict(nearest["config"]), f"{'tuned' if exact else 'nearest'}:{folder.name}"
    return {}, "default"


def _distance(spec: OpSpec, dtype: str, case: Case, entry: dict[str, Any]) -> tuple[float, ...]:
    def octaves(dim: str) -> float:
        return abs(math.log2(max(entry["dims"][dim], 1)) - math.log2(max(case.dims[dim], 1)))

    swept = sum(octaves(dim) for dim in case.dims if dim == spec.sweep_dim)
    others = sum(octaves(dim) for dim in case.dims if dim != spec.sweep_dim)
    return (entry["dtype"] != dtype, swept, others, entry["layout"] != case.layout)
