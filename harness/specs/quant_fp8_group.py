"""quant_fp8_group: e4m3 with one scale for 128 elements of a row, as DeepSeek's activations."""

from __future__ import annotations

from harness.spec import Case, Config
from harness.specs._quant_fp8 import quant_spec

GROUP_SIZE = 128

# One group, a row of one, more groups than a block owns, and an odd number of them. offset1: views
# that start one element in. outliers: one large value a row, so that the rest of its group is
# small. special: NaN, infinities, zeros, the largest and the smallest numbers, ties.
TEST_CASES = (
    *(
        Case({"M": m, "N": n})
        for m, n in ((0, 128), (1, 128), (3, 128), (5, 256), (7, 1280), (2, 7168), (131, 384))
    ),
    *(Case({"M": m, "N": n}, layout="offset1") for m, n in ((1, 128), (5, 384))),
    Case({"M": 5, "N": 256}, layout="outliers"),
    Case({"M": 11, "N": 256}, layout="special"),
)


def _cuda_configs(case: Case, dtype: str) -> list[Config]:
    if case.layout == "offset1":
        return []  # element accesses: one form
    return [
        {"threads": threads, "groups": groups}
        for threads in (128, 256, 512)
        for groups in (1, 2, 4)
    ]


def _triton_configs(case: Case, dtype: str) -> list[Config]:
    """16 to 64 elements a thread."""
    return [
        {"GROUPS": 32 * warps * elements // GROUP_SIZE, "num_warps": warps}
        for warps in (2, 4, 8)
        for elements in (16, 32, 64)
    ]


_ONE_ROW, _ONE_SCALE = "there is one row in this case", "there is one scale in this case"

SPEC = quant_spec(
    "quant_fp8_group",
    "scale = max|x| / 448 of each 128 elements; out = e4m3(x / scale)",
    extent_of=lambda n: GROUP_SIZE,
    scale_shape=lambda m, n: (m, n // GROUP_SIZE),
    test_cases=TEST_CASES,
    # several blocks; the smallest; an odd number of groups
    mutant_cases=(Case({"M": 64, "N": 256}), Case({"M": 1, "N": 128}), Case({"M": 17, "N": 384})),
    extents={"N": (GROUP_SIZE, GROUP_SIZE)},
    omitted_mutants={
        "low_precision@1x128": "128 elements may all be too far from a tie to show it",
        "swapped_rows@1x128": _ONE_ROW,
        "repeated_row@1x128": _ONE_ROW,
        "scale.swapped_rows@1x128": _ONE_ROW,
        "scale.repeated_row@1x128": _ONE_ROW,
        "scale.shifted_by_one@1x128": _ONE_SCALE,
    },
    tuning={"cuda": _cuda_configs, "triton": _triton_configs},
)
