"""softmax over the last dimension: one read and one write when a row stays on chip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.spec import ITEMSIZE, Case, Config, OpSpec, Tensors, Tolerance, random_tensor

if TYPE_CHECKING:
    import torch

_QUICK = ((32768, 4096), (16384, 8192))
_DEFAULT = ((1 << 20, 128), (32768, 1024), (4096, 32768))
_FULL = ((1 << 19, 256), (1 << 18, 512), (1 << 16, 2048), (8192, 16384), (1024, 8192), (32, 4096))

BENCH_CASES = (
    *(Case({"M": m, "N": n}, level="quick", baselines=True) for m, n in _QUICK),
    *(Case({"M": m, "N": n}, level="default", baselines=n == 1024) for m, n in _DEFAULT),
    *(Case({"M": m, "N": n}) for m, n in _FULL),
)

# Odd and prime widths defeat 16-byte rows; 1 column is exp(0)/exp(0); 33 and 129 sit one past
# a warp and a tile; 32769 and 70000 are wider than any row kept on chip in one program.
# padded: rows lie in a wider storage, so the row stride is not the width. outliers: one
# large value a row, which a sum without maximum subtraction overflows on.
TEST_CASES = (
    *(
        Case({"M": m, "N": n})
        for m, n in (
            (0, 128),
            (1, 1),
            (3, 31),
            (5, 33),
            (7, 127),
            (33, 129),
            (17, 1023),
            (9, 1025),
            (64, 4096),
            (5, 8192),
            (3, 32768),
            (2, 32769),
            (2, 70000),
            (70001, 8),
        )
    ),
    Case({"M": 13, "N": 1000}, layout="padded"),
    Case({"M": 13, "N": 4096}, layout="padded"),
    Case({"M": 13, "N": 1024}, layout="outliers"),
)


def make_inputs(case: Case, dtype: str, device: str, seed: int) -> Tensors:
    m, n = case.dims["M"], case.dims["N"]
    if case.layout == "padded":
        return {"x": random_tensor((m, n + 3), dtype, device, seed)[:, :n]}
    x = random_tensor((m, n), dtype, device, seed)
    if case.layout == "outliers":
        x[:, seed % n] = 1000.0
    return {"x": x}


def accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """float32 magnitude: the argument x - max is rounded before exp, the sum in a tree.

    exp turns an absolute error of its argument into a relative one, hence the |x - max| term;
    8 covers exp2, the reciprocal and a pairwise sum of up to 2^20 terms.
    """
    x = tensors["x"].double()
    if x.numel() == 0:
        return reference
    distance = (x - x.amax(-1, keepdim=True)).abs()
    return reference * (8.0 + 2.0 * distance)


def eager(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(-1)


def _low_precision(tensors: Tensors) -> torch.Tensor:
    """exp and a running sum kept in the input's dtype."""
    x = tensors["x"]
    exponentials = (x - x.amax(-1, keepdim=True)).exp()
    total = exponentials[..., :1].clone()
    for chunk in exponentials[..., 1:].split(1, -1):
        total += chunk
    return exponentials / total


def _cuda_configs(case: Case, dtype: str) -> list[Config]:
    """Form 1 keeps the row in registers, 4 to 32 elements a thread; form 2 stages it in shared
    memory, 200 KB at most."""
    n = case.dims["N"]
    if n * ITEMSIZE[dtype] % 16 or case.layout == "padded":
        return []  # rows that are not 16-byte aligned: few instances, nothing to choose
    registers = [t for t in (8, 16, 32, 64, 128, 256, 512, 1024) if n <= 32 * t <= 8 * n]
    shared = [t for t in (128, 256, 512, 1024) if 2048 <= n * ITEMSIZE[dtype] <= 200 * 1024]
    return [
        *({"threads_per_row": threads, "form": 1} for threads in registers),
        *({"threads_per_row": threads, "form": 2} for threads in shared),
    ]


def _triton_configs(case: Case, dtype: str) -> list[Config]:
    """One read: tiles of 1 to 32 Ki elements, 4 to 64 of them a thread. Looped, for wide rows:
    blocks of 4 to 16 Ki in a pipeline that shared memory holds."""
    width = 1 << max(case.dims["N"] - 1, 0).bit_length()
    one_read = [
        {"ROWS": rows, "BLOCK_N": width, "num_warps": warps}
        for rows in (1, 2, 4, 8, 16, 32)
        for warps in (1, 2, 4, 8, 16, 32)
        if width <= 32768
        and (rows == 1 or 1024 <= rows * width <= 16384)
        and 4 <= rows * width // (32 * warps) <= 64
    ]
    looped = [
        {"BLOCK_N": block, "num_warps": warps, "num_stages": stages}
        for block in (4096, 8192, 16384)
        for warps in (8, 16, 32)
        for stages in (1, 3, 4)
        if width >= 32768 and (stages - 1) * block * ITEMSIZE[dtype] <= 220 * 1024
    ]
    return one_read + looped


SPEC = OpSpec(
    stem="softmax",
    family="row_reduction",
    formula="out = exp(x - max(x)) / sum(exp(x - max(x))) over the last dimension",
    arguments=("x",),
    dtypes=("bf16", "f32", "f16"),
    bench_cases=BENCH_CASES,
    test_cases=TEST_CASES,
    make_inputs=make_inputs,
    output_shape=lambda case: (case.dims["M"], case.dims["N"]),
    reference=lambda t: t["x"].double().softmax(-1),
    accumulation=accumulation,
    bytes_read=lambda case, dtype: case.dims["M"] * case.dims["N"] * ITEMSIZE[dtype],
    bytes_written=lambda case, dtype: case.dims["M"] * case.dims["N"] * ITEMSIZE[dtype],
    # max, subtract, exp, add, scale
    flops=lambda case: 5 * case.dims["M"] * case.dims["N"],
    tolerances={
        "f32": Tolerance(
            0.5, 8.0, "exp2 and reciprocal are approximate and may share a sign of error"
        ),
        "bf16": Tolerance(0.5, 0.05, "float32 arithmetic, rounded once to bf16"),
        "f16": Tolerance(0.5, 0.05, "float32 arithmetic, rounded once to f16"),
    },
    eager=eager,
    low_precision=_low_precision,
    absent={"library": "torch.softmax is the vendor's kernel; no other fused call in torch"},
    omitted_mutants={
        "low_precision:f32": "float32 is the accumulation dtype",
    },
    tuning={"cuda": _cuda_configs, "triton": _triton_configs},
    sweep_dim="N",
)
