"""transpose: out = x.T, one read along rows and one write along columns."""

from __future__ import annotations

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

# Powers of two put the rows of a column at the same place of every DRAM page and cache set; 64
# more do not. Odd sides leave no row but the first at a 16-byte boundary.
BENCH_CASES = (
    Case({"M": 16384, "N": 16384}, level="quick", baselines=True),
    Case({"M": 16384 + 64, "N": 16384 + 64}, level="default"),
    Case({"M": 4096, "N": 4096}),
    Case({"M": 16383, "N": 16381}, level="default"),
    Case({"M": 8192, "N": 8192}),
    Case({"M": 32768, "N": 8192}),
    Case({"M": 8192, "N": 32768}),
)

# 1 and odd sides: single elements, in tiles of 64; 33x64 and 64x33: only one side is whole packs;
# multiples of 4, 8 and 16 elements that are no multiples of a tile: packs with a tail on both
# sides, for one size of element or all; 12x20: whole words of bytes. offset1: views that start
# one element in, on sides that would allow packs. special: NaN, infinities, zeros of both signs
# and subnormal numbers.
TEST_CASES = (
    *(
        Case({"M": m, "N": n})
        for m, n in (
            (0, 5),
            (1, 1),
            (1, 300),
            (300, 1),
            (65, 63),
            (33, 64),
            (64, 33),
            (131, 257),
            (12, 20),
            (16, 16),
            (144, 272),
            (272, 144),
            (256, 256),
        )
    ),
    Case({"M": 48, "N": 80}, layout="offset1"),
    Case({"M": 65, "N": 33}, layout="special"),
)

_SPECIAL = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e-40, -1e-40, 3e38)


def make_inputs(case: Case, dtype: str, device: str, seed: int) -> Tensors:
    import torch

    shape = (case.dims["M"], case.dims["N"])
    if dtype == "i8":
        generator = torch.Generator(device=device).manual_seed(seed)
        x = torch.randint(-128, 128, shape, generator=generator, device=device, dtype=torch.int8)
    else:
        x = random_tensor(shape, dtype, device, seed)
        if case.layout == "special":
            for i, value in enumerate(_SPECIAL):
                x[i, 3 * i] = value
                x[-1 - i, -1] = value
    if case.layout == "offset1":
        storage = torch.empty(1 + x.numel(), dtype=x.dtype, device=device)
        x = storage[1:].view(shape).copy_(x)
    return {"x": x}


def eager(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous()


def _whole_packs(case: Case, dtype: str) -> bool:
    return not any(extent * ITEMSIZE[dtype] % 16 for extent in case.dims.values())


def _cuda_configs(case: Case, dtype: str) -> list[Config]:
    """Tiles in packs of 16 bytes: 128 to 512 bytes of a row of out, 128 or 256 of a row of x."""
    if not _whole_packs(case, dtype):
        return [{"group": group} for group in (4, 16, 64)]
    return [
        {"row_packs": rows, "col_packs": cols, "group": group}
        for rows, cols in ((8, 8), (16, 8), (16, 16), (32, 8))
        for group in (4, 16, 64)
    ]


_TRITON_TILES = {
    4: ((64, 64, 4), (64, 64, 8), (128, 64, 8), (32, 64, 4)),
    2: ((128, 128, 8), (128, 128, 16), (128, 64, 4), (64, 64, 4)),
    1: ((128, 128, 4), (128, 128, 8), (256, 128, 8), (256, 256, 16)),
}


_TRITON_ODD_TILES = ((64, 64, 8), (64, 64, 4), (32, 64, 4), (64, 32, 4))


def _triton_configs(case: Case, dtype: str) -> list[Config]:
    tiles = _TRITON_TILES[ITEMSIZE[dtype]] if _whole_packs(case, dtype) else _TRITON_ODD_TILES
    return [
        {"BLOCK_M": rows, "BLOCK_N": cols, "GROUP_M": group, "num_warps": warps}
        for rows, cols, warps in tiles
        for group in (4, 16, 64)
    ]


_EXACT = Tolerance(
    0.0,
    0.0,
    "0: elements are moved and never computed with, so that the output has the bits of the input. "
    "0: what is not rounded has no bias either",
)

SPEC = OpSpec(
    stem="transpose",
    family="movement",
    formula="out = x.T",
    arguments=("x",),
    dtypes=("f32", "bf16", "i8"),
    bench_cases=BENCH_CASES,
    test_cases=TEST_CASES,
    make_inputs=make_inputs,
    output_shape=lambda case: (case.dims["N"], case.dims["M"]),
    reference=lambda t: t["x"].double().t().contiguous(),
    accumulation=lambda t, reference: reference.new_zeros(reference.shape),
    bytes_read=lambda case, dtype: case.dims["M"] * case.dims["N"] * ITEMSIZE[dtype],
    bytes_written=lambda case, dtype: case.dims["M"] * case.dims["N"] * ITEMSIZE[dtype],
    flops=lambda case: 0,
    tolerances={"f32": _EXACT, "bf16": _EXACT, "i8": _EXACT},
    special_values=SpecialValues(
        "moved as they are: NaN, Inf, zeros of both signs and subnormal numbers keep their bits",
        signed_zeros="kept",
        subnormals="kept",
    ),
    # several tiles with a tail on both sides; a few elements; odd, one past a tile and one short
    mutant_cases=(Case({"M": 144, "N": 176}), Case({"M": 9, "N": 7}), Case({"M": 65, "N": 63})),
    eager=eager,
    absent={
        "library": "torch's copy kernel, which eager runs, is its only one; cuBLAS's geam, the "
        "vendor's transpose, cannot be called from torch"
    },
    omitted_mutants={
        "low_precision": "elements are moved, there is no arithmetic to do carelessly",
        "truncated": "nothing is rounded, so that nothing can be truncated",
        "one_nan:i8": "integers have no NaN to put in their place",
    },
    tuning={"cuda": _cuda_configs, "triton": _triton_configs},
    ladders={
        "cuda": (
            Rung("naive", "one element a thread: coalesced reads, scattered writes", ("f32",)),
            Rung("tiled", "a tile in shared memory: coalesced writes, bank conflicts", ("f32",)),
            Rung("padded", "a column of padding: no bank conflicts", ("f32",)),
        )
    },
    distribution="normal(0,1); i8: uniform over all 256 values",
)
