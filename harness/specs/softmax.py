"""softmax over the last dimension: one read and one write when a row stays on chip."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.spec import (
    ITEMSIZE,
    Case,
    Config,
    OpSpec,
    Rung,
    SpecialValues,
    Tensors,
    Tolerance,
    random_tensor,
)

if TYPE_CHECKING:
    import torch

_QUICK = ((16384, 8192),)
_DEFAULT = (
    (32768, 4096),
    (1 << 20, 128),
    (32768, 1024),
    (8192, 32768),
    (4096, 65536),
    (2048, 1 << 17),
    (1024, 1 << 18),
)
_FULL = (
    (1 << 19, 256),
    (1 << 18, 512),
    (1 << 16, 2048),
    (8192, 16384),
    (4096, 32768),
    (1024, 8192),
    (32, 4096),
)

BENCH_CASES = (
    *(Case({"M": m, "N": n}, level="quick", baselines=True) for m, n in _QUICK),
    *(Case({"M": m, "N": n}, level="default") for m, n in _DEFAULT),
    *(Case({"M": m, "N": n}) for m, n in _FULL),
)

# Odd and prime widths defeat 16-byte rows; 1 column is exp(0)/exp(0); 33 and 129 sit one past
# a warp and a tile; 32769 and 70000 are wider than any row kept on chip in one program, 70000
# (whole 16-byte packs) is shared by several, unevenly.
# padded: rows lie in a wider storage, so the row stride is not the width. outliers: one
# large value a row, which a sum without maximum subtraction overflows on. special: rows with
# NaN, infinities, nothing but -Inf, numbers whose product with log2(e) overflows, and zeros.
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
    Case({"M": 11, "N": 257}, layout="special"),
)


def make_inputs(case: Case, dtype: str, device: str, seed: int) -> Tensors:
    m, n = case.dims["M"], case.dims["N"]
    if case.layout == "padded":
        return {"x": random_tensor((m, n + 3), dtype, device, seed)[:, :n]}
    x = random_tensor((m, n), dtype, device, seed)
    if case.layout == "outliers":
        x[:, seed % n] = 1000.0
    if case.layout == "special":
        _plant_special_rows(x)
    return {"x": x}


def _plant_special_rows(x: torch.Tensor) -> None:
    import torch

    inf, largest = float("inf"), torch.finfo(x.dtype).max
    x[0, 5] = float("nan")
    x[1, 7] = inf
    x[2, 9] = -inf
    x[3] = -inf
    x[4, :200] = -inf  # whole pieces hold nothing else
    x[5] = largest
    x[6, ::2] = -largest
    x[7, -1] = inf
    x[7, 0] = -inf
    x[8] = -0.0
    x[9] = torch.finfo(x.dtype).smallest_normal / 4


def _sum_error(n: int) -> float:
    """Relative error of a float32 sum of `n` positive terms, in eps(float32).

    A term passes about log2(n) additions of a tree after n / 256 in a row in one thread; each
    errs by half an ulp at most, in random directions.
    """
    return 0.5 * math.sqrt(math.log2(max(n, 1)) + n / 256)


def accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """float32 magnitude: x - max and its product with log2(e) are rounded before exp2.

    exp turns an absolute error of its argument into a relative one: 0.5 for the difference, 0.5
    for the product, 0.25 for the constant, each times |x - max|. Beside them 2 for exp2 (the PTX
    manual's 2^-22), 1 for the reciprocal, 0.5 for the last product and 0.5 of margin for a
    rescaled part; and the sum.
    """
    import torch

    x = tensors["x"].double()
    if x.numel() == 0:
        return reference
    distance = (x - x.amax(-1, keepdim=True)).abs()
    relative = 4.0 + _sum_error(x.shape[-1]) + 1.25 * distance
    # exp(-Inf) is 0 without error, and 0 times an infinite distance would be NaN.
    return torch.where(reference == 0, 0.0, reference * relative)


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


def _liger(x: torch.Tensor) -> torch.Tensor:
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    return LigerSoftmaxFunction.apply(x)  # type: ignore[no-any-return]


def _quack(x: torch.Tensor) -> torch.Tensor:
    from quack.softmax import softmax

    return softmax(x)  # type: ignore[no-any-return]


def _cuda_configs(case: Case, dtype: str) -> list[Config]:
    """Form 1 keeps the row in registers, 4 to 32 elements a thread; form 2 stages it in shared
    memory, 200 KB at most. Forms 4 and 5 do so over 2 to 16 blocks of 256 or 512 threads: 17 to 32
    elements a thread, or 16 to 64 KB a block."""
    n = case.dims["N"]
    row_bytes = n * ITEMSIZE[dtype]
    if row_bytes % 16 or case.layout == "padded":
        return []  # rows that are not 16-byte aligned: few instances, nothing to choose
    registers = [t for t in (8, 16, 32, 64, 128, 256, 512, 1024) if n <= 32 * t <= 8 * n]
    shared = [t for t in (128, 256, 512, 1024) if 2048 <= row_bytes <= 200 * 1024]
    clusters = [(b, b * t) for b in (2, 4, 8, 16) for t in (256, 512)]
    return [
        *({"threads_per_row": t, "form": 1} for t in registers),
        *({"threads_per_row": t, "form": 2} for t in shared),
        *(
            {"threads_per_row": t, "form": 4, "blocks_per_row": b}
            for b, t in clusters
            if row_bytes >= 32768 and n <= 32 * t < 2 * n
        ),
        *(
            {"threads_per_row": t, "form": 5, "blocks_per_row": b}
            for b, t in clusters
            if 16384 * b <= row_bytes <= 65536 * b and row_bytes >= 65536
        ),
    ]


# Shared rows: (columns of a part, warps, programs a multiprocessor) by bytes an element. Together
# they hold 32 to 64 KiB of rows on a multiprocessor, and as much of the next ones.
_PARTS = {
    2: ((4096, 4, 8), (8192, 4, 4), (8192, 8, 3), (16384, 8, 2), (32768, 16, 1)),
    4: ((4096, 8, 4), (8192, 8, 2), (8192, 16, 2), (16384, 16, 1), (16384, 32, 1)),
}


def _triton_configs(case: Case, dtype: str) -> list[Config]:
    """One read: tiles of 1 to 8 Ki elements or one row, 8 to 32 of them a thread. Looped, and
    shared by 1 to 64 programs, for wide rows."""
    n = case.dims["N"]
    width = 1 << max(n - 1, 0).bit_length()
    one_read = [
        {"ROWS": rows, "BLOCK_N": width, "num_warps": warps}
        for rows in (1, 2, 4, 8, 16, 32)
        for warps in (1, 2, 4, 8, 16, 32)
        if width <= 32768
        and (rows == 1 or 1024 <= rows * width <= (4096 if width < 1024 else 8192))
        and 8 <= rows * width // (32 * warps) <= 32
    ]
    looped = [
        {"BLOCK_N": block, "num_warps": warps, "num_stages": 1}
        for block, warps in ((8192, 32), (16384, 16), (16384, 32))
        if width >= 16384 and block < n
    ]
    shared_row = [
        {"BLOCK_N": block, "num_warps": warps, "RESIDENT": resident}
        for block, warps, resident in _PARTS[ITEMSIZE[dtype]]
        if width >= 16384 and block <= width <= 64 * block
    ]
    return one_read + looped + shared_row


SPEC = OpSpec(
    stem="softmax",
    family="row_reduction",
    formula="out = exp(x - max(x)) / sum(exp(x - max(x))) over the last dimension",
    arguments=("x",),
    dtypes=("bf16", "f32", "f16"),
    full_dtypes=("f32", "f16"),
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
            0.5,
            0.02,
            "0.5: float32 arithmetic, whose last product rounds to nearest. 0.02: rounding to "
            "nearest has no bias; what exp2 and the reciprocal share in sign is in drift",
        ),
        "bf16": Tolerance(
            0.5,
            0.02,
            "0.5: float32 arithmetic, rounded to bf16 once, to nearest. 0.02: that has no bias; "
            "truncation shows about 0.35",
        ),
        "f16": Tolerance(
            0.5,
            0.02,
            "0.5: float32 arithmetic, rounded to f16 once, to nearest. 0.02: that has no bias; "
            "truncation shows about 0.35",
        ),
    },
    # The reciprocal and the rounded sum are common to a row; errors of exp2 cancel in the quotient.
    drift=lambda case: 2.0 + _sum_error(case.dims["N"]),
    reduced_dim="N",
    eager=eager,
    peers={"liger": _liger, "quack": _quack},
    low_precision=_low_precision,
    absent={"library": "torch.softmax is the vendor's kernel; no other fused call in torch"},
    special_values=SpecialValues(
        "a row with NaN, with +Inf, or of -Inf only is a row of NaN, as the formula gives; -Inf "
        "beside finite numbers gives 0. Zeros are +0, as exp never is negative. Results below "
        "2^-126 may become 0: exp2 on the GPU flushes them (ex2.approx.ftz)",
        signed_zeros="kept",
        subnormals="flushed",
    ),
    # several rows a block; smaller than a warp; odd, one short of a tile
    mutant_cases=(Case({"M": 64, "N": 1000}), Case({"M": 3, "N": 31}), Case({"M": 17, "N": 1023})),
    omitted_mutants={
        "low_precision:f32": "float32 is the accumulation dtype",
        "truncated:f32": "float32 arithmetic inside errs by more than its last rounding",
    },
    ladders={
        "cuda": (
            Rung("naive", "reads the row three times: for the maximum, for the sum, to write"),
            Rung("online", "finds maximum and sum in one pass, so the row is read twice"),
        )
    },
    tuning={"cuda": _cuda_configs, "triton": _triton_configs},
    sweep_dim="N",
)
