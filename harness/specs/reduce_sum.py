"""reduce_sum: the sum of a whole vector in float32, one read and no write to speak of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.spec import (
    ITEMSIZE,
    Case,
    Config,
    OpSpec,
    Rung,
    SpecialValues,
    Tensors,
    Tolerance,
    view_from_element,
)
from harness.specs._sums import drift_of_sum, run_growth, terms, tree_growth

if TYPE_CHECKING:
    import torch

BENCH_CASES = (
    Case({"N": 1 << 16}),
    Case({"N": 1 << 20}, level="default"),
    Case({"N": 1 << 24}, level="default"),
    Case({"N": 1 << 26}),
    Case({"N": 1 << 28}, level="quick", baselines=True),
    Case({"N": (1 << 28) - 1}),
    Case({"N": 1 << 30}),
)

# 0 gives 0; 1, 31, 33: less than a warp and around it; 1023, 1025, 4097: around tiles; 65537 and
# 64000: several programs, with and without a tail. offset1: one element past a 16-byte boundary, so
# a head, and with 3 elements nothing else. special: NaN beside infinities; infinite: +Inf alone.
TEST_CASES = (
    *(Case({"N": n}) for n in (0, 1, 31, 33, 1023, 1025, 4097, 64000, 65537)),
    *(Case({"N": n}, layout="offset1") for n in (1, 3, 33, 65537)),
    Case({"N": 1025}, layout="special"),
    Case({"N": 4097}, layout="infinite"),
)


def make_inputs(case: Case, dtype: str, device: str, seed: int) -> Tensors:
    import torch

    n = case.dims["N"]
    x = terms((n,), n, dtype, device, seed)
    if case.layout in ("special", "infinite"):
        x[n // 2] = float("inf")
        x[3], x[4] = -0.0, torch.finfo(x.dtype).smallest_normal / 4
    if case.layout == "special":
        x[5], x[-1] = float("nan"), float("-inf")
    if case.layout == "offset1":
        x = view_from_element(x, 1)
    return {"x": x}


def accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """float32 magnitude: what partial sums are on their way, times the growth of their roundings.

    High in the tree they are parts of the sum itself; below, where there are most of them, their
    squares add up to the summed squares of the terms.
    """
    import torch

    x = tensors["x"]
    running: torch.Tensor = torch.linalg.vector_norm(x, dtype=torch.float64)
    return reference.abs() * tree_growth(x.numel()) + running * run_growth(x.numel())


def eager(x: torch.Tensor) -> torch.Tensor:
    import torch

    return x.sum(0, keepdim=True, dtype=torch.float32)


def library(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """cub::DeviceReduce."""
    from harness import _cuda

    _cuda.cub_reduce_sum(x, out)
    return out


def low_precision(tensors: Tensors) -> torch.Tensor:
    """A running sum in the input's dtype."""
    x = tensors["x"]
    total = x.new_zeros(1)
    for chunk in x.split(1):
        total += chunk
    return total.float()


def cuda_configs(case: Case, dtype: str) -> list[Config]:
    """64 to 256 KB of loads in flight on a multiprocessor."""
    return [
        {"threads": threads, "vectors": vectors, "blocks_per_sm": blocks}
        for threads, vectors, blocks in (
            (256, 8, 2),
            (256, 8, 4),
            (256, 8, 8),
            (512, 8, 1),
            (512, 8, 2),
            (512, 8, 4),
            (256, 4, 4),
            (256, 4, 8),
            (512, 4, 2),
            (512, 4, 4),
        )
    ]


def triton_configs(case: Case, dtype: str) -> list[Config]:
    """Some 64 to 192 KB in flight on a multiprocessor, as loads or as prefetched tiles; under 16 MB
    small tiles, so that every multiprocessor has one."""
    bytes_read = case.dims["N"] * ITEMSIZE[dtype]
    small = ((2, 1, 1, 8), (4, 1, 1, 4), (4, 1, 1, 8), (4, 2, 1, 8), (8, 1, 1, 4), (8, 2, 1, 4))
    large = (
        (4, 2, 1, 16),
        (4, 4, 1, 8),
        (4, 4, 1, 12),
        (4, 8, 1, 8),
        (8, 4, 1, 6),
        (8, 8, 1, 4),
        (16, 4, 1, 2),
        (4, 8, 3, 6),
        (4, 8, 4, 4),
        (8, 4, 3, 4),
        (8, 4, 4, 4),
    )
    return [
        {
            "BLOCK_SIZE": warps * 32 * loads * 16 // ITEMSIZE[dtype],
            "num_warps": warps,
            "num_stages": stages,
            "programs_per_sm": programs,
        }
        for warps, loads, stages, programs in (small if bytes_read < 16 << 20 else large)
    ]


OMITTED_MUTANTS = {
    "low_precision:f32": "float32 is the accumulation dtype",
    "truncated": "float32 arithmetic inside errs by more than its last rounding",
    "shifted_by_one": "a single number has no neighbour to be taken for",
    "swapped_rows": "a single number has no rows to swap",
    "repeated_row": "a single number has no rows to repeat",
}


def tolerances() -> dict[str, Tolerance]:
    """One for all dtypes: the inputs are exact in float32, and so is the output's dtype."""
    reason = (
        "0.5: float32 additions, of which the last rounds to nearest. 0.02: rounding to nearest "
        "has no bias; what the roundings before it share in sign is in drift"
    )
    return {dtype: Tolerance(0.5, 0.02, reason) for dtype in ("bf16", "f32", "f16")}


# What a sum of a whole vector has in common with another: squared_norm takes these facts too.
FULL_SUM: dict[str, Any] = {
    "family": "reduction",
    "arguments": ("x",),
    "dtypes": ("bf16", "f32", "f16"),
    "full_dtypes": ("f16",),
    "bench_cases": BENCH_CASES,
    "output_shape": lambda case: (1,),
    "bytes_read": lambda case, dtype: case.dims["N"] * ITEMSIZE[dtype],
    "bytes_written": lambda case, dtype: 4,
    "tolerances": tolerances(),
    # several blocks; smaller than a warp; odd and misaligned
    "mutant_cases": (
        Case({"N": 4099}),
        Case({"N": 33}),
        Case({"N": 10001}, layout="offset1"),
    ),
    "tuning": {"cuda": cuda_configs, "triton": triton_configs},
    "omitted_mutants": OMITTED_MUTANTS,
    "low_precision": low_precision,
    "out_dtype": "f32",
    "reduced_dim": "N",
    "sweep_dim": "N",
}

SPEC = OpSpec(
    stem="reduce_sum",
    formula="out = sum of x, in float32",
    test_cases=TEST_CASES,
    make_inputs=make_inputs,
    reference=lambda t: t["x"].double().sum(0, keepdim=True),
    accumulation=accumulation,
    flops=lambda case: case.dims["N"],
    drift=lambda case: drift_of_sum(case.dims["N"]),
    eager=eager,
    library=library,
    special_values=SpecialValues(
        "NaN in x gives NaN, as Inf beside -Inf does; an infinity gives itself. A sum of zero may "
        "have either sign. Subnormal numbers are added and kept",
        signed_zeros="any",
        subnormals="kept",
    ),
    distribution="normal(4/sqrt(N),1)",
    ladders={
        "cuda": (
            Rung("atomics", "an atomicAdd of every thread, scalar loads"),
            Rung("tree", "a tree in shared memory, an atomicAdd a block"),
        )
    },
    **FULL_SUM,
)
