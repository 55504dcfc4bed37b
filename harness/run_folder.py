"""May a run be begun, or gone on with, in this folder? Asked without changing anything in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.run_checks import refuse_other_machine, refuse_other_schema
from harness.run_lock import refuse_locked
from harness.run_repair import held_rows, read_meta
from harness.schema import BENCH_NAME, META_NAME, ResultsError


def refuse_held(run_dir: Path, resume: bool) -> None:
    """Raise ResultsError when the folder holds a run that is not to be resumed."""
    held = [n for n in (BENCH_NAME, META_NAME) if (run_dir / n).exists()]
    if held and not resume:
        raise ResultsError(
            f"{run_dir} already holds a run ({', '.join(held)}); continue it with "
            "--resume, or choose another folder"
        )


def earlier_meta(run_dir: Path, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the meta of the run that the folder holds, {} for none.

    Raises ResultsError unless the run that `meta` describes may go on with it.
    """
    if not (run_dir / META_NAME).exists():
        return {}
    old = read_meta(run_dir / META_NAME)
    refuse_other_schema(run_dir, old)
    refuse_other_machine(run_dir, old, meta)
    return old


def refuse_unusable(run_dir: Path, meta: Mapping[str, Any], resume: bool) -> None:
    """Raise ResultsError where RunWriter.create would, as far as looking can tell."""
    refuse_unwritable(run_dir)
    refuse_locked(run_dir)
    refuse_held(run_dir, resume)
    earlier_meta(run_dir, meta)
    held_rows(run_dir)


def refuse_unwritable(folder: Path) -> None:
    """Raise ResultsError when the folder, or the nearest there is above it, takes no files."""
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise ResultsError(f"cannot write {folder}: {place} is no folder; choose another --out")
    if not os.access(place, os.W_OK | os.X_OK):
        raise ResultsError(f"cannot write {folder}: no permission in {place}; choose another --out")
