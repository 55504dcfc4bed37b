"""rms_norm over the last dimension: one read and one write when a row stays on chip."""

from __future__ import annotations

import math
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

EPS = 1e-6  # the launchers' default

_QUICK = ((16384, 8192),)
_DEFAULT = (
    (1 << 20, 128),  # queries and keys, normalised head by head
    (32768, 1024),
    (8192, 32768),
    (4096, 65536),
    (1024, 1 << 18),
)
_FULL = ((32768, 4096), (8192, 16384), (2048, 1 << 17), (16384, 5120), (16384, 7168))

BENCH_CASES = (
    *(Case({"M": m, "N": n}, level="quick", baselines=True) for m, n in _QUICK),
    *(Case({"M": m, "N": n}, level="default") for m, n in _DEFAULT),
    *(Case({"M": m, "N": n}) for m, n in _FULL),
)

# Odd and prime widths defeat 16-byte rows; 33 and 129 sit one past a warp and a tile; 40000 and
# 40001 are wider than one program's registers, in whole packs and not. padded: rows lie in a wider
# storage, whole packs apart. offset1: every tensor begins one element past a 16-byte boundary.
# special: rows of NaN, infinities, squares that overflow, zeros and subnormal numbers, and such
# weights.
TEST_CASES = (
    *(
        Case({"M": m, "N": n})
        for m, n in (
            (0, 128),
            (1, 1),
            (3, 31),
            (7, 127),
            (33, 129),
            (65, 256),
            (17, 1023),
            (13, 1000),
            (5, 5120),
            (3, 16384),
            (1, 40000),
            (1, 40001),
            (5001, 8),
        )
    ),
    Case({"M": 13, "N": 1000}, layout="padded"),
    Case({"M": 5, "N": 1000}, layout="offset1"),
    Case({"M": 11, "N": 257}, layout="special"),
)
# several rows a block; smaller than a warp; odd, one short of a tile
MUTANT_CASES = (Case({"M": 64, "N": 1000}), Case({"M": 2, "N": 31}), Case({"M": 17, "N": 1023}))


def rows_of(case: Case, dtype: str, device: str, seed: int) -> torch.Tensor:
    m, n = case.dims["M"], case.dims["N"]
    if case.layout == "padded":
        return random_tensor((m, n + 8), dtype, device, seed)[:, :n]
    x = random_tensor((m, n), dtype, device, seed)
    if case.layout == "offset1":
        return view_from_element(x.view(-1), 1).view(m, n)
    return x


def weights_of(case: Case, dtype: str, device: str, seed: int) -> torch.Tensor:
    w = random_tensor((case.dims["N"],), dtype, device, seed)
    if case.layout == "special":
        for column, value in enumerate((0.0, -0.0, math.inf, -math.inf, math.nan)):
            w[40 + column] = value
    return view_from_element(w, 1) if case.layout == "offset1" else w


def make_inputs(case: Case, dtype: str, device: str, seed: int) -> Tensors:
    x = rows_of(case, dtype, device, seed)
    if case.layout == "special":
        plant_special_rows(x)
    return {"x": x, "w": weights_of(case, dtype, device, seed + 1)}


def plant_special_rows(x: torch.Tensor) -> None:
    import torch

    inf, largest = float("inf"), torch.finfo(x.dtype).max
    x[0, 5] = float("nan")
    x[1, 7] = inf
    x[2, 9] = -inf
    x[3] = -inf
    x[4] = largest  # in f32 and bf16 its squares overflow
    x[5, ::2] = -largest
    x[6] = 0.0
    x[7] = -0.0
    x[8] = torch.finfo(x.dtype).smallest_normal / 4


def normalized(rows: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """float64. A sum of squares beyond float32's range is infinite, as it is inside the op."""
    import torch

    total = rows.square().sum(-1, keepdim=True)
    total = torch.where(total > torch.finfo(torch.float32).max, math.inf, total)
    return rows * (total / rows.shape[-1] + EPS).rsqrt() * w.double()


def root_error(n: int) -> float:
    """Relative error of 1 / sqrt(mean of `n` squares + eps), in eps(float32).

    A square passes about log2(n) additions of a tree after n / 256 in a row in one thread; each
    errs by half an ulp at most, in random directions. The root halves that, as it halves what the
    product with 1 / n, 1 / n itself and the addition of eps err by: 0.75. rsqrt errs by 1.1 (the
    PTX manual's 2^-22.9).
    """
    return 0.25 * math.sqrt(math.log2(max(n, 1)) + n / 256) + 0.75 + 1.1


def accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """float32 magnitude: the root's error, and half an ulp for each of the two products."""
    return reference.abs() * (root_error(tensors["x"].shape[-1]) + 1.0)


def eager(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    from torch.nn.functional import rms_norm

    return rms_norm(x, w.shape, w, EPS)


def careless(rows: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Squares, their running sum and the products kept in the input's dtype."""
    squares = rows * rows
    total = squares[..., :1].clone()
    for column in squares[..., 1:].split(1, -1):
        total += column
    return rows * (total / rows.shape[-1] + EPS).rsqrt() * w


def _liger(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    # "gemma": float32 throughout; the default, "llama", rounds before it multiplies by w
    return LigerRMSNormFunction.apply(x, w, EPS, 0.0, "gemma", False)  # type: ignore[no-any-return]


def _quack(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    from quack.rmsnorm import rmsnorm

    return rmsnorm(x, w, eps=EPS)  # type: ignore[no-any-return]


def cuda_configs(case: Case, dtype: str, n_inputs: int = 1) -> list[Config]:
    """Form 1: 1 to 8 packs of 16 bytes a thread, short rows also 2 or 4 at a time. Form 2: 32 to
    128 KiB of all inputs staged by each block, up to 192 by a single one."""
    n = case.dims["N"]
    n_packs, rest = divmod(n * ITEMSIZE[dtype], 16)
    if rest or case.layout == "offset1":
        return []  # rows that are not 16-byte aligned: few instances, nothing to choose
    short = [
        {"form": 1, "threads_per_row": threads, "rows_per_thread": rows}
        for threads in (8, 16, 32)
        for packs, rows in ((1, 4), (1, 2), (2, 2), (4, 1))
        if packs * threads // 2 < n_packs <= packs * threads
    ]
    long = [
        {"form": 1, "threads_per_row": threads}
        for threads in (64, 128, 256, 512)
        if threads < n_packs <= 8 * threads
    ]
    kib = n_packs * n_inputs / 64  # staged by all blocks
    staged = [
        {"form": 2, "threads_per_row": blocks * threads, "blocks_per_row": blocks}
        for blocks in (1, 2, 4, 8, 16)
        for threads in (256, 512, 1024)
        if (threads != 256 if blocks == 1 else threads != 1024)
        and 32 * blocks < kib <= (192 if blocks == 1 else 128 * blocks)
    ]
    return short + long + staged


def triton_configs(
    case: Case, dtype: str, parts: dict[int, tuple[tuple[int, int, int], ...]]
) -> list[Config]:
    """One read: tiles of 1 to 4 Ki elements or one or two rows, 8 to 32 of them a thread. Looped,
    and shared by the programs of `parts`, for wide rows."""
    n = case.dims["N"]
    width = 1 << max(n - 1, 0).bit_length()
    one_read = [
        {"ROWS": rows, "BLOCK_N": width, "num_warps": warps}
        for rows in (1, 2, 4, 8, 16, 32)
        for warps in (1, 2, 4, 8, 16, 32)
        if width * ITEMSIZE[dtype] <= 65536
        and (rows == 1 or 1024 <= rows * width <= 4096)
        and 8 <= rows * width // (32 * warps) <= 32
    ]
    looped = [
        {"BLOCK_N": block, "num_warps": warps, "num_stages": 1}
        for block, warps in ((8192, 16), (8192, 32), (16384, 32))
        if width >= 65536
    ]
    shared_row = [
        {"BLOCK_N": block, "num_warps": warps, "RESIDENT": resident}
        for block, warps, resident in parts[ITEMSIZE[dtype]]
        if width >= 16384 and block <= width <= 64 * block
    ]
    return one_read + looped + shared_row


# Shared rows: (columns of a part, warps, programs a multiprocessor) by bytes an element. Together
# they hold 32 to 48 KiB of rows on a multiprocessor, and as much of the next ones.
_PARTS = {
    2: ((4096, 4, 6), (4096, 8, 4), (4096, 8, 5), (8192, 8, 2), (8192, 8, 3)),
    4: ((2048, 8, 6), (4096, 8, 2), (4096, 8, 3), (8192, 16, 1)),
}


def rounded_once(dtype: str) -> Tolerance:
    if dtype == "f32":
        return Tolerance(
            0.5,
            0.02,
            "0.5: float32 arithmetic, whose last product rounds to nearest. 0.02: rounding to "
            "nearest has no bias; what rsqrt and the sum of a row share in sign is in drift",
        )
    return Tolerance(
        0.5,
        0.02,
        f"0.5: float32 arithmetic, rounded to {dtype} once, to nearest. 0.02: that has no bias; "
        "truncation shows about 0.35",
    )


DTYPES = ("bf16", "f32", "f16")
OMITTED_MUTANTS = {
    "low_precision:f32": "float32 is the accumulation dtype",
    "truncated:f32": "float32 arithmetic inside errs by more than its last rounding",
}
OVERFLOW = (
    "A row whose squares sum to more than float32 holds has the root 0: 0 for its finite elements, "
    "NaN for infinite ones. A row with NaN is a row of NaN; Inf in w gives Inf, and NaN where it "
    "meets 0. Zeros have the sign of the product. "
)

SPEC = OpSpec(
    stem="rms_norm",
    family="row_reduction",
    formula="out = x * rsqrt(mean(x^2) + 1e-6) * w over the last dimension",
    arguments=("x", "w"),
    dtypes=DTYPES,
    full_dtypes=("f32", "f16"),
    bench_cases=BENCH_CASES,
    test_cases=TEST_CASES,
    make_inputs=make_inputs,
    output_shape=lambda case: (case.dims["M"], case.dims["N"]),
    reference=lambda t: normalized(t["x"].double(), t["w"]),
    accumulation=accumulation,
    bytes_read=lambda case, dtype: (case.dims["M"] + 1) * case.dims["N"] * ITEMSIZE[dtype],
    bytes_written=lambda case, dtype: case.dims["M"] * case.dims["N"] * ITEMSIZE[dtype],
    # square, add, two products
    flops=lambda case: 4 * case.dims["M"] * case.dims["N"],
    tolerances={dtype: rounded_once(dtype) for dtype in DTYPES},
    # The root is common to a row.
    drift=lambda case: root_error(case.dims["N"]),
    reduced_dim="N",
    eager=eager,
    peers={"liger": _liger, "quack": _quack},
    low_precision=lambda t: careless(t["x"], t["w"]),
    absent={"library": "torch.nn.functional.rms_norm is torch's own fused kernel: the row torch"},
    special_values=SpecialValues(
        OVERFLOW + "Subnormal numbers may become 0 on the way: rsqrt on the GPU flushes them",
        signed_zeros="kept",
        subnormals="flushed",
    ),
    mutant_cases=MUTANT_CASES,
    omitted_mutants=OMITTED_MUTANTS,
    tuning={
        "cuda": cuda_configs,
        "triton": lambda case, dtype: triton_configs(case, dtype, _PARTS),
    },
    sweep_dim="N",
)
