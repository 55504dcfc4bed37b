"""The parent of a sweep: asks the worker, completes rows, writes each when it is done."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .console import Progress
from .machine import (
    GpuWatch,
    gpu_slug,
    public_gpu_facts,
    software_facts,
    source_facts,
    timestamp,
)
from .plan import Unit
from .protocol import Request
from .registry import Registry
from .roofs import Roofs
from .rows import Event, RowMaker
from .run_writer import RunWriter
from .supervisor import Supervisor


@dataclass(frozen=True)
class SweepOptions:
    device: int = 0
    seed: int = 20240117
    settings: str = "default"
    kernels: tuple[Path, ...] = ()
    timeout_s: float = 180.0


@dataclass
class Outcome:
    """Rows by status, whether the user stopped the sweep, and seconds it took."""

    statuses: Counter[str]
    interrupted: bool
    elapsed_s: float


def run_sweep(
    registry: Registry,
    units: Sequence[Unit],
    out: Path | None,
    options: SweepOptions,
    progress: Progress,
    resume: bool = False,
) -> tuple[Path, Outcome]:
    """Measure `units` into `out` (default results/<gpu>/<time>); returns the folder.

    Raises ResultsError when the folder cannot be written and WorkerDiedError when not even the
    roofs could be measured.
    """
    start_s = time.monotonic()
    outcome = Outcome(Counter(), False, 0.0)
    with Supervisor(options.device, options.timeout_s) as supervisor, _interruptible() as stopped:
        gpu = supervisor.start()
        run_dir = out or Path("results") / gpu_slug(gpu["name"]) / timestamp()
        # Before anything is measured: a folder that cannot be written is refused at once.
        meta = _meta(registry, units, options, public_gpu_facts(gpu))
        with (
            RunWriter.create(run_dir, meta, resume=resume) as writer,
            GpuWatch(gpu.get("uuid", "")) as watch,
        ):
            maker = RowMaker(
                registry, gpu, options.device, _roofs(units, supervisor, writer, progress)
            )
            for unit in progress.units(units, lambda u: u.label):
                if stopped:
                    outcome.interrupted = True
                    break
                if is_written(unit, writer):
                    continue
                events, watched = _measure_unit(unit, supervisor, options, maker, watch)
                outcome.statuses.update(row["status"] for row in write_new(unit, events, writer))
                if watched:
                    writer.record({"gpu_health": {unit.label: watched}})
                progress.unit_done(unit.label, [event["row"] for event in events])
            if not outcome.interrupted:
                writer.finish({"worker_restarts": supervisor.restarts})
    outcome.elapsed_s = time.monotonic() - start_s
    return run_dir, outcome


def _roofs(
    units: Sequence[Unit], supervisor: Supervisor, writer: RunWriter, progress: Progress
) -> Roofs:
    """This run's roofs: measured once, and the same for the rows that a resume adds."""
    recorded = writer.meta.get("roofs")
    if recorded is None:
        progress.note("measuring the roofs of this card")
        recorded = supervisor.roofs(sorted({u.dtype for u in units if u.spec.compute_bound}))
        overheads = {key: recorded[key] for key in ("event_overhead_us", "launch_floor_us")}
        writer.record({"roofs": recorded, **overheads})
    return Roofs.from_meta(recorded)


def _measure_unit(
    unit: Unit,
    supervisor: Supervisor,
    options: SweepOptions,
    maker: RowMaker,
    watch: GpuWatch,
) -> tuple[list[Event], dict[str, Any]]:
    """The unit's row events and what NVML saw meanwhile; all contenders stay interleaved."""
    present = replace(
        unit, contenders=tuple(c for c in unit.contenders if c.backend not in unit.spec.absent)
    )
    answered = supervisor.run(request_for(present, options)) if present.contenders else []
    watched = watch.take()
    events = maker.absent(unit) + maker.complete(present, answered, watched.get("throttled"))
    return events, watched


def request_for(unit: Unit, options: SweepOptions, timed: bool = True) -> Request:
    return Request(
        op=unit.spec.stem,
        dims=dict(unit.case.dims),
        layout=unit.case.layout,
        dtype=unit.dtype,
        contenders=unit.contenders,
        seed=options.seed,
        timed=timed,
        settings=options.settings,
        kernels=tuple(str(path) for path in options.kernels),
    )


def is_written(unit: Unit, writer: RunWriter) -> bool:
    """Are the rows of all of the unit's contenders on disk already?"""
    done = writer.done_keys
    return all(_key(unit, c.backend, c.variant) in done for c in unit.contenders)


def write_new(unit: Unit, events: Sequence[Event], writer: RunWriter) -> list[dict[str, Any]]:
    """Append the rows that an earlier, interrupted run has not written; returns those."""
    done = writer.done_keys
    new = [e for e in events if _key(unit, e["row"]["backend"], e["row"]["variant"]) not in done]
    for event in new:
        writer.append(event["row"], event["rounds"], event["samples"])
    return [event["row"] for event in new]


def _key(unit: Unit, backend: str, variant: str) -> tuple[str, ...]:
    """The columns of results.KEY."""
    spec = unit.spec
    return (
        spec.stem,
        unit.case.name,
        spec.distribution,
        unit.dtype,
        spec.math_mode,
        backend,
        variant,
    )


def _meta(
    registry: Registry,
    units: Sequence[Unit],
    options: SweepOptions,
    gpu: dict[str, Any],
) -> dict[str, Any]:
    software = software_facts()
    stems = tuple(dict.fromkeys(u.spec.stem for u in units))
    extension = software.pop("extension") or {}
    return {
        "gpu": gpu,
        "device": options.device,
        **software,
        "nvcc": extension.get("nvcc"),
        "nvcc_ptxas": extension.get("ptxas"),
        "flags": extension.get("flags"),
        "arch_list": extension.get("arch_list"),
        "extension_torch": extension.get("torch"),
        "host_compiler": extension.get("host_compiler"),
        **source_facts(registry, stems),
        "seed": options.seed,
        "distributions": {u.spec.stem: u.spec.distribution for u in units},
        "settings": options.settings,
        "flush": "clean",
        "noise_floor": None,
        "started_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


@contextmanager
def _interruptible() -> Iterator[list[bool]]:
    """Within, Ctrl-C asks the sweep to stop after the case in hand; a second one stops now."""
    stopped: list[bool] = []

    def on_interrupt(_signal: int, _frame: object) -> None:
        if stopped:
            raise KeyboardInterrupt
        stopped.append(True)

    previous = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, previous)
