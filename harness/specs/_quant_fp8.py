"""quant_fp8_token and quant_fp8_group: they differ in how many elements share a scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from harness.spec import (
    ITEMSIZE,
    Case,
    OpSpec,
    Output,
    SpecialValues,
    Tensors,
    Tolerance,
    random_tensor,
    view_from_element,
)

if TYPE_CHECKING:
    import torch

LARGEST = 448.0  # of e4m3
# Below this an amax counts as this, so that zeros get a finite scale: vLLM's 1e-10 for groups, as a
# power of two.
SMALLEST_AMAX = 2.0**-33

BENCH_CASES = (
    Case({"M": 16384, "N": 7168}, level="quick", baselines=True),
    Case({"M": 4096, "N": 4096}, level="default"),
    Case({"M": 32768, "N": 4096}),
    Case({"M": 16384, "N": 14336}),
    Case({"M": 1, "N": 7168}, level="default"),
    Case({"M": 65536, "N": 5120}),
)


def make_inputs(case: Case, dtype: str, device: str, seed: int) -> Tensors:
    shape = (case.dims["M"], case.dims["N"])
    x = random_tensor(shape, dtype, device, seed)
    if case.layout == "outliers":
        x[:, seed % shape[1]] = 1000.0
    if case.layout == "special":
        _plant_special_rows(x)
    if case.layout == "offset1":
        x = view_from_element(x.view(-1), 1).view(shape)
    return {"x": x}


def _plant_special_rows(x: torch.Tensor) -> None:
    import torch

    inf, info = float("inf"), torch.finfo(x.dtype)
    x[1, 5] = float("nan")
    x[2, 7], x[2, 8] = inf, -0.0
    x[3, 9] = -inf
    x[4] = 0.0
    x[5] = -0.0
    x[6] = info.max
    x[6, ::2] = -info.max
    x[7] *= info.smallest_normal  # in bf16 far under SMALLEST_AMAX
    x[8] = 1.0
    x[8, ::3] = -(2.0**-16)  # times 448 a tie between two subnormal numbers of e4m3
    x[9] = torch.arange(x.shape[1], device=x.device).to(x.dtype)  # many ties where amax is 448
    x[9, 0] = LARGEST


def quantised(
    x: torch.Tensor, extent: int, scale_shape: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    """(x / scale, not yet rounded to e4m3; scale), in x's dtype; `extent` elements share a scale.

    A NaN makes its amax and so all that share it NaN.
    """
    pieces = x.unflatten(-1, (x.shape[-1] // extent, extent))
    scale = pieces.abs().amax(-1).clamp(min=SMALLEST_AMAX) / LARGEST
    return (pieces / scale[..., None]).flatten(-2), scale.view(scale_shape)


def _bytes_written(case: Case, scale_shape: tuple[int, ...]) -> int:
    n_elements = case.dims["M"] * case.dims["N"]
    return n_elements * ITEMSIZE["f8e4m3"] + math.prod(scale_shape) * ITEMSIZE["f32"]


def quant_spec(
    stem: str,
    formula: str,
    extent_of: Callable[[int], int],
    scale_shape: Callable[[int, int], tuple[int, ...]],
    test_cases: tuple[Case, ...],
    mutant_cases: tuple[Case, ...],
    extents: Mapping[str, tuple[int, int]],
    omitted_mutants: Mapping[str, str],
    tuning: Mapping[str, Any],
) -> OpSpec:
    """`extent_of(n)` elements of a row of n share a scale; scales have `scale_shape(m, n)`."""

    def parts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return quantised(x, extent_of(x.shape[-1]), scale_shape(*x.shape))

    def to_e4m3(quotient: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        return quotient.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale.float()

    def shape_of(case: Case) -> tuple[int, ...]:
        return scale_shape(case.dims["M"], case.dims["N"])

    dtypes = ("bf16", "f16")
    tolerance = Tolerance(
        0.5,
        0.02,
        "0.5: float32 arithmetic, rounded to e4m3 once, to nearest. 0.02: that has no bias, ties "
        "go to even; truncation shows about 0.35",
    )
    scale_tolerance = Tolerance(
        0.5,
        0.02,
        "0.5: one float32 division of an exact amax, rounded to nearest. 0.02: that has no bias; "
        "what a rounded reciprocal of 448 in its place shares in sign is in drift",
    )
    scale = Output(
        "scale",
        shape=shape_of,
        reference=lambda t: parts(t["x"].double())[1],
        # torch on a GPU multiplies by 1 / 448, which errs alike in every element
        accumulation=lambda t, reference: 0.5 * reference,
        tolerances=dict.fromkeys(dtypes, scale_tolerance),
        dtype="f32",
        drift=lambda case: 0.5,
    )
    return OpSpec(
        stem=stem,
        # a maximum rounds nothing, so nothing grows with its extent
        family="elementwise",
        formula=formula,
        arguments=("x",),
        dtypes=dtypes,
        full_dtypes=("f16",),
        bench_cases=BENCH_CASES,
        test_cases=test_cases,
        make_inputs=make_inputs,
        output_shape=lambda case: (case.dims["M"], case.dims["N"]),
        out_dtype="f8e4m3",
        further_outputs=(scale,),
        reference=lambda t: parts(t["x"].double())[0],
        # Half an ulp each for the factor 448 / amax and the product, or for scale and quotient; two
        # more for a compiler's divisions. A millionth of e4m3's spacing: it decides at ties alone.
        accumulation=lambda t, reference: 3.0 * reference.abs(),
        bytes_read=lambda case, dtype: case.dims["M"] * case.dims["N"] * ITEMSIZE[dtype],
        bytes_written=lambda case, dtype: _bytes_written(case, shape_of(case)),
        # maximum, product
        flops=lambda case: 2 * case.dims["M"] * case.dims["N"],
        tolerances=dict.fromkeys(dtypes, tolerance),
        eager=lambda x: to_e4m3(*parts(x.float())),
        low_precision=lambda t: to_e4m3(*parts(t["x"])),
        absent={"library": "torch has no fused call; vLLM and TensorRT-LLM are no dependencies"},
        special_values=SpecialValues(
            "NaN makes all that share its scale NaN, as torch's amax does; Inf makes the scale "
            "Inf, itself NaN and the others 0. Zeros keep their sign; nothing but zeros have a "
            "scale of 2^-33 / 448. Subnormal results, multiples of 2^-9, are kept",
            signed_zeros="kept",
            subnormals="kept",
        ),
        mutant_cases=mutant_cases,
        omitted_mutants={
            "scaled_by_1_percent": "one percent is less than half a step of e4m3",
            "low_precision:f16": "f16 errs by a hundredth of e4m3's step at most",
            "scale.truncated": "a rounded reciprocal of 448 may err by as much",
        }
        | dict(omitted_mutants),
        tuning=tuning,
        sweep_dim="N",
        extents=extents,
    )
