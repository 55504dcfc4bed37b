"""What swiglu and swiglu_backward share: cases, inputs, the error of a float32 sigmoid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.spec import Case, Config, SpecialValues, Tensors, random_tensor, view_from_element

if TYPE_CHECKING:
    import torch

DTYPES = ("bf16", "f32", "f16")

# packed: two column halves of one [M, 2 * I] tensor, as a projection of both leaves them.
BENCH_CASES = (
    Case({"M": 16384, "I": 14336}, level="quick", baselines=True),
    Case({"M": 16384, "I": 14336}, layout="packed", level="default", baselines=True),
    Case({"M": 8192, "I": 11008}),
    Case({"M": 32768, "I": 2048}, level="default"),
    Case({"M": 1, "I": 14336}),
    Case({"M": 16, "I": 14336}, level="default", baselines=True),
    Case({"M": 8192, "I": 28672}),
)

# Nothing, one element, shorter than a vector, odd, one past a tile. packed: strided rows, of whole
# vectors, of odd length, of one element. offset1: views one element into their storage; mixed1:
# only gate is. special: NaN, infinities, zeros, subnormal and very large numbers.
TEST_CASES = (
    *(Case({"M": m, "I": i}) for m, i in ((0, 8), (3, 0), (1, 1), (5, 3), (33, 129), (1, 8193))),
    *(Case({"M": m, "I": i}, layout="packed") for m, i in ((1, 40), (9, 1), (7, 1000), (5, 2049))),
    Case({"M": 70, "I": 33}, layout="packed"),
    *(Case({"M": 13, "I": 257}, layout=layout) for layout in ("offset1", "mixed1")),
    Case({"M": 11, "I": 96}, layout="special"),
)
# several tiles; smaller than a warp; odd, in strided rows
MUTANT_CASES = (
    Case({"M": 16, "I": 512}),
    Case({"M": 3, "I": 7}),
    Case({"M": 33, "I": 129}, layout="packed"),
)

SPECIAL_VALUES = SpecialValues(
    "NaN where the formula has it: for a gate of -Inf, since -Inf * 0 is NaN as in torch, and for "
    "Inf * 0; a backward gate of +Inf gives a dgate of NaN. Zeros have the sign of the product. A "
    "sigmoid below 2^-126 (gate < -87.3) may count as 0, and with it the result, since float32 "
    "exp overflows there; subnormal results may become 0",
    signed_zeros="kept",
    subnormals="flushed",
)


def make_inputs(names: tuple[str, ...], case: Case, dtype: str, device: str, seed: int) -> Tensors:
    """Normal values; `gate` and `up` lie in one tensor where the case is packed."""
    m, i = case.dims["M"], case.dims["I"]
    tensors = {
        name: random_tensor((m, i), dtype, device, 4 * seed + n) for n, name in enumerate(names)
    }
    if case.layout == "packed":
        packed = random_tensor((m, 2 * i), dtype, device, 4 * seed)
        tensors |= {"gate": packed[:, :i], "up": packed[:, i:]}
    if case.layout == "special":
        for n, tensor in enumerate(tensors.values()):
            _plant(tensor, 1 + n)
    if case.layout in ("offset1", "mixed1"):
        for name in names if case.layout == "offset1" else ("gate",):
            tensors[name] = view_from_element(tensors[name].reshape(-1), 1).view(m, i)
    return tensors


def _plant(tensor: torch.Tensor, step: int) -> None:
    """Rows of one special value each, in every `step`th column: each meets normal numbers and, in
    the first columns, its like."""
    import torch

    inf, finfo = float("inf"), torch.finfo(tensor.dtype)
    values = (float("nan"), inf, -inf, 0.0, -0.0, finfo.smallest_normal / 4, 80.0, -80.0, -100.0)
    for row, value in enumerate(values):
        tensor[row, ::step] = value
    if step == 1:  # products of two of these overflow on the way
        tensor[9, ::7], tensor[10, ::7] = finfo.max, finfo.min


def sigmoid_error(gate: torch.Tensor) -> torch.Tensor:
    """Relative error of float32's 1 / (1 + exp(-gate)), in eps(float32).

    exp2: 2 (the PTX manual's 2^-22), and what the product with log2(e), rounded itself and by 0.11
    in its constant, does to it: 0.62 |gate|. The quotient passes on a share 1 - sigmoid of these.
    Beside them 0.5 for the sum and 1 for the reciprocal.
    """
    import torch

    passed_on = torch.where(gate == float("-inf"), 1.0, (-gate).sigmoid())
    return 1.5 + passed_on * (2.0 + 0.62 * gate.abs())


def lost(gate: torch.Tensor) -> torch.Tensor:
    """Where the sigmoid is below float32's smallest normal number, and may count as 0."""
    import torch

    return gate.sigmoid() < torch.finfo(torch.float32).smallest_normal


def cuda_configs(case: Case, dtype: str) -> list[Config]:
    return [
        {"threads": threads, "vectors": vectors}
        for threads in (64, 128, 256, 512)
        for vectors in (1, 2)
    ]


def triton_configs(case: Case, dtype: str) -> list[Config]:
    return [
        {"BLOCK_SIZE": 32 * warps * elements, "num_warps": warps}
        for warps in (2, 4, 8)
        for elements in (4, 8, 16)
    ]
