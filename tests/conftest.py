"""Without a GPU: tests marked `gpu` are skipped and Triton kernels run in the interpreter."""

from __future__ import annotations

import os

import pytest


def reason_without_gpu() -> str:
    """Why no CUDA device can be used; empty when one can."""
    try:
        import torch
    except ImportError as error:
        return f"torch cannot be imported ({error})"
    return "" if torch.cuda.is_available() else "no CUDA device is visible"


REASON = reason_without_gpu()
if REASON:
    # Read when a kernel is decorated, hence before any test imports triton. Tests that compile
    # start a process of their own without it.
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if REASON:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason=f"needs an NVIDIA GPU: {REASON}"))


@pytest.fixture(scope="module")
def clock():
    """A calibrated CudaEventClock."""
    from harness.clock import CudaEventClock

    made = CudaEventClock()
    made.calibrate()
    return made


@pytest.fixture
def own_stream():
    """A worker's launches run on a stream of their own; the default one waits for every other."""
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        yield stream
    torch.cuda.synchronize()
