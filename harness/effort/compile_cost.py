"""What compiling costs on this machine, and who pays it.

The builder pays for the extension, clean and after an edit of one .cu; each first user pays for
Triton's compile at the first launch (cold), and each later process for a look into its cache
(warm). The extension is built in a copy, never in this checkout; Triton compiles for a named arch
without a GPU, in child processes with a cache of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from ..registry import REPOSITORY, Registry

ARCH = 90
_COPIED = (
    "csrc",
    "harness",
    "triton_kernels",
    "setup.py",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)
_TIMEOUT_S = 7200
_WORKER = "harness.effort.compile_worker"


class CompileCostError(Exception):
    """A compile that cannot be measured here, in one line."""


@dataclass(frozen=True)
class Built:
    """Wall times of the extension's build: clean, and after touching one source."""

    clean_s: float
    touched_s: float
    touched: str
    settings: str


@dataclass(frozen=True)
class Compiled:
    """One op in Triton: kernels compiled, and wall times of that, in ms, cold and warm."""

    op: str
    kernels: int
    cold_ms: float
    warm_ms: float


def show(registry: Registry, ops: Sequence[str], console: Console) -> int:
    """Measure and print; 0, or 2 where neither side could be measured."""
    failed = 0
    try:
        for line in triton_lines(triton(registry, ops)):
            console.print(line)
    except CompileCostError as error:
        failed += 1
        console.print(f"Triton: {error}", markup=False)
    try:
        built = extension(_touched(registry, ops))
        console.print(
            f"CUDA, paid by who builds: the extension of all ops {built.clean_s:.0f} s clean, "
            f"{built.touched_s:.0f} s after touching {built.touched} ({built.settings}).",
            markup=False,
        )
    except CompileCostError as error:
        failed += 1
        console.print(f"CUDA: {error}", markup=False)
    return 2 if failed == 2 else 0


def _touched(registry: Registry, ops: Sequence[str]) -> str:
    own = [registry.files(op)["cuda"] for op in ops if "cuda" in registry.files(op)]
    inside = [file for file in own if file.is_relative_to(REPOSITORY)]
    if not inside:
        raise CompileCostError("none of these ops has a .cu in this checkout")
    return str(inside[0].relative_to(REPOSITORY))


def extension(touched: str, archs: str = "") -> Built:
    """Build a copy of this checkout twice. `touched`: a source, by its path in it."""
    if not (REPOSITORY / "setup.py").is_file():
        raise CompileCostError("no setup.py beside the package; run it in a checkout")
    with tempfile.TemporaryDirectory(prefix="cvt-build-") as name:
        copy = Path(name)
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        for item in _COPIED:
            source = REPOSITORY / item
            if source.is_dir():
                shutil.copytree(source, copy / item, ignore=ignored)
            elif source.is_file():
                shutil.copy(source, copy / item)
        clean_s, settings = _build(copy, archs)
        # Later than every object, whatever the file system's resolution.
        os.utime(copy / touched, (later := time.time() + 2, later))
        touched_s, _ = _build(copy, archs)
    return Built(clean_s, touched_s, touched, settings)


def _build(copy: Path, archs: str) -> tuple[float, str]:
    environment = os.environ | ({"TORCH_CUDA_ARCH_LIST": archs} if archs else {})
    start = time.perf_counter()
    done = _run([sys.executable, "setup.py", "build_ext", "--inplace"], copy, environment)
    elapsed = time.perf_counter() - start
    text = done.stdout + done.stderr
    if done.returncode != 0 or not list((copy / "harness").glob("_cuda*.so")):
        lines = [line for line in text.splitlines() if line.strip()]
        reason = next((line for line in reversed(lines) if "rror" in line or "cuda-vs" in line), "")
        raise CompileCostError(f"the extension was not built: {reason or 'no reason was printed'}")
    wanted = ("nvcc", "arch list", "jobs")
    facts = [" ".join(line.split()) for line in text.splitlines() if line.startswith(wanted)]
    return elapsed, ", ".join(facts)


def triton(registry: Registry, ops: Sequence[str], arch: int = ARCH) -> list[Compiled]:
    """Compile each op's headline as launched on its first bench case and dtype, in two processes
    that share one new cache."""
    with tempfile.TemporaryDirectory(prefix="cvt-triton-") as cache:
        command = [sys.executable, "-m", _WORKER, str(arch), *ops]
        for root in registry.roots[1:]:
            command += ["--kernels", str(root)]
        environment = os.environ | {"TRITON_CACHE_DIR": cache}
        environment.pop("TRITON_INTERPRET", None)
        cold, warm = (_worker(command, environment) for _ in range(2))
    found = []
    for op in ops:
        if op in cold and op in warm:
            n_kernels, cold_ms, compiled = cold[op]
            _, warm_ms, compiled_again = warm[op]
            if not compiled or compiled_again:
                raise CompileCostError(
                    f"{op}: Triton's cache was {'not empty' if not compiled else 'not used'}, so "
                    "cold and warm cannot be told apart"
                )
            found.append(Compiled(op, int(n_kernels), cold_ms, warm_ms))
    return found


def _worker(command: list[str], environment: dict[str, str]) -> dict[str, tuple[int, float, int]]:
    done = _run(command, REPOSITORY, environment)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason was printed"])[-1]
        raise CompileCostError(f"cannot be compiled here: {last}")
    found: dict[str, tuple[int, float, int]] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _run(
    command: list[str], folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileCostError(f"{Path(command[0]).name}: {error}") from error


def triton_lines(found: Sequence[Compiled]) -> list[str | Table]:
    table = Table(
        title=f"Triton, sm_{ARCH}: paid by the first launch, and by each later process",
        title_justify="left",
        pad_edge=False,
        box=box.SIMPLE,
    )
    for title in ("Op", "Kernels", "Cold ms", "Warm ms"):
        table.add_column(title, justify="left" if title == "Op" else "right")
    for each in found:
        numbers = (str(each.kernels), f"{each.cold_ms:.0f}", f"{each.warm_ms:.0f}")
        table.add_row(each.op, *numbers)
    return [table]
