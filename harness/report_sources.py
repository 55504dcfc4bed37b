"""Both sources of an op beside each other, only where they are what the run was made from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import CppLexer, CudaLexer, PythonLexer

from harness.machine import source_hash
from harness.registry import Registry

_MAX_BYTES = 200_000
_SIDES = (("cuda", "CUDA", CudaLexer), ("triton", "Triton", PythonLexer))
_WORD = {"cuda": "csrc", "triton": "triton_kernels"}


@dataclass(frozen=True)
class Source:
    """One file, highlighted: a line of HTML a line of text, escaped by pygments."""

    side: str
    path: str
    digest: str
    lines: list[Markup]


def sources(rows: pd.DataFrame, op: str, registry: Registry) -> tuple[list[Source], list[str]]:
    """Return (the op's sources, a line for each side whose source is not shown)."""
    found: list[Source] = []
    missing: list[str] = []
    for backend, side, lexer in _SIDES:
        hashes = {h for h in rows.loc[rows["backend"] == backend, "kernel_hash"] if h}
        if not hashes:
            continue
        files = registry.kernel_files(op, backend) if op in registry.stems else []
        if not files:
            missing.append(f"{side}: the source is not in this checkout.")
        elif hashes != {source_hash(files)}:
            missing.append(f"{side}: the source has changed since this run.")
        elif files[0].stat().st_size > _MAX_BYTES:
            missing.append(f"{side}: {files[0].name} is too large to be shown here.")
        else:
            name = f"{_WORD[backend]}/{files[0].name}"
            found.append(Source(side, name, hashes.pop(), _lines(files[0], lexer)))
    return found, missing


def _lines(file: Path, lexer: type[CppLexer] | type[PythonLexer]) -> list[Markup]:
    text = file.read_text(encoding="utf-8", errors="replace")
    # A span never crosses a line here: pygments closes and opens it again at each line's end.
    html = highlight(text, lexer(stripnl=False), HtmlFormatter(nowrap=True))
    return [Markup(line) for line in html.rstrip("\n").split("\n")]
