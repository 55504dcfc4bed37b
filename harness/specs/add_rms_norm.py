"""add_rms_norm: a residual added, h = x + r, and the sum normalised: two reads and two writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.spec import ITEMSIZE, Case, OpSpec, Output, SpecialValues, Tensors, Tolerance
from harness.specs import rms_norm as rms

if TYPE_CHECKING:
    import torch

_QUICK = ((16384, 8192),)
_DEFAULT = ((1 << 20, 128), (2048, 65536))
_FULL = (
    (32768, 1024),
    (32768, 4096),
    (8192, 16384),
    (4096, 32768),
    (512, 1 << 18),
    (1024, 1 << 17),
    (16384, 5120),
    (16384, 7168),
)

BENCH_CASES = (
    *(Case({"M": m, "N": n}, level="quick", baselines=True) for m, n in _QUICK),
    *(Case({"M": m, "N": n}, level="default") for m, n in _DEFAULT),
    *(Case({"M": m, "N": n}) for m, n in _FULL),
)


def make_inputs(case: Case, dtype: str, device: str, seed: int) -> Tensors:
    x, r = (rms.rows_of(case, dtype, device, seed + offset) for offset in (0, 2))
    if case.layout == "special":
        rms.plant_special_rows(x)
        r[4] = 0.0  # the sum of the largest numbers would be infinite
        r[6:9] = -x[6:9]
        r[9, 3], x[9, 3] = float("inf"), -float("inf")
    return {"x": x, "r": r, "w": rms.weights_of(case, dtype, device, seed + 1)}


def _sum(tensors: Tensors) -> torch.Tensor:
    return tensors["x"].double() + tensors["r"].double()


def _reference(tensors: Tensors) -> torch.Tensor:
    return rms.normalized(_sum(tensors), tensors["w"])


def accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """That of rms_norm, and half an ulp for the sum x + r."""
    return rms.accumulation(tensors, reference) + 0.5 * reference.abs()


def _sum_accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """What rounding to float32 before that to 16 bits adds: half a float32 ulp of the sum."""
    return reference.abs() * (0.5 if tensors["x"].itemsize == 2 else 0.0)


def eager(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    h = x + r
    return rms.eager(h, w), h


def _low_precision(tensors: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    h = tensors["x"] + tensors["r"]
    return rms.careless(h, tensors["w"]), h


# It rounds x + r before it takes the norm, as torch does.
def _liger(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction

    apply = LigerFusedAddRMSNormFunction.apply
    return apply(x, r, w, rms.EPS, 0.0, "gemma", False)  # type: ignore[no-any-return]


def _quack(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    from quack.rmsnorm import rmsnorm

    return rmsnorm(x, w, residual=r, eps=rms.EPS, prenorm=True)  # type: ignore[no-any-return]


# As in rms_norm; a program waits for x and for r, 32 to 64 KiB a multiprocessor.
_PARTS = {
    2: ((4096, 8, 2), (4096, 8, 3), (4096, 8, 4), (8192, 8, 2), (8192, 16, 1)),
    4: ((2048, 8, 3), (2048, 8, 4), (4096, 8, 2), (4096, 16, 1)),
}


def _exact_sum(dtype: str) -> Tolerance:
    return Tolerance(
        0.5,
        0.02,
        f"0.5: one float32 sum, rounded to nearest and so stored as {dtype}. 0.02: that has no "
        "bias; truncation shows about 0.35",
    )


SPEC = OpSpec(
    stem="add_rms_norm",
    family="row_reduction",
    formula="h = x + r; out = h * rsqrt(mean(h^2) + 1e-6) * w over the last dimension, of h before "
    "it is rounded",
    arguments=("x", "r", "w"),
    dtypes=rms.DTYPES,
    full_dtypes=("f32", "f16"),
    bench_cases=BENCH_CASES,
    test_cases=rms.TEST_CASES,
    make_inputs=make_inputs,
    output_shape=lambda case: (case.dims["M"], case.dims["N"]),
    further_outputs=(
        Output(
            "h",
            shape=lambda case: (case.dims["M"], case.dims["N"]),
            reference=_sum,
            accumulation=_sum_accumulation,
            tolerances={dtype: _exact_sum(dtype) for dtype in rms.DTYPES},
        ),
    ),
    reference=_reference,
    accumulation=accumulation,
    # torch rounds h before it takes the norm: each element errs, and with all of them the root
    unfused_rounding=lambda t: 2.0 * _reference(t).abs(),
    bytes_read=lambda case, dtype: (2 * case.dims["M"] + 1) * case.dims["N"] * ITEMSIZE[dtype],
    bytes_written=lambda case, dtype: 2 * case.dims["M"] * case.dims["N"] * ITEMSIZE[dtype],
    # the sum; square, add, two products
    flops=lambda case: 5 * case.dims["M"] * case.dims["N"],
    tolerances={dtype: rms.rounded_once(dtype) for dtype in rms.DTYPES},
    # The root is common to a row.
    drift=lambda case: rms.root_error(case.dims["N"]),
    reduced_dim="N",
    eager=eager,
    peers={"liger": _liger, "quack": _quack},
    unfused_peers=("liger",),
    low_precision=_low_precision,
    absent={"library": "torch has no call that adds a residual and normalises; eager is two"},
    special_values=SpecialValues(
        "h as IEEE 754 addition rounds: Inf - Inf is NaN, subnormal numbers may become 0. "
        + rms.OVERFLOW,
        signed_zeros="kept",
        subnormals="flushed",
    ),
    mutant_cases=rms.MUTANT_CASES,
    omitted_mutants={
        **rms.OMITTED_MUTANTS,
        "h.low_precision": "a single addition in 16 bits is correctly rounded already",
    },
    tuning={
        "cuda": lambda case, dtype: rms.cuda_configs(case, dtype, n_inputs=2),
        "triton": lambda case, dtype: rms.triton_configs(case, dtype, _PARTS),
    },
    sweep_dim="N",
)
