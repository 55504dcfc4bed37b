"""Stems to specs and kernels. The only file that knows the folders' names.

A root is a folder with `harness/specs/<stem>.py` and `triton_kernels/<stem>.py`; the first is
this repository, `--kernels DIR` adds others, whose CUDA side must be built by themselves. Further
implementations of an op, its own or another root's, lie in `variants/<backend>/<variant>.py`.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .spec import OpSpec
from .spelling import did_you_mean

REPOSITORY = Path(__file__).resolve().parent.parent
# The import name triton_kernels belongs to a package of the Triton project, so ours are loaded
# by path under this one.
_TRITON_PACKAGE = "harness._triton"


class RegistryError(Exception):
    """A stem, root or spec that cannot be used, in one line."""


class Registry:
    """The ops found under `roots`, in alphabetical order of their stems."""

    def __init__(self, extra_roots: tuple[Path, ...] = ()) -> None:
        self.roots = (REPOSITORY, *(root.resolve() for root in extra_roots))
        self._spec_files: dict[str, Path] = {}
        for root in self.roots:
            files = sorted((root / "harness" / "specs").glob("[a-z]*.py"))
            if not files and root != REPOSITORY:
                raise RegistryError(
                    f"--kernels {root}: found no spec, wanted harness/specs/<stem>.py under it; "
                    "see docs/adding-a-kernel.md"
                )
            for file in files:
                if file.stem in self._spec_files:
                    raise RegistryError(
                        f"op {file.stem!r} is defined twice: {self._spec_files[file.stem]} and "
                        f"{file}; rename one"
                    )
                self._spec_files[file.stem] = file

    @property
    def stems(self) -> tuple[str, ...]:
        return tuple(sorted(self._spec_files))

    def spec(self, stem: str) -> OpSpec:
        """The spec of `stem`; RegistryError where there is none or it is malformed."""
        if stem not in self._spec_files:
            raise RegistryError(
                f"unknown op {stem!r}; known ops: {', '.join(self.stems)}"
                f"{did_you_mean(stem, self.stems)}"
            )
        file = self._spec_files[stem]
        module = _load_by_path(f"harness.specs.{stem}", file)
        spec = getattr(module, "SPEC", None)
        if not isinstance(spec, OpSpec) or spec.stem != stem:
            raise RegistryError(f"{file}: wanted SPEC = OpSpec(stem={stem!r}, ...)")
        return spec

    def files(self, stem: str) -> dict[str, Path]:
        """The op's three files by role; a role whose file is missing is left out."""
        root = self._spec_files[stem].parents[2]
        candidates = {
            "cuda": root / "csrc" / f"{stem}.cu",
            "triton": root / "triton_kernels" / f"{stem}.py",
            "spec": self._spec_files[stem],
        }
        return {role: path for role, path in candidates.items() if path.is_file()}

    def kernel_files(self, stem: str, backend: str, rung: str = "") -> list[Path]:
        """The sources of one side of the op, or of a rung below it: its own file, and the shared
        device code that it reaches; empty for a backend that has no file here."""
        own = self.files(stem).get(backend)
        if own is None:
            return []
        file = own.parent / stem / f"{rung}{own.suffix}" if rung else own
        if backend == "cuda":
            return [file, *_shared_cuda_files(file, own.parent)]
        return [file, *_shared_triton_files(file, own.parent)] if backend == "triton" else [file]

    def triton_module(self, stem: str) -> types.ModuleType:
        """The Triton file of `stem`, imported (needs triton)."""
        return load_triton(stem, self._spec_files[stem].parents[2])

    def rung(self, stem: str, backend: str, name: str) -> Callable[..., Any]:
        """The launcher of a rung of the op's ladder."""
        if backend == "cuda":
            from . import _cuda

            launcher: Callable[..., Any] = getattr(_cuda, f"{stem}_{name}")
            return launcher
        (file, *_) = self.kernel_files(stem, backend, name)
        load_triton(stem, self._spec_files[stem].parents[2])  # the package that it imports from
        launcher = getattr(_load_by_path(f"{_TRITON_PACKAGE}.{stem}_{name}", file), stem)
        return launcher

    def variant(self, stem: str, backend: str, name: str) -> Callable[..., Any] | None:
        """The function `stem` of `variants/<backend>/<name>.py`, which takes the op's tensors and
        `out`; None where no root has that file."""
        for root in self.roots:
            file = root / "variants" / backend / f"{name}.py"
            if not file.is_file():
                continue
            module = _load_by_path(f"harness._variants.{backend}.{name}", file)
            launcher: Callable[..., Any] | None = getattr(module, stem, None)
            if launcher is None:
                raise RegistryError(f"{file}: wanted a function {stem}")
            return launcher
        return None


def _shared_triton_files(file: Path, folder: Path) -> list[Path]:
    """Device code that a Triton file imports from beside it or else from this repository, and what
    that imports.

    Not _checks.py: host code that refuses arguments.
    """

    found: dict[Path, None] = {}
    left = [file]
    while left:
        names = re.findall(r"^from \.+(_\w+) import", left.pop().read_text(), re.MULTILINE)
        shared = [f"{name}.py" for name in names if name != "_checks"]
        new = {_beside(name, folder, "triton_kernels") for name in shared} - found.keys()
        found |= dict.fromkeys(sorted(new))
        left += sorted(new)
    return sorted(found)


def _shared_cuda_files(file: Path, folder: Path) -> list[Path]:
    """Device code of `folder`, or else of this repository, that a CUDA file includes, and what
    that includes.

    Not headers that end in .h: they declare launchers, and change with every op.
    """
    found: dict[Path, None] = {}
    left = [file]
    while left:
        source = left.pop()
        if source not in found and source.is_file():
            found[source] = None
            text = source.read_text(encoding="utf-8", errors="replace")
            names = re.findall(r'^\s*#\s*include "([^"]+)"', text, re.MULTILINE)
            left += [_beside(name, folder, "csrc") for name in names]
    return sorted(header for header in found if header != file and header.suffix == ".cuh")


def _beside(name: str, folder: Path, in_repository: str) -> Path:
    own = folder / name
    return own if own.is_file() else REPOSITORY / in_repository / name


def cuda_sources() -> list[Path]:
    """All that the CUDA extension is compiled from."""
    return [path for path in (REPOSITORY / "csrc").rglob("*") if path.is_file()]


def load_triton(stem: str, root: Path = REPOSITORY) -> types.ModuleType:
    """Import `triton_kernels/<stem>.py` of `root` by path as `harness._triton.<stem>`.

    What it imports from its own package comes from its root, else from this repository.
    """
    folder = root / "triton_kernels"
    package = sys.modules.get(_TRITON_PACKAGE)
    if package is None:
        package = types.ModuleType(_TRITON_PACKAGE)
        package.__path__ = [str(REPOSITORY / "triton_kernels")]
        sys.modules[_TRITON_PACKAGE] = package
    if str(folder) not in package.__path__:
        package.__path__.insert(len(package.__path__) - 1, str(folder))
    return importlib.import_module(f"{_TRITON_PACKAGE}.{stem}")


def _load_by_path(name: str, file: Path) -> types.ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    found = importlib.util.spec_from_file_location(name, file)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise RegistryError(f"{file}: cannot be imported: {error}") from error
    return module
