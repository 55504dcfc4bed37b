"""vector_add: out = x + y, the smallest streaming kernel and the pair that teaches the models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.spec import (
    ITEMSIZE,
    Case,
    Config,
    OpSpec,
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
        Case({"N": 1 << log2_n}, level=_level(log2_n), baselines=log2_n in (20, 24, 28))  # type: ignore[arg-type]
        for log2_n in range(12, 29, 2)
    ),
    Case({"N": (1 << 28) - 1}, level="default"),
    Case({"N": 1 << 28}, layout="offset1", level="default"),
)

# 0 and 1: empty and smallest; 31..33, 127, 1023, 1025: around a warp, a vector and a block;
# 65537: several tiles and a tail of one. offset1: views that start one element in; mixed1:
# only x does, so that no common 16-byte alignment exists.
TEST_CASES = (
    *(Case({"N": n}) for n in (0, 1, 31, 32, 33, 127, 1023, 1025, 4096, 65537)),
    *(Case({"N": n}, layout="offset1") for n in (1, 33, 4096, 65537)),
    *(Case({"N": n}, layout="mixed1") for n in (33, 4096, 65537)),
)


def make_inputs(case: Case, dtype: str, device: str, seed: int) -> Tensors:
    shape = (case.dims["N"],)
    x = random_tensor(shape, dtype, device, seed)
    y = random_tensor(shape, dtype, device, seed + 1)
    if case.layout in ("offset1", "mixed1"):
        x = view_from_element(x, 1)
    if case.layout == "offset1":
        y = view_from_element(y, 1)
    return {"x": x, "y": y}


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
    accumulation=lambda t, reference: reference.abs(),
    bytes_read=lambda case, dtype: 2 * case.dims["N"] * ITEMSIZE[dtype],
    bytes_written=lambda case, dtype: case.dims["N"] * ITEMSIZE[dtype],
    flops=lambda case: case.dims["N"],
    tolerances={
        "f32": Tolerance(0.5, 0.02, "one correctly rounded float32 addition"),
        "bf16": Tolerance(0.5, 0.02, "float32 sum of two bf16 values, rounded once to bf16"),
    },
    eager=eager,
    absent={"library": "torch.add is the vendor's kernel; no other fused call exists"},
    omitted_mutants={
        "low_precision": "a single addition in bf16 is correctly rounded already",
        "swapped_rows": "the operands have no rows",
    },
    tuning={"cuda": _cuda_configs, "triton": _triton_configs},
    sweep_dim="N",
)
