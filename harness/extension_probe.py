"""The built extension looked at before it is imported: one that was cut ends its process by SIGBUS.

Standard library only; doctor.py must work where nothing is installed.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAME = "harness._cuda"
_TIMEOUT_S = 120
_ELF64_LITTLE = b"\x7fELF\x02\x01"
_HEADER_BYTES = 64
_IMPORT = f"""
import importlib.util, json, sys, torch
found = importlib.util.spec_from_file_location({NAME!r}, sys.argv[1])
module = importlib.util.module_from_spec(found)
found.loader.exec_module(module)
print(json.dumps(dict(module.build_info())))
"""


def extension_file() -> Path | None:
    """The file that an import would load; None where there is none, or it is loaded already."""
    if NAME in sys.modules:
        return None
    found = importlib.util.find_spec(NAME)
    return Path(found.origin) if found is not None and found.origin else None


def damage(path: Path) -> str:
    """Why importing the file would end the process, from its ELF headers alone; "" where they
    promise nothing that is not there. What is no ELF file is the importer's to refuse."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            end = _promised_end(file.read(_HEADER_BYTES), file.read)
    except (OSError, struct.error):
        return ""
    if end <= size:
        return ""
    return f"{path.name} is damaged ({size} of at least {end} bytes are there)"


def _promised_end(header: bytes, read: Callable[[int], bytes]) -> int:
    """The least size of an ELF file by its headers: their tables, and all that is to be mapped."""
    if not header.startswith(_ELF64_LITTLE) or len(header) < _HEADER_BYTES:
        return 0
    segments_at, sections_at = struct.unpack_from("<QQ", header, 32)
    segment_size, n_segments, section_size, n_sections = struct.unpack_from("<HHHH", header, 54)
    ends = [segments_at + n_segments * segment_size, sections_at + n_sections * section_size]
    if segments_at == _HEADER_BYTES:  # where every linker puts them
        table = read(n_segments * segment_size)
        for at in range(0, len(table) - segment_size + 1, segment_size or 1):
            offset, in_file = struct.unpack_from("<Q16xQ", table, at + 8)
            ends.append(offset + in_file)
    return int(max(ends))


def damage_here() -> str:
    """`damage` of this checkout's extension with the remedy; "" also where none is built."""
    file = extension_file()
    reason = damage(file) if file is not None else ""
    return f"the CUDA extension {reason}; run `make clean build`" if reason else ""


@functools.cache
def build_info(path: Path) -> tuple[dict[str, Any], str]:
    """(what the extension says of its build, why it cannot be imported), by a process of its own,
    which alone dies where the file is damaged in a way that its headers do not show."""
    if reason := damage(path):
        return {}, f"the CUDA extension {reason}; run `make clean build`"
    command = [sys.executable, "-c", _IMPORT, str(path)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        return {}, f"the CUDA extension cannot be tried ({error}); run `make clean build`"
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        return {}, (
            f"the CUDA extension is damaged: importing {path.name} ends the process by {name}; "
            "run `make clean build`"
        )
    try:
        return dict(json.loads(done.stdout.splitlines()[-1])), ""
    except (ValueError, IndexError, TypeError):
        said = done.stderr.decode(errors="replace").strip().splitlines()
        last = said[-1] if said else f"exit code {done.returncode}"
        return {}, f"the CUDA extension cannot be imported ({last}); run `make build`"
