"""The stated policies hold for the Triton side: on the GPU where there is one, else interpreted."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from harness.backends import bind
from harness.check import Problem
from harness.registry import Registry
from harness.spec import Case, OpSpec, torch_dtype

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
REGISTRY = Registry()
ROWS = [
    pytest.param(spec, case, dtype, id=f"{stem}-{case.name}-{dtype}")
    for stem in REGISTRY.stems
    for spec in [REGISTRY.spec(stem)]
    for case in spec.test_cases
    if case.layout == "special"
    for dtype in spec.dtypes
]

pytestmark = [
    pytest.mark.skipif(
        DEVICE == "cpu" and not triton.knobs.runtime.interpret,
        reason="needs an NVIDIA GPU or TRITON_INTERPRET=1",
    ),
    # numpy, under the interpreter, warns of the NaN and Inf that these tests want
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.*"),
]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("spec", "case", "dtype"), ROWS)
def test_triton_keeps_the_policy(spec: OpSpec, case: Case, dtype: str, seed: int):
    if DEVICE == "cpu" and dtype == "bf16":
        pytest.skip("the interpreter rounds bf16 differently")
    problem = Problem(spec, case, dtype, DEVICE, seed)
    bound = bind(REGISTRY, problem, "triton", "", {}, "")
    try:
        bound.call()
    except Exception as error:
        if "0-dimensional arrays" not in f"{error} {error.__cause__}":
            raise
        pytest.skip("this Triton's interpreter cannot loop with this numpy")
    verdict = problem.judge(problem.produced)
    assert verdict.ok, verdict.reason
    explanation = problem.explain(problem.produced)
    if torch_dtype(dtype).is_floating_point:
        assert explanation["masks"]["NaN"]["expected"] > 0
