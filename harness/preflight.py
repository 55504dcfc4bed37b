"""Can this machine build the CUDA side, with what, and if not, what to do about it.

Standard library only; torch is imported inside `inspect`. setup.py prints the block before it
builds; `doctor` shows the same facts; `python -m harness.preflight` prints them, exit 1 when
something is fatal; `--needs-nvcc` exits 0 when torch has CUDA and no nvcc of its major version is
here, which is when installing NVIDIA's compiler wheels helps.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEFAULT_ARCH_LIST = "8.0+PTX;9.0a"
OLDEST_CAPABILITY = (8, 0)
OLDEST_GCC = 9
# The first gcc major that each nvcc refuses (host_config.h); newer toolkits judge for themselves.
REFUSED_GCC = {
    **dict.fromkeys(("12.0", "12.1", "12.2"), 13),
    **dict.fromkeys(("12.3", "12.4", "12.5", "12.6", "12.7"), 14),
    **dict.fromkeys(("12.8", "12.9"), 15),
    "13.0": 16,
}
NO_ISOLATION = "pip install --no-build-isolation -e ."
WITHOUT_CUDA = "CVT_SKIP_CUDA=1 pip install ."


@dataclass(frozen=True)
class Problem:
    """One sentence that names the problem and its remedy; `fatal` means: no build."""

    fatal: bool
    text: str


@dataclass(frozen=True)
class Nvcc:
    """A compiler: its executable, the toolkit root (CUDA_HOME), `13.0`, and where it came from."""

    path: str
    home: str
    version: str
    why: str

    @property
    def major(self) -> str:
        return self.version.split(".")[0]


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


def _output(command: list[str]) -> str:
    """What a command prints, on either stream; empty when it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr


def _toolkit_root(nvcc: str) -> str:
    """The toolkit that an nvcc belongs to; a dry run sees through wrapper scripts and links."""
    match = re.search(r"^#\$ TOP=(.+)$", _output([nvcc, "--dryrun", "-x", "cu", os.devnull]), re.M)
    if match:
        return os.path.realpath(match[1].strip())
    return str(Path(os.path.realpath(nvcc)).parent.parent)


def _as_nvcc(path: str | Path, why: str) -> Nvcc | None:
    path = str(path)
    if not os.access(path, os.X_OK) or os.path.isdir(path):
        return None
    match = re.search(r"release (\d+\.\d+)", _output([path, "--version"]))
    if not match:
        return None
    home = _toolkit_root(path)
    inside = Path(home, "bin", "nvcc")
    return Nvcc(str(inside) if inside.exists() else path, home, match[1], why)


def ptxas_version(home: str) -> str:
    """Full version of the ptxas under `home`, such as "13.0.88"; empty when it does not tell."""
    match = re.search(r"V(\d[\d.]*)", _output([str(Path(home, "bin", "ptxas")), "--version"]))
    return match[1] if match else ""


def _wheel_folders() -> Iterator[Path]:
    """Folders that NVIDIA's compiler wheels fill: nvidia/cu13 (CUDA 13), nvidia/cuda_nvcc (12)."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        yield from sorted(Path(folder).glob("cu[0-9]*"), reverse=True)
        yield Path(folder, "cuda_nvcc")


def _candidates(env: Mapping[str, str], torch_cuda: str) -> Iterator[tuple[str | Path, str]]:
    on_path = shutil.which("nvcc", path=env.get("PATH", ""))
    if on_path:
        yield on_path, "on PATH"
    for folder in _wheel_folders():
        yield folder / "bin" / "nvcc", "from NVIDIA's wheels"
    local = ["/usr/local/cuda"] + ([f"/usr/local/cuda-{torch_cuda}"] if torch_cuda else [])
    for toolkit in local:
        yield Path(toolkit, "bin", "nvcc"), f"in {toolkit}"


def find_nvcc(env: Mapping[str, str], torch_cuda: str = "") -> Nvcc | None:
    """The nvcc to build with: CUDA_HOME's when set, else the nearest to torch's CUDA version.

    Equal major and minor come first, then equal major, then whatever is there (which `inspect`
    refuses); among equals PATH, NVIDIA's wheels, /usr/local/cuda.
    """
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if env.get(name):
            return _as_nvcc(Path(env[name], "bin", "nvcc"), f"{name} is set")
    found = [nvcc for path, why in _candidates(env, torch_cuda) if (nvcc := _as_nvcc(path, why))]
    if not torch_cuda:
        return found[0] if found else None
    same = [nvcc for nvcc in found if nvcc.version == torch_cuda]
    major = [nvcc for nvcc in found if nvcc.major == torch_cuda.split(".")[0]]
    return next(iter([*same, *major, *found]), None)


def _nvcc_problem(nvcc: Nvcc | None, torch_cuda: str, env: Mapping[str, str]) -> Problem | None:
    if not torch_cuda:
        return None  # torch is the problem, and said so
    wheels = f'pip install "cuda-toolkit[nvcc,cudart,cccl,crt]=={torch_cuda}.*"'
    if nvcc is None:
        home = env.get("CUDA_HOME") or env.get("CUDA_PATH")
        where = f"in CUDA_HOME={home}" if home else "on PATH, in NVIDIA's wheels or /usr/local/cuda"
        unset = "unset it, or " if home else ""
        return Problem(True, f"no nvcc {where}: {unset}{wheels}")
    if nvcc.major != torch_cuda.split(".")[0]:
        return Problem(
            True,
            f"nvcc {nvcc.version} ({nvcc.path}) has another major version than torch's CUDA "
            f"{torch_cuda}: {'unset CUDA_HOME and ' if 'is set' in nvcc.why else ''}{wheels}",
        )
    if nvcc.version != torch_cuda:
        return Problem(
            False,
            f"nvcc {nvcc.version} and torch's CUDA {torch_cuda} differ in the minor version, which "
            f"works as a rule: if it does not, {wheels}",
        )
    return None


def _host_compiler(env: Mapping[str, str]) -> tuple[str, str]:
    """Path and version of the C++ compiler; the version reads `gcc 12.2.0` or `clang 16.0.6`."""
    names = [env["CXX"].split()[0]] if env.get("CXX") else ["g++", "c++"]
    path = next((p for name in names if (p := shutil.which(name, path=env.get("PATH", "")))), "")
    if not path:
        return "", ""
    family = "clang" if "clang" in _output([path, "--version"]).lower() else "gcc"
    match = re.search(r"\d+(\.\d+)*", _output([path, "-dumpfullversion", "-dumpversion"]))
    return path, f"{family} {match[0]}" if match else ""


def _host_problem(path: str, version: str, nvcc: Nvcc | None) -> Problem | None:
    if not path:
        return Problem(True, "no C++ compiler: apt-get install g++, or set CXX")
    family, _, number = version.partition(" ")
    if family != "gcc":
        return None  # nvcc judges clang itself
    major = int(number.split(".")[0])
    if major < OLDEST_GCC:
        return Problem(
            True, f"{path} is gcc {number}, too old for torch's headers: set CXX to gcc 11 or newer"
        )
    refused = REFUSED_GCC.get(nvcc.version) if nvcc else None
    if refused and major >= refused and nvcc:
        return Problem(
            True,
            f"{path} is gcc {number}, too new for nvcc {nvcc.version}: "
            f"set CXX and CC to gcc {refused - 1} or older",
        )
    return None


def _capabilities(torch: Any) -> list[tuple[int, int]]:
    try:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return sorted({torch.cuda.get_device_capability(i) for i in range(count)})
    except Exception:  # a broken driver must not stop a build that names its archs
        return []


def _archs(env: Mapping[str, str], torch: Any) -> tuple[str, str, Problem | None]:
    """The arch list, where it came from, and what is wrong with it."""
    if env.get("TORCH_CUDA_ARCH_LIST"):
        return env["TORCH_CUDA_ARCH_LIST"], "TORCH_CUDA_ARCH_LIST", None
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
    host, host_version = _host_compiler(env)
    arch_list, arch_why, arch_problem = _archs(env, torch if torch_cuda else None)
    problems = (
        torch_problem,
        _nvcc_problem(nvcc, torch_cuda, env),
        _host_problem(host, host_version, nvcc),
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
