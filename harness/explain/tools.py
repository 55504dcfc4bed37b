"""NVIDIA's tools that read binaries, wherever they are, and names as people read them."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from .facts import ExplainError

_TIMEOUT_S = 300


@functools.cache
def find(name: str) -> str:
    """Path of cuobjdump, nvdisasm or ptxas: on PATH, else Triton's own; "" where there is none.

    Which one is no matter for facts: they read what is built, whoever built it.
    """
    on_path = shutil.which(name)
    if on_path:
        return on_path
    spec = importlib.util.find_spec("triton")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        bundled = Path(folder, "backends", "nvidia", "bin", name)
        if bundled.is_file():
            return str(bundled)
    return ""


@functools.cache
def version(path: str) -> str:
    """Such as "13.0.88"; empty when it does not tell."""
    found = re.search(r"V(\d[\d.]*)", run([path, "--version"]) or "") if path else None
    return found[1] if found else ""


def run(command: Sequence[str], cwd: Path | None = None) -> str | None:
    """Standard output, None when the tool fails. Its standard error is dropped: tools of another
    version than the binary's print harmless warnings there."""
    try:
        done = call(command, cwd=cwd)
    except ExplainError:
        return None
    return done.stdout if done.returncode == 0 else None


def call(
    command: Sequence[str], timeout_s: float = _TIMEOUT_S, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The tool's own end, with whatever exit code. Raises ExplainError where it does not come to
    one: it cannot be started, takes too long or is killed."""
    name = Path(command[0]).name
    # Into files: nvcc's own children outlive it where it is stopped, and would hold a pipe open.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            done = subprocess.run(
                list(command), stdout=out, stderr=err, timeout=timeout_s, cwd=cwd, check=False
            )
        except subprocess.TimeoutExpired:
            raise ExplainError(f"{name} took more than {timeout_s:g} s and was stopped") from None
        except OSError as error:
            raise ExplainError(f"{command[0]} cannot be run: {error.strerror}") from None
        if done.returncode < 0:
            raise ExplainError(f"{name} was killed by {signal.Signals(-done.returncode).name}")
        texts = (_text(file) for file in (out, err))
        return subprocess.CompletedProcess(list(command), done.returncode, *texts)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


@functools.cache
def _cxxabi() -> tuple[Any, Any] | None:
    """(demangle, free) of the C++ runtime that torch needs anyway: no further tool is needed."""
    try:
        demangler = getattr(ctypes.CDLL("libstdc++.so.6"), "__cxa_demangle")
        free = ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return None
    demangler.restype, free.restype = ctypes.c_void_p, None
    demangler.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    free.argtypes = [ctypes.c_void_p]
    return demangler, free


@functools.lru_cache(maxsize=4096)
def demangle(symbol: str) -> str:
    """The C++ declaration behind a symbol; the symbol itself where it is none."""
    runtime = _cxxabi()
    if runtime is None or not symbol.startswith("_Z"):
        return symbol
    demangler, free = runtime
    status = ctypes.c_int()
    at = demangler(symbol.encode(), None, None, ctypes.byref(status))
    if not at or status.value != 0:
        return symbol
    text = ctypes.string_at(at).decode()
    free(at)
    return text


def short_name(symbol: str) -> str:
    """`vector_add_kernel<float, 4, false>`: without namespaces, parameters and return type.

    The anonymous namespace of a symbol holds a hash of the build's folder; this name does not.
    """
    text = demangle(symbol)
    if text == symbol:
        return symbol
    text = re.sub(r"\(anonymous namespace\)::|\bcuda_vs_triton::", "", text)
    text = re.sub(r"^void ", "", text)
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            text = text[:i]
            break
    return re.sub(r"\((?:int|bool|unsigned int)\)", "", text).replace("> >", ">>")


def op_of(name: str, stems: Sequence[str]) -> str:
    """The op whose kernel this is: `<stem>_kernel`, or `<stem>_<form>_kernel`; "" for none.

    The longest stem wins, so that one that begins another does not take its kernels. Ops of one
    family may share a kernel, which then has what tells them apart as a template argument:
    `matmul_mma_kernel<__nv_bfloat16, BiasRelu>` is of `matmul_bias_relu`, where there is such an
    op.
    """
    plain = name.split("<")[0].split("::")[-1]
    fitting = [s for s in stems if re.fullmatch(rf"{re.escape(s)}_(?:\w+_)?kernel", plain)]
    return sharer(max(fitting, key=len, default=""), name, stems)


def sharer(stem: str, name: str, stems: Sequence[str]) -> str:
    """`stem`, or the op beside it that a template argument in the kernel's readable name names."""
    words = re.findall(r"\b[A-Z]\w*", name)
    snakes = [re.sub(r"(?<!^)(?=[A-Z])", "_", word).lower() for word in words]
    return next((f"{stem}_{s}" for s in snakes if f"{stem}_{s}" in stems), stem)


def kernel_owners(stem: str, stems: Sequence[str]) -> list[str]:
    """The stems that a kernel of this op may begin with: its own and those it may share with."""
    return [s for s in stems if s == stem or stem.startswith(f"{s}_")]
