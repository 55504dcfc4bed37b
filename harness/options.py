"""What the command line's options mean to every command: cases, settings, the GPU asked for."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .plan import Unit
    from .registry import Registry
    from .sweep import SweepOptions


class UsageError(Exception):
    """Bad input: one line for the user, exit code 2."""


def units_of(options: argparse.Namespace, tests: bool = False) -> tuple[Registry, list[Unit]]:
    from .plan import Filters, plan
    from .registry import Registry

    registry = Registry(tuple(options.kernels))
    filters = Filters(options.op, options.dtype, options.case, options.backend)
    return registry, plan(registry, filters, options.level, tests)


def sweep_options(options: argparse.Namespace, settings: str = "default") -> SweepOptions:
    from .sweep import SweepOptions

    return SweepOptions(
        options.device,
        options.seed,
        settings,
        tuple(options.kernels),
        options.timeout,
        getattr(options, "flush", "clean"),
        getattr(options, "explain", False),
    )


def share_ptxas() -> None:
    """Let Triton, here and in the workers, assemble with the ptxas of the nvcc found here.

    Raises UsageError where there is none.
    """
    from .preflight import inspect

    nvcc = inspect().nvcc
    ptxas = Path(nvcc.home, "bin", "ptxas") if nvcc else None
    if ptxas is None or not os.access(ptxas, os.X_OK):
        raise UsageError(
            f"--same-ptxas: no ptxas beside {nvcc.path if nvcc else 'nvcc, which is missing'}; "
            "install CUDA's compiler, or leave --same-ptxas out"
        )
    os.environ["TRITON_PTXAS_PATH"] = str(ptxas)


def print_units(units: Sequence[Unit]) -> None:
    from .console import stdout

    for unit in units:
        names = " ".join(
            f"{c.backend}(absent)" if c.backend in unit.spec.absent else c.backend
            for c in unit.contenders
        )
        stdout.print(f"{unit.label:<40} {unit.case.dims_text:<24} {names}", markup=False)


def _gpu_count() -> int:
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            "torch is not installed, which bench, check and tune need; run `make bench` in the "
            "checkout, which installs it into .venv"
        )
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def refuse_missing_device(device: int) -> bool:
    """True when a GPU is there; raises UsageError when GPUs are but not the one asked for."""
    count = _gpu_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if count == 0 and visible is not None and visible.strip() not in ("", "-1"):
        raise UsageError(
            f"CUDA_VISIBLE_DEVICES={visible!r} names no GPU of this machine; unset it, or "
            "set it to '' for the run without a GPU"
        )
    if device and count == 0:
        raise UsageError(f"--device {device}: no GPU is visible; leave --device out")
    if count and not 0 <= device < count:
        raise UsageError(f"--device {device}: {count} GPUs are visible, wanted 0..{count - 1}")
    return count > 0


def resume_command(run_dir: Path) -> str:
    """The command that was given, with the folder it wrote to."""
    given = [word for word in sys.argv[1:] if word != "--resume"]
    if "--out" in given:
        at = given.index("--out")
        del given[at : at + 2]
    return shlex.join(["python", "-m", "harness", *given, "--resume", "--out", str(run_dir)])
