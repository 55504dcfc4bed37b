"""One probe per thing that bench needs or profits from; doctor.py prints what they find.

Every probe stands alone and imports what it looks at inside, so that a missing or broken torch,
triton or extension is a finding; this module needs nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType

from . import extension_probe

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 10)
OLDEST_TORCH = (2, 11)
OLDEST_TRITON = (3, 6)
OLDEST_CAPABILITY = (8, 0)
# Import name, what is lost without it, and whether bench is lost too.
PACKAGES = (
    ("numpy", "everything", True),
    ("pandas", "compare and plot", False),
    ("matplotlib", "plot", False),
    ("rich", "the console output of bench and compare", True),
    ("ninja", "parallel and incremental builds", False),
    ("pytest", "make test", False),
)


@dataclass(frozen=True)
class Finding:
    """One line of the report. `required`: without it not even the run without a GPU works."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    required: bool = False


def _python() -> list[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    ok = sys.version_info[:2] >= OLDEST_PYTHON
    remedy = "make PYTHON0=/path/to/python3.12 bench"
    return [Finding("python", ok, f"{version} at {sys.executable}", remedy, required=True)]


def _packages() -> list[Finding]:
    findings = []
    for name, lost, required in PACKAGES:
        module, problem = _load(name)
        detail = f"{problem}; lost: {lost}" if module is None else metadata.version(name)
        found = Finding(name, module is not None, detail, f"pip install {name}", required)
        findings.append(found)
    return findings


def _torch() -> list[Finding]:
    torch, problem = _load("torch")
    if torch is None:
        return [Finding("torch", False, problem, "pip install 'torch>=2.11'", required=True)]
    built_for = torch.version.cuda
    detail = f"{torch.__version__}, CUDA {built_for or 'none: a CPU-only build'}"
    if not _at_least(torch.__version__, OLDEST_TORCH):
        return [Finding("torch", False, detail, "pip install 'torch>=2.11'", required=True)]
    remedy = "install a CUDA build of torch: https://pytorch.org/get-started/locally/"
    # A CPU-only torch still checks Triton kernels in the interpreter: bad, but not fatal.
    return [Finding("torch", built_for is not None, detail, remedy)]


def _gpus() -> list[Finding]:
    torch, problem = _load("torch")
    if torch is None:
        return [Finding("GPU", False, f"unknown: {problem}")]
    if not torch.cuda.is_available():
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        if hidden is not None:
            detail = f"none visible; CUDA_VISIBLE_DEVICES is {hidden!r}"
            # bench refuses a number that names no card; an empty value means "without a GPU".
            wrong = hidden.strip() not in ("", "-1")
            return [Finding("GPU", False, detail, "unset CUDA_VISIBLE_DEVICES", required=wrong)]
        driver = _driver()
        remedy = "with a card, install its driver" if driver == "not loaded" else "see nvidia-smi"
        return [Finding("GPU", False, f"none; driver {driver}", remedy)]
    findings = []
    for index in range(torch.cuda.device_count()):
        capability = torch.cuda.get_device_capability(index)
        name = "GPU" if index == 0 else f"GPU {index}"
        detail = f"{torch.cuda.get_device_name(index)}, sm_{capability[0]}{capability[1]}"
        ok = capability >= OLDEST_CAPABILITY
        remedy = "kernels here need sm_80 or newer; choose another with CUDA_VISIBLE_DEVICES"
        findings.append(Finding(name, ok, f"{detail}, driver {_driver()}", remedy))
    return findings


def _nvml() -> list[Finding]:
    pynvml, problem = _load("pynvml")
    remedy = "pip install nvidia-ml-py"
    if pynvml is not None:
        remedy = "comes with the driver"
        try:
            pynvml.nvmlInit()
        except Exception as error:
            problem = short(error)
    detail = problem or "answers: power, temperature and throttle reasons per case"
    return [Finding("NVML", not problem, detail, remedy)]


def _cuda_build() -> list[Finding]:
    preflight, problem = _load("harness.preflight")
    if preflight is None:
        return [Finding("nvcc", shutil.which("nvcc") is not None, f"preflight failed: {problem}")]
    found = preflight.inspect()
    nvcc = f"{found.nvcc.version}, {found.nvcc.path}" if found.nvcc else "none"
    detail = f"nvcc {nvcc}; {found.host_version or 'no C++ compiler'}; archs {found.arch_list}"
    remedy = "; ".join(problem.text for problem in found.fatal)
    return [Finding("CUDA build", not found.fatal, detail, remedy)]


def _extension() -> list[Finding]:
    torch, _ = _load("torch")
    availability, problem = _load("harness.availability")
    if torch is None or availability is None:
        return [Finding("extension", False, f"not tried: {problem or 'it needs torch'}")]
    file = extension_probe.extension_file()
    problem = extension_probe.build_info(file)[1] if file else ""
    problem = problem or availability.extension_problem()
    if problem:
        return [Finding("extension", False, problem, "make build")]
    info = importlib.import_module("harness._cuda").build_info()
    detail = f"built for torch {info['torch']}, archs {info['arch_list']}"
    if not torch.cuda.is_available():
        return [Finding("extension", True, detail)]
    capability = torch.cuda.get_device_capability()
    remedy = "no code for this card: make clean build, with TORCH_CUDA_ARCH_LIST unset"
    return [Finding("extension", covers(info["arch_list"], capability), detail, remedy)]


def _triton() -> list[Finding]:
    triton, problem = _load("triton")
    if triton is None:
        return [Finding("triton", False, problem, "pip install 'triton>=3.6'")]
    ok = _at_least(triton.__version__, OLDEST_TRITON)
    found = [Finding("triton", ok, triton.__version__, "pip install 'triton>=3.6'")]
    interpreter, problem = _load("triton.runtime.interpreter")
    detail = problem or "kernels can be checked without a GPU (TRITON_INTERPRET=1)"
    return [*found, Finding("triton interpreter", interpreter is not None, detail)]


def _triton_launcher() -> list[Finding]:
    """Triton compiles a small C launcher at run time: a C compiler, Python.h and libcuda.so.1."""
    if _load("triton")[0] is None:
        return []
    compilers = [os.environ.get("CC", ""), "gcc", "clang", "cc"]
    compiler = next((path for name in compilers if name and (path := shutil.which(name))), None)
    header = Path(sysconfig.get_path("include")) / "Python.h"
    cuda = _loads_library("libcuda.so.1")
    return [
        Finding("C compiler", compiler is not None, compiler or "none", "apt-get install gcc"),
        Finding("Python.h", header.exists(), str(header), "apt-get install python3-dev"),
        Finding(
            "libcuda.so.1",
            cuda,
            "loads" if cuda else "not found",
            "comes with the driver; elsewhere, set TRITON_LIBCUDA_PATH to its folder",
        ),
    ]


def _folders() -> list[Finding]:
    home = os.environ.get("TRITON_HOME") or os.path.expanduser("~")
    cache = Path(os.environ.get("TRITON_CACHE_DIR") or Path(home, ".triton", "cache"))
    results = ROOT / "results"
    return [
        Finding(
            "Triton cache",
            _writable(cache),
            str(cache),
            "bench uses a folder of its own; or set TRITON_CACHE_DIR to a writable folder",
        ),
        Finding("results folder", _writable(results), str(results), "bench --out FOLDER"),
    ]


PROBES: tuple[Callable[[], list[Finding]], ...] = (
    _python,
    _packages,
    _torch,
    _gpus,
    _nvml,
    _cuda_build,
    _extension,
    _triton,
    _triton_launcher,
    _folders,
)


def covers(arch_list: str, capability: tuple[int, int]) -> bool:
    """Whether code built for `8.0+PTX;9.0a` runs on a card of this capability.

    Machine code runs on later minors of its major; code for `9.0a` on 9.0 alone; PTX on all later.
    """
    for arch in arch_list.replace(" ", ";").split(";"):
        digits = arch.removesuffix("+PTX").rstrip("af")
        major, _, minor = digits.partition(".")
        if not (major.isdigit() and minor.isdigit()):
            continue
        built = int(major), int(minor)
        specific = arch.removesuffix("+PTX") != digits
        later_minor = built[0] == capability[0] and built <= capability and not specific
        if built == capability or later_minor:
            return True
        if arch.endswith("+PTX") and built <= capability and not specific:
            return True
    return False


def _load(name: str) -> tuple[ModuleType | None, str]:
    """The module and an empty text, or None and why it cannot be imported."""
    try:
        return importlib.import_module(name), ""
    except Exception as error:  # broken installs raise OSError, RuntimeError and others
        return None, short(error)


def short(error: BaseException) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _at_least(version: str, oldest: tuple[int, int]) -> bool:
    parts = version.split("+")[0].split(".")
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in parts[:2]) >= oldest


def _writable(folder: Path) -> bool:
    """Whether `folder` can be written, or made in the nearest parent that exists."""
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def _loads_library(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _driver() -> str:
    try:
        line = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    except (OSError, IndexError):
        return "not loaded"
    return next((word for word in line.split() if word[0].isdigit() and "." in word), "unknown")
