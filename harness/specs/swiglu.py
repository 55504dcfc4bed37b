"""swiglu: out = silu(gate) * up, the activation between the products of a gated MLP."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from harness.spec import ITEMSIZE, OpSpec, Tensors, Tolerance
from harness.specs import _swiglu as shared

if TYPE_CHECKING:
    import torch


def reference(tensors: Tensors) -> torch.Tensor:
    gate = tensors["gate"].double()
    return gate * gate.sigmoid() * tensors["up"].double()


def accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """The sigmoid's error, half an ulp for its product with gate, and in 16 bits as much for that
    with up, which is rounded to float32 first."""
    import torch

    gate = tensors["gate"].double()
    products = 0.5 if gate.dtype == tensors["gate"].dtype else 1.0
    relative = shared.sigmoid_error(gate) + products
    lost = 1.0 / torch.finfo(torch.float32).eps
    return reference.abs() * torch.where(shared.lost(gate), lost, relative)


def eager(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    from torch.nn.functional import silu

    return silu(gate) * up


def _low_precision(tensors: Tensors) -> torch.Tensor:
    """The sigmoid in the input's dtype."""
    gate = tensors["gate"]
    return gate / (1 + (-gate).exp()) * tensors["up"]


def _liger(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    # Column halves of one tensor are made contiguous first.
    return LigerSiLUMulFunction.apply(gate, up)  # type: ignore[no-any-return]


def _rounded_once(dtype: str) -> Tolerance:
    return Tolerance(
        0.5,
        0.02,
        f"0.5: float32 arithmetic, rounded to {dtype} once, to nearest. 0.02: that has no bias; "
        "what exp2 and the reciprocal share in sign is in drift",
    )


SPEC = OpSpec(
    stem="swiglu",
    family="elementwise",
    formula="out = gate * sigmoid(gate) * up",
    arguments=("gate", "up"),
    dtypes=shared.DTYPES,
    full_dtypes=("f32", "f16"),
    bench_cases=shared.BENCH_CASES,
    test_cases=shared.TEST_CASES,
    make_inputs=functools.partial(shared.make_inputs, ("gate", "up")),
    output_shape=lambda case: (case.dims["M"], case.dims["I"]),
    reference=reference,
    accumulation=accumulation,
    unfused_rounding=lambda t: reference(t).abs(),  # silu(gate) is rounded
    bytes_read=lambda case, dtype: 2 * case.dims["M"] * case.dims["I"] * ITEMSIZE[dtype],
    bytes_written=lambda case, dtype: case.dims["M"] * case.dims["I"] * ITEMSIZE[dtype],
    # negate and scale, exp2, add, reciprocal, two products
    flops=lambda case: 6 * case.dims["M"] * case.dims["I"],
    tolerances={dtype: _rounded_once(dtype) for dtype in shared.DTYPES},
    drift=lambda case: 2.0,  # half of exp2's 2, for a sigmoid about 1/2, and the reciprocal's 1
    eager=eager,
    peers={"liger": _liger},
    unfused_peers=("liger",),
    low_precision=_low_precision,
    absent={"library": "torch has no call that fuses silu with a product; eager is two kernels"},
    special_values=shared.SPECIAL_VALUES,
    mutant_cases=shared.MUTANT_CASES,
    omitted_mutants={
        "low_precision:f32": "float32 is the dtype that both sides compute in",
        "truncated:f32": "float32 arithmetic inside errs by more than its last rounding",
    },
    tuning={"cuda": shared.cuda_configs, "triton": shared.triton_configs},
    sweep_dim="M",
)
