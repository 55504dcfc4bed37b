"""The roofs of a run: measured once at its start, and again at its end to see whether they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .console import Progress
from .meta_checks import whole_roofs
from .plan import Unit
from .roofs import Roofs, drift
from .run_writer import RunWriter
from .schema import META_NAME
from .supervisor import Supervisor, WorkerDiedError


def roofs_of_run(
    units: Sequence[Unit],
    supervisor: Supervisor,
    writer: RunWriter,
    flush: str,
    progress: Progress,
) -> Roofs:
    """This run's roofs: measured once, and the same for the rows that a resume adds."""
    recorded = writer.meta.get("roofs")
    if recorded is None:
        progress.note("measuring the roofs of this card")
        dtypes = sorted({u.dtype for u in units if u.spec.compute_bound})
        recorded = supervisor.roofs(dtypes, flush)
        overheads = {key: recorded[key] for key in ("event_overhead_us", "launch_floor_us")}
        writer.record({"roofs": recorded, **overheads})
    return whole_roofs(writer.run_dir / META_NAME, recorded)


def roofs_again(
    supervisor: Supervisor, writer: RunWriter, flush: str, progress: Progress
) -> dict[str, Any]:
    """The roofs at the end of the run, for meta.json; says so when they moved."""
    start = writer.meta["roofs"]
    try:
        end = supervisor.roofs(sorted(start["matrix_tflops"]), flush, start)
    except WorkerDiedError as death:
        progress.note(f"the roofs were not measured again at the end: {death.reason}")
        return {}
    moved = drift(Roofs.from_meta(start), Roofs.from_meta(end))
    if moved["above_2_pct"]:
        progress.note(f"the roofs moved during the run: {', '.join(moved['above_2_pct'])}")
    return {"roofs_end": end, "roof_drift": moved}
