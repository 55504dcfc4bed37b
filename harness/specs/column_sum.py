"""column_sum: sums over the rows of a matrix, as a bias gradient is; one read."""

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
    view_from_element,
)
from harness.specs._sums import drift_of_sum, terms, tree_growth

if TYPE_CHECKING:
    import torch

BENCH_CASES = (
    Case({"M": 8192, "N": 4096}),
    Case({"M": 32768, "N": 768}, level="default"),
    Case({"M": 65536, "N": 768}),
    Case({"M": 16384, "N": 8192}),
    Case({"M": 8192, "N": 28672}, level="default"),
    Case({"M": 65536, "N": 4096}, level="quick", baselines=True),
)

# No rows give zeros, no columns nothing; one row or column; around a pack, a warp of packs and a
# tile of columns; rows for one block and for several that share a tile. padded: rows in a wider
# storage; offset1: all rows misaligned. special: NaN, infinities, zeros and subnormal numbers.
_TEST_SHAPES = (
    (0, 5),
    (5, 0),
    (1, 1),
    (1, 257),
    (257, 1),
    (7, 8),
    (33, 31),
    (65, 256),
    (129, 264),
    (1023, 33),
    (300, 130),
)
TEST_CASES = (
    *(Case({"M": m, "N": n}) for m, n in _TEST_SHAPES),
    Case({"M": 65, "N": 128}, layout="padded"),
    Case({"M": 33, "N": 24}, layout="padded8"),
    Case({"M": 33, "N": 40}, layout="offset1"),
    Case({"M": 67, "N": 40}, layout="special"),
)


def make_inputs(case: Case, dtype: str, device: str, seed: int) -> Tensors:
    m, n = case.dims["M"], case.dims["N"]
    padding = {"padded": 3, "padded8": 8}.get(case.layout, 0)
    x = terms((m, n + padding), m, dtype, device, seed)[:, :n]
    if case.layout == "special":
        _plant_special_columns(x)
    if case.layout == "offset1":
        x = view_from_element(x.reshape(-1), 1).view(m, n)
    return {"x": x}


def _plant_special_columns(x: torch.Tensor) -> None:
    import torch

    inf = float("inf")
    x[5, 0] = float("nan")
    x[-1, 1] = inf
    x[7, 2], x[9, 2] = inf, -inf
    x[:, 3] = -inf
    x[:, 4] = -0.0
    x[:, 5] = 0.0
    x[0, 5] = torch.finfo(x.dtype).smallest_normal / 4
    x[0, 6], x[1, 6] = 1.0, -1.0


def accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """float32 magnitude: parts of the sum where it is merged; below, running sums whose squares add
    up to the summed squares of the column.

    An addition errs by 0.2 of its result's epsilon in the mean of squares. A running sum of n terms
    of random signs adds that up to 0.15 sqrt(n) of the column's norm, and tens of thousands of
    columns see 4.5 times it. Parts are merged a few dozen in a row: twice a tree's growth.
    """
    import torch

    x = tensors["x"]
    n_rows = x.shape[0]
    norm: torch.Tensor = torch.linalg.vector_norm(x, dim=0, dtype=torch.float64)
    in_a_row = tree_growth(n_rows) + 0.67 * math.sqrt(_run_length(*x.shape))
    return reference.abs() * 2 * tree_growth(n_rows) + norm * in_a_row


def _run_length(n_rows: int, n_cols: int) -> float:
    """Rows that one running sum adds at most: 8 sums a tile of 32 columns and block, and blocks for
    four on each multiprocessor."""
    tiles = -(-n_cols // 32)
    splits = max(1, 528 // max(tiles, 1))
    return max(n_rows / (8 * splits), 1.0)


def eager(x: torch.Tensor) -> torch.Tensor:
    import torch

    return x.sum(0, dtype=torch.float32)


def _low_precision(tensors: Tensors) -> torch.Tensor:
    """Running sums in the input's dtype."""
    x = tensors["x"]
    total = x.new_zeros(x.shape[1])
    for row in x:
        total += row
    return total.float()


def _cuda_configs(case: Case, dtype: str) -> list[Config]:
    return [
        {"vectors": vectors, "blocks_per_sm": blocks}
        for vectors, blocks in ((4, 2), (4, 4), (4, 8), (8, 1), (8, 2), (8, 3), (8, 4), (8, 8))
    ]


def _triton_configs(case: Case, dtype: str) -> list[Config]:
    """256 to 1024 bytes of a row; eight loads of 16 bytes a thread, or two to four prefetched."""
    return [
        {
            "BLOCK_M": warps * 512 * loads // width,
            "BLOCK_N": width // ITEMSIZE[dtype],
            "num_warps": warps,
            "num_stages": stages,
            "programs_per_sm": programs,
        }
        for width, warps, loads, stages, programs in (
            (256, 4, 1, 1, 8),
            (512, 4, 1, 1, 4),
            (512, 4, 1, 1, 8),
            (512, 8, 1, 1, 4),
            (1024, 8, 1, 1, 4),
            (1024, 16, 1, 1, 2),
            (512, 4, 4, 4, 6),
            (512, 8, 4, 3, 4),
            (512, 8, 4, 4, 4),
            (1024, 8, 4, 4, 3),
            (1024, 8, 2, 4, 6),
        )
    ]


_REASON = (
    "0.5: float32 additions, of which the last rounds to nearest. 0.02: rounding to nearest has no "
    "bias; what the roundings before it share in sign is in drift"
)

SPEC = OpSpec(
    stem="column_sum",
    family="reduction",
    formula="out[n] = sum over m of x[m, n], in float32",
    arguments=("x",),
    dtypes=("bf16", "f32", "f16"),
    full_dtypes=("f16",),
    bench_cases=BENCH_CASES,
    test_cases=TEST_CASES,
    make_inputs=make_inputs,
    output_shape=lambda case: (case.dims["N"],),
    reference=lambda t: t["x"].double().sum(0),
    accumulation=accumulation,
    bytes_read=lambda case, dtype: case.dims["M"] * case.dims["N"] * ITEMSIZE[dtype],
    bytes_written=lambda case, dtype: 4 * case.dims["N"],
    flops=lambda case: case.dims["M"] * case.dims["N"],
    tolerances={dtype: Tolerance(0.5, 0.02, _REASON) for dtype in ("bf16", "f32", "f16")},
    drift=lambda case: drift_of_sum(case.dims["M"]),
    reduced_dim="M",
    eager=eager,
    low_precision=_low_precision,
    absent={
        "library": "torch.sum is the vendor's kernel; cuBLAS' product with a vector of ones "
        "returns bf16 for bf16"
    },
    special_values=SpecialValues(
        "NaN in a column gives NaN, as Inf beside -Inf does; an infinity gives itself. A sum of "
        "zero may have either sign. Subnormal numbers are added and kept",
        signed_zeros="any",
        subnormals="kept",
    ),
    # several tiles and splits; smaller than a tile; odd both ways
    mutant_cases=(
        Case({"M": 300, "N": 264}),
        Case({"M": 11, "N": 9}),
        Case({"M": 127, "N": 131}),
    ),
    omitted_mutants={
        "low_precision:f32": "float32 is the accumulation dtype",
        "truncated": "float32 arithmetic inside errs by more than its last rounding",
    },
    distribution="normal(4/sqrt(M),1)",
    out_dtype="f32",
    tuning={"cuda": _cuda_configs, "triton": _triton_configs},
    sweep_dim="M",
)
