"""Facts of the machine and the software, for meta.json; each missing fact is null, not guessed."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from . import extension_probe
from .registry import REPOSITORY, Registry


def gpu_slug(name: str) -> str:
    """`NVIDIA H200` -> `nvidia-h200`: the folder that a GPU's results lie in."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown-gpu"


def gpu_facts(device: int) -> dict[str, Any]:
    """Name, uuid, SMs, L2, memory and peaks of CUDA device `device`; needs torch and a GPU."""
    import torch

    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "uuid": str(getattr(properties, "uuid", "")),
        "compute_capability": f"{properties.major}.{properties.minor}",
        "sm_count": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "memory_bytes": properties.total_memory,
        # Kilohertz and bits; 0 where this torch does not tell.
        "sm_khz_max": getattr(properties, "clock_rate", 0),
        "memory_khz_max": getattr(properties, "memory_clock_rate", 0),
        "memory_bus_bits": getattr(properties, "memory_bus_width", 0),
    }


def public_gpu_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """`facts` with the uuid hashed: enough to tell two cards apart, not to name one."""
    uuid = facts.get("uuid", "")
    hashed = hashlib.sha256(uuid.encode()).hexdigest()[:16] if uuid else None
    return {key: value for key, value in facts.items() if key != "uuid"} | {"uuid_sha256": hashed}


def software_facts() -> dict[str, Any]:
    """Versions of everything that shapes a number. Imports torch and triton where present."""
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": None,
        "cuda": None,
        "triton": None,
        "triton_ptxas": None,
        "driver": _driver_version(),
        "os": f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
        "extension": None,
    }
    try:
        import torch

        facts["torch"], facts["cuda"] = torch.__version__, torch.version.cuda
    except ImportError:
        pass
    try:
        import triton
        from triton import knobs

        facts["triton"] = triton.__version__
        facts["triton_ptxas"] = _ptxas_version(str(knobs.nvidia.ptxas.path))
    except (ImportError, AttributeError, RuntimeError):
        pass
    if not extension_probe.damage_here():  # else its import would end this process
        try:
            from . import _cuda

            facts["extension"] = dict(_cuda.build_info())
        except ImportError:
            pass
    return facts


def _ptxas_version(path: str) -> str | None:
    text = _output([path, "--version"])
    found = re.search(r"V([\d.]+)", text or "")
    return found.group(1) if found else None


def _driver_version() -> str | None:
    try:
        import pynvml

        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetDriverVersion()
        return version if isinstance(version, str) else version.decode()
    except Exception:  # NVML raises its own classes, one per fault; each means "unknown"
        return None


def source_facts(registry: Registry, stems: tuple[str, ...]) -> dict[str, Any]:
    """Git commit, dirty flag, and a hash of each op's files."""
    commit = _output(["git", "-C", str(REPOSITORY), "rev-parse", "--verify", "HEAD"])
    status = _output(["git", "-C", str(REPOSITORY), "status", "--porcelain"])
    return {
        "git_commit": commit,
        "git_dirty": None if commit is None or status is None else bool(status),
        "op_sha256": {stem: source_hash(list(registry.files(stem).values())) for stem in stems},
        "command": " ".join(["python -m harness", *sys.argv[1:]]),
    }


def source_hash(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def source_problem(
    registry: Registry, op: str, side: str, hashes: Collection[str], rung: str = ""
) -> str:
    """Why this checkout's source is not what rows with these values of kernel_hash ran, as the
    rest of a sentence; "" where it is."""
    files = registry.kernel_files(op, side, rung) if op in registry.stems else []
    if not files or not all(file.is_file() for file in files):
        return "the source is not in this checkout"
    if set(hashes) != {source_hash(files)}:
        return "the source has changed since this run"
    return ""


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def writable_triton_cache() -> str:
    """A folder Triton can write its cache to; where the usual one is not, sets TRITON_CACHE_DIR
    and says so. Raises OSError where there is none."""
    # As Triton itself looks for it. A home that cannot be told stays `~`.
    home = os.environ.get("TRITON_HOME") or os.path.expanduser("~")
    current = os.environ.get("TRITON_CACHE_DIR") or os.path.join(home, ".triton", "cache")
    for candidate in (
        current,
        str(REPOSITORY / "build" / "triton-cache"),
        f"/tmp/triton-{os.getuid()}",
    ):
        try:
            Path(candidate).mkdir(parents=True, exist_ok=True)
            probe = Path(candidate) / f".probe-{os.getpid()}"
            probe.write_text("")
            probe.unlink()
        except OSError:
            continue
        if candidate != current:
            os.environ["TRITON_CACHE_DIR"] = candidate
            print(
                f"Triton's cache: {current} cannot be written, so {candidate} is used",
                file=sys.stderr,
            )
        return candidate
    raise OSError(f"no writable folder for Triton's cache: tried {current}; set TRITON_CACHE_DIR")


def timestamp() -> str:
    """UTC, sortable, usable as a folder's name."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime())
