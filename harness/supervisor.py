"""Keeps one worker alive: restarts it after a fault, and names the implementation at fault."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from .protocol import WAIT_VARIABLE, Contender, Request
from .registry import REPOSITORY

_START_TIMEOUT_S = 180.0
_END_TIMEOUT_S = 60.0


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
        # Waited for workers to be ready, all starts together.
        self.start_s = 0.0

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
        """End the worker and what it started. Raises WorkerDiedError for one that stays."""
        process, self._process, self._waits = self._process, None, False
        if process is None:
            return
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise WorkerDiedError(
                "timeout",
                "",
                f"the worker, process {process.pid}, was killed and does not end, so the driver "
                "still holds it and the GPU; wait until it is gone, or restart the machine",
            ) from None

    def roofs(
        self, dtypes: list[str], flush: str = "clean", start: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Measured roofs as meta.json stores them; with `start`, its points once more.

        A worker that ends meanwhile is replaced once. Raises WorkerDiedError.
        """
        request = {"kind": "roofs", "dtypes": dtypes, "flush": flush, "start": start}
        events, death = self._try(request)
        if death is not None and death.status != "timeout":
            events, death = self._try(request)
        if death is not None:
            raise death
        roofs: dict[str, Any] = next(e["roofs"] for e in events if e["event"] == "roofs")
        return roofs

    def run(self, request: Request) -> list[dict[str, Any]]:
        """The row events of one case.

        A contender whose stage ends the worker gets a row of its own, and the case runs again
        without it. Where no stage tells whose doing it was, each contender runs alone once to find
        out: at most a restart each. Raises WorkerDiedError when no worker starts any more.
        """
        left = list(request.contenders)
        rows: list[dict[str, Any]] = []
        searched = False
        while left:
            events, death = self._try_case(request, left)
            if death is None:
                return rows + events
            culprits = [c for c in left if c.label == death.contender]
            if not culprits and len(left) > 1 and not searched:
                searched = True
                alone = {c: self._try_case(request, [c]) for c in left}
                rows += [_failed(c, died) for c, (_, died) in alone.items() if died is not None]
                left = [c for c in left if alone[c][1] is None]
                if len(left) == 1:  # nobody is left to share rounds with
                    return rows + alone[left[0]][0]
                continue
            culprits = culprits or left
            if searched and len(culprits) > 1:
                death.reason += ", with several contenders and not with one alone"
            rows += [_failed(culprit, death) for culprit in culprits]
            left = [c for c in left if c not in culprits]
        return rows

    def _try_case(
        self, request: Request, contenders: Sequence[Contender]
    ) -> tuple[list[dict[str, Any]], WorkerDiedError | None]:
        data = request.as_json() | {"contenders": [vars(c) for c in contenders]}
        events, death = self._try({"kind": "case", "request": data})
        rows = _with_kernels(events)
        if death is None or len(rows) < len(contenders):
            return rows, death
        for row in rows:  # all are known; only the names of their kernels were still to come
            if "launches" not in row:
                row.setdefault("launch_problem", f"naming the kernels: {death.reason}")
        return rows, None

    def _try(self, message: dict[str, Any]) -> tuple[list[dict[str, Any]], WorkerDiedError | None]:
        """The answers to one message, or how the worker ended over it; it is gone then."""
        self._start_surely()
        events: list[dict[str, Any]] = []
        try:
            for event in self._ask(message):
                events.append(event)
        except WorkerDiedError as death:
            self.stop()
            return events, death
        return events, None

    def _start_surely(self) -> None:
        """Start a worker, at the second attempt if need be: what fails here is no contender's
        fault, and a row that said so would keep a resume from measuring it."""
        try:
            self.start()
        except WorkerDiedError:
            self.stop()
            try:
                self.start()
            except WorkerDiedError as death:
                self.stop()
                raise WorkerDiedError(
                    death.status,
                    "",
                    f"no worker starts any more: {death.reason}; what it said is above, and "
                    "`make doctor` tells what works here",
                ) from None

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
        began_s = time.monotonic()
        try:
            ready = self._next("start", _START_TIMEOUT_S)
        finally:
            self.start_s += time.monotonic() - began_s
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
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError:
            raise WorkerDiedError(
                "error", contender, f"the worker said {line[:60]!r}, wanted one JSON object a line"
            ) from None
        return event


def _import_path() -> str:
    """The worker must find this harness from any working directory."""
    return os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]))


def _pump(stream: Any, lines: queue.Queue[str | None]) -> None:
    for line in stream:
        if line.endswith("\n"):  # the last answer of a worker that was killed may be cut
            lines.put(line)
    lines.put(None)


def _with_kernels(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The row events, each with what was said later of the kernels behind it."""
    rows = {_label(event["row"]): event for event in events if event["event"] == "row"}
    for event in events:
        if event["event"] == "kernels" and event["contender"] in rows:
            row = rows[event["contender"]]
            row["row"] |= event.get("columns", {})
            row |= {key: event[key] for key in ("launches", "launch_problem") if key in event}
    return list(rows.values())


def _label(row: dict[str, Any]) -> str:
    return Contender(row["backend"], row["variant"]).label


def _failed(contender: Contender, death: WorkerDiedError) -> dict[str, Any]:
    row = {
        "backend": contender.backend,
        "variant": contender.variant,
        "status": death.status,
        "reason": death.reason,
    }
    return {"event": "row", "row": row, "rounds": [], "samples": []}
