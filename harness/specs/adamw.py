"""adamw: one optimizer step over one tensor, seven streams of one float32 each."""

from __future__ import annotations

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

if TYPE_CHECKING:
    import torch

# Defaults of both launchers.
LR, BETA1, BETA2, EPS, WEIGHT_DECAY, STEP = 1e-3, 0.9, 0.999, 1e-8, 0.01, 10
STEP_SIZE = LR / (1 - BETA1**STEP)
INV_BIAS2 = (1 - BETA2**STEP) ** -0.5

BENCH_CASES = (
    Case({"N": 1 << 20}, level="default"),
    Case({"N": 1 << 24}),
    Case({"N": 1 << 26}),
    Case({"N": 1 << 27}, level="quick", baselines=True),
    Case({"N": (1 << 27) - 1}),
)

# Around a pack, a warp and a block; 65537: a tail of one. offset1: views that start one element
# in; mixed1: only g does, so that no common 16-byte boundary exists. special: NaN, infinities,
# zeros and subnormal numbers in each of the four.
TEST_CASES = (
    *(Case({"N": n}) for n in (0, 1, 31, 33, 1023, 1025, 4096, 65537)),
    *(Case({"N": n}, layout="offset1") for n in (1, 33, 4099)),
    *(Case({"N": n}, layout="mixed1") for n in (33, 4099)),
    Case({"N": 1025}, layout="special"),
)


def make_inputs(case: Case, dtype: str, device: str, seed: int) -> Tensors:
    """Weights of 0.02, gradients and moments of 0.01: an update is about a hundredth of its
    weight, so that an error in it shows."""
    shape = (case.dims["N"],)
    p, g, m, root = (
        random_tensor(shape, dtype, device, 4 * seed + i, scale)
        for i, scale in enumerate((0.02, 0.01, 0.01, 0.01))
    )
    tensors = {"p": p, "g": g, "m": m, "v": root.square_()}
    if case.layout == "special":
        inf, nan, tiny = float("inf"), float("nan"), 1e-40
        for first, tensor in enumerate(tensors.values()):
            for i, value in enumerate((nan, inf, -inf, 0.0, -0.0, tiny, -tiny)):
                # Never a negative v but -0: it would be the square root that is tested.
                tensor[first + 10 * i :: 200] = abs(value) if first == 3 and value else value
    if case.layout in ("offset1", "mixed1"):
        for name in tensors if case.layout == "offset1" else ("g",):
            tensors[name] = view_from_element(tensors[name], 1)
    return tensors


def _moments(tensors: Tensors) -> tuple[torch.Tensor, ...]:
    """(p, g, m, v, new m, new v) in float64."""
    p, g, m, v = (tensors[name].double() for name in ("p", "g", "m", "v"))
    return p, g, m, v, m + (1 - BETA1) * (g - m), v + (1 - BETA2) * (g * g - v)


def reference(tensors: Tensors) -> torch.Tensor:
    p, *_, m, v = _moments(tensors)
    step: torch.Tensor = LR * WEIGHT_DECAY * p + STEP_SIZE * m / (v.sqrt() * INV_BIAS2 + EPS)
    return p - step


def accumulation_m(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """Half an ulp each for the difference, the constant and the product, times 1 - beta1."""
    _, g, m, *_ = _moments(tensors)
    return (g - m).abs() * (1.5 * (1 - BETA1))


def accumulation_v(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """As for m, and half an ulp for the square."""
    _, g, _, v, *_ = _moments(tensors)
    return (1 - BETA2) * (0.5 * g * g + 1.5 * (g * g - v).abs())


def accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """The update's relative error times the update, and that of the decay.

    Of the update: what the new m lacks, half of what the new v does, and half an ulp each for both
    roundings, square root, two constants, two products, eps and its sum, and the division. The
    decay is a hundred-thousandth of p; its sum with the update is rounded once.
    """
    p, *_, m, v = _moments(tensors)
    per_m = STEP_SIZE / (v.sqrt() * INV_BIAS2 + EPS)
    update = (m * per_m).abs()
    error_of_v = (accumulation_v(tensors, v) / v).nan_to_num(0.0) * 0.5 * update
    decay = LR * WEIGHT_DECAY * p.abs()
    total: torch.Tensor = accumulation_m(tensors, m) * per_m + error_of_v + 5.0 * update
    return total + 1.5 * decay


def eager(
    p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    m_out = m.lerp(g, 1 - BETA1)
    v_out = v.lerp(g * g, 1 - BETA2)
    update = STEP_SIZE * m_out / (v_out.sqrt() * INV_BIAS2 + EPS)
    return p - (LR * WEIGHT_DECAY * p + update), m_out, v_out


def _cuda_configs(case: Case, dtype: str) -> list[Config]:
    return [
        {"threads": threads, "vectors": vectors}
        for threads in (128, 256, 512)
        for vectors in (1, 2, 4)
    ]


def _triton_configs(case: Case, dtype: str) -> list[Config]:
    return [
        {"BLOCK_SIZE": 32 * warps * elements, "num_warps": warps}
        for warps in (2, 4, 8)
        for elements in (4, 8, 16)
    ]


def _bytes_of(n_tensors: int, case: Case, dtype: str) -> int:
    return n_tensors * case.dims["N"] * ITEMSIZE[dtype]


_MOMENT = Tolerance(
    0.5,
    0.02,
    "0.5: float32 arithmetic whose last sum rounds to nearest. 0.02: that has no bias; what the "
    "rounded constant shares in sign is in drift",
)

SPEC = OpSpec(
    stem="adamw",
    family="elementwise",
    formula="m_out, v_out = moments of g; out = p - (lr * weight_decay * p + lr * m' / sqrt(v'))",
    arguments=("p", "g", "m", "v"),
    dtypes=("f32",),
    bench_cases=BENCH_CASES,
    test_cases=TEST_CASES,
    make_inputs=make_inputs,
    output_shape=lambda case: (case.dims["N"],),
    reference=reference,
    accumulation=accumulation,
    further_outputs=(
        Output(
            "m_out",
            shape=lambda case: (case.dims["N"],),
            reference=lambda t: _moments(t)[4],
            accumulation=accumulation_m,
            tolerances={"f32": _MOMENT},
            # 1 - beta1 as float32 errs alike everywhere, by an eighth of an ulp, in a tenth of m
            drift=lambda case: 0.05,
        ),
        Output(
            "v_out",
            shape=lambda case: (case.dims["N"],),
            reference=lambda t: _moments(t)[5],
            accumulation=accumulation_v,
            tolerances={"f32": _MOMENT},
        ),
    ),
    bytes_read=lambda case, dtype: _bytes_of(4, case, dtype),
    bytes_written=lambda case, dtype: _bytes_of(3, case, dtype),
    # three for each moment but one for the square; the root, and eight more for the weight
    flops=lambda case: 16 * case.dims["N"],
    tolerances={
        "f32": Tolerance(
            0.5,
            0.02,
            "0.5: float32 arithmetic; the last difference rounds to nearest. 0.02: that has no "
            "bias; the update, whose constants are rounded, is a small part of a weight",
        ),
    },
    eager=eager,
    special_values=SpecialValues(
        "as the formula gives: NaN, and an infinite p, m or v (Inf - Inf), give NaN; g beyond "
        "1.8e19 squares to Inf in float32. A zero may have either sign, and subnormal numbers may "
        "be flushed: they are far below eps",
        signed_zeros="any",
        subnormals="flushed",
    ),
    # several tiles; one past a warp; odd, several blocks and a tail
    mutant_cases=(Case({"N": 4096}), Case({"N": 33}), Case({"N": 10001}, layout="offset1")),
    absent={
        "library": "torch._fused_adamw_ steps in place and would change the inputs of the others",
    },
    omitted_mutants={
        "low_precision": "float32 is the dtype that both sides compute in",
        "m_out.low_precision": "float32 is the dtype that both sides compute in",
        "v_out.low_precision": "float32 is the dtype that both sides compute in",
        "swapped_rows": "the operands have no rows",
        "repeated_row": "the operands have no rows",
        "m_out.swapped_rows": "the operands have no rows",
        "m_out.repeated_row": "the operands have no rows",
        "v_out.swapped_rows": "the operands have no rows",
        "v_out.repeated_row": "the operands have no rows",
    },
    tuning={"cuda": _cuda_configs, "triton": _triton_configs},
    sweep_dim="N",
    distribution="normal(0,0.02), moments normal(0,0.01)",
)
