"""Which units of which files an op is made of, on one side.

Everything in the op's own file belongs to it. From there, and from its binding, names are followed
through the local includes and imports: a unit of another file belongs to the op when something
that belongs to it uses the unit's name. By name, so all overloads and specialisations of a function
that is used count, and a function of a header that the op never names does not. What more than one
op reaches is shared; but a kernel that ops have in common is each one's own, with what only they
reach.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.registry import REPOSITORY, Registry

from .syntax import SyntaxNotReadError
from .units import SourceFile, Unit, read

SIDES = ("cuda", "triton")
_BINDINGS = ("bindings.cpp", "bindings/*.cpp")


@dataclass(frozen=True)
class Reached:
    """The units of one side of an op by scope: the op's own, and those that other ops reach too."""

    device: tuple[Unit, ...]
    host: tuple[Unit, ...]
    shared_device: tuple[Unit, ...]
    shared_host: tuple[Unit, ...]
    problems: tuple[str, ...]


class MissingSideError(Exception):
    """A side of an op that has no counts, in a few words."""


def reached(registry: Registry, op: str, side: str, rung: str = "") -> Reached:
    """What the op's headline, or one rung of its ladder, is made of.

    Raises MissingSideError where the file is missing or does not parse.
    """
    found = _closures(registry, _stamp(registry))[op, side, rung]
    if isinstance(found, str):
        raise MissingSideError(found)
    return found


def rungs(registry: Registry, op: str, side: str) -> tuple[str, ...]:
    """The rungs below an op's headline, by their files."""
    own = registry.files(op).get(side)
    return tuple(sorted(f.stem for f in (own.parent / op).glob(f"*{own.suffix}"))) if own else ()


def _stamp(registry: Registry) -> tuple[tuple[str, int, int], ...]:
    """Changes whenever a source does."""
    files = [
        file
        for root in dict.fromkeys((*registry.roots, REPOSITORY))
        for folder in ("csrc", "triton_kernels")
        for file in sorted((root / folder).rglob("*.*"))
        if file.is_file()
    ]
    stats = [(str(file), file.stat()) for file in files]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


@functools.lru_cache(maxsize=4)
def _closures(
    registry: Registry, _: tuple[tuple[str, int, int], ...]
) -> dict[tuple[str, str, str], Reached | str]:
    """Of all ops at once: which units are shared can only be said then. A str says why not."""
    found: dict[tuple[str, str, str], _Closure | str] = {}
    users: dict[Unit, set[str]] = {}
    for op in registry.stems:
        for side in SIDES:
            for rung in ("", *rungs(registry, op, side)):
                try:
                    closure = _Closure(registry, op, side, rung)
                except (MissingSideError, SyntaxNotReadError) as error:
                    found[op, side, rung] = str(error)
                    continue
                found[op, side, rung] = closure
                for unit in closure.units:
                    users.setdefault(unit, set()).add(op)
    apart = {unit for unit, ops in users.items() if len(ops) > 1}
    apart -= {
        u for u in apart for kernel in apart if _is_kernel(kernel) and users[u] <= users[kernel]
    }
    return {
        key: closure if isinstance(closure, str) else closure.split(apart)
        for key, closure in found.items()
    }


def _is_kernel(unit: Unit) -> bool:
    return unit.scope == "device" and any(name.endswith("_kernel") for name in unit.names)


class _Closure:
    """One side of one op: its units, each with its scope."""

    def __init__(self, registry: Registry, op: str, side: str, rung: str) -> None:
        self._side = side
        self._root = next(
            root for root in registry.roots if registry.files(op)["spec"].is_relative_to(root)
        )
        own = next(iter(registry.kernel_files(op, side, rung)), None)
        if own is None or not own.is_file():
            folder, suffix = ("csrc", ".cu") if side == "cuda" else ("triton_kernels", ".py")
            raise MissingSideError(f"missing: no {folder}/{op}{f'/{rung}' * bool(rung)}{suffix}")
        self._own = own
        self._problems: dict[str, None] = {}
        self._named: dict[Path, dict[str, list[Unit]]] = {}  # of a translation unit
        self.units: dict[Unit, bool] = {}  # whether device code reaches it
        self._follow([(unit, own) for unit in self._read(own).units])
        if side == "cuda":
            self._follow(self._binding(f"{op}_{rung}" if rung else op))

    def split(self, apart: set[Unit]) -> Reached:
        parts: dict[tuple[bool, bool], list[Unit]] = {}
        for unit, by_device in self.units.items():
            device = unit.scope == "device" or (unit.scope == "" and by_device)
            shared = unit.file != self._own and unit in apart
            parts.setdefault((shared, device), []).append(unit)

        def part(shared: bool, device: bool) -> tuple[Unit, ...]:
            found = parts.get((shared, device), ())
            return tuple(sorted(found, key=lambda unit: (unit.file, unit.start)))

        return Reached(
            part(False, True),
            part(False, False),
            part(True, True),
            part(True, False),
            tuple(self._problems),
        )

    def _read(self, file: Path) -> SourceFile:
        shown = next(
            (
                str(file.relative_to(root))
                for root in (self._root, REPOSITORY)
                if file.is_relative_to(root)
            ),
            str(file),
        )
        source = read(file, self._side, shown)
        self._problems |= dict.fromkeys(source.problems)
        return source

    def _follow(self, start: Iterable[tuple[Unit, Path]]) -> None:
        """Add units and what they use; the path with each is the file whose names it sees.

        Twice where need be: once reached, and again as something that device code reaches.
        """
        left = [(unit, file, unit.scope == "device") for unit, file in start]
        while left:
            unit, file, device = left.pop()
            if unit in self.units and self.units[unit] >= device:
                continue
            self.units[unit] = device
            # What a device function names is device code; what a host function names need not be.
            passed_on = unit.scope == "device" or (device and unit.scope == "")
            for found, seen_from in self._meant(unit, file):
                left.append((found, seen_from, passed_on or found.scope == "device"))

    def _meant(self, unit: Unit, file: Path) -> list[tuple[Unit, Path]]:
        if self._side == "triton":
            return [found for name in unit.uses for found in self._python_name(unit.file, name)]
        if file not in self._named:
            self._named[file] = {}
            for part in self._translation_unit(file):
                for found in self._read(part).units:
                    for name in found.names:
                        self._named[file].setdefault(name, []).append(found)
        named = self._named[file]
        return [(found, file) for name in unit.uses for found in named.get(name, ())]

    def _translation_unit(self, file: Path) -> list[Path]:
        """A file and all that it includes, and what defines the functions that headers declare."""
        found = {file: None}
        left = [file]
        while left:
            for include in self._read(left.pop()).includes:
                header = self._included(include, file)
                if header is None:
                    continue
                bodies = header.with_suffix(".cpp")
                both = [header, bodies] if header.suffix == ".h" and bodies.is_file() else [header]
                new = [path for path in both if path not in found]
                found |= dict.fromkeys(new)
                left += new
        return list(found)

    def _included(self, include: str, file: Path) -> Path | None:
        """None for what is not in this checkout, such as a file that the build writes."""
        folders = (file.parent, self._root / "csrc", REPOSITORY / "csrc")
        paths = (Path(folder, include).resolve() for folder in folders)
        return next((path for path in paths if path.is_file()), None)

    def _binding(self, name: str) -> list[tuple[Unit, Path]]:
        """The `m.def` of a launcher, and the module that it is put in."""
        folder = self._root / "csrc"
        files = [file for pattern in _BINDINGS for file in sorted(folder.glob(pattern))]
        found: list[tuple[Unit, Path]] = []
        for file in files:
            units = self._read(file).units
            defined = [unit for unit in units if f"def {name}" in unit.names]
            if defined:
                found += [(unit, file) for unit in defined]
                # The function around the definitions, which the module calls.
                found += [(u, file) for u in units if any(n.startswith("bind_") for n in u.names)]
        if found:
            module = folder / "bindings.cpp"
            found += [(u, module) for u in (self._read(module).units if module.is_file() else ())]
        return found

    def _python_name(
        self, file: Path, name: str, seen: frozenset[Path] = frozenset()
    ) -> list[tuple[Unit, Path]]:
        """Units that a module's global name stands for: its own, or imported ones."""
        source = self._read(file)
        own = [(unit, file) for unit in source.units if name in unit.names]
        if own or file in seen:
            return own
        found: list[tuple[Unit, Path]] = []
        for module, original, bound in source.imports:
            target = self._module(module, file)
            if target is None or bound not in (name, "*"):
                continue
            if original == "":  # the module itself: what is taken from it is not told apart
                found += [(unit, target) for unit in self._read(target).units]
            else:
                wanted = name if original == "*" else original
                found += self._python_name(target, wanted, seen | {file})
        return found

    def _module(self, name: str, file: Path) -> Path | None:
        folders = (file.parent, self._root / "triton_kernels", REPOSITORY / "triton_kernels")
        paths = (folder / f"{name.replace('.', '/')}.py" for folder in folders)
        return next((path for path in paths if path.is_file()), None)
