"""Which ops of this tree are not what a run measured: changed since, or added."""

from __future__ import annotations

from collections.abc import Mapping

from harness.machine import source_hash
from harness.registry import Registry
from harness.results import Run


def changed_ops(run: Run, registry: Registry) -> list[str]:
    """Ops of the run whose spec, kernels or the code that these share are not what it recorded."""
    recorded = run.meta.get("op_sha256")
    hashes = recorded if isinstance(recorded, Mapping) else {}
    return [
        stem
        for stem in run.rows["op"].drop_duplicates()
        if stem in registry.stems
        and (
            hashes.get(stem) != source_hash(list(registry.files(stem).values()))
            or _kernels_changed(run, registry, stem)
        )
    ]


def _kernels_changed(run: Run, registry: Registry, stem: str) -> bool:
    rows = run.rows[(run.rows["op"] == stem) & (run.rows["variant"] == "")]
    for backend in ("cuda", "triton"):
        recorded = set(rows.loc[rows["backend"] == backend, "kernel_hash"]) - {""}
        files = registry.kernel_files(stem, backend)
        if recorded and files and recorded != {source_hash(files)}:
            return True
    return False


def added_ops(run: Run, registry: Registry) -> list[str]:
    """Ops of this tree that the run has no row of."""
    measured = set(run.rows["op"])
    return [stem for stem in registry.stems if stem not in measured]


def since_run(run: Run, registry: Registry) -> str:
    """One sentence for readers of the run's figures; "" when it measured this tree."""
    clauses = [
        f"{', '.join(f'`{op}`' for op in ops)} {'was' if len(ops) == 1 else 'were'} {verb}"
        for ops, verb in (
            (changed_ops(run, registry), "changed"),
            (added_ops(run, registry), "added"),
        )
        if ops
    ]
    return f"Since this run {' and '.join(clauses)}." if clauses else ""
