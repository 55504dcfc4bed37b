"""What can run on this machine, and why the rest cannot."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from pathlib import Path

from . import extension_probe
from .protocol import one_line
from .registry import cuda_sources
from .spec import PEER_PACKAGES


def unavailable(backend: str) -> str:
    """Why `backend` cannot launch on this machine's GPU; empty when it can."""
    try:
        import torch
    except ImportError as error:
        return f"torch cannot be imported ({error}); pip install torch"
    if backend == "cuda":
        reason = extension_problem()
        if reason:
            return reason
    if backend == "triton":
        try:
            import triton  # noqa: F401
        except ImportError as error:
            return f"triton cannot be imported ({error}); pip install triton"
    if backend in PEER_PACKAGES and (reason := _peer_problem(backend)):
        return reason
    return "" if torch.cuda.is_available() else "no GPU is visible"


@functools.cache
def _peer_problem(peer: str) -> str:
    package = PEER_PACKAGES[peer]
    try:
        importlib.import_module(package)
    except Exception as error:  # what a package does at import is its own affair
        return f"{package} cannot be imported ({one_line(error)})"
    return ""


@functools.cache
def extension_problem() -> str:
    """Why harness._cuda cannot be used; empty when it can."""
    try:
        import torch

        if reason := extension_probe.damage_here():
            return reason
        from . import _cuda
    except ImportError as error:
        first_line = str(error).splitlines()[0]
        return f"the CUDA extension cannot be imported ({first_line}); run `make build`"
    built_for = _cuda.build_info().get("torch", "")
    if built_for and built_for.split("+")[0] != torch.__version__.split("+")[0]:
        return (
            f"the CUDA extension was built for torch {built_for}, found torch "
            f"{torch.__version__}; run `make clean build`"
        )
    if _older_than_its_sources(Path(_cuda.__file__)):
        return "the CUDA extension is older than csrc/; run `make build`"
    return ""


def _older_than_its_sources(binary: Path) -> bool:
    """Never time an old binary in the name of new source."""
    built = binary.stat().st_mtime
    return any(path.stat().st_mtime > built for path in cuda_sources())


@functools.cache
def peer_is_installed(peer: str) -> bool:
    return importlib.util.find_spec(PEER_PACKAGES[peer]) is not None
