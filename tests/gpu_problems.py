"""One side of an op bound to a problem on the GPU: what tests that launch by hand start from."""

from __future__ import annotations

import pytest

from harness.availability import unavailable
from harness.backends import Bound, bind
from harness.check import Problem
from harness.registry import Registry
from harness.spec import Case

REGISTRY = Registry()
TUNED_ON = "nvidia-h200"


def bound_problem(
    stem: str, case: Case, dtype: str, side: str, seed: int = 11, device: str = "cuda"
) -> tuple[Problem, Bound]:
    """The problem and the side's launch with its tuned configuration; not yet called."""
    if reason := unavailable(side):
        pytest.fail(f"{side} cannot run here: {reason}")
    problem = Problem(REGISTRY.spec(stem), case, dtype, device, seed)
    return problem, bind(REGISTRY, problem, side, "", None, TUNED_ON)
