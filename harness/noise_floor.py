"""The noise floor that `bench --aa` measured on this card's model, as later runs record it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .console import stderr
from .machine import gpu_slug
from .registry import REPOSITORY
from .run_repair import read_meta
from .schema import ResultsError

FLOOR_NAME = "noise_floor.json"
DEFAULT_FLUSH = "clean"

# What a run keeps of the record beside its classes, so that a reader can judge if it fits.
_PROVENANCE = ("driver", "cuda", "torch", "triton", "processes", "rows")
_ROOTS = (Path("results"), REPOSITORY / "results")


def floor_path(gpu_name: str) -> Path:
    """Return where the record of a GPU model lies, beside that model's runs."""
    return _ROOTS[0] / gpu_slug(gpu_name) / FLOOR_NAME


def recorded_floor(gpu_name: str, flush: str) -> dict[str, Any] | None:
    """Return the classes and provenance of this GPU model's A/A record for a run's meta.json.

    None where there is no record, or one of another GPU model or flush; None after one line of
    warning where the file cannot be used: a sweep must not fail for it.
    """
    paths = [root / gpu_slug(gpu_name) / FLOOR_NAME for root in _ROOTS]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return None
    try:
        record = read_meta(path)
        classes = [_checked(entry) for entry in record["classes"]]
        if not classes or classes[-1]["below_us"] is not None:
            raise ValueError("its classes do not cover all durations")
        if record["gpu"]["name"] != gpu_name or record["flush"] != flush:
            return None
        held = {
            name: _checked(record[name] | {"below_us": None})
            for name in ("clock_limited", "equal_clock")
        }
        kept = {name: record[name] for name in _PROVENANCE}
        of = {"measured_utc": record["started_utc"], "gpu_id": record["gpu"]["uuid_sha256"]}
    except (ResultsError, KeyError, TypeError, ValueError, AttributeError) as error:
        text = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        stderr.print(
            f"warning: {path} is not used as the noise floor: {text}; "
            "`python -m harness bench --aa` writes it anew",
            markup=False,
        )
        return None
    return {"classes": classes, **held, **of, **kept}


def _checked(entry: Mapping[str, Any]) -> dict[str, Any]:
    """One class as meta.json keeps it. Raises on anything that is not a usable floor."""
    below, floor = entry["below_us"], float(entry["floor"])
    if not 0 <= floor < 1:
        raise ValueError(f"floor {floor} is not a share")
    return {
        "below_us": None if below is None else float(below),
        "floor": floor,
        "source": str(entry["source"]),
    }
