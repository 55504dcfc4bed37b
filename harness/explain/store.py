"""Answers of slow tools, kept under build/explain by what went in: sources, versions, this code."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..registry import REPOSITORY

_DEFAULT = REPOSITORY / "build" / "explain"


def folder() -> Path:
    """CVT_EXPLAIN_CACHE, or build/explain in the checkout."""
    return Path(os.environ.get("CVT_EXPLAIN_CACHE") or _DEFAULT)


@functools.cache
def own_code() -> str:
    """Hash of the code that reads: a better reader must not be answered by an older one."""
    return digest(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))


def digest(parts: Iterable[bytes | str]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "little") + data)
    return whole.hexdigest()[:32]


def remember(
    kind: str,
    parts: Iterable[bytes | str],
    make: Callable[[], Any],
    whole: Callable[[Any], bool] = lambda answer: True,
) -> Any:
    """What `make` gives as JSON, from an earlier call with the same parts where there was one.

    Only a `whole` answer is kept, and taken again. A cache that cannot be read or written, or was
    damaged since, costs time, nothing else.
    """
    file = folder() / f"{kind}-{digest([*parts, own_code()])}.json"
    with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
        kept = json.loads(file.read_text())
        if whole(kept):
            return kept
    answer = make()
    if not whole(answer):
        return answer
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, json.dumps(answer).encode())
    return answer


def write(file: Path, data: bytes) -> None:
    """Whole or not at all: two processes may explain at once. The folder must be there."""
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        partial.write_bytes(data)
        partial.replace(file)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
