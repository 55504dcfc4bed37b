"""squared_norm: the sum of the squares of a whole vector in float32; reduce_sum with a square."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.spec import Case, OpSpec, SpecialValues, Tensors, random_tensor, view_from_element
from harness.specs import reduce_sum
from harness.specs._sums import tree_growth

if TYPE_CHECKING:
    import torch

# As those of reduce_sum, with which it shares its kernel: 0, 1, around tiles, a head alone.
TEST_CASES = (
    *(Case({"N": n}) for n in (0, 1, 33, 1025, 65537)),
    *(Case({"N": n}, layout="offset1") for n in (3, 33, 65537)),
    Case({"N": 1025}, layout="special"),
    Case({"N": 4097}, layout="infinite"),
)


def make_inputs(case: Case, dtype: str, device: str, seed: int) -> Tensors:
    import torch

    n = case.dims["N"]
    x = random_tensor((n,), dtype, device, seed)
    if case.layout in ("special", "infinite"):
        x[n // 2] = float("-inf")
        x[3], x[4] = -0.0, torch.finfo(x.dtype).smallest_normal / 4
    if case.layout == "special":
        x[5], x[-1] = float("nan"), float("inf")
    if case.layout == "offset1":
        x = view_from_element(x, 1)
    return {"x": x}


def reference(tensors: Tensors) -> torch.Tensor:
    import torch

    norm: torch.Tensor = torch.linalg.vector_norm(tensors["x"], dtype=torch.float64)
    return norm.square().view(1)


def eager(x: torch.Tensor) -> torch.Tensor:
    return x.float().square().sum(0, keepdim=True)


def library(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """cub::DeviceReduce with a square as its transform."""
    from harness import _cuda

    _cuda.cub_squared_norm(x, out)
    return out


def low_precision(tensors: Tensors) -> torch.Tensor:
    """Squares and a running sum in the input's dtype."""
    return reduce_sum.low_precision({"x": tensors["x"].square()})


SPEC = OpSpec(
    stem="squared_norm",
    formula="out = sum of x * x, in float32",
    test_cases=TEST_CASES,
    make_inputs=make_inputs,
    reference=reference,
    # Terms of one sign: partial sums are parts of the total.
    accumulation=lambda t, reference: reference * tree_growth(t["x"].numel()),
    flops=lambda case: 2 * case.dims["N"],
    drift=lambda case: tree_growth(case.dims["N"]),
    eager=eager,
    library=library,
    special_values=SpecialValues(
        "NaN in x gives NaN; an infinity of either sign, or a sum beyond float32, gives +Inf. The "
        "square of a subnormal number, or one below 2^-126, may become 0. A zero is +0",
        signed_zeros="kept",
        subnormals="flushed",
    ),
    **reduce_sum.FULL_SUM | {"low_precision": low_precision},
)
