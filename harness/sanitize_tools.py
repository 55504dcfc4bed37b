"""compute-sanitizer: where it is, how it is asked, what it answers, what it does not model.

Option names are those of `compute-sanitizer --help`, 2023.3 and newer.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .compilers import find_nvcc, wheel_folders
from .explain.tools import sharer

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
Version = tuple[int, int]

# (tool, instruction) -> the first release that models it, by NVIDIA's release notes; None: none
# does. Pairs that cannot matter are left out: initcheck watches global memory only, synccheck
# barriers only.
_NEVER = None
MODELLED_SINCE: dict[tuple[str, str], Version | None] = {
    ("memcheck", "cp.async"): (2021, 3),
    ("racecheck", "cp.async"): (2022, 4),
    ("initcheck", "cp.async"): (2021, 3),
    ("memcheck", "wgmma"): (2023, 1),
    ("synccheck", "wgmma"): (2023, 1),
    ("racecheck", "wgmma"): _NEVER,
    ("memcheck", "cp.async.bulk"): (2025, 2),
    ("racecheck", "cp.async.bulk"): (2024, 4),
    ("initcheck", "cp.async.bulk"): (2025, 4),
    ("memcheck", "cp.async.bulk.tensor"): (2026, 2),
    ("racecheck", "cp.async.bulk.tensor"): _NEVER,
    ("initcheck", "cp.async.bulk.tensor"): _NEVER,
    # What came before 2025.3 took mbarriers of one warp for one another.
    ("racecheck", "mbarrier"): (2025, 3),
    ("synccheck", "mbarrier"): (2025, 3),
    ("memcheck", "tcgen05"): _NEVER,
    ("racecheck", "tcgen05"): _NEVER,
    ("initcheck", "tcgen05"): _NEVER,
}


def not_modelled(tool: str, version: Version, instructions: Sequence[str]) -> tuple[str, ...]:
    """Those of a kernel's `instructions` that this release of the tool does not see."""
    found = []
    for instruction in instructions:
        since = MODELLED_SINCE.get((tool, instruction), (0, 0))
        if since is None or version < since:
            found.append(instruction)
    return tuple(found)


def find_tool(env: Mapping[str, str], torch_cuda: str = "") -> Path | None:
    """The executable: CUDA_HOME's, PATH's, the wheels', then that of the toolkit nvcc is from."""
    for folder in _folders(env, torch_cuda):
        # Beside bin, a toolkit keeps the real one in a folder of its own.
        for file in (folder / "compute-sanitizer", folder.parent / "compute-sanitizer"):
            candidate = file / "compute-sanitizer" if file.is_dir() else file
            if candidate.is_file() and os.access(candidate, os.X_OK):
                return candidate
    return None


def _folders(env: Mapping[str, str], torch_cuda: str) -> Iterator[Path]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if env.get(name):
            yield Path(env[name], "bin")
    on_path = shutil.which("compute-sanitizer", path=env.get("PATH", ""))
    if on_path:
        yield Path(on_path).parent
    for folder in wheel_folders():
        yield folder / "bin"
    nvcc = find_nvcc(env, torch_cuda)
    if nvcc:
        yield Path(nvcc.home, "bin")
    yield Path("/usr/local/cuda/bin")


def how_to_install(torch_cuda: str) -> str:
    version = f"=={torch_cuda}.*" if torch_cuda else ""
    return (
        "compute-sanitizer is not under CUDA_HOME, on PATH, in NVIDIA's wheels or in "
        f"/usr/local/cuda; pip install 'cuda-toolkit[sanitizer]{version}'"
    )


def version_of(tool: Path) -> Version:
    """(2025, 3) of "Version 2025.3.1.0"; (0, 0), older than everything, when it does not tell."""
    try:
        done = subprocess.run([tool, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return (0, 0)
    match = re.search(r"Version (\d+)\.(\d+)", done.stdout + done.stderr)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def command(executable: Path, tool: str, stems: Sequence[str], log: Path) -> list[str]:
    """The start of a command line, without the program to watch.

    Only kernels named after the ops are watched: what torch launches is not ours to judge. Child
    processes (ptxas, gcc) are left alone.
    """
    words = [str(executable), "--tool", tool, "--target-processes", "application-only"]
    for stem in stems:
        words += ["--kernel-name", f"kernel_substring={stem}_"]
    words += ["--print-limit", "1000", "--show-backtrace", "device", "--log-file", str(log)]
    words += ["--launch-timeout", "120"]  # importing torch from a cold disk outlasts the default
    if tool == "memcheck":
        # torch and Triton probe the driver with calls that are meant to fail.
        words += ["--report-api-errors", "no"]
    return words


@dataclass(frozen=True)
class Finding:
    """One record of the tool; `op` and `side` are empty where it names no kernel of ours."""

    op: str
    side: str
    text: str


@dataclass(frozen=True)
class Report:
    """`problem`: why the tool's answer is none; empty when it came to its summary. `warnings`:
    what the tool says of itself besides."""

    findings: tuple[Finding, ...]
    problem: str
    warnings: tuple[str, ...] = ()


_SUMMARY = re.compile(r"^(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")
_NOISE = (
    "COMPUTE-SANITIZER",
    "Target application returned an error",
    "Tracking kernels launched by child processes",
)


def parse(log: str, stems: Sequence[str]) -> Report:
    """The findings in a tool's text output, which has a line of its own for each frame."""
    records: list[list[str]] = []
    warnings: list[str] = []
    summary, problem = None, ""
    for line in log.splitlines():
        if not line.startswith("========="):
            continue
        text = line[9:]
        head = text.strip()
        if text.startswith("     ") and records:
            records[-1].append(head)
        elif match := _SUMMARY.match(head):
            summary = max(summary or 0, int(match[1] or match[2]))
        elif _is_problem(head):
            problem = problem or head
        elif head.startswith("Warning:") and "Race reported" not in head:
            warnings.append(head)
        elif head and not head.startswith(_NOISE) and "SUMMARY" not in head:
            records.append([head])
    findings = [_finding(record, stems) for record in records]
    if summary is None:
        problem = problem or "the tool ended without its summary"
    elif summary > len(findings):
        unseen = summary - len(findings)
        findings += [Finding("", "", "counted in the summary, not printed")] * unseen
    return Report(tuple(findings), problem, tuple(warnings))


def _is_problem(head: str) -> bool:
    """The tool about itself; a race is called an error too, and is a finding."""
    if "Race reported" in head:
        return False
    return head.startswith(("Error:", "Internal", "Device not supported", "Target application t"))


def _finding(record: Sequence[str], stems: Sequence[str]) -> Finding:
    whole = " ".join(record)
    # The longest stem first: one op's name may begin with another's.
    for stem in sorted(stems, key=len, reverse=True):
        if re.search(rf"(?<![A-Za-z_]){stem}_\w*", whole):
            side = "cuda" if "cuda_vs_triton" in whole else "triton"
            return Finding(sharer(stem, whole, stems), side, "; ".join(record[:3]))
    return Finding("", "", "; ".join(record[:3]))
