"""Sections of a cubin (ELF64, little endian): machine code and declared shared memory by kernel."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from .facts import ExplainError

_NOBITS = 8
_FAT_SECTION, _FAT_MAGIC, _FAT_ALIGNMENT = ".nv_fatbin", 0xBA55ED50, 8
_FAT_HEADER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes after it
_MAX_THREADS, _SIZED = 0x05, 0x04  # EIATTR_MAX_THREADS with EIFMT_SVAL


@dataclass(frozen=True)
class Section:
    name: str
    size: int
    data: bytes


def sections(cubin: bytes) -> dict[str, Section]:
    """Name -> section. Raises ExplainError for anything but a whole cubin."""
    if cubin[:5] != b"\x7fELF\x02" or len(cubin) < 64:
        raise ExplainError(f"not a cubin: starts with {cubin[:4]!r}, wanted an ELF file; rebuild")
    (start,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names_at = struct.unpack_from("<HHH", cubin, 58)
    if start + size * count > len(cubin):
        raise ExplainError("not a whole cubin: its table of sections is cut; rebuild")
    try:
        headers = [struct.unpack_from("<IIQQQQ", cubin, start + i * size) for i in range(count)]
        _, _, _, _, names_start, names_size = headers[names_at]
        names = cubin[names_start : names_start + names_size]
        return dict(_section(cubin, names, header) for header in headers)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise ExplainError(f"not a whole cubin: {error}; rebuild") from None


def _section(
    cubin: bytes, names: bytes, header: tuple[int, int, int, int, int, int]
) -> tuple[str, Section]:
    name_at, kind, _, _, offset, length = header
    name = names[name_at : names.index(b"\0", name_at)].decode()
    if kind == _NOBITS:
        return name, Section(name, length, b"")
    if offset + length > len(cubin):
        raise ValueError(f"section {name} ends at byte {offset + length} of {len(cubin)}")
    return name, Section(name, length, cubin[offset : offset + length])


def fat_binaries(binary: bytes) -> Iterator[bytes]:
    """The containers that nvcc put into a shared library, one a source file.

    To extract from the library itself would lose code: sources of the same name in two folders
    have cubins of the same name. The layout is what nvcc 13.0 writes, documented nowhere; any
    other raises ExplainError.
    """
    section = sections(binary).get(_FAT_SECTION)
    data, at = (section.data if section else b""), 0
    while at + _FAT_HEADER.size <= len(data):
        magic, _, header_size, size = _FAT_HEADER.unpack_from(data, at)
        if magic != _FAT_MAGIC or header_size < _FAT_HEADER.size:
            raise ExplainError(f"no fat binary at byte {at} of {_FAT_SECTION}: {magic:#x}; rebuild")
        if at + header_size + size > len(data):
            raise ExplainError(f"the fat binary at byte {at} of {_FAT_SECTION} is cut; rebuild")
        yield data[at : at + header_size + size]
        at += -(-(header_size + size) // _FAT_ALIGNMENT) * _FAT_ALIGNMENT


def code_hash(name: str, code: bytes) -> str:
    """Identity of a kernel: its readable name and its machine code, without debug information,
    which holds paths."""
    return hashlib.sha256(name.encode() + b"\0" + code).hexdigest()[:16]


def shared_bytes(found: dict[str, Section], symbol: str) -> int:
    """Shared memory of one kernel's own section, which may hold the system's part too."""
    section = found.get(f".nv.shared.{symbol}")
    return section.size if section else 0


def max_threads(found: dict[str, Section], symbol: str) -> int | None:
    """Threads a block by the kernel's launch bounds; None where it has none."""
    section = found.get(f".nv.info.{symbol}")
    data, at = (section.data if section else b""), 0
    while at + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        if form == _SIZED and attribute == _MAX_THREADS and size == 12 and at + 16 <= len(data):
            x, y, z = struct.unpack_from("<III", data, at + 4)
            return int(x * y * z)
        at += 4 + (size if form == _SIZED else 0)
    return None
