"""A worker without a GPU that answers, dies, faults or hangs as its contenders' names say.

FAKE_<backend>: crash, fault or hang in that contender's stage; cut: die within the answer of its
row; named: die when all rows are said, while its kernels are named; zero, negative, nan or inf: say
that its time is that; silent: die before any stage is named; company: the same, unless it runs
alone; once: the same, in the first process alone. FAKE_STARTS=3: the fourth process and those after
it do not start. FAKE_COUNTER names the file with the number of processes started.
"""

import json
import math
import os
import signal
import sys
import time
from pathlib import Path

from harness.protocol import open_answers

answers = open_answers()


def say(event: str, **facts: object) -> None:
    answers.write(json.dumps({"event": event, **facts}) + "\n")
    answers.flush()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


process = 1
if counter := os.environ.get("FAKE_COUNTER"):
    process += int(Path(counter).read_text()) if Path(counter).exists() else 0
    Path(counter).write_text(str(process))
if process > int(os.environ.get("FAKE_STARTS", process)):
    sys.exit("no CUDA-capable device is detected")
if os.environ.get("CVT_WAIT"):
    sys.stdin.readline()
say("ready", gpu={"name": "Fake GPU"})
for line in sys.stdin:
    message = json.loads(line)
    if message["kind"] == "roofs":
        curve = [[1e3, 5.0], [1e12, 1e6]]
        say(
            "roofs",
            roofs={
                "curves_us": {kind: curve for kind in ("copy", "read", "write")},
                "matrix_tflops": {"bf16": 700.0, "f16": 700.0},
                "launch_floor_us": 3.0,
                "event_overhead_us": 1.0,
                "tick_us": 0.03,
                "flush_bytes": 1,
                "method": "fake",
                "add_measured_over_predicted": 1.0,
                "shapes": {kind: [0, 0] for kind in ("copy", "read", "write")},
            },
        )
        say("done")
        continue
    request = message["request"]
    behaviours = [os.environ.get(f"FAKE_{c['backend']}", "") for c in request["contenders"]]
    if (
        "silent" in behaviours
        or ("company" in behaviours and len(behaviours) > 1)
        or ("once" in behaviours and process == 1)
    ):
        die()
    for contender in request["contenders"]:
        label = contender["backend"]
        say("stage", contender=label, stage="first run")
        behaviour = os.environ.get(f"FAKE_{label}", "")
        if behaviour == "crash":
            die()
        if behaviour == "fault":
            say("fault", contender=label, reason="an illegal memory access was encountered")
            sys.exit(1)
        if behaviour == "hang":
            time.sleep(60)
    time.sleep(float(os.environ.get("FAKE_SECONDS", "0")))
    for contender in request["contenders"]:
        if os.environ.get(f"FAKE_{contender['backend']}") == "cut":
            answers.write('{"event": "row", "row": {"backend": "')
            answers.flush()
            die()
        lies = {"zero": 0.0, "negative": -5.0, "nan": math.nan, "inf": math.inf}
        row = {
            "backend": contender["backend"],
            "variant": contender["variant"],
            "status": "ok",
            "time_us_p50": lies.get(os.environ.get(f"FAKE_{contender['backend']}", ""), 100.0),
        }
        say(
            "row",
            row=row,
            rounds=[[100.0, 1.0, 1500.0], [100.5, 2.0, 1500.0]],
            samples=[[100.0], [100.5]],
        )
    for contender in request["contenders"]:
        label = contender["backend"]
        say("stage", contender=label, stage="kernels")
        if os.environ.get(f"FAKE_{label}") == "named":
            die()
        say("kernels", contender=label, columns={"registers": 32}, launches=[])
    say("done")
