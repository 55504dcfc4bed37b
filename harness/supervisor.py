"""Keeps one worker alive: restarts it after a fault, and names the implementation at fault."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

from .protocol import WAIT_VARIABLE, Contender, Request
from .registry import REPOSITORY

_START_TIMEOUT_S = 180.0


class WorkerDiedError(Exception):
    """The worker ended or went silent; `status` is error or timeout, `contender` whose stage it
    was ("" for none)."""

    def __init__(self, status: str, contender: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.contender, self.reason = status, contender, reason


class Supervisor:
    """Runs requests in a worker process. `silence_s`: how long it may say nothing."""

    def __init__(
        self, device: int = 0, silence_s: float = 180.0, module: str = "harness.worker"
    ) -> None:
        self._device, self._silence_s, self._module = device, silence_s, module
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._waits = False
        self.gpu: dict[str, Any] = {}
        self.restarts = -1

    @property
    def pid(self) -> int | None:
        """The worker's process id; None while there is none."""
        process = self._process
        return None if process is None else process.pid

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self._waits = False

    def roofs(
        self, dtypes: list[str], flush: str = "clean", start: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Measured roofs as meta.json stores them; with `start`, its points once more.

        Raises WorkerDiedError.
        """
        self.start()
        request = {"kind": "roofs", "dtypes": dtypes, "flush": flush, "start": start}
        for event in self._ask(request):
            if event["event"] == "roofs":
                roofs: dict[str, Any] = event["roofs"]
        return roofs

    def run(self, request: Request) -> list[dict[str, Any]]:
        """The row events of one case. A contender whose stage kills the worker gets its own
        row, and the case runs again without it."""
        left, rows = list(request.contenders), []
        while left:
            data = request.as_json() | {"contenders": [vars(c) for c in left]}
            try:
                self.start()
                rows += [
                    e for e in self._ask({"kind": "case", "request": data}) if e["event"] == "row"
                ]
                return rows
            except WorkerDiedError as death:
                self.stop()
                culprits = [c for c in left if c.label == death.contender] or left
                rows += [_failed(culprit, death) for culprit in culprits]
                left = [c for c in left if c not in culprits]
        return rows

    def prepare(self) -> None:
        """Start a worker that imports what it needs and then waits for `start`, off the GPU."""
        self._spawn({WAIT_VARIABLE: "1"})
        self._waits = True

    def start(self) -> dict[str, Any]:
        """Start the worker unless it runs; the GPU's facts. Raises WorkerDiedError."""
        if self._process is not None and self._process.poll() is None and not self._waits:
            return self.gpu
        if self._waits:
            self._waits = False
            self._send("")
        else:
            self._spawn({})
        ready = self._next("start", _START_TIMEOUT_S)
        self.gpu = ready.get("gpu", {})
        return self.gpu

    def _spawn(self, environment: dict[str, str]) -> None:
        self.restarts += 1
        self._lines = queue.Queue()
        # A wait that the user's own environment asks for would never end: nobody sends the line.
        inherited = {name: v for name, v in os.environ.items() if name != WAIT_VARIABLE}
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # A session of its own: Ctrl-C is the parent's to answer, after the case in hand.
            start_new_session=True,
            env=inherited
            | {"CVT_DEVICE": str(self._device), "PYTHONPATH": _import_path()}
            | environment,
        )
        threading.Thread(
            target=_pump, args=(self._process.stdout, self._lines), daemon=True
        ).start()

    def _send(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerDiedError("error", "", "the worker ended before the request") from None

    def _ask(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        self._send(json.dumps(message))
        contender = ""
        while True:
            event = self._next(contender, self._silence_s)
            if event["event"] == "done":
                return
            if event["event"] == "stage":
                contender = event["contender"]
            elif event["event"] == "fault":
                raise WorkerDiedError("error", event["contender"], event["reason"])
            yield event

    def _next(self, contender: str, timeout_s: float) -> dict[str, Any]:
        assert self._process is not None
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise WorkerDiedError("timeout", contender, f"no answer in {timeout_s:.0f} s") from None
        if line is None:
            code = self._process.wait()
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise WorkerDiedError("error", contender, f"the worker process ended with {how}")
        event: dict[str, Any] = json.loads(line)
        return event


def _import_path() -> str:
    """The worker must find this harness from any working directory."""
    return os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))


def _pump(stream: Any, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def _failed(contender: Contender, death: WorkerDiedError) -> dict[str, Any]:
    row = {
        "backend": contender.backend,
        "variant": contender.variant,
        "status": death.status,
        "reason": death.reason,
    }
    return {"event": "row", "row": row, "rounds": [], "samples": []}
