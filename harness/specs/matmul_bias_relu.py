"""matmul_bias_relu: relu(x @ w + b) in one kernel; torch eager runs three.

M and N are fixed while K is swept: the fusion saves two round trips over an M x N output, so it
matters most where the product itself is short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.spec import Case, OpSpec, SpecialValues, Tensors
from harness.specs import _matmul as shared

if TYPE_CHECKING:
    import torch


def _bench_case(mn: int, k: int) -> Case:
    if mn == 8192 and k in (512, 2048):
        return Case({"M": mn, "N": mn, "K": k}, level="quick", baselines=True)
    if mn == 8192 and k == 8192:
        return Case({"M": mn, "N": mn, "K": k}, level="default", baselines=True)
    return Case({"M": mn, "N": mn, "K": k})


BENCH_CASES = tuple(
    _bench_case(mn, k) for mn in (2048, 4096, 8192) for k in (256, 512, 1024, 2048, 4096, 8192)
)

TEST_CASES = (
    *(Case({"M": m, "N": n, "K": k}) for m, n, k in shared.TEST_SHAPES),
    shared.SPECIAL_CASE,
)


def reference(tensors: Tensors) -> torch.Tensor:
    return (shared.product(tensors) + tensors["b"].double()).relu()


def accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """The size of the running sum, or of what it becomes, times how often it is rounded."""
    running = shared.running_sum(tensors) + tensors["b"].double().abs() + reference
    return running * shared.growth(tensors)


def unfused_rounding(tensors: Tensors) -> torch.Tensor:
    """torch rounds x @ w and x @ w + b to the output's dtype before the next kernel."""
    product = shared.product(tensors)
    return product.abs() + (product + tensors["b"].double()).abs()


def eager(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (x @ w + b).relu()


def library(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """cublasLt with its bias + relu epilogue."""
    import torch

    return torch._addmm_activation(b, x, w, use_gelu=False, out=out)


def _low_precision(tensors: Tensors) -> torch.Tensor:
    x, w, b = tensors["x"], tensors["w"], tensors["b"]
    return shared.low_precision_sum(tensors, b.expand(x.shape[0], w.shape[1]).clone()).relu()


SPEC = OpSpec(
    stem="matmul_bias_relu",
    family="matmul",
    formula="out = relu(x @ w + b)",
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
    drift=shared.drift,
    reduced_dim="K",
    eager=eager,
    library=library,
    low_precision=_low_precision,
    unfused_rounding=unfused_rounding,
    special_values=SpecialValues(
        "relu keeps NaN; a sum that is NaN (Inf - Inf, 0 * Inf) or infinite follows the formula, "
        "and relu makes -Inf 0. A zero may have either sign, since max(-0, 0) may be either. "
        "Subnormal inputs count; a float32 product or sum below 2^-126 may become 0",
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
