"""From what the worker measured to a row of bench.csv: identity, rates, bounds, ratios."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .plan import Unit
from .roofs import Roofs, roof_of

_LAUNCH_BOUND_FLOORS = 2.0
_ABOVE_ROOF_PCT = 100.0


def complete(
    unit: Unit,
    answered: Sequence[dict[str, Any]],
    gpu_name: str,
    device: int,
    roofs: Roofs | None,
    throttled: bool | None,
) -> list[dict[str, Any]]:
    """Row events of one unit with every derived column filled, in the order of contenders."""
    torch_us = next(
        (
            e["row"].get("time_us_p50")
            for e in answered
            if e["row"]["backend"] == "torch" and e["row"]["status"] == "ok"
        ),
        None,
    )
    order = [(c.backend, c.variant) for c in unit.contenders]
    ordered = sorted(
        answered, key=lambda e: order.index((e["row"]["backend"], e["row"]["variant"]))
    )
    return [
        event
        | {
            "row": _identity(unit, gpu_name, device)
            | event["row"]
            | _derived(unit, event["row"], roofs, torch_us)
            | {"throttled": throttled if event["row"]["status"] == "ok" else None}
        }
        for event in ordered
    ]


def absent_events(unit: Unit, gpu_name: str, device: int) -> list[dict[str, Any]]:
    """A row event for every backend of the unit that the spec declares absent."""
    events = []
    for contender in unit.contenders:
        if contender.backend in unit.spec.absent:
            row = _identity(unit, gpu_name, device) | {
                "backend": contender.backend,
                "variant": contender.variant,
                "status": "absent",
                "reason": unit.spec.absent[contender.backend],
            }
            events.append({"row": row, "rounds": [], "samples": []})
    return events


def _identity(unit: Unit, gpu_name: str, device: int) -> dict[str, Any]:
    spec, case, dtype = unit.spec, unit.case, unit.dtype
    read, written = spec.bytes_read(case, dtype), spec.bytes_written(case, dtype)
    return {
        "op": spec.stem,
        "family": spec.family,
        "case": case.name,
        "dims": case.dims_text,
        "distribution": spec.distribution,
        "dtype": dtype,
        "math_mode": spec.math_mode,
        "headline": True,
        "gpu": gpu_name,
        "device": device,
        "bytes_read": read,
        "bytes_written": written,
        "bytes_model": read + written,
        "flops": spec.flops(case),
    }


def _derived(
    unit: Unit, row: Mapping[str, Any], roofs: Roofs | None, torch_us: float | None
) -> dict[str, Any]:
    if row["status"] != "ok" or roofs is None:
        return {}
    spec, case = unit.spec, unit.case
    read = spec.bytes_read(case, unit.dtype)
    written = spec.bytes_written(case, unit.dtype)
    time_us = row["time_us_p50"]
    roof_name, roof_us = roof_of(
        roofs, unit.dtype, read, written, spec.flops(case), spec.compute_bound
    )
    pct_roof = 100 * roof_us / time_us
    derived = {
        "gbps": (read + written) / time_us / 1e3,
        "tflops": spec.flops(case) / time_us / 1e6,
        "bound": _bound(time_us, roofs, roof_name),
        "roof_name": roof_name,
        "roof_us": roof_us,
        "pct_roof": pct_roof,
        "speedup_vs_torch": torch_us / time_us if torch_us else None,
    }
    if pct_roof > _ABOVE_ROOF_PCT and math.isfinite(pct_roof):
        derived["warnings"] = ",".join(filter(None, [row.get("warnings"), "above_roof"]))
    return derived


def _bound(time_us: float, roofs: Roofs, roof_name: str) -> str:
    if time_us <= _LAUNCH_BOUND_FLOORS * roofs.launch_floor_us:
        return "launch"
    return "compute" if roof_name.startswith("matrix") else "memory"
