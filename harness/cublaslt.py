"""The library side of `matmul`: cublasLt, with the fastest of the algorithms that it suggests.

torch.mm takes the first suggestion of a heuristic; this asks for more and times them, on the
caller's own tensors, the first time that a product is seen.
"""

from __future__ import annotations

import functools
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .cublaslt_calls import (
    SUCCESS,
    WIDEST_ALIGNMENT,
    Algorithm,
    CublasLtError,
    Product,
    device_guard,
    status_text,
)

if TYPE_CHECKING:
    import torch

_ROUNDS = 5  # every suggestion takes its turn in each, so that a falling clock hurts all alike
_ROUND_US = 500.0  # of one suggestion: many launches of a short product, one of a long one
_MOST_LAUNCHES = 50


@dataclass(frozen=True)
class Plan:
    """The launch that won for one product: suggestion `winner` of `times_us`, which are medians in
    microseconds in the heuristic's order, None where a suggestion failed."""

    winner: int
    times_us: tuple[float | None, ...]
    _product: Product
    _algorithm: Algorithm

    def launch(self, x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> None:
        """Queue the product on the current stream of x's device."""
        with device_guard(x.device):
            status = self._product.launch(x, w, out, self._algorithm)
        if status != SUCCESS:
            raise CublasLtError(f"cublasLt: the product failed: {status_text(status)}")

    def __str__(self) -> str:
        won = self.times_us[self.winner]
        return f"cublasLt suggestion {self.winner} of {len(self.times_us)}, {won:.2f} us"


def best_matmul(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """out[m, n] = x[m, k] @ w[k, n] by the fastest algorithm that cublasLt suggests; returns out.

    bf16 or f16, fp32 sums; x and w row-major or transposed views, out row-major. The first call of
    a product searches and synchronises, later ones queue one launch. Raises CublasLtError.
    """
    if out.numel() == 0:
        return out
    if x.shape[1] == 0:
        return out.zero_()
    plan_of(x, w, out).launch(x, w, out)
    return out


_plans: dict[tuple[Any, ...], Plan] = {}


def plan_of(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> Plan:
    """The plan of a product that is not empty, found on these tensors at the first call: `out` is
    overwritten then."""
    addresses = x.data_ptr() | w.data_ptr() | out.data_ptr() | WIDEST_ALIGNMENT
    alignment = addresses & -addresses
    key = (x.shape, x.stride(), w.shape, w.stride(), out.stride(), x.dtype, x.device, alignment)
    plan = _plans.get(key)
    if plan is None:
        with device_guard(x.device):
            plan = _plans[key] = _search(Product(x, w, out, alignment), x, w, out)
    return plan


def _search(product: Product, x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> Plan:
    """Time what the heuristic suggests, in turns, and keep the fastest by its median."""
    suggestions = product.suggestions()
    algorithms = [suggestion.algorithm for suggestion in suggestions]
    launches = [functools.partial(product.launch, x, w, out, each) for each in algorithms]
    # A suggestion may be refused when it is launched: it is out of the race, no more.
    works = [i for i, launch in enumerate(launches) if launch() == SUCCESS]
    if not works:
        m, k, n = *x.shape, w.shape[1]
        raise CublasLtError(
            f"cublasLt: none of {len(suggestions)} suggestions for M={m}, N={n}, K={k}, {x.dtype} "
            "can run here; compare with torch.mm instead"
        )
    counts = {i: _count_for(_time_us(launches[i], 1)) for i in works}
    samples: dict[int, list[float]] = {i: [] for i in works}
    for _ in range(_ROUNDS):
        for i in works:
            samples[i].append(_time_us(launches[i], counts[i]))
    medians = {i: statistics.median(samples[i]) for i in works}
    winner = min(works, key=medians.__getitem__)
    times = tuple(medians.get(i) for i in range(len(algorithms)))
    return Plan(winner, times, product, algorithms[winner])


def _count_for(once_us: float) -> int:
    return max(1, min(_MOST_LAUNCHES, int(_ROUND_US / max(once_us, 1.0))))


def _time_us(launch: functools.partial[int], count: int) -> float:
    """Microseconds a launch, of `count` behind each other between two events."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        launch()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / count
