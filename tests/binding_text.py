"""The source of harness._cuda's Python side: csrc/bindings.cpp and csrc/bindings/."""

from __future__ import annotations

from pathlib import Path

CSRC = Path(__file__).resolve().parent.parent / "csrc"
FOLDER = CSRC / "bindings"
FILES = (CSRC / "bindings.cpp", *sorted(FOLDER.iterdir()))
TEXT = "\n".join(path.read_text() for path in FILES)
