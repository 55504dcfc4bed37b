"""axpby: out = a * x + b * y, a streaming kernel with two scalars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.spec import (
    ITEMSIZE,
    Case,
    Config,
    OpSpec,
    SpecialValues,
    Tensors,
    Tolerance,
)
from harness.specs import vector_add

if TYPE_CHECKING:
    import torch

# Defaults of both launchers: powers of two, so that in float32 both products are exact.
A, B = 2.0, -0.5

BENCH_CASES = (
    Case({"N": 1 << 12}, level="default"),
    Case({"N": 1 << 20}, level="default"),
    Case({"N": 1 << 24}, level="default", baselines=True),
    Case({"N": 1 << 28}, level="quick", baselines=True),
    Case({"N": (1 << 28) - 1}),
    Case({"N": 1 << 28}, layout="offset1", level="default"),
)

# 0 and 1: empty and smallest; 33, 1023, 1025: around a warp, a vector and a block; 65537: several
# tiles and a tail of one. offset1: views that start one element in; mixed1: only x does, so that no
# common 16-byte alignment exists. special: NaN, infinities, overflow, zeros of both signs and
# subnormal numbers among the others.
TEST_CASES = (
    *(Case({"N": n}) for n in (0, 1, 33, 1023, 1025, 4096, 65537)),
    *(Case({"N": n}, layout="offset1") for n in (1, 33, 4096)),
    *(Case({"N": n}, layout="mixed1") for n in (33, 4096)),
    Case({"N": 1025}, layout="special"),
)

_INF, _NAN, _HUGE, _TINY = float("inf"), float("nan"), 3e38, 2.0**-130
_SPECIAL_PAIRS = (
    (_INF, 1.0),
    (-_INF, 1.0),
    (_INF, _INF),
    (_NAN, 1.0),
    (1.0, _NAN),
    (_HUGE, -_HUGE),
    (0.0, 0.0),
    (-0.0, 0.0),
    (1.0, 4.0),
    (_TINY, _TINY),
    (-_TINY, 0.0),
    (_TINY, 4 * _TINY),
)


def make_inputs(case: Case, dtype: str, device: str, seed: int) -> Tensors:
    return vector_add.make_inputs(case, dtype, device, seed, _SPECIAL_PAIRS)


def eager(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return A * x + B * y


def _cuda_configs(case: Case, dtype: str) -> list[Config]:
    return [
        {"threads": threads, "vectors": vectors}
        for threads in (64, 128, 256, 512)
        for vectors in (1, 2)
    ]


def _triton_configs(case: Case, dtype: str) -> list[Config]:
    return [
        {"BLOCK_SIZE": 32 * warps * elements, "num_warps": warps}
        for warps in (2, 4, 8)
        for elements in (4, 8, 16)
    ]


SPEC = OpSpec(
    stem="axpby",
    family="elementwise",
    formula="out = a * x + b * y, with a = 2 and b = -1/2 here",
    arguments=("x", "y"),
    dtypes=("f32", "bf16"),
    full_dtypes=("bf16",),
    bench_cases=BENCH_CASES,
    test_cases=TEST_CASES,
    make_inputs=make_inputs,
    output_shape=lambda case: (case.dims["N"],),
    reference=lambda t: A * t["x"].double() + B * t["y"].double(),
    accumulation=vector_add.accumulation,
    bytes_read=lambda case, dtype: 2 * case.dims["N"] * ITEMSIZE[dtype],
    bytes_written=lambda case, dtype: case.dims["N"] * ITEMSIZE[dtype],
    flops=lambda case: 3 * case.dims["N"],
    tolerances={
        "f32": Tolerance(
            0.5,
            0.02,
            "0.5: products with powers of two are exact, and their sum rounds to nearest, once. "
            "0.02: rounding to nearest has no bias; truncation shows about 0.35",
        ),
        "bf16": Tolerance(
            0.5,
            0.02,
            "0.5: the float32 sum of two exact products is rounded to nearest once more. 0.02: as "
            "in float32, ties go to even",
        ),
    },
    eager=eager,
    special_values=SpecialValues(
        "as IEEE 754 arithmetic in float32: a zero keeps the sign of the sum, subnormal numbers "
        "are kept, Inf - Inf gives NaN. A sum beyond the dtype is infinite; so is one below it "
        "whose products lie beyond float32",
        signed_zeros="kept",
        subnormals="kept",
    ),
    # a few tiles; one past a warp; odd, several blocks and a tail
    mutant_cases=(Case({"N": 4096}), Case({"N": 33}), Case({"N": 10001}, layout="offset1")),
    absent={
        "library": "no fused call with two factors: torch.add's alpha scales one of its operands"
    },
    omitted_mutants={
        "low_precision": "exact products and one addition are correctly rounded in bf16 already",
        "swapped_rows": "the operands have no rows",
        "repeated_row": "the operands have no rows",
    },
    tuning={"cuda": _cuda_configs, "triton": _triton_configs},
    sweep_dim="N",
)
