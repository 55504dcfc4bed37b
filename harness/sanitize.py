"""`sanitize`: compute-sanitizer's four tools over both sides of every op, in one table.

A tool that finds nothing in a kernel whose instructions it does not model has not cleared it:
such a cell says "not covered", never "clean".
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .explain.tools import kernel_owners
from .registry import REPOSITORY, Registry
from .sanitize_cover import of_extension, of_op, of_sources
from .sanitize_tools import Finding, Report, Version, command, not_modelled, parse
from .sides import SIDES

Pair = tuple[str, str]  # (op, side)
ELSEWHERE: Pair = ("elsewhere", "")


@dataclass(frozen=True)
class Cell:
    """What one tool says of one side of an op. `status`: clean, findings, not covered, not run,
    absent."""

    status: str
    text: str = ""
    findings: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()  # of the tool, about its own answer

    def __str__(self) -> str:
        if self.status == "findings":
            return f"{len(self.findings)} finding{'s' if len(self.findings) > 1 else ''}"
        return f"{self.status}: {self.text}" if self.text else self.status


@dataclass(frozen=True)
class Setup:
    """One tool's run: what to start, for whom, how long it may take."""

    executable: Path
    version: Version
    folder: Path  # for logs
    dtypes: Sequence[str] = ()
    kernels: Sequence[Path] = ()
    device: int = 0
    timeout_s: float = 300.0
    # (op, compute capability as "90") -> what is in its CUDA side's machine code
    cuda_instructions: Callable[[str, str], set[str]] = lambda op, capability: set()
    stems: Sequence[str] = ()  # of all ops, since some share kernels; () where none do


@dataclass(frozen=True)
class Started:
    """What one process left behind: the driver's events by pair, the tool's report."""

    said: dict[str, dict[str, Any]]
    report: Report
    reason: str  # why the process ended early; empty when it did not


def run_tool(setup: Setup, tool: str, pairs: Sequence[Pair]) -> dict[Pair, Cell]:
    """Every pair's cell. A pair that ends the process costs itself alone: the rest starts anew.

    Findings that name no kernel of ours get a cell of their own.
    """
    cells: dict[Pair, Cell] = {}
    unnamed: list[Finding] = []
    left, attempt = list(pairs), 0
    while left:
        started = start(setup, tool, left, attempt)
        unnamed += [finding for finding in started.report.findings if not finding.op]
        judged = _judged(left, started)
        cells |= {pair: _cell(setup, tool, pair, started) for pair in judged}
        left = [pair for pair in left if pair not in judged]
        attempt += 1
    if unnamed:
        cells[ELSEWHERE] = Cell("findings", findings=tuple(unnamed))
    return {pair: cells[pair] for pair in (*pairs, ELSEWHERE) if pair in cells}


def _judged(pairs: Sequence[Pair], started: Started) -> list[Pair]:
    """The pairs that this process decides; at least one, or nothing would ever end."""
    reached = [pair for pair in pairs if ":".join(pair) in started.said]
    culprits = [pair for pair in reached if started.said[":".join(pair)]["event"] != "done"]
    if not reached:
        return list(pairs)  # it never came to the first: nothing else would
    # Without a summary what went before is not known to be clean, but need not be to blame.
    return culprits if culprits and started.report.problem else reached


def start(setup: Setup, tool: str, pairs: Sequence[Pair], attempt: int) -> Started:
    """Run the driver for `pairs` under the tool, once."""
    log = setup.folder / f"{tool}-{attempt}.log"
    said = setup.folder / f"{tool}-{attempt}.said"
    known = setup.stems or [op for op, _ in pairs]
    stems = list(dict.fromkeys(s for op, _ in pairs for s in kernel_owners(op, known)))
    words = command(setup.executable, tool, stems, log)
    words += [sys.executable, "-m", "harness.sanitize_driver", "--say", str(said)]
    words += [w for pair in pairs for w in ("--pair", ":".join(pair))]
    words += [w for dtype in setup.dtypes for w in ("--dtype", dtype)]
    words += [w for root in setup.kernels for w in ("--kernels", str(root))]
    words += ["--device", str(setup.device)]
    output = setup.folder / f"{tool}-{attempt}.out"
    reason = _run(words, setup.timeout_s, output)
    if reason and (printed := output.read_text(errors="replace").strip()):
        reason += f": {printed.splitlines()[-1][:200]}"
    text = log.read_text(errors="replace") if log.is_file() else ""
    return Started(_events(said), parse(text, known), reason)


def _environment() -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    path = os.pathsep.join(filter(None, [str(REPOSITORY), inherited.get("PYTHONPATH", "")]))
    return inherited | {"PYTHONPATH": path, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


def _run(words: Sequence[str], timeout_s: float, output: Path) -> str:
    """Why the process is no good; empty when it ended with 0. Its output goes to a file."""
    with output.open("w") as stream:
        process = subprocess.Popen(
            words, stdout=stream, stderr=stream, env=_environment(), start_new_session=True
        )
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return f"not done after {timeout_s:.0f} s"
        finally:
            if process.poll() is None:  # the tool and the driver below it
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if code == 0:
        return ""
    return f"ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"


def _events(said: Path) -> dict[str, dict[str, Any]]:
    """The last event of each pair."""
    lines = said.read_text().splitlines() if said.is_file() else []
    return {event["pair"]: event for event in map(json.loads, lines)}


def _cell(setup: Setup, tool: str, pair: Pair, started: Started) -> Cell:
    report = started.report
    event = started.said.get(":".join(pair), {"event": "none"})
    findings = tuple(f for f in report.findings if (f.op, f.side) == pair)
    if findings:
        return Cell("findings", findings=findings)
    if event["event"] == "none":
        return Cell("not run", "; ".join(filter(None, (report.problem, started.reason))))
    if event["event"] != "done":
        return Cell("not run", event.get("reason") or started.reason or report.problem)
    if report.problem:
        return Cell("not run", report.problem)
    found = _where_nothing_was_found(setup, tool, pair, event)
    return replace(found, warnings=report.warnings)


def _where_nothing_was_found(setup: Setup, tool: str, pair: Pair, event: dict[str, Any]) -> Cell:
    op, side = pair
    owners = kernel_owners(op, setup.stems or [op])
    strange = [k for k in event["kernels"] if not any(f"{owner}_" in k for owner in owners)]
    if strange:
        return Cell("not run", f"kernel {strange[0]} is not named after its op: not watched")
    if event["launches"] == 0:
        return Cell("not run", "no case is small enough")
    instructions = set(event["instructions"])
    if side == "cuda":
        instructions = setup.cuda_instructions(op, event["capability"])
    unseen = not_modelled(tool, setup.version, sorted(instructions))
    return Cell("not covered" if unseen else "clean", ", ".join(unseen))


def exit_code(cells: Sequence[Cell]) -> int:
    """0 nothing found, 1 findings, 2 something could not be run."""
    statuses = {cell.status for cell in cells}
    if "findings" in statuses:
        return 1
    return 2 if "not run" in statuses else 0


def pairs_of(registry: Registry, ops: Sequence[str], sides: Sequence[str]) -> list[Pair]:
    return [
        (stem, side)
        for stem in registry.stems
        if stem in (ops or [stem])
        for side in SIDES
        if side in (sides or SIDES)
    ]


@functools.cache
def _extension_instructions(capability: str) -> dict[str, set[str]]:
    found = importlib.util.find_spec("harness._cuda")
    return of_extension(Path(found.origin), capability) if found and found.origin else {}


def cuda_instructions(registry: Registry) -> Callable[[str, str], set[str]]:
    """From the machine code where a cuobjdump can read it, else from the sources."""

    def of(op: str, capability: str) -> set[str]:
        found = of_op(_extension_instructions(capability), op, registry.stems)
        if found is not None:
            return found
        return of_sources(registry.kernel_files(op, "cuda"))

    return of
