"""bad_kernels.cu as one library for ctypes: seconds to compile, and no header of torch in it."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from harness.preflight import Nvcc, find_nvcc
from harness.registry import REPOSITORY

if TYPE_CHECKING:
    import torch

FOLDER = Path(__file__).resolve().parent
SOURCE = FOLDER / "bad_kernels.cu"
_BUILT = REPOSITORY / "build" / "bad_kernels"


def compiler() -> Nvcc | None:
    import torch

    return find_nvcc(os.environ, torch.version.cuda or "")


def build(source: str = "bad_kernels.cu", *flags: str, shared: bool = True) -> Path:
    """The library, or with `shared` False the program, of a source here; made when it is not."""
    command = ["-O2", "-std=c++17", "-lineinfo", f"-arch={_arch()}", *flags]
    command += ["-shared", "-Xcompiler", "-fPIC"] if shared else []
    digest = hashlib.sha256(" ".join(command).encode())
    for file in sorted(FOLDER.glob("*.cu")):
        digest.update(file.read_bytes())
    made = _BUILT / f"{Path(source).stem}-{digest.hexdigest()[:16]}{'.so' if shared else ''}"
    if not made.is_file():
        nvcc = compiler()
        if nvcc is None:
            raise RuntimeError("no nvcc to compile the bad kernels with")
        _BUILT.mkdir(parents=True, exist_ok=True)
        part = made.with_name(f"{made.name}.{os.getpid()}")
        command = [nvcc.path, *command, str(FOLDER / source), "-o", str(part)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        os.replace(part, made)
    return made


def _arch() -> str:
    import torch

    if not torch.cuda.is_available():
        return "sm_90"
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(build()))


def launch(name: str, *arguments: torch.Tensor | int) -> None:
    """Call the launcher `name` on torch's current stream: pointers, then extents."""
    import torch

    raw = [
        ctypes.c_int64(argument) if isinstance(argument, int) else argument.data_ptr()
        for argument in arguments
    ]
    pointers = [ctypes.c_void_p(a) if isinstance(a, int) else a for a in raw]
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    error = getattr(_library(), name)(*pointers, stream)
    if error:
        raise RuntimeError(f"{name}: CUDA error {error} at launch")
