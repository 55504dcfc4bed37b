"""dropout: out = x / (1 - p) where a Philox word says keep, else 0; no mask is stored."""

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
    view_from_element,
)

if TYPE_CHECKING:
    import torch

P, SEED = 0.1, 0  # defaults of both launchers

BENCH_CASES = (
    Case({"N": 1 << 20}, level="default"),
    Case({"N": 1 << 24}),
    Case({"N": 1 << 26}),
    Case({"N": 1 << 28}, level="quick", baselines=True),
    Case({"N": (1 << 28) - 1}),
)

# Around one counter (4 elements), one 16-byte pack, a warp and a block; 65537: a tail of one.
# offset1: views that start one element in, where no pack holds whole groups of four. special:
# NaN, infinities, zeros of both signs and subnormal numbers, some of them dropped.
TEST_CASES = (
    *(Case({"N": n}) for n in (0, 1, 5, 31, 33, 1023, 1025, 4096, 65537)),
    *(Case({"N": n}, layout="offset1") for n in (1, 33, 4099)),
    Case({"N": 1025}, layout="special"),
)


def make_inputs(case: Case, dtype: str, device: str, seed: int) -> Tensors:
    x = random_tensor((case.dims["N"],), dtype, device, seed)
    if case.layout == "special":
        values = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-40, -1e-40, 3.3e38)
        for i, value in enumerate(values):
            x[i::100] = value
    if case.layout == "offset1":
        x = view_from_element(x, 1)
    return {"x": x}


_WORD = 0xFFFFFFFF


def philox(
    counter: tuple[torch.Tensor, ...], key: tuple[int, int], rounds: int = 10
) -> tuple[torch.Tensor, ...]:
    """Philox-4x32 of Salmon et al. (2011): four random words a counter, as int64 below 2^32."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(rounds):
        # The product wraps modulo 2^64, and masking undoes the sign that the shift copied.
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1 = ((b >> 32) & _WORD) ^ c1 ^ k0, b & _WORD
        c2, c3 = ((a >> 32) & _WORD) ^ c3 ^ k1, a & _WORD
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return c0, c1, c2, c3


def keep_mask(n: int, device: torch.device | str, p: float = P, seed: int = SEED) -> torch.Tensor:
    """Element 4 * group + i is kept where word i of counter `group` reaches floor(p * 2^32)."""
    import torch

    group = torch.arange((n + 3) // 4, device=device)
    zero = torch.zeros_like(group)
    words = philox((group & _WORD, group >> 32, zero, zero), (seed & _WORD, seed >> 32 & _WORD))
    return (torch.stack(words, -1) >= int(p * 2**32)).view(-1)[:n]


def reference(tensors: Tensors) -> torch.Tensor:
    import torch

    x = tensors["x"].double()
    return torch.where(keep_mask(x.numel(), x.device), x / (1 - P), 0.0)


def eager(x: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.where(keep_mask(x.numel(), x.device), x * (1 / (1 - P)), 0.0)


def _low_precision(tensors: Tensors) -> torch.Tensor:
    """The factor 1 / (1 - p) kept in the input's dtype."""
    import torch

    x = tensors["x"]
    factor = torch.tensor(1 / (1 - P), dtype=x.dtype, device=x.device)
    return torch.where(keep_mask(x.numel(), x.device), x * factor, torch.zeros_like(x))


def _cuda_configs(case: Case, dtype: str) -> list[Config]:
    """16 to 64 bytes in flight a thread: Philox needs registers and many warps to hide behind."""
    return [
        {"threads": threads, "vectors": vectors}
        for threads in (128, 256, 512)
        for vectors in (1, 2, 4)
    ]


def _triton_configs(case: Case, dtype: str) -> list[Config]:
    packs = 16 // ITEMSIZE[dtype]
    return [
        {"BLOCK_SIZE": 32 * warps * packs * vectors, "num_warps": warps}
        for warps in (2, 4, 8)
        for vectors in (1, 2, 4)
    ]


SPEC = OpSpec(
    stem="dropout",
    family="elementwise",
    formula="out = x / (1 - p) where Philox-4x32-10 says keep, else 0",
    arguments=("x",),
    dtypes=("bf16", "f32"),
    full_dtypes=("f32",),
    bench_cases=BENCH_CASES,
    test_cases=TEST_CASES,
    make_inputs=make_inputs,
    output_shape=lambda case: (case.dims["N"],),
    reference=reference,
    # float32's rounding of 1 / (1 - p), and in bf16 of the product too, half an ulp each
    accumulation=lambda t, reference: reference.abs() * (1.0 if t["x"].itemsize == 2 else 0.5),
    # That factor errs alike in every element.
    drift=lambda case: 0.5,
    bytes_read=lambda case, dtype: case.dims["N"] * ITEMSIZE[dtype],
    bytes_written=lambda case, dtype: case.dims["N"] * ITEMSIZE[dtype],
    # one product; Philox is integer work
    flops=lambda case: case.dims["N"],
    tolerances={
        "f32": Tolerance(
            0.5,
            0.02,
            "0.5: one product with a float32 factor, rounded to nearest. 0.02: that has no bias; "
            "what the factor's own rounding shares in sign is in drift",
        ),
        "bf16": Tolerance(
            0.5,
            0.02,
            "0.5: the float32 product, rounded to nearest once more. 0.02: ties go to even, which "
            "has no bias; truncation shows about 0.35",
        ),
    },
    eager=eager,
    low_precision=_low_precision,
    special_values=SpecialValues(
        "an element that is dropped becomes +0 whatever it was, NaN and Inf too (torch's own "
        "dropout multiplies by the mask and keeps NaN); one that is kept is multiplied as IEEE "
        "754 says: zeros keep their sign, subnormal numbers are kept, overflow gives Inf",
        signed_zeros="kept",
        subnormals="kept",
    ),
    # The last element of each is kept: a mutant that zeroes it must show.
    mutant_cases=(Case({"N": 4096}), Case({"N": 33}), Case({"N": 10003}, layout="offset1")),
    absent={
        "library": "torch's fused dropout draws its own Philox stream: another mask by design",
    },
    omitted_mutants={
        "low_precision:f32": "float32 is the dtype that both sides compute in",
        "truncated:f32": "the rounded factor may err by as much as truncation does",
        "swapped_rows": "the operand has no rows",
        "repeated_row": "the operand has no rows",
    },
    tuning={"cuda": _cuda_configs, "triton": _triton_configs},
    sweep_dim="N",
)
