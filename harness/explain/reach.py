"""Which places of the sources belong to a kernel that was timed: its function, and what it names.

A file holds several forms of an op and a header helpers of many: only what the launched kernel
reaches by name is evidence about it. Names are taken as they stand, so a branch that the compiler
drops for the timed configuration is reached all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..machine import source_problem
from ..registry import Registry

# Concepts that only launching code names, and one that no list but this has.
LAUNCHES = {
    "cuda": ("cuda.launch", "cuda.cluster_launch", "cuda.grid_shape"),
    "triton": ("triton.launch", "triton.cluster_launch", "triton.swizzle"),
}
STAGES = "triton.num_stages"
SWIZZLE = "cuda.swizzled_address"


@dataclass(frozen=True)
class Named:
    """One place in a source. path: from the root on, such as csrc/softmax.cu. concept: an id of
    effort/concepts.json, or SWIZZLE. whole: the line as it stands."""

    path: str
    line: int
    text: str
    concept: str
    whole: str = ""


@dataclass(frozen=True)
class SourceUses:
    """device: what the kernels reach. host: where they are launched. problem: why there is
    neither."""

    device: tuple[Named, ...] = ()
    host: tuple[Named, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Unit:
    """A function, type or constant: the names that it defines, those that it means from outside,
    and its places that name a concept."""

    defines: frozenset[str]
    means: frozenset[str]
    uses: tuple[Named, ...]


def source_uses(
    registry: Registry, op: str, side: str, row: Mapping[str, Any], kernels: Sequence[str]
) -> SourceUses:
    """Concepts named by the sources of the row's kernels, where these are still what it ran.

    kernels: names of the launched kernels' functions, in order of launching.
    """
    if problem := source_problem(registry, op, side, {str(row.get("kernel_hash"))}):
        return SourceUses(problem=problem)
    files = registry.kernel_files(op, side)
    try:
        from .units import SyntaxNotReadError, units_of
    except ImportError as error:
        return SourceUses(problem=f"the source is not read: {error.name} is not installed")
    paths = {file: shown(file, files[0].parent) for file in files}
    try:
        units = [unit for file in files for unit in units_of(file, side, paths[file])]
    except SyntaxNotReadError as error:
        return SourceUses(problem=str(error))
    return reached_uses(units, op, side, kernels)


def reached_uses(units: Sequence[Unit], op: str, side: str, kernels: Sequence[str]) -> SourceUses:
    """What the kernels reach of the units, and where the op's launcher launches them."""
    kernels = [_function(units, op, kernel) for kernel in kernels]
    device = _reached(units, kernels)
    if not device:
        return SourceUses(problem=f"no function {' or '.join(kernels)} is in the source")
    host = [unit for unit in _reached(units, [op]) if unit not in device]
    launches = [u for unit in host for u in unit.uses if u.concept in LAUNCHES[side]]
    # The functions that name the kernels, and in these the lines that do; all of the launcher's
    # where none does, as with a kernel that is passed on to who launches it.
    ours = set(kernels)
    near = [use for unit in host if unit.means & ours for use in unit.uses]
    closer = [use for use in launches if use in near]
    named = [use for use in closer if ours & set(re.findall(r"\w+", use.whole))]
    found = [use for unit in device for use in unit.uses]
    # Stages may be an argument of the launch: of this one where the function has no other.
    alone = bool(named) and len(named) == len(closer)
    stages = [use for use in near if use.concept == STAGES] if alone else []
    return SourceUses(tuple(found), (*(named or closer or launches), *stages))


def _function(units: Sequence[Unit], op: str, kernel: str) -> str:
    """The function behind a kernel's symbol. One that serves several ops is compiled under the name
    of each: matmul_bias_relu_kernel may be what matmul_kernel became."""
    defined = {name for unit in units for name in unit.defines}
    rest = kernel.removeprefix(op)
    if kernel in defined or rest == kernel:
        return kernel
    shared = (n for n in defined if n.endswith(rest) and op.startswith(n.removesuffix(rest) + "_"))
    return max(shared, key=len, default=kernel)


def _reached(units: Iterable[Unit], names: Iterable[str]) -> list[Unit]:
    """Units of those names and, over and over, of names that these hold; nearest first."""
    by_name: dict[str, list[Unit]] = {}
    for unit in units:
        for name in unit.defines:
            by_name.setdefault(name, []).append(unit)
    wanted = list(dict.fromkeys(names))
    found: list[Unit] = []
    for name in wanted:  # it grows meanwhile
        for unit in by_name.get(name, ()):
            if unit not in found:
                found.append(unit)
            wanted += [n for n in sorted(unit.means) if n in by_name and n not in wanted]
    return found


def shown(file: Path, folder: Path) -> str:
    """The file from the folder's name on; another root's kernels may use this repository's."""
    for parent in file.parents:
        if parent.name == folder.name:
            return file.relative_to(parent.parent).as_posix()
    return file.name
