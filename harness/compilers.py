"""The compilers of the CUDA side: which nvcc and C++ compiler are here, and do they fit together.

Standard library only; preflight.py puts them beside torch and the GPUs.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

OLDEST_GCC = 9
# The first gcc major that each nvcc refuses (host_config.h); newer toolkits judge for themselves.
REFUSED_GCC = {
    **dict.fromkeys(("12.0", "12.1", "12.2"), 13),
    **dict.fromkeys(("12.3", "12.4", "12.5", "12.6", "12.7"), 14),
    **dict.fromkeys(("12.8", "12.9"), 15),
    "13.0": 16,
}


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


def wheel_folders() -> Iterator[Path]:
    """Folders that NVIDIA's compiler wheels fill: nvidia/cu13 (CUDA 13), nvidia/cuda_nvcc (12)."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        yield from sorted(Path(folder).glob("cu[0-9]*"), reverse=True)
        yield Path(folder, "cuda_nvcc")


def _candidates(env: Mapping[str, str], torch_cuda: str) -> Iterator[tuple[str | Path, str]]:
    on_path = shutil.which("nvcc", path=env.get("PATH", ""))
    if on_path:
        yield on_path, "on PATH"
    for folder in wheel_folders():
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


def nvcc_problem(nvcc: Nvcc | None, torch_cuda: str, env: Mapping[str, str]) -> Problem | None:
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


def host_compiler(env: Mapping[str, str]) -> tuple[str, str]:
    """Path and version of the C++ compiler; the version reads `gcc 12.2.0` or `clang 16.0.6`."""
    names = [env["CXX"].split()[0]] if env.get("CXX") else ["g++", "c++"]
    path = next((p for name in names if (p := shutil.which(name, path=env.get("PATH", "")))), "")
    if not path:
        return "", ""
    family = "clang" if "clang" in _output([path, "--version"]).lower() else "gcc"
    match = re.search(r"\d+(\.\d+)*", _output([path, "-dumpfullversion", "-dumpversion"]))
    return path, f"{family} {match[0]}" if match else ""


def host_problem(path: str, version: str, nvcc: Nvcc | None) -> Problem | None:
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
