"""What the matrix products share: inputs in four layouts, the error of a tensor core's sums, the
configurations of both sides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.spec import ITEMSIZE, Case, Config, Tensors, Tolerance, random_tensor
from harness.specs._matmul_layout import letters_and_lead, tma_takes
from harness.specs._matmul_triton import triton_configs

if TYPE_CHECKING:
    import torch

# K = 0 leaves the epilogue of the bias; extents around and off the tile and off the 16-byte vector,
# on each side alone and on all three; a long K shows a careless accumulator.
TEST_SHAPES = (
    (0, 16, 16),
    (16, 0, 16),
    (5, 7, 0),
    (1, 1, 1),
    (16, 16, 16),
    (128, 128, 64),
    (127, 128, 64),
    (128, 129, 64),
    (128, 128, 65),
    (33, 31, 127),
    (257, 264, 72),
    (64, 64, 4096),
    (300, 1000, 520),
)
# rows of x with NaN, infinities, zeros and subnormal numbers
SPECIAL_CASE = Case({"M": 33, "N": 40, "K": 48}, layout="special")
# tiles and a long sum; smaller than a tile; odd on every side
MUTANT_CASES = (
    Case({"M": 96, "N": 104, "K": 1024}),
    Case({"M": 5, "N": 7, "K": 3}),
    Case({"M": 33, "N": 31, "K": 127}),
)
OMITTED_MUTANTS = {
    "low_precision@5x7x3": "three terms are one partial product: there is nothing to sum",
}

DISTRIBUTION = "x,b normal(0,1); w normal(0,1/K)"

# The tiles of the wgmma form (csrc/common/matmul_wgmma.cuh). Of the 227 KB of shared memory that a
# Hopper block may use, it keeps 34 for pieces of out on their way, alignment, bias and barriers;
# the rest is stages of 64 k.
_WGMMA_TILES = ((128, 256), (256, 128), (128, 128), (128, 64))
_HOPPER_SMS = 132
_HOPPER_SHARED_BYTES = 227 * 1024
_HOPPER_KEPT_BYTES = 34 * 1024 + 128
# The tiles of csrc/common/matmul_mma.cuh: what is left for problems that TMA cannot take.
_MMA_TILES = (
    (128, 256, 3),
    (128, 256, 4),
    (256, 128, 3),
    (128, 128, 3),
    (128, 128, 4),
    (64, 64, 4),
)


def rounded_once(dtype: str) -> Tolerance:
    return Tolerance(
        0.5,
        0.02,
        f"0.5: float32 accumulation and epilogue, rounded to {dtype} once, to nearest. 0.02: that "
        "has no bias; truncation shows about 0.35",
    )


def make_inputs(case: Case, dtype: str, device: str, seed: int) -> Tensors:
    """x [M, K] and w [K, N] in the case's layout; 1/sqrt(K) keeps the product's variance at one."""
    m, n, k = case.dims["M"], case.dims["N"], case.dims["K"]
    letters, lead = letters_and_lead(case.layout)
    scale = max(k, 1) ** -0.5
    x = _matrix((m, k), letters[0], dtype, device, seed, 1.0, lead)
    w = _matrix((k, n), letters[1], dtype, device, seed + 1, scale, lead)
    if case.layout == "special":
        plant_special_values(x)
    return {"x": x, "w": w}


def make_inputs_with_bias(case: Case, dtype: str, device: str, seed: int) -> Tensors:
    """The same and b [N], as large as the product, so that both matter to the epilogue."""
    import torch

    tensors = make_inputs(case, dtype, device, seed)
    b = random_tensor((case.dims["N"],), dtype, device, seed + 2)
    if case.layout == "special":
        b[0], b[1], b[2] = -0.0, 0.0, torch.finfo(b.dtype).smallest_normal / 4
    return tensors | {"b": b}


def _matrix(
    shape: tuple[int, int],
    letter: str,
    dtype: str,
    device: str,
    seed: int,
    scale: float,
    lead: str,
) -> torch.Tensor:
    import torch

    stored = shape if letter == "n" else (shape[1], shape[0])
    matrix = random_tensor(stored, dtype, device, seed, scale=scale)
    if lead == "offset1":  # storage that begins an element earlier: rows off every 16 bytes
        storage = torch.empty(1 + matrix.numel(), dtype=matrix.dtype, device=device)
        matrix = storage[1:].view(stored).copy_(matrix)
    return matrix if letter == "n" else matrix.t()


def plant_special_values(x: torch.Tensor) -> None:
    import torch

    inf, tiny = float("inf"), torch.finfo(x.dtype).smallest_normal / 4
    x[0, 3] = float("nan")
    x[1, 0] = inf
    x[2, -1] = -inf
    x[3, 1], x[3, 2] = inf, -inf
    x[4] = -0.0
    x[5] = tiny


def product(tensors: Tensors) -> torch.Tensor:
    """x @ w in float64."""
    return tensors["x"].double() @ tensors["w"].double()


def running_sum(tensors: Tensors) -> torch.Tensor:
    """The size of a sum of K terms of random signs on its way: the root of their summed squares."""
    return (tensors["x"].double().square() @ tensors["w"].double().square()).sqrt()


def growth(tensors: Tensors) -> float:
    """How often float32 rounds at that size.

    Tensor cores truncate the running sum, by an ulp at most, once every 16 terms: K / 16 of one
    sign. Arithmetic that rounds each of K products to nearest stays under sqrt(K). 4 covers the
    alignment of the 16 products, the bias and the epilogue.
    """
    k = tensors["x"].shape[1]
    total: float = 4.0 + k**0.5 + k / 16
    return total


def drift(case: Case) -> float:
    """Tensor cores truncate the running sum towards zero, by half an ulp in the mean."""
    return case.dims["K"] / 32


def low_precision_sum(tensors: Tensors, total: torch.Tensor) -> torch.Tensor:
    """`total` and sixteen terms at a time, summed in the output's dtype."""
    x, w = tensors["x"], tensors["w"]
    for k in range(0, x.shape[1], 16):
        total += (x[:, k : k + 16].float() @ w[k : k + 16].float()).to(x.dtype)
    return total


def bytes_read(case: Case, dtype: str) -> int:
    m, n, k = case.dims["M"], case.dims["N"], case.dims["K"]
    return (m * k + k * n) * ITEMSIZE[dtype]


def bytes_read_with_bias(case: Case, dtype: str) -> int:
    return bytes_read(case, dtype) + case.dims["N"] * ITEMSIZE[dtype]


def bytes_written(case: Case, dtype: str) -> int:
    return case.dims["M"] * case.dims["N"] * ITEMSIZE[dtype]


def flops(case: Case) -> int:
    return 2 * case.dims["M"] * case.dims["N"] * case.dims["K"]


def output_shape(case: Case) -> tuple[int, int]:
    return case.dims["M"], case.dims["N"]


def _stages_that_fit(block_m: int, block_n: int) -> int:
    left = _HOPPER_SHARED_BYTES - _HOPPER_KEPT_BYTES
    return min(left // ((block_m + block_n) * 64 * 2), 8)


def cuda_configs(case: Case, dtype: str) -> list[Config]:
    """Tiles with all stages that fit; clusters, which share boxes of 64 columns of w, from 128 on.

    Where large tiles occupy the card, those alone; a block a multiprocessor, or 128, which divide
    powers of two. A stage fewer was 1 to 2 % slower, also where the room went to a whole tile of
    out on its way. Where TMA cannot take the case, the other form's tiles, of which it uses one.
    """
    if not tma_takes(case):
        return [{"block_m": m, "block_n": n, "stages": stages} for m, n, stages in _MMA_TILES]
    occupied = -(-case.dims["M"] // 128) * -(-case.dims["N"] // 256) >= _HOPPER_SMS
    return [
        {
            "block_m": m,
            "block_n": n,
            "stages": _stages_that_fit(m, n),
            "cluster": cluster,
            "blocks": blocks,
        }
        for m, n in _WGMMA_TILES
        if not occupied or m * n == 128 * 256
        for cluster, blocks in ((1, 0), (2, 0), (2, 128))
        if (cluster == 1 or n >= 128) and (blocks == 0 or occupied)
    ]


TUNING: dict[str, Any] = {"cuda": cuda_configs, "triton": triton_configs}
