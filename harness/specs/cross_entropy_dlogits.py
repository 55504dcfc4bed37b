"""cross_entropy_dlogits: the loss and its gradient, one read when a row stays on chip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.spec import ITEMSIZE, Case, Config, OpSpec, Output, SpecialValues, Tensors, Tolerance
from harness.specs._cross_entropy import (
    BENCH_CASES,
    MUTANT_CASES,
    SPECIAL_TEXT,
    TEST_CASES,
    careless_loss,
    careless_sum,
    loss_accumulation,
    loss_drift,
    loss_reference,
    loss_tolerances,
    make_inputs,
    sum_error,
)

if TYPE_CHECKING:
    import torch

_TARGET_BYTES = 8
_LOSS_BYTES = 4


def _subtract_onehot(probabilities: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """1 less in the target's column, in place."""
    columns = target.unsqueeze(-1)
    minus_one = probabilities.new_full(columns.shape, -1.0)
    return probabilities.scatter_add_(-1, columns, minus_one)


def _reference(tensors: Tensors) -> torch.Tensor:
    return _subtract_onehot(tensors["x"].double().softmax(-1), tensors["target"])


def _accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """float32 magnitude: that of softmax before its last rounding, and the subtraction of 1.

    exp turns an absolute error of its argument into a relative one: 0.5 for the difference, 0.5
    for the product, 0.25 for the constant, each times |x - max|. Beside them 2 for exp2 (the PTX
    manual's 2^-22), 1 for the reciprocal, 0.5 for the last product and 0.5 of margin for a
    rescaled part; and the sum. At the target 0.5 for the difference to 1.
    """
    x = tensors["x"].double()
    if x.numel() == 0:
        return reference
    softmax = x.softmax(-1)
    relative = x.sub_(x.amax(-1, keepdim=True)).abs_().mul_(1.25)
    relative.add_(4.0 + sum_error(x.shape[-1]))
    # exp(-Inf) is 0 without error, and 0 times an infinite distance would be NaN.
    magnitude = relative.mul_(softmax).masked_fill_(softmax == 0, 0.0)
    return magnitude.add_(softmax.sub_(reference), alpha=0.5)


def _eager(x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    log_p = torch.nn.functional.log_softmax(x, -1, dtype=torch.float32)
    loss = torch.nn.functional.nll_loss(log_p, target, reduction="none")
    return _subtract_onehot(log_p.exp(), target).to(x.dtype), loss


def _quack(x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    from quack.cross_entropy import cross_entropy_fwd

    loss, gradient = cross_entropy_fwd(x, target, return_dx=True)
    return gradient, loss


def _low_precision(tensors: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """exp and a running sum kept in the logits' dtype."""
    x = tensors["x"]
    top, total = careless_sum(x)
    softmax = (x - top).exp() / total
    return _subtract_onehot(softmax, tensors["target"]), careless_loss(tensors)


def _cuda_configs(case: Case, dtype: str) -> list[Config]:
    """Form 1 keeps 16 to 64 bytes of the row a thread in registers; form 2 stages it in shared
    memory, 16 to 64 KB a block, 200 KB where one block has the row."""
    if case.layout == "shifted":
        return []  # rows that differ in alignment: one instance, nothing to choose
    v = case.dims["V"]
    row_bytes = v * ITEMSIZE[dtype]
    registers = [
        {"threads_per_row": t, "form": 1}
        for t in (32, 64, 128, 256, 512)
        if 16 * t <= row_bytes // 16 * 16 <= 64 * t
    ]
    shared = [
        {"threads_per_row": blocks * threads, "form": 2, "blocks_per_row": blocks}
        for blocks in (1, 2, 4, 8, 16)
        for threads in (256, 512)
        if row_bytes >= 16384
        and (row_bytes <= 128 * 1024 if blocks == 1 else 16384 < row_bytes // blocks <= 65536)
    ]
    return registers + shared


# Shared rows: (columns of a part, warps, programs a multiprocessor) by bytes an element. Together
# they hold 32 to 64 KiB of rows on a multiprocessor, and as much of the next ones.
_PARTS = {
    2: ((4096, 4, 6), (8192, 8, 3), (8192, 16, 2), (16384, 16, 1)),
    4: ((4096, 8, 4), (8192, 8, 2), (8192, 16, 2), (16384, 16, 1)),
}


def _triton_configs(case: Case, dtype: str) -> list[Config]:
    """One read: tiles of 1 to 8 Ki elements or one row, 8 to 32 of them a thread. Looped, and
    shared by several programs, for wide rows."""
    v = case.dims["V"]
    width = 1 << max(v - 1, 0).bit_length()
    one_read = [
        {"ROWS": rows, "BLOCK_N": width, "num_warps": warps}
        for rows in (1, 2, 4)
        for warps in (2, 4, 8, 16, 32)
        if width <= 32768
        and (rows == 1 or rows * width <= 8192)
        and 8 <= rows * width // (32 * warps) <= 32
    ]
    looped = [
        {"BLOCK_N": block, "num_warps": warps}
        for block, warps in ((8192, 16), (16384, 16), (8192, 32), (16384, 32))
        if width > 16384
    ]
    shared_row = [
        {"BLOCK_N": block, "num_warps": warps, "RESIDENT": resident}
        for block, warps, resident in _PARTS[ITEMSIZE[dtype]]
        if width > 16384 and block <= width <= 64 * block
    ]
    return one_read + looped + shared_row


SPEC = OpSpec(
    stem="cross_entropy_dlogits",
    family="row_reduction",
    formula="out = softmax(x) - onehot(target), loss = log(sum(exp(x))) - x[target]",
    arguments=("x", "target"),
    dtypes=("bf16", "f32", "f16"),
    full_dtypes=("f32", "f16"),
    bench_cases=BENCH_CASES,
    test_cases=TEST_CASES,
    make_inputs=make_inputs,
    output_shape=lambda case: (case.dims["M"], case.dims["V"]),
    reference=_reference,
    accumulation=_accumulation,
    bytes_read=lambda case, dtype: (
        case.dims["M"] * (case.dims["V"] * ITEMSIZE[dtype] + _TARGET_BYTES)
    ),
    bytes_written=lambda case, dtype: (
        case.dims["M"] * (case.dims["V"] * ITEMSIZE[dtype] + _LOSS_BYTES)
    ),
    # max, subtract, exp, add, scale
    flops=lambda case: 5 * case.dims["M"] * case.dims["V"],
    tolerances={
        "f32": Tolerance(
            0.5,
            0.02,
            "0.5: float32 arithmetic, whose last product rounds to nearest. 0.02: rounding to "
            "nearest has no bias; what exp2 and the reciprocal share in sign is in drift",
        ),
        **dict.fromkeys(
            ("bf16", "f16"),
            Tolerance(
                0.5,
                0.02,
                "0.5: float32 arithmetic, rounded to 16 bits once, to nearest. 0.02: that has no "
                "bias; truncation shows about 0.35",
            ),
        ),
    },
    # The reciprocal and the rounded sum are common to a row; errors of exp2 cancel in the quotient.
    drift=lambda case: 2.0 + sum_error(case.dims["V"]),
    reduced_dim="V",
    extents={"V": (1, 1)},  # a row without classes has no target
    further_outputs=(
        Output(
            "loss",
            lambda case: (case.dims["M"],),
            loss_reference,
            loss_accumulation,
            loss_tolerances(),
            dtype="f32",
            drift=loss_drift,
        ),
    ),
    eager=_eager,
    # Not Liger's: its gradient overwrites the logits.
    peers={"quack": _quack},
    low_precision=_low_precision,
    absent={"library": "torch has no fused call that returns gradient and loss together"},
    special_values=SpecialValues(
        SPECIAL_TEXT + "; its gradient is then the softmax alone",
        signed_zeros="any",
        subnormals="flushed",
    ),
    mutant_cases=MUTANT_CASES,
    omitted_mutants={
        "low_precision:f32": "float32 is the accumulation dtype",
        "truncated:f32": "float32 arithmetic inside errs by more than its last rounding",
        "loss.low_precision:f32": "float32 is the accumulation dtype",
        "loss.truncated": "float32 arithmetic inside errs by more than its last rounding",
    },
    tuning={"cuda": _cuda_configs, "triton": _triton_configs},
    sweep_dim="V",
)
