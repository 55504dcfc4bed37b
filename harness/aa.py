"""A/A: the build compared with itself, in fresh processes, to learn what a difference means."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from . import aa_stats, aa_table
from .aa_subset import LEAST_PROCESSES, PROCESSES
from .clock import smallest_step_us
from .console import Progress, interruptible
from .gpu_watch import GpuWatch
from .machine import gpu_slug, public_gpu_facts, timestamp
from .noise_floor import DEFAULT_FLUSH, floor_path, recorded_floor
from .plan import Unit
from .registry import Registry
from .rows import Event, RowMaker
from .run_repair import write_atomically
from .schema import FAILED, SCHEMA_VERSION, ResultsError
from .supervisor import Supervisor
from .sweep import SweepOptions, request_for, run_meta

TABLE_NAME, RECORD_NAME = "aa.csv", "aa.json"
MOST_CALLED_PER_THOUSAND = 1.0
# Above this a float32 of milliseconds no longer resolves the timer's ticks.
_TICK_BELOW_US = 100.0


@dataclass
class AaRun:
    """What an A/A measurement found, and where it was written (None: stopped at once).

    record: as in aa.json; {} when fewer than two processes finished. floor: the
    noise_floor.json that was written, or None, and then `kept_out` says why.
    """

    folder: Path | None
    record: dict[str, Any] = field(default_factory=dict)
    floor: Path | None = None
    kept_out: str = ""
    interrupted: bool = False

    @property
    def passed(self) -> bool:
        """True when no row failed and few enough were called."""
        return bool(self.record) and not _failed(self.record) and _few_called(self.record)


class _Measurement:
    """The processes that have finished, and the folder that keeps them."""

    def __init__(
        self,
        registry: Registry,
        units: Sequence[Unit],
        out: Path | None,
        options: SweepOptions,
        progress: Progress,
    ) -> None:
        self._registry, self._units = registry, units
        self._options, self._progress = options, progress
        self._lines: list[list[Any]] = []
        # Known once the first worker has named its GPU.
        self.folder = out
        self.meta: dict[str, Any] = {}
        self.finished = 0
        self.tick_us = math.inf
        self.restarts = 0
        self._prepared: Supervisor | None = None

    def close(self) -> None:
        """Stop a worker that was prepared and is not wanted any more."""
        if self._prepared is not None:
            self._prepared.stop()

    def _supervisor(self) -> Supervisor:
        return Supervisor(self._options.device, self._options.timeout_s)

    def process(self, name: str, stopped: list[bool], last: bool) -> bool:
        """Measure all units in a worker of its own; False when the user stopped it.

        Unless it is the `last`, the next worker imports its modules meanwhile, off the GPU.
        """
        began_s = time.monotonic()
        with self._prepared or self._supervisor() as supervisor:
            self._prepared = None
            gpu = supervisor.start()
            if not last:
                self._prepared = self._supervisor()
                self._prepared.prepare()
            folder = self._begin(gpu)
            maker = RowMaker(self._registry, gpu, self._options.device, None)
            events: list[Event] = []
            with GpuWatch(gpu.get("uuid", ""), lambda: supervisor.pid, folder) as watch:
                for unit in self._progress.units(self._units, lambda u: f"{name}: {u.label}"):
                    if stopped:
                        return False
                    answered = supervisor.run(request_for(unit, self._options))
                    events += maker.complete(unit, answered, watch.take())
            self.restarts += supervisor.restarts
        self._add(events)
        _write(folder / TABLE_NAME, self.table.to_csv(index=False))
        statuses = Counter(event["row"]["status"] for event in events).most_common()
        counts = ", ".join(f"{count} {status}" for status, count in statuses)
        self._progress.note(f"{name}: {counts} in {time.monotonic() - began_s:.0f} s")
        return True

    def _begin(self, gpu: dict[str, Any]) -> Path:
        """The folder; before anything is measured, so that an unwritable one is refused at once."""
        if self.folder is None:
            self.folder = Path("results") / gpu_slug(gpu["name"]) / "aa" / timestamp()
        if not self.meta:
            facts = public_gpu_facts(gpu)
            self.meta = run_meta(self._registry, self._units, self._options, facts)
            _write(self.folder / TABLE_NAME, self.table.to_csv(index=False))
        return self.folder

    def _add(self, events: Sequence[Event]) -> None:
        for event in events:
            means, _, clocks = zip(*event["rounds"], strict=True) if event["rounds"] else ([],) * 3
            self._lines.append(aa_table.table_line(self.finished, event["row"], means, clocks))
        self.tick_us = min(self.tick_us, _tick_us(events))
        self.finished += 1

    @property
    def table(self) -> pd.DataFrame:
        """As aa_stats wants it."""
        lines: pd.DataFrame = pd.DataFrame(self._lines, columns=list(aa_table.COLUMNS))
        return lines


def run_aa(
    registry: Registry,
    units: Sequence[Unit],
    out: Path | None,
    options: SweepOptions,
    processes: int,
    filtered: bool,
    progress: Progress,
) -> AaRun:
    """Measure `units` in `processes` workers, one after the other, each started afresh.

    Writes aa.csv after each process and aa.json at the end into `out` (default
    results/<gpu>/aa/<time>); a whole, unfiltered measurement also becomes the noise floor of the
    GPU's later runs. Ctrl-C keeps the finished processes. Raises ResultsError when the folder
    cannot be written and WorkerDiedError when a worker does not start.
    """
    if out is not None:
        refuse_used(out)
    start_s = time.monotonic()
    measured = _Measurement(registry, units, out, options, progress)
    with interruptible() as stopped, contextlib.closing(measured):
        for number in range(1, processes + 1):
            name = f"process {number} of {processes}"
            if stopped or not measured.process(name, stopped, last=number == processes):
                break
    run = AaRun(measured.folder, interrupted=measured.finished < processes)
    if measured.finished >= LEAST_PROCESSES:
        measured.meta["elapsed_s"] = round(time.monotonic() - start_s, 1)
        run.record = _record(measured, complete=not run.interrupted, filtered=filtered)
        _store(run)
    return run


def _record(measured: _Measurement, complete: bool, filtered: bool) -> dict[str, Any]:
    """What aa.json and noise_floor.json hold."""
    table = measured.table
    tick_us = measured.tick_us if math.isfinite(measured.tick_us) else 0.0
    pairs = aa_stats.compare_pairs(table, tick_us)
    judged = aa_stats.judge_pairs(pairs)
    return {
        "schema": SCHEMA_VERSION,
        "complete": complete,
        "filtered": filtered,
        **{key: value for key, value in measured.meta.items() if key != "noise_floor"},
        "tick_us": tick_us,
        "processes": measured.finished,
        "rows": len(table[aa_table.ROW].drop_duplicates()),
        "statuses": dict(Counter(table["status"])),
        "gpu_shared": int(table["warnings"].str.contains("gpu_shared").sum()),
        "worker_restarts": measured.restarts,
        "classes": aa_stats.floor_classes(pairs),
        **aa_stats.held_down_classes(pairs),
        "calls": aa_stats.summarise_calls(judged, measured.finished),
        "repeatability": aa_stats.repeatability(table, pairs),
    }


def _store(run: AaRun) -> None:
    """Write aa.json, and the floor of later runs where this measurement may be one."""
    text = json.dumps(run.record, indent=2, allow_nan=False) + "\n"
    assert run.folder is not None
    _write(run.folder / RECORD_NAME, text)
    run.kept_out = _unfit(run.record)
    gpu = run.record["gpu"]["name"]
    if not run.kept_out and not _few_called(run.record) and recorded_floor(gpu, DEFAULT_FLUSH):
        # Floors of a noisy day are wide, which is better than none and worse than a quiet day's.
        run.kept_out = "too many rows were called, and this GPU has a record already"
    if not run.kept_out:
        run.floor = floor_path(gpu)
        _write(run.floor, text)


def _unfit(record: dict[str, Any]) -> str:
    """Why later runs must not rely on this record; "" when they may."""
    if not record["complete"]:
        return "the measurement is partial"
    if record["filtered"]:
        return "it covers a selection of the ops"
    if record["processes"] < PROCESSES:
        return f"{record['processes']} processes are too few, wanted {PROCESSES}"
    if record["flush"] != DEFAULT_FLUSH:
        return f"it was measured with --flush {record['flush']}, not with the default"
    if _failed(record):
        return "rows failed"
    if not record["calls"]["pairs"]:
        return "nothing was timed in two processes"
    if record["gpu_shared"]:
        return "another process was on the GPU"
    return ""


def _failed(record: dict[str, Any]) -> bool:
    return any(record["statuses"].get(status) for status in FAILED)


def _few_called(record: dict[str, Any]) -> bool:
    per_thousand = record["calls"]["per_thousand"]
    return per_thousand is not None and per_thousand <= MOST_CALLED_PER_THOUSAND


def _tick_us(events: Sequence[Event]) -> float:
    """The timer's tick as the samples show it; infinite when they do not."""
    samples = (t for e in events for batch in e["samples"] for t in batch if t < _TICK_BELOW_US)
    return smallest_step_us(samples) or math.inf


def refuse_used(folder: Path) -> None:
    held = [n for n in (TABLE_NAME, RECORD_NAME, "bench.csv") if (folder / n).exists()]
    if held:
        raise ResultsError(f"{folder} already holds {', '.join(held)}; choose another --out")


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
    except OSError as error:
        raise ResultsError(
            f"cannot write {path}: {error.strerror or error}; choose another --out"
        ) from error
