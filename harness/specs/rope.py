"""rope: half-split rotary embedding, one read and one write; all heads share cos and sin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.spec import (
    ITEMSIZE,
    Case,
    Config,
    OpSpec,
    SpecialValues,
    Tensors,
    Tolerance,
    random_tensor,
    torch_dtype,
)

if TYPE_CHECKING:
    import torch

# Query heads of 7 to 70 B models, key heads beside them (8), small heads (64), one shared head.
BENCH_CASES = (
    Case({"T": 8192, "H": 32, "D": 128}, level="quick", baselines=True),
    Case({"T": 16384, "H": 32, "D": 128}),
    Case({"T": 8192, "H": 8, "D": 128}, level="default"),
    Case({"T": 4096, "H": 64, "D": 64}, level="default"),
    Case({"T": 65536, "H": 32, "D": 128}),
    Case({"T": 65536, "H": 1, "D": 64}),
)

# Halves of 1, 3, 33 and 515 columns: single elements; of 4 to 128: packs for one dtype or both; of
# 40 and 48: packs, but no power of two; 33 heads: one past what a thread or a tile takes; 300 and
# 70 tokens: several blocks and a tail. offset1: views that start one element in.
TEST_CASES = (
    *(
        Case({"T": t, "H": h, "D": d})
        for t, h, d in (
            (0, 4, 8),
            (1, 1, 2),
            (33, 7, 6),
            (3, 33, 66),
            (3, 3, 1030),
            (300, 2, 8),
            (5, 3, 16),
            (70, 5, 64),
            (9, 1, 80),
            (17, 4, 96),
            (5, 33, 128),
            (8, 32, 128),
            (2, 3, 256),
        )
    ),
    Case({"T": 5, "H": 3, "D": 64}, layout="offset1"),
    Case({"T": 11, "H": 3, "D": 64}, layout="special"),
)

_SPECIAL = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e-40, -1e-40)
_BASE = 10000.0


def make_inputs(case: Case, dtype: str, device: str, seed: int) -> Tensors:
    import torch

    n_tokens, n_heads, head_dim = (case.dims[name] for name in "THD")
    x = random_tensor((n_tokens, n_heads, head_dim), dtype, device, seed)
    if case.layout == "special":
        for i, value in enumerate(_SPECIAL):
            x[i, i % n_heads, 5 * i] = value
            x[-1, 0, i] = value
            x[-2, -1] = 0.0
    positions = torch.arange(n_tokens, device=device, dtype=torch.float64) + seed % 1000
    exponents = torch.arange(0, head_dim, 2, device=device, dtype=torch.float64) / head_dim
    angles = positions[:, None] * _BASE**-exponents
    tensors = {"x": x, "cos": angles.cos(), "sin": angles.sin()}
    start = 1 if case.layout == "offset1" else 0
    return {name: _placed(tensor, dtype, start) for name, tensor in tensors.items()}


def _placed(values: torch.Tensor, dtype: str, start: int) -> torch.Tensor:
    """The values in `dtype`, `start` elements into their storage."""
    import torch

    values = values.to(torch_dtype(dtype))
    if start == 0:
        return values
    storage = torch.empty(start + values.numel(), dtype=values.dtype, device=values.device)
    return storage[start:].view(values.shape).copy_(values)


def eager(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    import torch

    a, b = x.chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def _magnitude(tensors: Tensors) -> torch.Tensor:
    """|a cos| + |b sin| and |b cos| + |a sin|: what the two products of an element add up to."""
    import torch

    a, b = tensors["x"].double().abs().chunk(2, -1)
    cos, sin = (tensors[name].double().abs()[:, None] for name in ("cos", "sin"))
    return torch.cat((a * cos + b * sin, b * cos + a * sin), -1)


def accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """In float32, half an ulp of each product; their sum is rounded as the output, which
    output_ulps says. Products of two bf16 values are exact in float32, where the sum is rounded
    once before bf16."""
    if tensors["x"].itemsize == 2:
        return reference.abs() * 0.5
    return _magnitude(tensors) * 0.5


def _whole_packs(case: Case, dtype: str) -> bool:
    return case.dims["D"] // 2 * ITEMSIZE[dtype] % 16 == 0


def _cuda_configs(case: Case, dtype: str) -> list[Config]:
    return [
        {"heads": heads, "threads": threads}
        for heads in (1, 2, 4, 8)
        for threads in (128, 256, 512)
        if heads <= case.dims["H"]
    ]


def _triton_configs(case: Case, dtype: str) -> list[Config]:
    """Tiles of 512 to 4096 pairs, 8 to 32 of them a thread."""
    width = 1 << max(case.dims["D"] // 2 - 1, 0).bit_length()
    heads = 1 << max(case.dims["H"] - 1, 0).bit_length()
    return [
        {"TOKENS": tokens, "HEADS": heads, "num_warps": warps}
        for tokens in (1, 2, 4, 8, 16, 32, 64)
        for warps in (1, 2, 4, 8)
        if 512 <= tokens * heads * width <= 4096
        and 8 <= tokens * heads * width // (32 * warps) <= 32
    ]


SPEC = OpSpec(
    stem="rope",
    family="elementwise",
    formula="out = (a cos - b sin, b cos + a sin), a and b the halves of a head",
    arguments=("x", "cos", "sin"),
    dtypes=("bf16", "f32"),
    full_dtypes=("f32",),
    bench_cases=BENCH_CASES,
    test_cases=TEST_CASES,
    make_inputs=make_inputs,
    output_shape=lambda case: tuple(case.dims[name] for name in "THD"),
    reference=lambda t: eager(*(t[name].double() for name in ("x", "cos", "sin"))),
    accumulation=accumulation,
    # cos and sin have the case's dtype, as in Hugging Face's models, flash-attn and Liger, which
    # compute them in float32 and keep them in the model's; D / 2 columns each.
    bytes_read=lambda case, dtype: (
        case.dims["T"] * (case.dims["H"] + 1) * case.dims["D"] * ITEMSIZE[dtype]
    ),
    bytes_written=lambda case, dtype: (
        case.dims["T"] * case.dims["H"] * case.dims["D"] * ITEMSIZE[dtype]
    ),
    # two products and a sum an element
    flops=lambda case: 3 * case.dims["T"] * case.dims["H"] * case.dims["D"],
    tolerances={
        "f32": Tolerance(
            0.5,
            0.02,
            "0.5: the sum of two products, rounded to nearest once. 0.02: rounding to nearest has "
            "no bias; truncation shows about 0.35",
        ),
        "bf16": Tolerance(
            0.5,
            0.02,
            "0.5: float32 inside, rounded to bf16 once, to nearest. 0.02: that has no bias; "
            "truncation shows about 0.35",
        ),
    },
    # torch rounds both products before it adds them
    unfused_rounding=_magnitude,
    extents={"D": (2, 2)},
    eager=eager,
    low_precision=lambda t: eager(t["x"], t["cos"], t["sin"]),
    absent={"library": "torch has no rotary embedding, fused or not, that a single call runs"},
    special_values=SpecialValues(
        "as IEEE 754 products and sums: NaN or Inf in one half reaches both, Inf * 0 is NaN. A "
        "zero may have either sign. Subnormal numbers are kept, but a product that is one has lost "
        "bits before the sum",
        signed_zeros="any",
        subnormals="flushed",
    ),
    # the tuned shape in small; odd, with a half of three; odd, several blocks and a tail
    mutant_cases=(
        Case({"T": 16, "H": 4, "D": 128}),
        Case({"T": 3, "H": 3, "D": 6}),
        Case({"T": 17, "H": 5, "D": 64}),
    ),
    omitted_mutants={
        "low_precision:f32": "float32 is the precision of the kernels themselves",
        "truncated:f32": "float32 arithmetic inside errs by more than its last rounding",
    },
    tuning={"cuda": _cuda_configs, "triton": _triton_configs},
    distribution="x normal(0,1); cos and sin of consecutive positions, base 10000",
    sweep_dim="T",
)
