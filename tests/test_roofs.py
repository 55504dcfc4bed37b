"""The roof rule and its interpolation, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from harness.roofs import Roofs, drift, memory_time_us, roof_of

ROOFS = Roofs(
    # At 1e9 bytes: copy 4 TB/s, read 5 TB/s, write 2.5 TB/s.
    curves={
        "copy": [(1e3, 2.0), (1e9, 250.0)],
        "read": [(1e3, 2.0), (1e9, 200.0)],
        "write": [(1e3, 2.0), (1e9, 400.0)],
    },
    matrix_tflops={"bf16": 800.0},
    launch_floor_us=2.0,
    event_overhead_us=1.0,
    tick_us=0.03,
    flush_bytes=1 << 27,
    method="test",
)


@pytest.mark.parametrize(
    ("read", "written", "expected"),
    [
        (0.5e9, 0.5e9, 250.0),  # a copy
        (1e9, 0, 200.0),
        (0, 1e9, 400.0),
        (0.75e9, 0.25e9, 0.5 * 250 + 0.5 * 200),  # half copied, half only read
        (5e8 / 1e6, 5e8 / 1e6, 2.0),  # latency below the curve
        (1e9, 1e9, 500.0),  # the last rate beyond it
    ],
)
def test_memory_time(read, written, expected):
    assert memory_time_us(ROOFS, read, written) == pytest.approx(expected)


def test_interpolation_is_monotonic_and_meets_the_points():
    sizes = [10**e for e in range(3, 10)]
    times = [memory_time_us(ROOFS, size / 2, size / 2) for size in sizes]
    assert times == sorted(times)
    assert times[0] == pytest.approx(2.0)
    assert times[-1] == pytest.approx(250.0)


def test_no_bytes_have_no_roof():
    assert math.isnan(memory_time_us(ROOFS, 0, 0))


def test_matrix_ops_take_the_slower_roof():
    name, time_us = roof_of(ROOFS, "bf16", 10**6, 10**6, 8 * 10**14, True)
    assert (name, time_us) == ("matrix_bf16", pytest.approx(1e6))
    name, _ = roof_of(ROOFS, "bf16", 10**9, 10**9, 10**6, True)
    assert name == "copy"
    assert roof_of(ROOFS, "f32", 2 * 10**6, 10**6, 1, False)[0] == "copy+read"


def test_meta_round_trip():
    meta = replace(ROOFS, add_check=1.01).as_meta()
    assert Roofs.from_meta(meta).as_meta() == meta


def test_a_roof_that_moves_by_more_than_two_percent_is_said():
    slower = {kind: list(curve) for kind, curve in ROOFS.curves.items()}
    slower["read"][1] = (1e9, 200.0 / 0.97)
    end = replace(ROOFS, curves=slower, matrix_tflops={"bf16": 808.0})
    moved = drift(ROOFS, end)
    assert moved["worst_pct"] == pytest.approx(-3.0)
    assert moved["at"] == "read 953.674 MiB"
    assert moved["above_2_pct"] == ["read 953.674 MiB -3.0 %"]


def test_latency_is_no_drift():
    later = {kind: [(1e3, 3.0), *curve[1:]] for kind, curve in ROOFS.curves.items()}
    moved = drift(ROOFS, replace(ROOFS, curves=later))
    assert (moved["worst_pct"], moved["above_2_pct"]) == (0.0, [])
    nothing = replace(ROOFS, curves={kind: [(1e3, 2.0)] for kind in ROOFS.curves}, matrix_tflops={})
    assert drift(nothing, nothing) == {"worst_pct": 0.0, "at": "", "above_2_pct": []}
