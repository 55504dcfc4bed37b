#!/usr/bin/env python3
"""Stands in for compute-sanitizer: reads its command line, writes the log it would write.

FAKE_SANITIZER names the behaviour, `tool=behaviour` words. The driver below it is not started;
what it would have said is written for it.
"""

import json
import os
import sys
import time
from pathlib import Path

INVALID = """\
========= Invalid __global__ read of size 4 bytes
=========     at void cuda_vs_triton::<unnamed>::softmax_kernel<float>(Args)+0x2e0 in softmax.cu:160
=========     by thread (3,0,0) in block (0,0,0)
=========     Address 0x7f0000000200 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f0000000000 of size 512 bytes
"""
RACE = """\
========= Error: Race reported between Write access at matmul_bias_relu_kernel+0x1a0 in m.py:74
=========     and Read access at matmul_bias_relu_kernel+0x2f0 in m.py:75 [16 hazards]
=========
"""
STRANGER = """\
========= Uninitialized __global__ memory read of size 4 bytes
=========     at somebody_elses+0x10
"""
UNSUPPORTED = "========= Error: Device not supported. Please refer to the manual\n"
CULPRITS = {"crash": "softmax:triton", "hang": "softmax:triton", "invalid": "softmax:cuda"}
REASON = "AcceleratorError: CUDA error: unspecified launch failure"


def option(words, name):
    return [words[i + 1] for i, word in enumerate(words) if word == name]


def facts_of(pair: str, behaviour: str) -> dict:
    op, side = pair.split(":")
    name = "my_kernel" if behaviour == "renamed" else f"{op}_kernel"
    instructions = ["cp.async", *(["wgmma"] if pair == "matmul_bias_relu:triton" else [])]
    return {
        "launches": 3,
        "kernels": [name] if side == "triton" else [],
        "instructions": instructions,
        "capability": "90",
    }


def summary(tool: str, behaviour: str, stopped: bool) -> str:
    if behaviour == "race":
        return RACE + "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"
    if behaviour == "stranger":
        return STRANGER + "========= ERROR SUMMARY: 3 errors\n"
    if behaviour == "invalid" and stopped:
        return INVALID + "========= ERROR SUMMARY: 1 error\n"
    if tool == "racecheck":
        return "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
    return "========= ERROR SUMMARY: 0 errors\n"


def drive(words, behaviour: str) -> bool:
    """Say what the driver would; True when it stopped at a pair."""
    culprit = CULPRITS.get(behaviour)
    with Path(option(words, "--say")[0]).open("w", buffering=1) as said:

        def say(event, pair, **facts):
            said.write(json.dumps({"event": event, "pair": pair, **facts}) + "\n")

        for pair in option(words, "--pair"):
            say("stage", pair)
            if pair == culprit:
                if behaviour == "invalid":
                    say("failed", pair, reason=REASON)
                if behaviour == "hang":
                    time.sleep(60)
                return True
            say("done", pair, **facts_of(pair, behaviour))
    return False


def main() -> int:
    words = sys.argv[1:]
    if "--version" in words:
        print("NVIDIA (R) Compute Sanitizer\nVersion 2025.3.1.0 (build 36400806) (public-release)")
        return 0
    tool = option(words, "--tool")[0]
    wanted = dict(word.split("=") for word in os.environ.get("FAKE_SANITIZER", "").split())
    behaviour = wanted.get(tool, "clean")
    log = Path(option(words, "--log-file")[0])
    if behaviour == "unsupported":
        log.write_text("========= COMPUTE-SANITIZER\n" + UNSUPPORTED)
        return 1
    stopped = drive(words, behaviour)
    if behaviour == "crash" and stopped:
        return 139
    if behaviour != "silent":
        log.write_text("========= COMPUTE-SANITIZER\n" + summary(tool, behaviour, stopped))
    return int(stopped)


if __name__ == "__main__":
    sys.exit(main())
