"""From what the worker measured to rows of bench.csv: identity, rates, bounds, ratios."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .machine import source_hash
from .plan import Unit
from .plausible import impossible
from .registry import Registry
from .roofs import Roofs, roof_of
from .time_columns import join_warnings

_LAUNCH_BOUND_FLOORS = 2.0
_ABOVE_ROOF_PCT = 100.0

Event = dict[str, Any]


def is_timing(column: str) -> bool:
    """Does the column or event field hold a time or what was made of one?"""
    return column.startswith(("time_us", "ci_", "n_", "precision", "graph_us", "host_us"))


class RowMaker:
    """Completes the rows of one sweep. `gpu` as machine.gpu_facts gives it, `roofs` None where
    nothing is timed."""

    def __init__(
        self, registry: Registry, gpu: Mapping[str, Any], device: int, roofs: Roofs | None
    ) -> None:
        self._registry, self._gpu, self._device, self._roofs = registry, gpu, device, roofs
        self._hashes: dict[tuple[str, str, str], str] = {}

    def complete(
        self, unit: Unit, answered: Sequence[Event], watched: Mapping[str, Any] | None = None
    ) -> list[Event]:
        """Row events of one unit with every derived column filled, in the order of contenders.

        watched: what GpuWatch.take gave for the unit.
        """
        events = [self._event(unit, event, watched or {}) for event in answered]
        torch_us = next(
            (
                e["row"]["time_us_p50"]
                for e in events
                if e["row"]["backend"] == "torch" and e["row"]["status"] == "ok"
            ),
            None,
        )
        for event in events:
            row = event["row"]
            if row["status"] == "ok" and torch_us:
                row["speedup_vs_torch"] = torch_us / row["time_us_p50"]
        order = [(c.backend, c.variant) for c in unit.contenders]
        return sorted(events, key=lambda e: order.index((e["row"]["backend"], e["row"]["variant"])))

    def absent(self, unit: Unit) -> list[Event]:
        """A row event for every backend of the unit that the spec declares absent."""
        return [
            {
                "row": self._identity(unit)
                | {
                    "backend": contender.backend,
                    "variant": contender.variant,
                    "status": "absent",
                    "reason": unit.spec.absent[contender.backend],
                },
                "rounds": [],
                "samples": [],
            }
            for contender in unit.contenders
            if contender.backend in unit.spec.absent
        ]

    def _event(self, unit: Unit, event: Event, watched: Mapping[str, Any]) -> Event:
        row = self._identity(unit) | event["row"] | {"kernel_hash": self._kernel_hash(unit, event)}
        row["headline"] = not row["variant"]
        if row["status"] != "ok":
            return event | {"row": row}
        reason = impossible(
            row["time_us_p50"], row["bytes_read"] + row["bytes_written"], row["flops"], self._gpu
        )
        if reason:
            kept = {column: value for column, value in row.items() if not is_timing(column)}
            return {
                "row": kept | {"status": "invalid", "reason": reason},
                "rounds": [],
                "samples": [],
            }
        row["throttled"] = watched.get("throttled")
        if watched.get("other_processes"):
            row["warnings"] = join_warnings(row.get("warnings"), "gpu_shared")
        row |= self._rates(unit, row)
        return event | {"row": row}

    def _kernel_hash(self, unit: Unit, event: Event) -> str:
        backend, variant = event["row"]["backend"], event["row"]["variant"]
        rungs = [rung.name for rung in unit.spec.ladders.get(backend, ())]
        side = (unit.spec.stem, backend, variant if variant in rungs else "")
        if side not in self._hashes:
            files = self._registry.kernel_files(*side)
            self._hashes[side] = source_hash(files) if files else ""
        return self._hashes[side]

    def _identity(self, unit: Unit) -> dict[str, Any]:
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
            "gpu": self._gpu["name"],
            "device": self._device,
            "bytes_read": read,
            "bytes_written": written,
            "bytes_model": read + written,
            "flops": spec.flops(case),
        }

    def _rates(self, unit: Unit, row: Mapping[str, Any]) -> dict[str, Any]:
        if self._roofs is None:
            return {}
        read, written, flops = row["bytes_read"], row["bytes_written"], row["flops"]
        time_us = row["time_us_p50"]
        roof_name, roof_us = roof_of(
            self._roofs, unit.dtype, read, written, flops, unit.spec.compute_bound
        )
        pct_roof = 100 * roof_us / time_us
        rates = {
            "gbps": (read + written) / time_us / 1e3,
            "tflops": flops / time_us / 1e6,
            "bound": self._bound(time_us, self._roofs, roof_name),
            "roof_name": roof_name,
            "roof_us": roof_us,
            "pct_roof": pct_roof,
        }
        if pct_roof > _ABOVE_ROOF_PCT and math.isfinite(pct_roof):
            rates["warnings"] = join_warnings(row.get("warnings"), "above_roof")
        return rates

    @staticmethod
    def _bound(time_us: float, roofs: Roofs, roof_name: str) -> str:
        if time_us <= _LAUNCH_BOUND_FLOORS * roofs.launch_floor_us:
            return "launch"
        return "compute" if roof_name.startswith("matrix") else "memory"
