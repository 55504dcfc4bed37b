"""Can this machine build the CUDA side, with what, and if not, what to do about it.

Standard library only; torch is imported inside `inspect`. setup.py prints the block before it
builds; `doctor` shows the same facts; `python -m harness.preflight` prints them, exit 1 when
something is fatal; `--needs-nvcc` exits 0 when torch has CUDA and no nvcc of its major version is
here, which is when installing NVIDIA's compiler wheels helps.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.compilers import (
    Nvcc,
    Problem,
    find_nvcc,
    host_compiler,
    host_problem,
    nvcc_problem,
)

DEFAULT_ARCH_LIST = "8.0+PTX;9.0a"
# torch knows generations by name too, such as Hopper.
_ARCH = re.compile(r"(\d+\.\d[af]?|[A-Z][a-z]+(\+Tesla|\+Tegra)?)(\+PTX)?")
OLDEST_CAPABILITY = (8, 0)
NO_ISOLATION = "pip install --no-build-isolation -e ."
WITHOUT_CUDA = "CVT_SKIP_CUDA=1 pip install ."


@dataclass(frozen=True)
class Preflight:
    """What a build would use. Empty strings are unknown; `problems` says what that costs."""

    torch_version: str
    torch_cuda: str  # "" when torch is missing or built without CUDA
    nvcc: Nvcc | None
    host_compiler: str
    host_version: str
    arch_list: str
    arch_why: str
    jobs: int
    problems: tuple[Problem, ...]

    @property
    def fatal(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.fatal)


def _capabilities(torch: Any) -> list[tuple[int, int]]:
    try:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return sorted({torch.cuda.get_device_capability(i) for i in range(count)})
    except Exception:  # a broken driver must not stop a build that names its archs
        return []


def _archs(env: Mapping[str, str], torch: Any) -> tuple[str, str, Problem | None]:
    """The arch list, where it came from, and what is wrong with it."""
    given = env.get("TORCH_CUDA_ARCH_LIST", "")
    if given:
        bad = [a for a in given.replace(";", " ").split() if not _ARCH.fullmatch(a)]
        text = (
            f"TORCH_CUDA_ARCH_LIST is {given!r}, and {' '.join(bad)} is no architecture; wanted "
            f"numbers such as {DEFAULT_ARCH_LIST}, or unset it"
        )
        return given, "TORCH_CUDA_ARCH_LIST", Problem(True, text) if bad else None
    capabilities = _capabilities(torch) if torch else []
    if not capabilities:
        note = f"no GPU is visible and TORCH_CUDA_ARCH_LIST is unset: building {DEFAULT_ARCH_LIST}"
        return DEFAULT_ARCH_LIST, "default", Problem(False, note)
    usable = [c for c in capabilities if c >= OLDEST_CAPABILITY]
    if not usable:
        return (
            DEFAULT_ARCH_LIST,
            "default",
            Problem(
                True,
                "the visible GPUs are older than sm_80, the oldest that the kernels support: "
                "choose another with CUDA_VISIBLE_DEVICES, or set TORCH_CUDA_ARCH_LIST",
            ),
        )
    # 9.0a: wgmma and setmaxnreg exist only in the architecture-specific target.
    names = [f"{major}.{minor}" + ("a" if major == 9 else "") for major, minor in usable]
    return ";".join(names), "the visible GPU", None


def _import_torch() -> Any:
    return importlib.import_module("torch")


def _torch_facts(load_torch: Callable[[], Any]) -> tuple[Any, str, str, Problem | None]:
    """torch itself or None, its version, its CUDA version, and what is wrong with it."""
    try:
        torch = load_torch()
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        text = (
            f"torch cannot be imported here ({reason}): install torch, then {NO_ISOLATION}; "
            f"or {WITHOUT_CUDA} for compare and plots alone"
        )
        return None, "", "", Problem(True, text)
    cuda = torch.version.cuda or ""
    if cuda:
        return torch, str(torch.__version__), cuda, None
    text = (
        f"torch {torch.__version__} is built without CUDA: install a CUDA build of torch; "
        f"or {WITHOUT_CUDA} for what runs without"
    )
    return torch, str(torch.__version__), "", Problem(True, text)


def default_jobs(env: Mapping[str, str]) -> int:
    """MAX_JOBS, else the CPUs that this process may use."""
    if env.get("MAX_JOBS", "").isdigit():
        return max(1, int(env["MAX_JOBS"]))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def inspect(
    env: Mapping[str, str] = os.environ, load_torch: Callable[[], Any] = _import_torch
) -> Preflight:
    """Looks at torch, nvcc, the host compiler and the GPUs; builds and changes nothing."""
    torch, torch_version, torch_cuda, torch_problem = _torch_facts(load_torch)
    nvcc = find_nvcc(env, torch_cuda)
    host, host_version = host_compiler(env)
    arch_list, arch_why, arch_problem = _archs(env, torch if torch_cuda else None)
    problems = (
        torch_problem,
        nvcc_problem(nvcc, torch_cuda, env),
        host_problem(host, host_version, nvcc),
        arch_problem,
    )
    return Preflight(
        torch_version=torch_version,
        torch_cuda=torch_cuda,
        nvcc=nvcc,
        host_compiler=host,
        host_version=host_version,
        arch_list=arch_list,
        arch_why=arch_why,
        jobs=default_jobs(env),
        problems=tuple(problem for problem in problems if problem is not None),
    )


def render(pf: Preflight) -> str:
    """The block that setup.py prints: a line a fact, then a line a problem."""
    torch = f"{pf.torch_version}, CUDA {pf.torch_cuda or 'none'}" if pf.torch_version else "none"
    nvcc = f"{pf.nvcc.version}, {pf.nvcc.path} ({pf.nvcc.why})" if pf.nvcc else "none"
    host = f"{pf.host_version or 'unknown version'}, {pf.host_compiler}"
    lines = [
        f"torch          {torch}",
        f"nvcc           {nvcc}",
        f"host compiler  {host if pf.host_compiler else 'none'}",
        f"arch list      {pf.arch_list} ({pf.arch_why})",
        f"jobs           {pf.jobs}",
    ]
    lines += [f"{'error' if p.fatal else 'note'}: {p.text}" for p in pf.problems]
    return "\n".join(lines)


def needs_nvcc(pf: Preflight) -> bool:
    """True when torch has CUDA and no nvcc of its major version was found."""
    if not pf.torch_cuda:
        return False
    return pf.nvcc is None or pf.nvcc.major != pf.torch_cuda.split(".")[0]


def main(argv: list[str]) -> int:
    pf = inspect()
    if argv == ["--needs-nvcc"]:
        return 0 if needs_nvcc(pf) else 1
    if argv:
        print("usage: python -m harness.preflight [--needs-nvcc]", file=sys.stderr)
        return 2
    print(render(pf))
    return 1 if pf.fatal else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
