"""cross_entropy: the loss of every row of logits against its class, one read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.spec import ITEMSIZE, Case, Config, OpSpec, SpecialValues
from harness.specs._cross_entropy import (
    BENCH_CASES,
    MUTANT_CASES,
    SPECIAL_TEXT,
    TEST_CASES,
    careless_loss,
    loss_accumulation,
    loss_drift,
    loss_eager,
    loss_reference,
    loss_tolerances,
    make_inputs,
)

if TYPE_CHECKING:
    import torch

_TARGET_BYTES = 8
_LOSS_BYTES = 4


def _quack(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    from quack.cross_entropy import cross_entropy

    return cross_entropy(x, target, reduction="none")  # type: ignore[no-any-return]


def _cuda_configs(case: Case, dtype: str) -> list[Config]:
    """A warp a row to 64 KB of it, a block where each of its threads has four packs; as many blocks
    as an SM holds, and 4 and 16 times as many, which even out what SMs do not share fairly."""
    row_bytes = case.dims["V"] * ITEMSIZE[dtype]
    return [
        {"threads_per_row": t, "blocks_per_sm": turns * 1024 // block}
        for t, block in ((32, 256), (128, 128), (256, 256), (512, 512))
        for turns in (1, 4, 16)
        if 64 * t <= row_bytes <= 2048 * t or t == 256
    ]


def _triton_configs(case: Case, dtype: str) -> list[Config]:
    """Tiles of 1 to 4 rows and 4 to 16 KB, 16 to 64 bytes of them a thread; pieces of one row for 2
    to 16 warps."""
    v, size = case.dims["V"], ITEMSIZE[dtype]
    width = 1 << max(v - 1, 0).bit_length()
    tiles = [
        {"ROWS": rows, "BLOCK_N": width, "num_warps": warps}
        for rows in (1, 2, 4)
        for warps in (2, 4, 8, 16)
        if 4096 <= rows * width * size <= 16384 and 16 <= rows * width * size // (32 * warps) <= 64
    ]
    pieces = [{"BLOCK_N": 2048 * warps // size} for warps in (2, 4, 8, 16)]
    return tiles + [piece for piece in pieces if piece["BLOCK_N"] < v]


SPEC = OpSpec(
    stem="cross_entropy",
    family="row_reduction",
    formula="loss = log(sum(exp(x))) - x[target] over the last dimension",
    arguments=("x", "target"),
    dtypes=("bf16", "f32", "f16"),
    full_dtypes=("f32", "f16"),
    bench_cases=BENCH_CASES,
    test_cases=TEST_CASES,
    make_inputs=make_inputs,
    output_shape=lambda case: (case.dims["M"],),
    reference=loss_reference,
    accumulation=loss_accumulation,
    bytes_read=lambda case, dtype: (
        case.dims["M"] * (case.dims["V"] * ITEMSIZE[dtype] + _TARGET_BYTES)
    ),
    bytes_written=lambda case, dtype: case.dims["M"] * _LOSS_BYTES,
    # max, subtract, exp, add
    flops=lambda case: 4 * case.dims["M"] * case.dims["V"],
    tolerances=loss_tolerances(),
    drift=loss_drift,
    reduced_dim="V",
    out_dtype="f32",
    extents={"V": (1, 1)},  # a row without classes has no target
    eager=loss_eager,
    peers={"quack": _quack},
    low_precision=careless_loss,
    absent={"library": "torch has no fused call that writes float32 losses of narrower logits"},
    special_values=SpecialValues(SPECIAL_TEXT, signed_zeros="any", subnormals="flushed"),
    mutant_cases=MUTANT_CASES,
    omitted_mutants={
        "low_precision:f32": "float32 is the accumulation dtype",
        "truncated": "float32 arithmetic inside errs by more than its last rounding",
    },
    tuning={"cuda": _cuda_configs, "triton": _triton_configs},
    sweep_dim="V",
)
