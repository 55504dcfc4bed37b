"""The parent of a sweep: asks the worker, completes rows, writes each when it is done."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .console import Progress, interruptible
from .explain.book import FactsBook
from .gpu_watch import GpuWatch
from .machine import (
    gpu_slug,
    public_gpu_facts,
    software_facts,
    source_facts,
    timestamp,
)
from .noise_floor import recorded_floor
from .plan import Unit
from .protocol import Request
from .registry import Registry
from .rows import Event, RowMaker
from .run_writer import RunWriter
from .schema import FAILED
from .spec import OpSpec
from .supervisor import Supervisor, WorkerDiedError
from .sweep_roofs import roofs_again, roofs_of_run


@dataclass(frozen=True)
class SweepOptions:
    device: int = 0
    seed: int = 20240117
    settings: str = "default"
    kernels: tuple[Path, ...] = ()
    timeout_s: float = 180.0
    flush: str = "clean"
    explain: bool = False


@dataclass
class Outcome:
    """Rows by status, a line for each that failed, whether the user stopped the sweep,
    seconds it took, and whether another process was seen on the GPU."""

    statuses: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    interrupted: bool = False
    elapsed_s: float = 0.0
    shared: bool = False

    def add(self, unit: Unit, rows: Sequence[Mapping[str, Any]]) -> None:
        self.statuses.update(row["status"] for row in rows)
        self.failures += [
            f"{row['status']}: {unit.label} {row['backend']}: {row.get('reason', '')}"
            for row in rows
            if row["status"] in FAILED
        ]

    def note_shared(self, watched: Mapping[str, Any], progress: Progress) -> None:
        """Say once in a sweep that the GPU was not ours alone."""
        others = watched.get("other_processes")
        if others and not self.shared:
            self.shared = True
            progress.note(
                f"{others} other process{'es' if others > 1 else ''} on this GPU: rows measured "
                "meanwhile are marked gpu_shared"
            )


def run_sweep(
    registry: Registry,
    units: Sequence[Unit],
    out: Path | None,
    options: SweepOptions,
    progress: Progress,
    resume: bool = False,
) -> tuple[Path, Outcome]:
    """Measure `units` into `out` (default results/<gpu>/<time>); returns the folder.

    Raises ResultsError when the folder cannot be written, and WorkerDiedError when no worker
    starts or not even the roofs could be measured. The rows that were finished are kept.
    """
    start_s = time.monotonic()
    outcome = Outcome()
    with Supervisor(options.device, options.timeout_s) as supervisor, interruptible() as stopped:
        gpu = supervisor.start()
        run_dir = out or Path("results") / gpu_slug(gpu["name"]) / timestamp()
        # Before anything is measured: a folder that cannot be written is refused at once.
        meta = run_meta(registry, units, options, public_gpu_facts(gpu))
        with (
            RunWriter.create(run_dir, meta, resume=resume) as writer,
            GpuWatch(gpu.get("uuid", ""), lambda: supervisor.pid, run_dir) as watch,
        ):
            earlier = dict(writer.meta)
            end: dict[str, Any] = {}
            try:
                roofs = roofs_of_run(units, supervisor, writer, options.flush, progress)
                maker = RowMaker(registry, gpu, options.device, roofs)
                book = FactsBook(run_dir, registry.stems, gpu)
                for unit in progress.units(units, lambda u: u.label):
                    if stopped:
                        outcome.interrupted = True
                        break
                    if is_written(unit, writer):
                        continue
                    events, watched = _measure_unit(unit, supervisor, options, maker, watch)
                    if watched:  # before the rows, so that no row is without it
                        writer.record({"gpu_health": {unit.label: watched}})
                        outcome.note_shared(watched, progress)
                    book.take(events)  # names of kernels; it may fill a cell of the rows
                    outcome.add(unit, write_new(unit, events, writer))
                    progress.unit_done(unit.label, [event["row"] for event in events])
                else:
                    end = roofs_again(supervisor, writer, options.flush, progress)
            except KeyboardInterrupt:  # the case in hand is lost, as a kill would lose it
                outcome.interrupted = True
            except WorkerDiedError as death:
                writer.record(_spent(earlier, supervisor, start_s))
                raise WorkerDiedError(
                    death.status,
                    death.contender,
                    f"{death.reason}; the {len(writer.done_keys)} rows so far are kept: continue "
                    f"with --resume --out {run_dir}",
                ) from None
            if stopped:  # a second Ctrl-C from here on would cost the record and the last words
                signal.signal(signal.SIGINT, signal.SIG_IGN)
            spent = _spent(earlier, supervisor, start_s)
            if outcome.interrupted:
                writer.record(spent)
            else:
                writer.finish(spent | end)
            if supervisor.restarts:
                progress.note(
                    f"{supervisor.restarts} worker{'s' * (supervisor.restarts > 1)} started again; "
                    f"{supervisor.start_s:.0f} s of waiting for workers in all"
                )
    outcome.elapsed_s = time.monotonic() - start_s
    return run_dir, outcome


def _spent(earlier: Mapping[str, Any], supervisor: Supervisor, start_s: float) -> dict[str, Any]:
    """What the sweep and its workers' starts took, for meta.json; earlier parts counted in."""
    now = {
        "elapsed_s": time.monotonic() - start_s,
        "worker_start_s": supervisor.start_s,
        "worker_restarts": supervisor.restarts,
    }
    numbers = {key: v for key, v in earlier.items() if isinstance(v, (int, float))}
    return {key: round(value + numbers.get(key, 0), 1) for key, value in now.items()}


def _measure_unit(
    unit: Unit,
    supervisor: Supervisor,
    options: SweepOptions,
    maker: RowMaker,
    watch: GpuWatch,
) -> tuple[list[Event], dict[str, Any]]:
    """The unit's row events and what NVML saw meanwhile; all contenders stay interleaved."""
    present = without_absent(unit)
    watch.take()  # what was seen between two cases is not this one's
    answered = supervisor.run(request_for(present, options)) if present.contenders else []
    watched = watch.take()
    events = maker.absent(unit) + maker.complete(present, answered, watched)
    return events, watched


def without_absent(unit: Unit) -> Unit:
    """The unit without the sides that its spec declares absent."""
    kept = (c for c in unit.contenders if c.backend not in unit.spec.absent)
    return replace(unit, contenders=tuple(kept))


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
        flush=options.flush,
        kernels=tuple(str(path) for path in options.kernels),
        explain=options.explain,
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


def ladders(spec: OpSpec) -> dict[str, list[dict[str, str]]]:
    """A side's rungs, the simplest first: for the report, which reads files alone."""
    return {
        backend: [{"name": rung.name, "step": rung.step} for rung in rungs]
        for backend, rungs in spec.ladders.items()
    }


def run_meta(
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
        "ladders": {u.spec.stem: ladders(u.spec) for u in units if u.spec.ladders},
        "settings": options.settings,
        "flush": options.flush,
        "noise_floor": recorded_floor(gpu.get("name", ""), options.flush),
        "started_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
