"""Whether two runs may be compared, and what a reader must know before believing the table."""

from __future__ import annotations

from typing import Any

from harness.results import Run, gpu_names, meta_fact
from harness.schema import META_FACTS

# Facts whose difference explains a difference in time; the rest only identifies.
_TOOLS = ("driver", "CUDA", "nvcc", "nvcc's ptxas", "nvcc flags", "torch", "triton")
_COMPARED = (*_TOOLS, "triton's ptxas", "Python", "seed")

# Which tools compile or dispatch a backend's rows.
_TOOLS_OF = {
    "cuda": ("CUDA", "nvcc", "nvcc's ptxas", "nvcc flags"),
    "triton": ("triton", "triton's ptxas"),
    "torch": ("torch", "CUDA"),
    "library": ("torch", "CUDA"),
    "compile": ("torch", "triton", "triton's ptxas"),
}


class ComparisonRefused(Exception):  # noqa: N818  # an outcome with its own exit code
    """The runs cannot be compared; the text is one line that says why and what to do."""


def refuse_unfinished(run: Run, name: str) -> None:
    """Raise ComparisonRefused when `run` is empty, was cut short or lost its last line."""
    if run.truncated:
        raise ComparisonRefused(
            f"the last line of {name} ({run.path}) is torn; finish that run with --resume"
        )
    if not run.complete:
        raise ComparisonRefused(
            f"{name} ({run.path}) is incomplete: its meta.json says complete="
            f"{run.meta.get('complete')!r}; finish that run with --resume"
        )
    if run.rows.empty:
        raise ComparisonRefused(f"{name} ({run.path}) has no rows; run the benchmark again")


def refuse_other_gpu(base: Run, new: Run, force: bool) -> list[str]:
    """Return the label of a forced comparison across GPU models, or [] for one model.

    The device index does not matter. Raises ComparisonRefused for other models without `force`,
    and always for a file that mixes models.
    """
    names = {"base": gpu_names(base), "new": gpu_names(new)}
    for side, found in names.items():
        if len(found) > 1:
            raise ComparisonRefused(
                f"{side} holds {len(found)} GPU models ({', '.join(found)}) in column gpu; keep "
                "the rows of one"
            )
    base_gpu, new_gpu = ((found or ["not recorded"])[0] for found in names.values())
    if names["base"] and base_gpu == new_gpu:
        return []
    text = f"GPU: base {base_gpu}, new {new_gpu}"
    if not force:
        raise ComparisonRefused(f"{text}; times of different cards say nothing; --force compares")
    return [f"CROSS-DEVICE (forced): {text}"]


def refuse_other_cache(n_differ: int, n_common: int, force: bool) -> list[str]:
    """Return the label of forced cold-against-warm rows, or []; raise without `force`."""
    if not n_differ:
        return []
    text = f"cache: {n_differ} of {n_common} common rows are cold on one side, warm on the other"
    if not force:
        raise ComparisonRefused(f"{text}; measure both alike, or --force compares")
    return [f"COLD AGAINST WARM (forced): {text}"]


def environment_labels(base: Run, new: Run) -> list[str]:
    """Return one line for each recorded difference, dirty tree and set of unrecorded facts."""
    labels = []
    for fact in _COMPARED:
        before, now = meta_fact(base.meta, fact), meta_fact(new.meta, fact)
        if before is not None and now is not None and before != now:
            labels.append(f"{fact}: base {_short(before)}, new {_short(now)}")
    for side, run in (("base", base), ("new", new)):
        if meta_fact(run.meta, "git dirty"):
            labels.append(f"{side} was built from a dirty tree")
        missing = [fact for fact in META_FACTS if meta_fact(run.meta, fact) is None]
        if missing:
            labels.append(f"{side} does not record: {', '.join(missing)}")
    return labels


def changed_tools(base: Run, new: Run) -> dict[str, bool]:
    """Return for each known backend whether a recorded tool behind its rows changed."""
    return {
        backend: any(_differs(base.meta, new.meta, tool) for tool in tools)
        for backend, tools in _TOOLS_OF.items()
    }


def _differs(base: dict[str, Any], new: dict[str, Any], fact: str) -> bool:
    before, now = meta_fact(base, fact), meta_fact(new, fact)
    return before is not None and now is not None and before != now


def _short(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
