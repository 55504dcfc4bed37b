"""matmul: x @ w, either operand row-major or transposed; the product that every library tunes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.spec import Case, Level, OpSpec, SpecialValues, Tensors
from harness.specs import _matmul as shared
from harness.specs._matmul_ladder import CUDA_RUNGS, TRITON_RUNGS

if TYPE_CHECKING:
    import torch

_LAYOUTS = ("nt", "tn", "tt")


def _square(n: int, level: Level, layout: str = "contiguous") -> Case:
    return Case(
        {"M": n, "N": n, "K": n},
        layout=layout,
        level=level,
        baselines=layout == "contiguous" and n in (4096, 8192),
        all_dtypes=layout == "contiguous" and n in (4096, 8192),
    )


# Projections of a large language model, 8192 tokens: (N, K), those in _DEFAULT_PROJECTIONS by
# default.
_PROJECTIONS = tuple((n, k) for n in (4096, 14336, 28672) for k in (4096, 8192))
_DEFAULT_PROJECTIONS = ((4096, 4096), (14336, 4096))

# The figures that people quote, 4096 and 8192 cubed, are wanted in both dtypes by default.
# 4095x4097x4093: no row of any operand at a 16-byte boundary but the first; K = 4092: rows at 8
# bytes.
BENCH_CASES = (
    _square(4096, "quick"),
    _square(8192, "quick"),
    *(_square(n, "default") for n in (512, 1024, 2048)),
    *(
        Case(
            {"M": 8192, "N": n, "K": k},
            level="default" if (n, k) in _DEFAULT_PROJECTIONS else "full",
        )
        for n, k in _PROJECTIONS
    ),
    _square(16384, "full"),
    *(_square(n, "full", layout) for n in (4096, 8192) for layout in _LAYOUTS),
    Case({"M": 4095, "N": 4097, "K": 4093}),
    Case({"M": 4096, "N": 4096, "K": 4092}),
)

# In the other layouts: each operand's own extent and K off the vector, alone and together; K = 0.
# offset1: storage that begins an element in, so that no row lies at a 16-byte boundary.
_LAYOUT_SHAPES = (
    (5, 7, 0),
    (1, 1, 1),
    (127, 136, 64),
    (128, 129, 72),
    (136, 128, 65),
    (33, 31, 127),
)
TEST_CASES = (
    *(Case({"M": m, "N": n, "K": k}) for m, n, k in shared.TEST_SHAPES),
    shared.SPECIAL_CASE,
    *(
        Case({"M": m, "N": n, "K": k}, layout=layout)
        for layout in _LAYOUTS
        for m, n, k in (*_LAYOUT_SHAPES, (264, 272, 200))
    ),
    *(Case({"M": 72, "N": 80, "K": 88}, layout=layout) for layout in ("offset1", "tt_offset1")),
)


def reference(tensors: Tensors) -> torch.Tensor:
    return shared.product(tensors)


def accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """The size of the running sum, or of what it becomes, times how often it is rounded."""
    return (shared.running_sum(tensors) + reference.abs()) * shared.growth(tensors)


def eager(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.mm(x, w)


def library(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """cublasLt with the fastest of the algorithms that it suggests; the first call searches."""
    from harness.cublaslt import best_matmul

    return best_matmul(x, w, out)


def _low_precision(tensors: Tensors) -> torch.Tensor:
    x, w = tensors["x"], tensors["w"]
    return shared.low_precision_sum(tensors, x.new_zeros(x.shape[0], w.shape[1]))


SPEC = OpSpec(
    stem="matmul",
    family="matmul",
    formula="out = x @ w",
    arguments=("x", "w"),
    dtypes=("bf16", "f16"),
    bench_cases=BENCH_CASES,
    test_cases=TEST_CASES,
    make_inputs=shared.make_inputs,
    output_shape=shared.output_shape,
    reference=reference,
    accumulation=accumulation,
    bytes_read=shared.bytes_read,
    bytes_written=shared.bytes_written,
    flops=shared.flops,
    tolerances={dtype: shared.rounded_once(dtype) for dtype in ("bf16", "f16")},
    drift=shared.drift,
    reduced_dim="K",
    eager=eager,
    low_precision=_low_precision,
    library=library,
    ladders={"cuda": CUDA_RUNGS, "triton": TRITON_RUNGS},
    special_values=SpecialValues(
        "a sum that is NaN (Inf - Inf, 0 * Inf) or infinite follows the formula. A zero may have "
        "either sign, since sums begin at +0. Subnormal inputs count; a float32 product or sum "
        "below 2^-126 may become 0",
        signed_zeros="any",
        subnormals="flushed",
    ),
    mutant_cases=(*shared.MUTANT_CASES, Case({"M": 33, "N": 40, "K": 127}, layout="tt")),
    omitted_mutants=shared.OMITTED_MUTANTS,
    compute_bound=True,
    math_mode="fp32_accumulate",
    distribution="x normal(0,1); w normal(0,1/K)",
    tuning=shared.TUNING,
    sweep_dim="K",
    full_dtypes=("f16",),
)
