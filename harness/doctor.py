"""What works on this machine, and why the rest does not: `make doctor`.

Must work where nothing is installed, so it needs nothing but the standard library.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from .output import finished
from .probes import PROBES, Finding, short


def diagnose() -> list[Finding]:
    """Run every probe, in the order in which a reader would look for the fault."""
    findings: list[Finding] = []
    for probe in PROBES:
        try:
            findings.extend(probe())
        except Exception as error:  # a probe that breaks is itself a finding
            name = probe.__name__.strip("_").replace("_", " ")
            findings.append(Finding(name, False, f"probe failed: {short(error)}"))
    return findings


def render(findings: Iterable[Finding]) -> str:
    """One line per finding, its remedy below it, and a last line with the verdict."""
    found = list(findings)
    width = max((len(finding.name) for finding in found), default=0)
    lines = []
    for finding in found:
        mark = "ok" if finding.ok else ("FAIL" if finding.required else "no")
        lines.append(f"{mark:>4}  {finding.name:<{width}}  {finding.detail}")
        if finding.remedy and not finding.ok:
            lines.append(f"{'':>4}  {'':<{width}}  -> {finding.remedy}")
    return "\n".join([*lines, "", verdict(found)])


def verdict(findings: Iterable[Finding]) -> str:
    """What `make bench` can do here, in one sentence."""
    found = list(findings)
    broken = [finding.name for finding in found if finding.required and not finding.ok]
    if broken:
        # Before the first `make bench` this is no fault: make installs into a venv of its own.
        fresh = "" if Path(".venv").is_dir() else " in this interpreter; `make bench` sets up .venv"
        return f"bench cannot run: {', '.join(broken)}{fresh}."
    state = {finding.name: finding.ok for finding in found}
    if not state.get("GPU", False):
        return "bench runs without a GPU: it builds and checks what it can, and times nothing."
    sides = [name for name, key in (("CUDA", "extension"), ("Triton", "triton")) if state.get(key)]
    return f"bench checks and times kernels here; sides: {', '.join(sides) or 'neither'}."


def main() -> int:
    """Print the report; 0 when bench can run at all, with or without a GPU, else 1."""
    findings = diagnose()
    print(render(findings))
    return int(any(finding.required and not finding.ok for finding in findings))


if __name__ == "__main__":
    sys.exit(finished(main))
