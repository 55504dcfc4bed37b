"""layer_norm_backward: dx, dw and db of dy: two reads and one write, and sums over columns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.spec import (
    ITEMSIZE,
    Case,
    Config,
    OpSpec,
    Output,
    SpecialValues,
    Tensors,
    Tolerance,
    random_tensor,
    view_from_element,
)
from harness.specs import layer_norm as forward
from harness.specs._sums import drift_of_sum, tree_growth

if TYPE_CHECKING:
    import torch

BENCH_CASES = (
    Case({"M": 32768, "N": 1024}, level="default", baselines=True),
    Case({"M": 16384, "N": 4096}, level="quick", baselines=True),
    Case({"M": 8192, "N": 8192}, level="default"),
    Case({"M": 4096, "N": 16384}, level="default", baselines=True),
    Case({"M": 2048, "N": 32768}),
    Case({"M": 65536, "N": 512}),
)

# Odd and prime widths defeat 16-byte rows; 2001 rows are dealt out unevenly; 20000 and 20001 are
# wider than one program's registers, in whole packs and not. offset1: every tensor of dx's shape or
# w's begins one element past a 16-byte boundary. special: NaN and infinities in dy and x.
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
            (2, 20000),
            (2, 20001),
            (2001, 8),
        )
    ),
    Case({"M": 5, "N": 1000}, layout="offset1"),
    Case({"M": 11, "N": 257}, layout="special"),
)


def make_inputs(case: Case, dtype: str, device: str, seed: int) -> Tensors:
    """dy has a mean and a share of x, so that no column sum is near zero, where a relative error
    says nothing: dw and db are about 4 of their standard deviations."""
    shape = (case.dims["M"], case.dims["N"])
    x = random_tensor(shape, dtype, device, seed)
    dy = random_tensor(shape, "f32", device, seed + 1)
    dy = dy.add_(x.float() + 1.0, alpha=4.0 * max(shape[0], 1) ** -0.5).to(x.dtype)
    w = random_tensor(shape[1:], dtype, device, seed + 2)
    _, mean, rstd = forward.statistics(x)
    if case.layout == "special":
        dy[0, 5], x[2, 9] = float("nan"), float("nan")
        dy[1, 7], x[3, 11] = float("inf"), -float("inf")
        dy[4] = 0.0
        dy[5, 3] = _subnormal(dy)
    if case.layout == "offset1":
        dy, x, w = (view_from_element(t.view(-1), 1).view(t.shape) for t in (dy, x, w))
    return {"dy": dy, "x": x, "w": w, "mean": mean[:, 0].float(), "rstd": rstd[:, 0].float()}


def _subnormal(tensor: torch.Tensor) -> float:
    import torch

    return torch.finfo(tensor.dtype).smallest_normal / 4


def _parts(tensors: Tensors) -> tuple[torch.Tensor, ...]:
    """(dy, w * dy, xhat, rstd) in float64."""
    dy, x, w, mean, rstd = (tensor.double() for tensor in tensors.values())
    return dy, dy * w, (x - mean[:, None]) * rstd[:, None], rstd[:, None]


def reference(tensors: Tensors) -> torch.Tensor:
    _, wdy, xhat, rstd = _parts(tensors)
    c1, c2 = (wdy * xhat).mean(-1, keepdim=True), wdy.mean(-1, keepdim=True)
    return (wdy - c2 - xhat * c1) * rstd


def accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """float32 magnitude: both means of a row by their sums, and the products and differences.

    A mean errs relative to itself, by the sum and half an ulp each for 1 / n and the product with
    it; and by running sums of random signs, as the sum of a column does.
    """
    _, wdy, xhat, rstd = _parts(tensors)
    n = wdy.shape[-1]
    of_running = 0.67 * math.sqrt(_run_length(n) / max(n, 1))

    def error_of_mean(terms: torch.Tensor) -> torch.Tensor:
        spread = terms.square().mean(-1, keepdim=True).sqrt()
        mean = terms.mean(-1, keepdim=True).abs()
        return mean * (forward.sum_error(n) + 1.0) + spread * of_running

    c1 = (wdy * xhat).mean(-1, keepdim=True)
    of_xhat = xhat.abs() * (error_of_mean(wdy * xhat) + 2.0 * c1.abs())
    total: torch.Tensor = 1.5 * wdy.abs() + error_of_mean(wdy) + of_xhat
    return (total * rstd.abs()).nan_to_num(0.0)  # rstd is an input here, of any sign


def _dw(tensors: Tensors) -> torch.Tensor:
    dy, _, xhat, _ = _parts(tensors)
    return (dy * xhat).sum(0)


def _error_of_column_sum(terms: torch.Tensor, of_term: float) -> torch.Tensor:
    """As in column_sum: parts where they are merged; below, running sums of random signs; and what
    each term errs by."""
    import torch

    n_rows = terms.shape[0]
    norm: torch.Tensor = torch.linalg.vector_norm(terms, dim=0)
    in_a_row = tree_growth(n_rows) + 0.67 * math.sqrt(_run_length(n_rows)) + of_term
    error = terms.sum(0).abs() * 2 * tree_growth(n_rows) + norm * in_a_row
    return error.nan_to_num(0.0, 0.0, 0.0)


def _run_length(n_terms: int) -> float:
    """Terms that one running sum adds at most: a 128th of all, or 64."""
    return max(n_terms / 128, min(n_terms, 64), 1.0)


def _dw_accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """Half an ulp for each of xhat's difference and product, and for that with dy."""
    dy, _, xhat, _ = _parts(tensors)
    return _error_of_column_sum(dy * xhat, 1.5)


def _db_accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    return _error_of_column_sum(tensors["dy"].double(), 0.0)


def eager(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """torch's own backward. That of the CPU wants mean and rstd in x's dtype: there in float32."""
    import torch

    dtype = dy.dtype
    if not dy.is_cuda:
        dy, x, w = dy.float(), x.float(), w.float()
    grads = torch.ops.aten.native_layer_norm_backward(
        dy, x, w.shape, mean[:, None], rstd[:, None], w, w, [True, True, True]
    )
    return tuple(grad.to(dtype) for grad in grads)


def _low_precision(tensors: Tensors) -> tuple[torch.Tensor, ...]:
    """Running sums, differences and products kept in the input's dtype."""
    dy, x, w, mean, rstd = (tensor.to(tensors["dy"].dtype) for tensor in tensors.values())
    xhat, wdy = (x - mean[:, None]) * rstd[:, None], dy * w
    c1, c2 = (forward.running_sum(t) / t.shape[-1] for t in (wdy * xhat, wdy))
    dw, db = (forward.running_sum(t.t())[:, 0] for t in (dy * xhat, dy))
    return (wdy - c2 - xhat * c1) * rstd[:, None], dw, db


def _liger(
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    from liger_kernel.ops.layer_norm import layer_norm_backward

    return layer_norm_backward(dy, x, w, w, mean, rstd)  # type: ignore[no-any-return]


# Form 1: (threads, packs of 16 bytes a thread); the last two also in each block of a cluster. 512
# packs took 112.9 us with 128 threads (16384 x 4096, bf16, H200), 120.2 with 256, 126.7 with 512.
_STAGED = (
    (32, 1),
    (32, 2),
    (32, 4),
    (128, 1),
    (128, 2),
    (128, 4),
    (256, 1),
    (256, 4),
    (512, 4),
)


def _cuda_configs(case: Case, dtype: str) -> list[Config]:
    n_packs, rest = divmod(case.dims["N"] * ITEMSIZE[dtype], 16)
    if rest or case.layout == "offset1":
        return []  # rows that are not 16-byte aligned: one form, nothing to choose
    alone = [
        {"form": 1, "threads_per_row": threads}
        for threads, packs in _STAGED
        if threads * packs // 2 < n_packs <= threads * packs
    ]
    clusters = [
        {"form": 1, "threads_per_row": blocks * threads, "blocks_per_row": blocks}
        for blocks in (2, 4, 8)
        for threads in (256, 512)
        if blocks * threads * 2 < n_packs <= blocks * threads * 4
    ]
    fewer = [config | {"blocks_per_sm": 1} for config in alone if n_packs >= 256]
    return alone + clusters + fewer


def _triton_configs(case: Case, dtype: str) -> list[Config]:
    """One program a row, 8 to 32 elements a thread, or 2 to 64 of them."""
    n = case.dims["N"]
    width = 1 << max(n - 1, 0).bit_length()
    alone = [
        {
            "ROWS": max(1, tile // width),
            "BLOCK_N": width,
            "num_warps": warps,
            "num_stages": stages,
            "RESIDENT": resident,
        }
        for tile, warps, stages, resident in (
            (2048, 4, 3, 4),
            (4096, 8, 2, 2),
            (4096, 8, 3, 2),
            (4096, 8, 4, 2),
            (8192, 16, 2, 1),
            (8192, 16, 3, 1),
        )
        if width <= tile and (tile * ITEMSIZE[dtype] * 2 * stages * resident) <= 220 * 1024
    ]
    shared_row = [
        {"BLOCK_N": block, "num_warps": warps, "RESIDENT": resident}
        for block, warps, resident in ((2048, 8, 2), (4096, 8, 2), (4096, 16, 1), (8192, 16, 1))
        if width >= 8192 and block < width <= 64 * block
        # 16 columns of 16 bits or 8 of f32 a thread
        if block * ITEMSIZE[dtype] <= 32 * 32 * warps
    ]
    return alone + shared_row


DTYPES = forward.DTYPES
_OF_F32 = {
    "low_precision:f32": "float32 is the accumulation dtype",
    "truncated:f32": "float32 arithmetic inside errs by more than its last rounding",
}


def _column_sum_tolerance(dtype: str) -> Tolerance:
    return Tolerance(
        0.5,
        0.02,
        f"0.5: float32 sums over the rows, rounded to {dtype} once, to nearest. 0.02: that has no "
        "bias; what the sums' own roundings share in sign is in drift",
    )


def _column_sums(case: Case) -> tuple[int, ...]:
    return (case.dims["N"],)


SPEC = OpSpec(
    stem="layer_norm_backward",
    family="row_reduction",
    formula="out = rstd * (w dy - mean(w dy) - xhat mean(w dy xhat)); dw, db = column sums",
    arguments=("dy", "x", "w", "mean", "rstd"),
    dtypes=DTYPES,
    full_dtypes=("f32", "f16"),
    bench_cases=BENCH_CASES,
    test_cases=TEST_CASES,
    make_inputs=make_inputs,
    output_shape=lambda case: (case.dims["M"], case.dims["N"]),
    reference=reference,
    accumulation=accumulation,
    # In the parameters' dtype, as autograd hands them on; the sums before that are float32.
    further_outputs=(
        Output(
            "dw",
            shape=_column_sums,
            reference=_dw,
            accumulation=_dw_accumulation,
            tolerances={dtype: _column_sum_tolerance(dtype) for dtype in DTYPES},
            drift=lambda case: drift_of_sum(case.dims["M"]) + 1.5,
        ),
        Output(
            "db",
            shape=_column_sums,
            reference=lambda t: t["dy"].double().sum(0),
            accumulation=_db_accumulation,
            tolerances={dtype: _column_sum_tolerance(dtype) for dtype in DTYPES},
            drift=lambda case: drift_of_sum(case.dims["M"]),
        ),
    ),
    bytes_read=lambda case, dtype: (
        (2 * case.dims["M"] + 1) * case.dims["N"] * ITEMSIZE[dtype] + 8 * case.dims["M"]
    ),
    bytes_written=lambda case, dtype: (case.dims["M"] + 2) * case.dims["N"] * ITEMSIZE[dtype],
    # xhat 2, w dy 1, two row sums 3, two column sums 3, dx 4
    flops=lambda case: 13 * case.dims["M"] * case.dims["N"],
    tolerances={dtype: forward.rounded_once(dtype) for dtype in DTYPES},
    drift=lambda case: forward.sum_error(case.dims["N"]),
    reduced_dim="N",
    eager=eager,
    peers={"liger": _liger},
    low_precision=_low_precision,
    absent={"library": "torch's native_layer_norm_backward is its own fused kernel: the row torch"},
    special_values=SpecialValues(
        "as the formula gives: NaN or Inf in a row of dy or x reaches all of its dx, and dw and db "
        "only in their column, since mean and rstd are inputs. A zero may have either sign, and "
        "subnormal numbers may become 0: they are sums of larger ones",
        signed_zeros="any",
        subnormals="flushed",
    ),
    # several rows a block, dealt out unevenly; smaller than a warp; odd both ways
    mutant_cases=(Case({"M": 64, "N": 1000}), Case({"M": 3, "N": 31}), Case({"M": 17, "N": 1023})),
    omitted_mutants=_OF_F32
    | {f"{name}.{mutant}": why for name in ("dw", "db") for mutant, why in _OF_F32.items()},
    tuning={"cuda": _cuda_configs, "triton": _triton_configs},
    distribution="normal(0,1), dy with a share of x",
    sweep_dim="N",
)
