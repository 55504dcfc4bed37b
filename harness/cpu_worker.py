"""The worker of a machine without a GPU: Triton through its interpreter, checked on the CPU.

It proves answers, never speed: every row is `untimed`. It speaks the same protocol as the GPU
worker, so that a kernel which hangs or kills the interpreter costs only its own rows.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from .availability import extension_problem
from .backends import bind
from .check import Problem
from .protocol import Contender, Request, one_line, open_answers
from .registry import Registry
from .spec import Case

# The interpreter emulates bf16 through wider types and rounds it differently from the GPU in
# some of its versions; a verdict on bf16 would judge the interpreter, not the kernel.
_NOT_INTERPRETED = ("bf16",)


def _row(request: Request, contender: Contender) -> dict[str, Any]:
    if contender.backend == "cuda":
        reason = extension_problem()
        if reason:
            return {"status": "unsupported", "reason": reason}
        return {"status": "untimed", "reason": "built and imported; no GPU to run it on"}
    if request.dtype in _NOT_INTERPRETED:
        return {"status": "unsupported", "reason": f"interpreter: {request.dtype} differs there"}
    registry = Registry(tuple(Path(path) for path in request.kernels))
    spec = registry.spec(request.op)
    case = Case(request.dims, request.layout)
    problem = Problem(spec, case, request.dtype, "cpu", request.seed)
    bound = bind(registry, problem, contender.backend, contender.variant, {}, "")
    problem.poison()
    try:
        bound.call()
    except TypeError as error:
        if "0-dimensional arrays" not in str(error.__cause__ or error):
            raise
        # Triton 3.6 turns a loop's bounds into integers in a way that numpy 2.4 removed.
        reason = "interpreter: this Triton cannot loop with this numpy; pip install 'numpy<2.4'"
        return {"status": "unsupported", "reason": reason}
    verdict = problem.judge(bound.produced())
    right = {"reason": "right in the interpreter; no GPU to time it on"} if verdict.ok else {}
    row = verdict.columns() | right
    if request.explain:
        row["explanation"] = problem.explain(bound.produced(), bound.unfused)
    return row


def main() -> int:
    """Serve requests from standard input until it closes."""
    # The interpreter computes with numpy, which warns of the NaN and Inf that some rows hold.
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    answers = open_answers()

    def say(event: str, **facts: Any) -> None:
        answers.write(json.dumps({"event": event, **facts}) + "\n")
        answers.flush()

    say("ready", gpu={})
    for line in sys.stdin:
        request = Request.from_json(json.loads(line)["request"])
        for contender in request.contenders:
            say("stage", contender=contender.label, stage="check")
            try:
                row = _row(request, contender)
            except Exception as error:  # whatever a kernel raises becomes its own row
                row = {"status": "error", "reason": one_line(error)}
            row |= {"backend": contender.backend, "variant": contender.variant}
            say("row", row=row, rounds=[], samples=[])
        say("done")
    return 0


if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"
    sys.exit(main())
