"""What both cross entropies share: cases, logits and targets, the loss and its allowance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.spec import Case, Tensors, Tolerance, random_tensor, view_from_element

if TYPE_CHECKING:
    import torch

_QUICK = ((8192, 128256),)
_DEFAULT = (
    (32768, 4096),
    (8192, 32000),
    (8192, 50257),  # rows start at any even byte
    (4096, 151936),
    (4096, 1 << 18),
)
_FULL = ((32768, 1024), (16384, 8192), (8192, 32768), (4096, 65536))

BENCH_CASES = (
    *(Case({"M": m, "V": v}, level="quick", baselines=True) for m, v in _QUICK),
    *(Case({"M": m, "V": v}, level="default", baselines=v in (4096, 50257)) for m, v in _DEFAULT),
    *(Case({"M": m, "V": v}) for m, v in _FULL),
)

# Odd and prime widths start rows at any element; 1 column has loss 0; 33 and 129 sit one past a
# warp and a tile; 33003 is wider than a row in one program. padded: the row stride is not the
# width. offset1: everything starts one element in; shifted: the logits alone do. outliers: one
# large value a row. special: NaN, infinities, rows of -Inf only, numbers whose product with log2(e)
# overflows, zeros and subnormal numbers.
TEST_CASES = (
    *(
        Case({"M": m, "V": v})
        for m, v in (
            (0, 128),
            (1, 1),
            (5, 33),
            (3, 31),
            (33, 129),
            (17, 1023),
            (9, 1025),
            (8, 4096),
            (1, 33003),
        )
    ),
    Case({"M": 13, "V": 1000}, layout="padded"),
    Case({"M": 7, "V": 1001}, layout="offset1"),
    Case({"M": 7, "V": 520}, layout="shifted"),
    Case({"M": 13, "V": 1024}, layout="outliers"),
    Case({"M": 11, "V": 257}, layout="special"),
)

# several rows a block; smaller than a warp; odd, one short of a tile
MUTANT_CASES = (Case({"M": 64, "V": 1000}), Case({"M": 3, "V": 31}), Case({"M": 17, "V": 1023}))

SPECIAL_TEXT = (
    "a row with NaN, with +Inf, or of -Inf only gives NaN, as the formula gives where Inf - Inf is "
    "NaN; a target of -Inf beside finite numbers gives a loss of +Inf. A target that is no class "
    "gives a loss of NaN and reads nothing. Zeros may have either sign, Subnormal results may "
    "become 0: exp2 on the GPU flushes them (ex2.approx.ftz)"
)


def make_inputs(case: Case, dtype: str, device: str, seed: int) -> Tensors:
    import torch

    m, v = case.dims["M"], case.dims["V"]
    generator = torch.Generator(device=device).manual_seed(seed + 1)
    target = torch.randint(0, v, (m,), generator=generator, device=device)
    if case.layout == "padded":
        return {"x": random_tensor((m, v + 3), dtype, device, seed)[:, :v], "target": target}
    x = random_tensor((m, v), dtype, device, seed)
    if case.layout in ("offset1", "shifted"):
        x = view_from_element(x.view(-1), 1).view(m, v)
    if case.layout == "offset1":
        target = view_from_element(target, 1)
    if case.layout == "outliers":
        x[:, seed % v] = 1000.0
    if case.layout == "special":
        _plant_special_rows(x, target)
    return {"x": x, "target": target}


def _plant_special_rows(x: torch.Tensor, target: torch.Tensor) -> None:
    import torch

    inf, largest = float("inf"), torch.finfo(x.dtype).max
    x[0, 5] = float("nan")
    x[1, 7] = inf
    x[2, 9], target[2] = -inf, 9
    x[3] = -inf
    x[4, :200], target[4] = -inf, 201  # whole pieces hold nothing else
    x[5] = largest
    x[6, ::2], target[6] = -largest, 1
    x[7, -1], x[7, 0] = inf, -inf
    x[8] = -0.0
    x[9] = torch.finfo(x.dtype).smallest_normal / 4


def loss_reference(tensors: Tensors) -> torch.Tensor:
    import torch

    return torch.nn.functional.cross_entropy(
        tensors["x"].double(), tensors["target"], reduction="none"
    )


def sum_error(n: int) -> float:
    """Relative error of a float32 sum of `n` positive terms, in eps(float32).

    A term passes about log2(n) additions of a tree after n / 256 in a row in one thread; each
    errs by half an ulp at most, in random directions.
    """
    return 0.5 * math.sqrt(math.log2(max(n, 1)) + n / 256)


def loss_accumulation(tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """float32 magnitude of max - x[target] + log(sum): what is relative in the sum is absolute in
    its logarithm.

    The sum: a quarter for exp2, whose errors differ from term to term, the additions, and the
    error of exp2's argument, 1.25 times its distance from the maximum, weighted as the term is. The
    logarithm: one ulp. The difference: half.
    """
    x = tensors["x"].double()
    if x.numel() == 0:
        return reference
    top = x.amax(-1)
    distance = top.unsqueeze(-1) - x
    weights = distance.neg().exp_()
    total = weights.sum(-1)
    mean_distance = weights.mul_(distance).nansum(-1) / total  # exp(-Inf) * Inf counts nothing
    logit = x.gather(-1, tensors["target"].unsqueeze(-1)).squeeze(-1)
    relative = 0.25 + sum_error(x.shape[-1]) + 1.25 * mean_distance
    return relative + total.log() + 0.5 * (top - logit)


def loss_drift(case: Case) -> float:
    """The sum's error may have one sign in all rows; the loss is seldom below 1."""
    return 1.0 + sum_error(case.dims["V"])


def loss_eager(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    import torch

    log_p = torch.nn.functional.log_softmax(x, -1, dtype=torch.float32)
    return torch.nn.functional.nll_loss(log_p, target, reduction="none")


def careless_sum(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Maxima and a running sum of exps, kept in the dtype of `x`."""
    top = x.amax(-1, keepdim=True)
    exponentials = (x - top).exp()
    total = exponentials[..., :1].clone()
    for chunk in exponentials[..., 1:].split(1, -1):
        total += chunk
    return top, total


def careless_loss(tensors: Tensors) -> torch.Tensor:
    x, target = tensors["x"], tensors["target"]
    top, total = careless_sum(x)
    return (top + total.log() - x.gather(-1, target.unsqueeze(-1))).squeeze(-1).float()


def loss_tolerances() -> dict[str, Tolerance]:
    return dict.fromkeys(
        ("bf16", "f32", "f16"),
        Tolerance(
            0.5,
            0.02,
            "0.5: float32 arithmetic, whose last addition rounds to nearest; the loss is float32 "
            "whatever the logits are. 0.02: rounding to nearest has no bias; what the sum's terms "
            "share in sign is in drift",
        ),
    )
