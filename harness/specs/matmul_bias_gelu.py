"""matmul_bias_gelu: gelu(x @ w + b), gelu by tanh, in one kernel; torch eager runs three."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.spec import Case, OpSpec, SpecialValues, Tensors
from harness.specs import _matmul as shared

if TYPE_CHECKING:
    import torch

# A shorter sweep than matmul_bias_relu's: the epilogue costs an exponential and a division an
# element more, which shows where K is short.
BENCH_CASES = (
    Case({"M": 8192, "N": 8192, "K": 512}, level="quick", baselines=True),
    Case({"M": 8192, "N": 8192, "K": 2048}, level="default"),
    Case({"M": 8192, "N": 8192, "K": 8192}, level="default", baselines=True),
    *(Case({"M": 8192, "N": 8192, "K": k}) for k in (256, 1024, 4096)),
    *(Case({"M": 4096, "N": 4096, "K": k}) for k in (512, 2048, 8192)),
)
TEST_CASES = (
    *(Case({"M": m, "N": n, "K": k}) for m, n, k in shared.TEST_SHAPES),
    shared.SPECIAL_CASE,
)

_STEEPEST = 1.13  # the largest slope of gelu, at v = 1.4


def gelu(v: torch.Tensor) -> torch.Tensor:
    """0.5 v (1 + tanh(u)), u = sqrt(2/pi) (v + 0.044715 v^3), as v * sigmoid(2 u): 1 + tanh would
    cancel for v < -5 even in float64."""
    u: torch.Tensor = (2 / math.pi) ** 0.5 * (v + 0.044715 * v**3)
    return v * (2 * u).sigmoid()


def _sum(tensors: Tensors) -> torch.Tensor:
    return shared.product(tensors) + tensors["b"].double()


def reference(tensors: Tensors) -> torch.Tensor:
    return gelu(_sum(tensors))


def accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """The size of the running sum, or of what it becomes, times how often it is rounded and what
    gelu makes of that; an implementation by 1 + tanh, which cancels, errs by ulps of the sum."""
    running = shared.running_sum(tensors) + tensors["b"].double().abs() + _sum(tensors).abs()
    return running * (_STEEPEST * shared.growth(tensors))


def unfused_rounding(tensors: Tensors) -> torch.Tensor:
    """torch rounds x @ w and x @ w + b to the output's dtype before the next kernel."""
    return _STEEPEST * (shared.product(tensors).abs() + _sum(tensors).abs())


def eager(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    from torch.nn.functional import gelu

    return gelu(x @ w + b, approximate="tanh")


def library(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """cublasLt with its bias + gelu epilogue, which is the one by tanh."""
    import torch

    return torch._addmm_activation(b, x, w, use_gelu=True, out=out)


def _low_precision(tensors: Tensors) -> torch.Tensor:
    x, w, b = tensors["x"], tensors["w"], tensors["b"]
    total = shared.low_precision_sum(tensors, b.expand(x.shape[0], w.shape[1]).clone())
    return gelu(total.double()).to(x.dtype)


SPEC = OpSpec(
    stem="matmul_bias_gelu",
    family="matmul",
    formula="out = gelu(x @ w + b); gelu by tanh",
    arguments=("x", "w", "b"),
    dtypes=("bf16", "f16"),
    full_dtypes=("f16",),
    bench_cases=BENCH_CASES,
    test_cases=TEST_CASES,
    make_inputs=shared.make_inputs_with_bias,
    output_shape=shared.output_shape,
    reference=reference,
    accumulation=accumulation,
    bytes_read=shared.bytes_read_with_bias,
    bytes_written=shared.bytes_written,
    flops=shared.flops,
    tolerances={dtype: shared.rounded_once(dtype) for dtype in ("bf16", "f16")},
    drift=lambda case: _STEEPEST * shared.drift(case),
    reduced_dim="K",
    eager=eager,
    library=library,
    low_precision=_low_precision,
    unfused_rounding=unfused_rounding,
    special_values=SpecialValues(
        "a sum that is NaN (Inf - Inf, 0 * Inf) follows the formula; gelu of +Inf is +Inf, of -Inf "
        "NaN, since -Inf * 0 is. A zero may have either sign. Subnormal inputs count; a float32 "
        "product, sum or sigmoid below 2^-126 may become 0",
        signed_zeros="any",
        subnormals="flushed",
    ),
    mutant_cases=shared.MUTANT_CASES,
    omitted_mutants=shared.OMITTED_MUTANTS,
    compute_bound=True,
    math_mode="fp32_accumulate",
    distribution=shared.DISTRIBUTION,
    tuning=shared.TUNING,
    sweep_dim="K",
)
