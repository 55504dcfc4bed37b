"""vector_add: out = x + y, the smallest streaming kernel and the pair that teaches the models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.spec import (
    ITEMSIZE,
    Case,
    Config,
    OpSpec,
    SpecialValues,
    Tensors,
    Tolerance,
    random_tensor,
    view_from_element,
)

if TYPE_CHECKING:
    import torch

_DEFAULT_LOG2 = (12, 20, 24, 28)
_QUICK_LOG2 = (24, 28)


def _level(log2_n: int) -> str:
    if log2_n in _QUICK_LOG2:
        return "quick"
    return "default" if log2_n in _DEFAULT_LOG2 else "full"


BENCH_CASES = (
    *(
        Case({"N": 1 << log2_n}, level=_level(log2_n), baselines=log2_n in (24, 28))  # type: ignore[arg-type]
        for log2_n in range(12, 29, 2)
    ),
    Case({"N": (1 << 28) - 1}, level="default"),
    Case({"N": 1 << 28}, layout="offset1", level="default"),
)

# 0 and 1: empty and smallest; 31..33, 127, 1023, 1025: around a warp, a vector and a block;
# 65537: several tiles and a tail of one. offset1: views that start one element in; mixed1:
# only x does, so that no common 16-byte alignment exists. special: NaN, infinities, overflow,
# zeros of both signs and subnormal numbers among the others.
TEST_CASES = (
    *(Case({"N": n}) for n in (0, 1, 31, 32, 33, 127, 1023, 1025, 4096, 65537)),
    *(Case({"N": n}, layout="offset1") for n in (1, 33, 4096, 65537)),
    *(Case({"N": n}, layout="mixed1") for n in (33, 4096, 65537)),
    Case({"N": 1025}, layout="special"),
)

_INF, _NAN, _HUGE, _TINY = float("inf"), float("nan"), 3e38, 1e-40
_SPECIAL_PAIRS = (
    (_INF, 1.0),
    (-_INF, 1.0),
    (_INF, -_INF),
    (_NAN, 1.0),
    (1.0, _NAN),
    (_HUGE, _HUGE),
    (-_HUGE, -_HUGE),
    (0.0, -0.0),
    (-0.0, -0.0),
    (1.0, -1.0),
    (_TINY, _TINY),
    (-_TINY, 0.0),
    (_TINY, -_TINY),
)


def make_inputs(
    case: Case,
    dtype: str,
    device: str,
    seed: int,
    special_pairs: Sequence[tuple[float, float]] = _SPECIAL_PAIRS,
) -> Tensors:
    """Random x and y; with the layout `special`, special_pairs among them."""
    shape = (case.dims["N"],)
    x = random_tensor(shape, dtype, device, seed)
    y = random_tensor(shape, dtype, device, seed + 1)
    if case.layout == "special":
        for i, (a, b) in enumerate(special_pairs):
            # Neighbours in one vector, and alone in their warp or block at the far end.
            x[i], y[i] = a, b
            x[-1 - 64 * i], y[-1 - 64 * i] = a, b
    if case.layout in ("offset1", "mixed1"):
        x = view_from_element(x, 1)
    if case.layout == "offset1":
        y = view_from_element(y, 1)
    return {"x": x, "y": y}


def accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """What rounding to float32 before that to bf16 adds: half a float32 ulp of the sum.

    In float32 the sum is rounded once, which output_ulps says.
    """
    import torch

    return reference.abs() * (0.0 if tensors["x"].dtype == torch.float32 else 0.5)


def eager(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


def _cuda_configs(case: Case, dtype: str) -> list[Config]:
    return [
        {"threads": threads, "vectors": vectors}
        for threads in (128, 256, 512)
        for vectors in (1, 2, 4, 8)
    ]


def _triton_configs(case: Case, dtype: str) -> list[Config]:
    return [
        {"BLOCK_SIZE": block, "num_warps": warps}
        for block in (512, 1024, 2048, 4096, 8192)
        for warps in (2, 4, 8)
        if 4 <= block // (32 * warps) <= 64
    ]


SPEC = OpSpec(
    stem="vector_add",
    family="elementwise",
    formula="out = x + y",
    arguments=("x", "y"),
    dtypes=("f32", "bf16"),
    bench_cases=BENCH_CASES,
    test_cases=TEST_CASES,
    make_inputs=make_inputs,
    output_shape=lambda case: (case.dims["N"],),
    reference=lambda t: t["x"].double() + t["y"].double(),
    accumulation=accumulation,
    bytes_read=lambda case, dtype: 2 * case.dims["N"] * ITEMSIZE[dtype],
    bytes_written=lambda case, dtype: case.dims["N"] * ITEMSIZE[dtype],
    flops=lambda case: case.dims["N"],
    tolerances={
        "f32": Tolerance(
            0.5,
            0.02,
            "0.5: IEEE 754 addition rounds to nearest, once, on every side. 0.02: rounding to "
            "nearest has no bias; truncation shows about 0.35",
        ),
        "bf16": Tolerance(
            0.5,
            0.02,
            "0.5: the float32 sum of two bf16 values is rounded to nearest once more. 0.02: as in "
            "float32, ties go to even",
        ),
    },
    eager=eager,
    special_values=SpecialValues(
        "as IEEE 754 addition rounds to nearest: a zero keeps its sign (-0 only from -0 + -0), "
        "subnormal numbers are added and kept, overflow gives infinity, Inf - Inf gives NaN. Both "
        "sides compile without flush to zero, so there is nothing to choose",
        signed_zeros="kept",
        subnormals="kept",
    ),
    # a few tiles; one past a warp; odd, several blocks and a tail
    mutant_cases=(Case({"N": 4096}), Case({"N": 33}), Case({"N": 10001}, layout="offset1")),
    absent={"library": "torch.add is the vendor's kernel; no other fused call exists"},
    omitted_mutants={
        "low_precision": "a single addition in bf16 is correctly rounded already",
        "swapped_rows": "the operands have no rows",
        "repeated_row": "the operands have no rows",
    },
    tuning={"cuda": _cuda_configs, "triton": _triton_configs},
    sweep_dim="N",
)
