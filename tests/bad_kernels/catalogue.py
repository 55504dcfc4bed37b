"""All bad kernels: every file of variants/<backend>/, with what it says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.protocol import Contender
from harness.registry import Registry, _load_by_path

from .caught import Caught

ROOT = Path(__file__).resolve().parent

KINDS = (
    "leaves part of the output unwritten",
    "zeroes its input",
    "writes only when first called",
    "caches by pointer",
    "caches by content",
    "works on a side stream",
    "skips the tail",
    "int32 offset overflow",
    "missing barrier",
    "race between programs",
    "misaligned vector load",
    "writes into the guard",
    "reads past the end",
    "reads past the end, unseen",
    "wrong only for NaN rows",
    "wrong only for odd sizes",
    "right ten times then wrong",
    "accumulates in place while tuned",
    "hang",
    "illegal access",
    "device assert",
    "exhausts memory",
    "hoards memory",
    "host exception",
    "changes current device or stream",
)


@dataclass(frozen=True)
class BadKernel:
    backend: str
    name: str
    doc: str
    caught: Caught

    @property
    def contender(self) -> Contender:
        return Contender(self.backend, self.name)

    def neighbours(self) -> tuple[Contender, ...]:
        """What is right and runs in the same case, after the bad one."""
        absent = registry().spec(self.caught.op).absent
        return tuple(Contender(b) for b in ("cuda", "triton", "torch") if b not in absent)


def registry() -> Registry:
    return Registry((ROOT,))


def catalogue() -> list[BadKernel]:
    found = []
    for file in sorted(ROOT.glob("variants/*/*.py")):
        backend, name = file.parent.name, file.stem
        # Under the name by which the registry will find it: Triton compiles it from this file.
        module = _load_by_path(f"harness._variants.{backend}.{name}", file)
        found.append(BadKernel(backend, name, module.__doc__ or "", module.CAUGHT))
    return found
