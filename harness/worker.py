"""The process that touches the GPU: a request in, rows out.

It runs each implementation alone and synchronised before any is timed, so that a fault names
its author; after an illegal access the CUDA context is lost, so it says whose fault it was and
dies. It writes no file: the parent does.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import IO, Any

from .case_run import CaseRun
from .clock import CudaEventClock
from .machine import gpu_facts, gpu_slug, writable_triton_cache
from .measure_roofs import measure_roofs, measure_roofs_again
from .protocol import Contender, Request, one_line, open_answers, wait_until_wanted
from .registry import Registry
from .roofs import Roofs
from .roster import context_is_lost
from .spec import Case, OpSpec

_CHECK_BYTES_PER_ELEMENT = 64


class Worker:
    def __init__(self, answers: IO[str], device: int) -> None:
        import torch

        self._answers = answers
        self._device = device
        torch.cuda.set_device(device)
        self._gpu = gpu_facts(device)
        self.gpu_slug = gpu_slug(self._gpu["name"])
        # Launches go to a stream of our own: the default stream synchronises with every other.
        self._stream = torch.cuda.Stream()
        torch.cuda.set_stream(self._stream)
        self.clock = CudaEventClock()
        self.clock.calibrate()
        self.triton_facts: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.say("ready", gpu=self._gpu)

    def came_back(self) -> bool:
        """Are the device and stream current on which launches belong? From now on they are."""
        import torch

        found = torch.cuda.current_device(), torch.cuda.current_stream()
        torch.cuda.set_device(self._device)
        torch.cuda.set_stream(self._stream)
        return found == (self._device, self._stream)

    def say(self, event: str, **facts: Any) -> None:
        self._answers.write(json.dumps({"event": event, **facts}) + "\n")
        self._answers.flush()

    def roofs(self, dtypes: list[str], flush: str, start: dict[str, Any] | None) -> None:
        """This card's roofs; with `start`, those of the run's start, the same points once more."""
        import torch

        def progress(what: str) -> None:
            self.say("stage", contender="", stage=what)

        self.clock.flush_mode = flush
        if start is None:
            measured = measure_roofs(self.clock, dtypes, progress)
        else:
            measured = measure_roofs_again(self.clock, Roofs.from_meta(start), progress)
        self.say("roofs", roofs=measured.as_meta())
        # Their buffers are gigabytes; the first case must find them free.
        torch.cuda.empty_cache()

    def case(self, request: Request) -> None:
        """Check, time, check again; one "row" event a contender."""
        import torch

        self.clock.flush_mode = request.flush
        registry = Registry(tuple(Path(k) for k in request.kernels))
        case = Case(request.dims, request.layout)
        shortage = _memory_shortage(registry.spec(request.op), case, request.dtype)
        if shortage:
            for contender in request.contenders:
                self.say_row(contender, status="unsupported", reason=shortage)
            return
        try:
            run = CaseRun(self, request, registry, case)
            try:
                run.execute()
            finally:
                run.release()
        except Exception as error:
            if context_is_lost():
                self.say("fault", contender="", reason=one_line(error))
                os._exit(1)
            # Of the case, not of a contender: its inputs, its reference, a second set of them.
            status = "oom" if isinstance(error, torch.cuda.OutOfMemoryError) else "error"
            for contender in request.contenders:
                self.say_row(contender, status=status, reason=one_line(error))

    def say_row(self, contender: Contender, **row: Any) -> None:
        rounds, samples = row.pop("rounds", []), row.pop("samples", [])
        row |= {"backend": contender.backend, "variant": contender.variant}
        self.say("row", row=row, rounds=rounds, samples=samples)


def _memory_shortage(spec: OpSpec, case: Case, dtype: str) -> str:
    """Why the case does not fit; empty when it does.

    Inputs are held twice and each output element costs the float64 reference, allowance and
    the checker's temporaries.
    """
    import torch

    free_bytes, _ = torch.cuda.mem_get_info()
    needed = 2 * spec.bytes_read(case, dtype) + spec.bytes_written(case, dtype)
    needed += _CHECK_BYTES_PER_ELEMENT * spec.n_output_elements(case)
    if needed <= free_bytes:
        return ""
    return f"needs {needed / 1e9:.1f} GB, {free_bytes / 1e9:.1f} GB are free"


def _import_slow_modules() -> None:
    import torch  # noqa: F401

    with contextlib.suppress(ImportError):
        import triton  # noqa: F401


def main() -> int:
    """Serve requests from standard input until it closes."""
    answers = open_answers()
    writable_triton_cache()
    _import_slow_modules()
    wait_until_wanted()
    worker = Worker(answers, device=int(os.environ.get("CVT_DEVICE", "0")))
    for line in sys.stdin:
        message = json.loads(line)
        if message["kind"] == "roofs":
            worker.roofs(message["dtypes"], message["flush"], message["start"])
        else:
            worker.case(Request.from_json(message["request"]))
        worker.say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
