"""Who takes part in a case: each contender's row so far, and those that are still right."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .backends import Bound
from .protocol import Contender, one_line
from .rows import is_timing
from .time_columns import join_warnings

if TYPE_CHECKING:
    from .worker import Worker


class Roster:
    """`rows`: what is known of each contender. `live`: those that have given nothing but right
    answers, and their launches. `most_kept_bytes`: what one may leave allocated after its turn."""

    def __init__(self, worker: Worker, most_kept_bytes: int) -> None:
        self._worker, self._most_kept_bytes = worker, most_kept_bytes
        self._allocated = 0
        self.rows: dict[Contender, dict[str, Any]] = {}
        self.live: dict[Contender, Bound] = {}

    @contextlib.contextmanager
    def blame(self, contender: Contender, stage: str) -> Iterator[None]:
        """Turn an exception inside the block into the contender's row."""
        import torch

        self._worker.say("stage", contender=contender.label, stage=stage)
        self._allocated = torch.cuda.memory_allocated()
        try:
            yield
        except Exception as error:
            self.fail(contender, error)

    def fail(self, contender: Contender, error: Exception) -> None:
        """The exception ends the contender, and the process too where the GPU is lost."""
        import torch

        if context_is_lost():
            self.end_process(contender, one_line(error))
        no_memory = isinstance(error, torch.cuda.OutOfMemoryError)
        if no_memory:
            # The frames hold what had been allocated until there was no more.
            traceback.clear_frames(error.__traceback__)
            gc.collect()
            torch.cuda.empty_cache()
            self.refuse_hoard(contender)
        else:
            traceback.print_exception(error, file=sys.stderr)
        self.live.pop(contender, None)
        status = "oom" if no_memory else "error"
        self.rows[contender] = {"status": status, "reason": one_line(error)}

    def refuse_hoard(self, contender: Contender) -> None:
        """End the process if the contender has kept so much memory that others would starve: its
        references are its own."""
        import torch

        kept = torch.cuda.memory_allocated() - self._allocated
        if kept > self._most_kept_bytes:
            self.end_process(contender, f"keeps {kept / 1e9:.1f} GB of GPU memory after its call")

    def end_process(self, contender: Contender, reason: str) -> None:
        """For what nothing but the end of the process puts right; the parent goes on without the
        contender."""
        self._worker.say("fault", contender=contender.label, reason=reason)
        os._exit(1)

    def warn(self, contender: Contender, mark: str) -> None:
        """Add a mark to the contender's warnings."""
        row = self.rows[contender]
        row["warnings"] = join_warnings(row.get("warnings"), mark)

    def disown(self, contender: Contender, reason: str) -> None:
        """Take back the times of a contender that has turned out wrong."""
        del self.live[contender]
        self.rows[contender] = {
            key: value
            for key, value in self.rows[contender].items()
            if not is_timing(key) and key not in ("rounds", "samples")
        } | {"status": "mismatch", "reason": reason}


def context_is_lost() -> bool:
    """After a fault inside a kernel every call of the process fails, this one too."""
    import torch

    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False
