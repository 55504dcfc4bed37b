"""matmul_bias_relu: relu(x @ w + b) in one kernel; torch eager runs three.

M and N are fixed while K is swept: the fusion saves two round trips over an M x N output, so it
matters most where the product itself is short.
"""

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
    random_tensor,
)

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

# K = 0 leaves relu(b); extents around and off the tile and off the 16-byte vector, on each
# side alone and on all three; a long K shows a careless accumulator. special: rows of x with NaN,
# infinities, zeros and subnormal numbers.
_TEST_SHAPES = (
    (0, 16, 16),
    (16, 0, 16),
    (5, 7, 0),
    (1, 1, 1),
    (16, 16, 16),
    (128, 128, 64),
    (127, 128, 64),
    (128, 129, 64),
    (128, 128, 65),
    (33, 31, 127),
    (257, 264, 72),
    (64, 64, 4096),
    (300, 1000, 520),
)
TEST_CASES = (
    *(Case({"M": m, "N": n, "K": k}) for m, n, k in _TEST_SHAPES),
    Case({"M": 33, "N": 40, "K": 48}, layout="special"),
)


def make_inputs(case: Case, dtype: str, device: str, seed: int) -> Tensors:
    m, n, k = case.dims["M"], case.dims["N"], case.dims["K"]
    x = random_tensor((m, k), dtype, device, seed)
    # 1/sqrt(K) keeps the product's variance at one, so that relu and b both matter.
    w = random_tensor((k, n), dtype, device, seed + 1, scale=max(k, 1) ** -0.5)
    b = random_tensor((n,), dtype, device, seed + 2)
    if case.layout == "special":
        _plant_special_values(x, b)
    return {"x": x, "w": w, "b": b}


def _plant_special_values(x: torch.Tensor, b: torch.Tensor) -> None:
    import torch

    inf, tiny = float("inf"), torch.finfo(x.dtype).smallest_normal / 4
    x[0, 3] = float("nan")
    x[1, 0] = inf
    x[2, -1] = -inf
    x[3, 1], x[3, 2] = inf, -inf
    x[4] = -0.0
    x[5] = tiny
    b[0], b[1], b[2] = -0.0, 0.0, tiny


def reference(tensors: Tensors) -> torch.Tensor:
    return (tensors["x"].double() @ tensors["w"].double() + tensors["b"].double()).relu()


def accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """float32 magnitude: the size of the running sum, times the growth of its roundings.

    The sum of K terms of random signs is about the root of their summed squares on its way, and
    what it becomes where that is more. Tensor cores truncate it, by an ulp at most, once every 16
    terms: K / 16 of one sign. Arithmetic that rounds each of K products to nearest stays under
    sqrt(K). 4 covers the alignment of the 16 products, the bias and the epilogue.
    """
    x, w = tensors["x"].double(), tensors["w"].double()
    k = x.shape[1]
    running = (x.square() @ w.square()).sqrt() + tensors["b"].double().abs() + reference
    growth: float = 4.0 + k**0.5 + k / 16
    return running * growth


def unfused_rounding(tensors: Tensors) -> torch.Tensor:
    """torch rounds x @ w and x @ w + b to the output's dtype before the next kernel."""
    product = tensors["x"].double() @ tensors["w"].double()
    return product.abs() + (product + tensors["b"].double()).abs()


def eager(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (x @ w + b).relu()


def library(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """cublasLt with its bias + relu epilogue."""
    import torch

    return torch._addmm_activation(b, x, w, use_gelu=False, out=out)


def _low_precision(tensors: Tensors) -> torch.Tensor:
    """Sixteen partial products summed in the output's dtype."""
    x, w, b = tensors["x"], tensors["w"], tensors["b"]
    total = b.expand(x.shape[0], w.shape[1]).clone()
    for k in range(0, x.shape[1], 16):
        total += (x[:, k : k + 16].float() @ w[k : k + 16].float()).to(x.dtype)
    return total.relu()


def _cuda_configs(case: Case, dtype: str) -> list[Config]:
    """The tiles that csrc/matmul_bias_relu.cu is compiled for."""
    return [
        {"block_m": block_m, "block_n": block_n, "block_k": block_k, "stages": stages}
        for block_m, block_n, block_k, stages in (
            (128, 256, 64, 3),
            (128, 256, 64, 4),
            (128, 256, 32, 4),
            (256, 128, 64, 3),
            (256, 128, 32, 4),
            (128, 128, 64, 3),
            (128, 128, 32, 4),
            (128, 128, 32, 5),
            (64, 128, 64, 4),
            (64, 64, 64, 4),
        )
    ]


def _triton_configs(case: Case, dtype: str) -> list[Config]:
    """Tiles whose stages fit the 227 KB of shared memory a Hopper block may use."""
    return [
        {
            "BLOCK_M": block_m,
            "BLOCK_N": block_n,
            "BLOCK_K": block_k,
            "GROUP_M": group_m,
            "num_warps": warps,
            "num_stages": stages,
        }
        for block_m, block_n, block_k, warps, stages in (
            (128, 256, 64, 8, 3),
            (128, 256, 64, 8, 4),
            (256, 128, 64, 8, 3),
            (256, 128, 64, 8, 4),
            (128, 256, 128, 8, 2),
            (128, 128, 128, 8, 3),
            (128, 128, 64, 4, 3),
            (128, 128, 64, 4, 4),
            (128, 128, 64, 8, 4),
            (64, 256, 64, 4, 4),
            (128, 64, 64, 4, 4),
        )
        for group_m in ((8, 16) if block_m * block_n == 32768 else (8,))
    ]


SPEC = OpSpec(
    stem="matmul_bias_relu",
    family="matmul",
    formula="out = relu(x @ w + b)",
    arguments=("x", "w", "b"),
    dtypes=("bf16", "f16"),
    full_dtypes=("f16",),
    bench_cases=BENCH_CASES,
    test_cases=TEST_CASES,
    make_inputs=make_inputs,
    output_shape=lambda case: (case.dims["M"], case.dims["N"]),
    reference=reference,
    accumulation=accumulation,
    bytes_read=lambda case, dtype: (
        (case.dims["M"] * case.dims["K"] + case.dims["K"] * case.dims["N"] + case.dims["N"])
        * ITEMSIZE[dtype]
    ),
    bytes_written=lambda case, dtype: case.dims["M"] * case.dims["N"] * ITEMSIZE[dtype],
    flops=lambda case: 2 * case.dims["M"] * case.dims["N"] * case.dims["K"],
    tolerances={
        "bf16": Tolerance(
            0.5,
            0.02,
            "0.5: float32 accumulation and epilogue, rounded to bf16 once, to nearest. 0.02: that "
            "has no bias; truncation shows about 0.35",
        ),
        "f16": Tolerance(
            0.5,
            0.02,
            "0.5: float32 accumulation and epilogue, rounded to f16 once, to nearest. 0.02: that "
            "has no bias; truncation shows about 0.35",
        ),
    },
    # Tensor cores truncate the running sum towards zero, by half an ulp in the mean.
    drift=lambda case: case.dims["K"] / 32,
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
    # tiles and a long sum; smaller than a tile; odd on every side
    mutant_cases=(
        Case({"M": 96, "N": 104, "K": 1024}),
        Case({"M": 5, "N": 7, "K": 3}),
        Case({"M": 33, "N": 31, "K": 127}),
    ),
    omitted_mutants={
        "low_precision@5x7x3": "three terms are one partial product: there is nothing to sum",
    },
    compute_bound=True,
    math_mode="fp32_accumulate",
    distribution="x,b normal(0,1); w normal(0,1/K)",
    tuning={"cuda": _cuda_configs, "triton": _triton_configs},
    sweep_dim="K",
)
