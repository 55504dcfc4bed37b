"""facts.json of a run: the parent's record of which kernels each row's time belongs to.

Keyed by the hash of a kernel's machine code; rows point to it, so that the variant that was timed
is known and not compiled again by guess. docs/results-schema.md explains the file.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..machine import software_facts
from . import extension, store, tools, triton_api, triton_side
from .fact_file import FACTS_NAME, SCHEMA, read, row_key
from .facts import ExplainError, KernelFacts, Launch, launch_from_json, to_json
from .occupancy import occupancy, waves


class FactsBook:
    """Collects what the worker saw launched and writes the file after each case.

    Whatever fails in here becomes a line in the file's "problems": no row is lost for it.
    """

    def __init__(self, run_dir: Path, stems: Sequence[str], gpu: Mapping[str, Any]) -> None:
        self._path = run_dir / FACTS_NAME
        self._stems = tuple(stems)
        self._gpu = gpu
        self._built: dict[str, dict[str, KernelFacts]] = {}
        self._kernels: dict[str, KernelFacts] = {}
        self._rows: dict[str, dict[str, Any]] = {}
        self._problems: list[str] = []
        self._tools: dict[str, Any] = {}
        if self._path.is_file():  # of a run that goes on
            with contextlib.suppress(ExplainError):
                held = read(self._path)
                self._kernels, self._rows = held.kernels, held.rows

    def take(self, events: Sequence[dict[str, Any]]) -> None:
        """Move the launches of row events into the book; fills what only machine code tells."""
        changed = False
        for event in events:
            launches = event.pop("launches", None)
            if problem := event.pop("launch_problem", ""):
                self._note(str(problem))
            if not launches:
                continue
            try:
                self._add(event["row"], [launch_from_json(data) for data in launches])
                changed = True
            except Exception as error:  # facts may be missing, rows may not
                self._note(f"{type(error).__name__}: {error}")
        if changed:
            try:
                self._write()
            except Exception as error:  # facts may be missing, rows may not
                self._note(f"{type(error).__name__}: {error}")

    def _add(self, row: dict[str, Any], launches: Sequence[Launch]) -> None:
        side = str(row["backend"])
        known = [self._with_hash(launch, side) for launch in launches]
        entry: dict[str, Any] = {"launches": [self._launch_entry(launch) for launch in known]}
        entry |= {name: row.get(name) for name in ("kernel_hash", "config", "time_us_p50")}
        self._rows[row_key(row)] = entry
        facts = [self._kernels.get(launch.hash) for launch in known]
        if row.get("spill_bytes") is None and all(k is not None for k in facts):
            spills = [k.spill_bytes for k in facts if k is not None]
            row["spill_bytes"] = None if None in spills else max(s or 0 for s in spills)

    def _with_hash(self, launch: Launch, side: str) -> Launch:
        """The launch with its kernel's hash, and the kernel's facts in the book."""
        if launch.cubin and launch.hash:
            if launch.hash not in self._kernels:
                self._read_triton(launch)
            return launch
        if side != "cuda":
            return launch
        found = self._extension_kernels(launch.binary_arch).get(launch.symbol)
        if found is None:
            self._note(f"{tools.short_name(launch.symbol)}: not in the extension's cubins")
            return launch
        self._kernels[found.hash] = found
        return replace(launch, hash=found.hash)

    def _read_triton(self, launch: Launch) -> None:
        file = Path(launch.cubin)
        ptx = file.with_suffix(".ptx")
        compiled = triton_api.Compiled(
            name=launch.symbol,
            arch=str(launch.options.get("arch", launch.binary_arch)),
            cubin=file.read_bytes(),
            ptx=ptx.read_text() if ptx.is_file() else "",
            options=dict(launch.options),
        )
        self._kernels[launch.hash] = triton_side.kernel_facts(compiled, self._stems)

    def _extension_kernels(self, arch: str) -> dict[str, KernelFacts]:
        if arch not in self._built:
            self._built[arch] = {}  # a tool that fails once is not asked again for every row
            binary = extension.binary()
            chosen, _ = extension.code_for(arch, extension.contents(binary))
            found = extension.kernels(binary, chosen, self._stems) if chosen else []
            self._built[arch] = {kernel.symbol: kernel for kernel in found}
        return self._built[arch]

    def _launch_entry(self, launch: Launch) -> dict[str, Any]:
        entry = to_json(replace(launch, cubin=""))  # a path of this machine
        entry["name"] = tools.short_name(launch.symbol)
        if launch.threads and launch.registers and launch.grid:
            shared = (launch.static_shared_bytes or 0) + (launch.dynamic_shared_bytes or 0)
            with contextlib.suppress(ExplainError):
                estimate = occupancy(launch.binary_arch, launch.registers, shared, launch.threads)
                blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
                n_sms = int(self._gpu.get("sm_count") or 0)
                resident = launch.blocks_per_sm or estimate.blocks
                entry |= {"occupancy": estimate.share, "limiter": estimate.limiter}
                entry |= {"waves": waves(blocks, resident, n_sms)}
        return entry

    def _note(self, text: str) -> None:
        if text not in self._problems:
            self._problems.append(text)

    def _write(self) -> None:
        # A run's folder that somebody deleted is the writer of rows' to put back.
        if not self._tools:
            self._tools = tools_of_both_sides(software_facts().get("extension") or {})
        store.write(self._path, (json.dumps(self._as_json(), indent=1) + "\n").encode())

    def _as_json(self) -> dict[str, Any]:
        kernels = {name: to_json(kernel) for name, kernel in sorted(self._kernels.items())}
        return {
            "schema": SCHEMA,
            "tools": self._tools,
            "problems": self._problems,
            "kernels": kernels,
            "rows": self._rows,
        }


def tools_of_both_sides(build_info: Mapping[str, Any]) -> dict[str, Any]:
    """Versions and flags of what made the machine code, side by side; build_info: of the extension,
    empty where there is none."""
    cuda = {k: build_info.get(k) for k in ("nvcc", "ptxas", "flags", "arch_list")}
    readers = {name: tools.version(tools.find(name)) for name in ("cuobjdump", "nvdisasm")}
    return {"cuda": cuda, "triton": triton_api.flags(), "readers": readers}
