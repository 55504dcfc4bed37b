"""layer_norm over the last dimension: one read and one write when a row stays on chip."""

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
)
from harness.specs import rms_norm as rms

if TYPE_CHECKING:
    import torch

EPS = 1e-5  # the launchers' default

_QUICK = ((32768, 4096), (16384, 8192))
_DEFAULT = ((32768, 1024), (8192, 16384), (8192, 32768), (2048, 1 << 17))
_FULL = ((4096, 65536), (1024, 1 << 18), (1 << 20, 128), (16384, 5120))
_WITH_BASELINES = (32768, 1 << 17)

BENCH_CASES = (
    *(Case({"M": m, "N": n}, level="quick", baselines=True) for m, n in _QUICK),
    *(Case({"M": m, "N": n}, level="default", baselines=n in _WITH_BASELINES) for m, n in _DEFAULT),
    *(Case({"M": m, "N": n}) for m, n in _FULL),
)

# Odd and prime widths defeat 16-byte rows; one column has no variance; 33 and 129 sit one past a
# warp and a tile; 12000 and 16384 have programs that stay; 20000 and 20001 are wider than one
# program's registers, in whole packs and not.
# padded: rows lie in a wider storage. offset1: every tensor begins one element past a 16-byte
# boundary. shifted: rows far from zero, whose variance E[x^2] - E[x]^2 would lose. special: rows of
# NaN, infinities, squares that overflow, zeros and subnormal numbers, and such parameters.
TEST_CASES = (
    *(
        Case({"M": m, "N": n})
        for m, n in (
            (0, 128),
            (3, 1),
            (3, 31),
            (33, 129),
            (65, 256),
            (17, 1023),
            (13, 1000),
            (3, 16384),
            (5, 12000),
            (1, 20000),
            (1, 20001),
            (2001, 8),
        )
    ),
    Case({"M": 13, "N": 1000}, layout="padded"),
    Case({"M": 5, "N": 1000}, layout="offset1"),
    Case({"M": 5, "N": 1000}, layout="shifted"),
    Case({"M": 5, "N": 1023}, layout="shifted"),
    Case({"M": 11, "N": 257}, layout="special"),
)


def make_inputs(case: Case, dtype: str, device: str, seed: int) -> Tensors:
    x = rms.rows_of(case, dtype, device, seed)
    w, b = (parameter_of(case, dtype, device, seed + offset) for offset in (1, 2))
    if case.layout == "shifted":
        x += 100.0
    if case.layout == "special":
        plant_special_rows(x)
        for column, value in enumerate((0.0, -0.0, math.nan)):
            w[40 + column] = value
        for column, value in enumerate((math.inf, -math.inf, math.nan)):
            b[50 + column] = value
    return {"x": x, "w": w, "b": b}


def parameter_of(case: Case, dtype: str, device: str, seed: int) -> torch.Tensor:
    plain = Case(case.dims, "offset1" if case.layout == "offset1" else "contiguous")
    return rms.weights_of(plain, dtype, device, seed)


def plant_special_rows(x: torch.Tensor) -> None:
    import torch

    inf, large = float("inf"), min(1e30, torch.finfo(x.dtype).max)
    x[0, 5] = float("nan")
    x[1, 7] = inf
    x[2, 9] = -inf
    x[3] = -inf
    x[4, ::2], x[4, 1::2] = large, -large  # in f32 and bf16 the squares overflow
    x[5] = 7.0
    x[6] = 0.0
    x[7] = -0.0
    x[8] = torch.finfo(x.dtype).smallest_normal / 4


def statistics(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(x - mean, mean, rstd) in float64. A sum of squares beyond float32's range is infinite, as it
    is inside the op."""
    import torch

    rows = x.double()
    mean = rows.mean(-1, keepdim=True)
    distances = (rows - mean).square().sum(-1, keepdim=True)
    distances = torch.where(distances > torch.finfo(torch.float32).max, math.inf, distances)
    return rows - mean, mean, (distances / x.shape[-1] + EPS).rsqrt()


def reference(tensors: Tensors) -> torch.Tensor:
    centred, _, rstd = statistics(tensors["x"])
    return centred * rstd * tensors["w"].double() + tensors["b"].double()


def sum_error(n: int) -> float:
    """Relative error of a float32 sum of `n` terms, in eps(float32).

    A term passes about log2(n) additions of a tree after n / 256 in a row in one thread; each
    errs by half an ulp at most, in random directions.
    """
    return 0.5 * math.sqrt(math.log2(max(n, 1)) + n / 256)


def root_error(n: int) -> float:
    """Relative error of 1 / sqrt(variance + eps), in eps(float32).

    The root halves the error of the sum of squares, and the three half ulps of a square, the
    division by n and the addition of eps: 0.75. rsqrt errs by 1.1 (the PTX manual's 2^-22.9).
    """
    return 0.5 * sum_error(n) + 0.75 + 1.1


def accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """float32 magnitude: what w * rstd * (x - mean) rounds before b is added.

    The difference, two products and the root are relative to it; the mean errs by its sum and a
    division, relative to itself, and by the sum's terms of random signs.
    """
    x = tensors["x"]
    n = x.shape[-1]
    centred, mean, rstd = statistics(x)
    spread = centred.square().mean(-1, keepdim=True).sqrt() / max(n, 1) ** 0.5
    of_mean = (mean.abs() + spread) * (sum_error(n) + 0.5)
    total: torch.Tensor = centred.abs() * (root_error(n) + 1.5) + of_mean
    return (total * rstd * tensors["w"].double().abs()).nan_to_num(0.0)


def eager(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    from torch.nn.functional import layer_norm

    return layer_norm(x, w.shape, w, b, EPS)


def _low_precision(tensors: Tensors) -> torch.Tensor:
    """Running sums, differences and products kept in the input's dtype."""
    x, w, b = tensors.values()
    centred = x - running_sum(x) / x.shape[-1]
    variance = running_sum(centred * centred) / x.shape[-1]
    return centred * (variance + EPS).rsqrt() * w + b


def running_sum(rows: torch.Tensor) -> torch.Tensor:
    total = rows[..., :1].clone()
    for column in rows[..., 1:].split(1, -1):
        total += column
    return total


# Not quack's: its layer_norm has no bias.
def _liger(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction

    return LigerLayerNormFunction.apply(x, w, b, EPS)  # type: ignore[no-any-return]


# Form 2: (threads, packs of 16 bytes a thread) in each of 1, and in each of 2 to 16 blocks.
_ONE_BLOCK = ((128, 4), (256, 2), (256, 4), (512, 2), (512, 4))
_CLUSTER_BLOCK = ((256, 4), (512, 2), (512, 4))


def _cuda_configs(case: Case, dtype: str) -> list[Config]:
    """Form 1: 1 to 4 packs of 16 bytes a thread, of 512 threads also 8. Form 2: more than half of
    the packs that its blocks have room for."""
    n_packs, rest = divmod(case.dims["N"] * ITEMSIZE[dtype], 16)
    if rest or case.layout == "offset1":
        return []  # rows that are not 16-byte aligned: one form, nothing to choose
    registers = [
        {"threads_per_row": threads, "form": 1}
        for threads in (8, 16, 32, 64, 128, 256, 512)
        for packs in [1 if threads < 32 else 8 if threads == 512 else 4]
        if threads // 2 < n_packs <= packs * threads and n_packs <= 4 * max(threads, 512)
    ]
    blocks_of = [
        *((1, *block) for block in _ONE_BLOCK),
        *((blocks, *block) for blocks in (2, 4, 8, 16) for block in _CLUSTER_BLOCK),
        *([(16, 512, 8)] if dtype == "f32" else []),
    ]
    resident = [
        {"threads_per_row": blocks * threads, "form": 2, "blocks_per_row": blocks}
        for blocks, threads, packs in blocks_of
        if blocks * threads * packs // 2 < n_packs <= blocks * threads * packs
    ]
    return registers + resident


# Programs that stay: (columns of a row or of a part, warps, programs a multiprocessor) by bytes an
# element. They hold 32 KiB of rows on a multiprocessor or more, as much of the next ones, and in
# registers as much of w and of b.
_PARTS = {
    2: ((4096, 4, 4), (8192, 8, 2), (16384, 16, 1)),
    4: ((2048, 4, 4), (4096, 8, 2), (8192, 16, 1), (16384, 16, 1), (16384, 32, 1)),
}


def _triton_configs(case: Case, dtype: str) -> list[Config]:
    def wanted(config: Config) -> bool:
        if "ROWS" in config:
            # one read of wider rows reads w and b as often: it lost, 212 us against 148
            return config["BLOCK_N"] <= 8192
        if "RESIDENT" not in config:  # two reads lost at 131072 columns, 369 us against 344
            return case.dims["N"] > 1 << 17
        # parts of more than 32 KiB spill; a row alone does not
        alone = config["BLOCK_N"] >= case.dims["N"]
        return alone or config["BLOCK_N"] * ITEMSIZE[dtype] <= 32768

    return [config for config in rms.triton_configs(case, dtype, _PARTS) if wanted(config)]


DTYPES = ("bf16", "f32", "f16")


def rounded_once(dtype: str) -> Tolerance:
    if dtype == "f32":
        return Tolerance(
            0.5,
            0.02,
            "0.5: float32 arithmetic, whose last sum rounds to nearest. 0.02: rounding to nearest "
            "has no bias; what a row's mean and root share in sign is in drift",
        )
    return Tolerance(
        0.5,
        0.02,
        f"0.5: float32 arithmetic, rounded to {dtype} once, to nearest. 0.02: that has no bias; "
        "truncation shows about 0.35",
    )


SPEC = OpSpec(
    stem="layer_norm",
    family="row_reduction",
    formula="out = (x - mean(x)) * rsqrt(var(x) + 1e-5) * w + b over the last dimension",
    arguments=("x", "w", "b"),
    dtypes=DTYPES,
    full_dtypes=("f32", "f16"),
    bench_cases=BENCH_CASES,
    test_cases=TEST_CASES,
    make_inputs=make_inputs,
    output_shape=lambda case: (case.dims["M"], case.dims["N"]),
    reference=reference,
    accumulation=accumulation,
    bytes_read=lambda case, dtype: (case.dims["M"] + 2) * case.dims["N"] * ITEMSIZE[dtype],
    bytes_written=lambda case, dtype: case.dims["M"] * case.dims["N"] * ITEMSIZE[dtype],
    # the sum; difference, square and its sum; difference, two products and a sum
    flops=lambda case: 8 * case.dims["M"] * case.dims["N"],
    tolerances={dtype: rounded_once(dtype) for dtype in DTYPES},
    # The root is common to a row.
    drift=lambda case: root_error(case.dims["N"]),
    reduced_dim="N",
    eager=eager,
    peers={"liger": _liger},
    low_precision=_low_precision,
    absent={"library": "torch.nn.functional.layer_norm is torch's own fused kernel: the row torch"},
    special_values=SpecialValues(
        "A row with NaN or an infinity is a row of NaN, as the formula gives. A row whose squared "
        "distances from the mean sum to more than float32 holds has the root 0 and becomes b. NaN "
        "in w or b, and Inf in b, go through. A zero may have either sign, and subnormal numbers "
        "may become 0: the mean is subtracted from them",
        signed_zeros="any",
        subnormals="flushed",
    ),
    mutant_cases=rms.MUTANT_CASES,
    omitted_mutants=rms.OMITTED_MUTANTS,
    tuning={"cuda": _cuda_configs, "triton": _triton_configs},
    sweep_dim="N",
)
