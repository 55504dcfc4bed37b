"""Impossible times are invalid; possible ones and unknown hardware are let through."""

from __future__ import annotations

import pytest

from harness.plan import Unit
from harness.plausible import impossible
from harness.protocol import Contender
from harness.registry import Registry
from harness.rows import RowMaker
from harness.spec import Case

# 2 * 3.2 GHz * 5000 bits / 8 = 4000 GB/s; 4096 * 132 * 1.85 GHz = 1000 TFLOP/s.
CARD = {
    "name": "card",
    "compute_capability": "9.0",
    "sm_count": 132,
    "l2_bytes": 50_000_000,
    "sm_khz_max": 1_850_000,
    "memory_khz_max": 3_200_000,
    "memory_bus_bits": 5000,
}


@pytest.mark.parametrize(
    ("time_us", "n_bytes", "flops", "words"),
    [
        (100.0, 400_000_000, 0, ""),
        (80.0, 400_000_000, 0, "DRAM peak of 4000 GB/s"),
        (1.0, 50_000_000, 0, ""),  # all of it may have come from L2
        (1000.0, 0, 900 * 10**9, ""),
        (1000.0, 0, 1001 * 10**9, "1000 TFLOP/s"),
    ],
)
def test_peaks(time_us, n_bytes, flops, words):
    found = impossible(time_us, n_bytes, flops, CARD)
    assert words in found
    assert bool(found) == bool(words)


def test_unknown_hardware_is_not_judged():
    assert impossible(1e-3, 10**12, 10**18, {"name": "?"}) == ""


def test_an_impossible_row_is_invalid_and_has_no_times():
    registry = Registry()
    unit = Unit(registry.spec("vector_add"), Case({"N": 1 << 28}), "f32", (Contender("cuda"),))
    row = {
        "backend": "cuda",
        "variant": "",
        "status": "ok",
        "time_us_p50": 10.0,
        "time_us_mean": 10.0,
        "ci_low_us": 9.0,
        "n_samples": 30,
    }
    answered = [{"row": row, "rounds": [[10.0]], "samples": [[10.0]]}]
    (event,) = RowMaker(registry, CARD, 0, None).complete(unit, answered)
    assert event["row"]["status"] == "invalid"
    assert "DRAM peak" in event["row"]["reason"]
    assert not any(key.startswith(("time_us", "ci_", "n_")) for key in event["row"])
    assert event["rounds"] == []


@pytest.mark.parametrize(
    ("watched", "warnings", "throttled"),
    [
        (None, "samples_rejected", None),
        ({"throttled": True}, "samples_rejected", True),
        ({"throttled": False, "other_processes": 0}, "samples_rejected", False),
        ({"other_processes": 2}, "samples_rejected;gpu_shared", None),
    ],
)
def test_what_the_watch_saw_marks_the_row(watched, warnings, throttled):
    registry = Registry()
    unit = Unit(registry.spec("vector_add"), Case({"N": 1 << 28}), "f32", (Contender("cuda"),))
    row = {
        "backend": "cuda",
        "variant": "",
        "status": "ok",
        "time_us_p50": 1e4,
        "warnings": "samples_rejected",
    }
    answered = [{"row": row, "rounds": [[1e4]], "samples": [[1e4]]}]
    (event,) = RowMaker(registry, CARD, 0, None).complete(unit, answered, watched)
    assert event["row"]["warnings"] == warnings
    assert event["row"]["throttled"] is throttled
