"""swiglu_backward: the gradients of swiglu's gate and up, three reads and two writes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from harness.spec import ITEMSIZE, OpSpec, Output, Tensors, Tolerance
from harness.specs import _swiglu as shared

if TYPE_CHECKING:
    import torch

_NAMES = ("dout", "gate", "up")


def _doubles(tensors: Tensors) -> tuple[torch.Tensor, ...]:
    return tuple(tensors[name].double() for name in _NAMES)


def reference(tensors: Tensors) -> torch.Tensor:
    dout, gate, up = _doubles(tensors)
    s = gate.sigmoid()
    return dout * (up * (s * (1 + gate * (1 - s))))


def _dup(tensors: Tensors) -> torch.Tensor:
    dout, gate, _ = _doubles(tensors)
    return dout * (gate * gate.sigmoid())


def _products(tensors: Tensors, n_products: int) -> float:
    """Half an ulp for each but the last, which output_ulps counts; in 16 bits for that too."""
    return 0.5 * (n_products - (tensors["gate"].itemsize == 4))


def accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """The slope s * (1 + gate * (1 - s)) is two factors with an error of their own.

    s errs as such. 1 - s errs by what s does, absolutely, and half an ulp; gate multiplies that.
    The fused sum rounds once, three products follow. Where s counts as 0, all may be lost.
    """
    import torch

    dout, gate, up = _doubles(tensors)
    s = gate.sigmoid()
    error = shared.sigmoid_error(gate)
    around_one = gate.abs() * (error * s + 0.5 * (1 - s))
    factor = (1 + gate * (1 - s)).abs()
    slope = s * ((error + 0.5 + _products(tensors, 3)) * factor + around_one)
    lost = reference.abs() / torch.finfo(torch.float32).eps
    return torch.where(shared.lost(gate), lost, (dout * up).abs() * slope)


def accumulation_dup(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """The sigmoid's error and two products."""
    import torch

    _, gate, _ = _doubles(tensors)
    relative = shared.sigmoid_error(gate) + _products(tensors, 2)
    lost = 1.0 / torch.finfo(torch.float32).eps
    return reference.abs() * torch.where(shared.lost(gate), lost, relative)


def eager(
    dout: torch.Tensor, gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    import torch
    from torch.nn.functional import silu

    return torch.ops.aten.silu_backward(dout * up, gate), dout * silu(gate)


def _low_precision(tensors: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """The sigmoid in the input's dtype."""
    dout, gate, up = (tensors[name] for name in _NAMES)
    s = 1 / (1 + (-gate).exp())
    return dout * up * s * (1 + gate * (1 - s)), dout * gate * s


def _rounded_once(dtype: str) -> Tolerance:
    return Tolerance(
        0.5,
        0.02,
        f"0.5: float32 arithmetic, rounded to {dtype} once, to nearest. 0.02: that has no bias; "
        "what exp2 and the reciprocal share in sign is in drift",
    )


_TOLERANCES = {dtype: _rounded_once(dtype) for dtype in shared.DTYPES}
_OMITTED = {
    "low_precision:f32": "float32 is the dtype that both sides compute in",
    "truncated:f32": "float32 arithmetic inside errs by more than its last rounding",
}

SPEC = OpSpec(
    stem="swiglu_backward",
    family="elementwise",
    formula="out = dout * up * s * (1 + gate * (1 - s)), dup = dout * gate * s; s = sigmoid(gate)",
    arguments=_NAMES,
    dtypes=shared.DTYPES,
    full_dtypes=("f32", "f16"),
    bench_cases=shared.BENCH_CASES,
    test_cases=shared.TEST_CASES,
    make_inputs=functools.partial(shared.make_inputs, _NAMES),
    output_shape=lambda case: (case.dims["M"], case.dims["I"]),
    reference=reference,
    accumulation=accumulation,
    further_outputs=(
        Output(
            "dup",
            shape=lambda case: (case.dims["M"], case.dims["I"]),
            reference=_dup,
            accumulation=accumulation_dup,
            tolerances=_TOLERANCES,
            drift=lambda case: 2.0,
            unfused_rounding=lambda t: _dup(t).abs(),  # torch rounds silu(gate)
        ),
    ),
    unfused_rounding=lambda t: reference(t).abs(),  # torch rounds dout * up
    bytes_read=lambda case, dtype: 3 * case.dims["M"] * case.dims["I"] * ITEMSIZE[dtype],
    bytes_written=lambda case, dtype: 2 * case.dims["M"] * case.dims["I"] * ITEMSIZE[dtype],
    # the sigmoid's four; 1 - s, times gate, plus 1, times s; four products
    flops=lambda case: 12 * case.dims["M"] * case.dims["I"],
    tolerances=_TOLERANCES,
    drift=lambda case: 2.0,  # half of exp2's 2, for a sigmoid about 1/2, and the reciprocal's 1
    eager=eager,
    low_precision=_low_precision,
    absent={"library": "torch has no call that fuses the two gradients; eager is three kernels"},
    special_values=shared.SPECIAL_VALUES,
    mutant_cases=shared.MUTANT_CASES,
    omitted_mutants=_OMITTED | {f"dup.{key}": reason for key, reason in _OMITTED.items()},
    tuning={"cuda": shared.cuda_configs, "triton": shared.triton_configs},
    sweep_dim="M",
)
