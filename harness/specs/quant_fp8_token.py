"""quant_fp8_token: e4m3 with one scale a row, as for the activations of a token."""

from __future__ import annotations

from harness.spec import Case, Config
from harness.specs._quant_fp8 import quant_spec

# Odd and prime widths leave no 16-byte rows; 33 and 129 sit one past a warp and a tile; 16400 and
# 40000 are wider than any row that one program keeps. offset1: views that start one element in.
# outliers: one large value a row, so that the others are small. special: NaN, infinities, zeros,
# the largest and the smallest numbers, ties.
TEST_CASES = (
    *(
        Case({"M": m, "N": n})
        for m, n in (
            (0, 128), (1, 1), (3, 31), (5, 33), (301, 8), (33, 129), (7, 1000), (5, 1024),
            (3, 7168), (1, 16400), (1, 40000),
        )
    ),
    *(Case({"M": m, "N": n}, layout="offset1") for m, n in ((1, 33), (5, 384))),
    Case({"M": 13, "N": 1024}, layout="outliers"),
    Case({"M": 11, "N": 257}, layout="special"),
)  # fmt: skip


def _cuda_configs(case: Case, dtype: str) -> list[Config]:
    """1 to 8 packs of 8 elements a thread."""
    n = case.dims["N"]
    if n % 16 or case.layout == "offset1":
        return []  # element accesses: one form
    threads = (32, 64, 128, 256, 512)
    return [{"threads_per_row": t} for t in threads if n <= 64 * t <= 8 * n]


def _triton_configs(case: Case, dtype: str) -> list[Config]:
    """One read: tiles of up to 16 Ki elements, 8 to 64 of them a thread. Looped, for wide rows."""
    width = 1 << max(case.dims["N"] - 1, 0).bit_length()
    one_read = [
        {"ROWS": rows, "BLOCK_N": width, "num_warps": warps}
        for rows in (1, 2, 4)
        for warps in (4, 8, 16, 32)
        if width <= 16384
        and (rows == 1 or 1024 <= rows * width <= 16384)
        and 8 <= rows * width // (32 * warps) <= 64
    ]
    looped = [
        {"BLOCK_N": block, "num_warps": block // 512, "num_stages": stages}
        for block in (4096, 8192)
        for stages in (1, 3)
        if width >= 16384
    ]
    return one_read + looped


SPEC = quant_spec(
    "quant_fp8_token",
    "scale = max|x| / 448 of each row; out = e4m3(x / scale)",
    extent_of=lambda n: n,
    scale_shape=lambda m, n: (m,),
    test_cases=TEST_CASES,
    # several rows a block; smaller than a warp; odd, one short of a tile
    mutant_cases=(Case({"M": 64, "N": 1000}), Case({"M": 3, "N": 31}), Case({"M": 17, "N": 1023})),
    extents={"N": (1, 1)},
    omitted_mutants={
        "low_precision@3x31": "93 elements may all be too far from a tie to show it",
    },
    tuning={"cuda": _cuda_configs, "triton": _triton_configs},
)
