"""A worker without a GPU whose times carry a shift of their own in each process.

AA_COUNTER names a file with the number of workers started before this one. AA_SLOW="2:torch" slows
that backend by 10 % in process 2; AA_FAIL="2:torch" makes it wrong there.
"""

import json
import os
import sys
import time
import zlib
from pathlib import Path

import numpy as np

TICK_US = 0.032


def say(event: str, **facts: object) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def target(variable: str, process: int) -> str:
    number, _, backend = os.environ.get(variable, "").partition(":")
    return backend if number == str(process) else ""


counter = Path(os.environ["AA_COUNTER"])
process = int(counter.read_text()) if counter.exists() else 0
counter.write_text(str(process + 1))
rng = np.random.default_rng(process)
if os.environ.get("CVT_WAIT"):
    sys.stdin.readline()
say("ready", gpu={"name": "Fake GPU", "uuid": "GPU-fake"})
for line in sys.stdin:
    request = json.loads(line)["request"]
    assert request["settings"] == "aa"
    time.sleep(float(os.environ.get("AA_SECONDS", "0")))
    for contender in request["contenders"]:
        row = {"backend": contender["backend"], "variant": contender["variant"]}
        if row["backend"] == target("AA_FAIL", process):
            say("row", row=row | {"status": "mismatch", "reason": "x"}, rounds=[], samples=[])
            continue
        name = json.dumps([request["op"], request["dims"], request["dtype"], row["backend"]])
        base_us = 4.0 * 2.0 ** (zlib.crc32(name.encode()) % 8)
        base_us *= rng.normal(1.0, 0.003)
        base_us *= 1.1 if row["backend"] == target("AA_SLOW", process) else 1.0
        means = base_us * rng.normal(1.0, 0.002, 12)
        samples = [[TICK_US * round(mean / TICK_US)] for mean in means]
        say(
            "row",
            row=row
            | {
                "status": "ok",
                "cache": "cold",
                "flush": request["flush"],
                "time_us_p50": float(np.median(samples)),
            },
            rounds=[[mean, 1.0, 1500.0] for mean in means],
            samples=samples,
        )
    say("done")
