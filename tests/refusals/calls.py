"""A call to refuse, and the arguments of one: right ones, then something wrong with one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from edge_tensors import normal

V, R = (64,), (8, 6)  # the shapes of a vector and of rows


@dataclass(frozen=True)
class Refusal:
    """A call that must be refused before anything is launched; `text` begins the message."""

    op: str
    name: str
    arguments: Callable[[str, str], tuple[torch.Tensor, ...]]
    text: str
    error: type[Exception] = ValueError


def alike(n_tensors: int, build: Callable[[str, str], torch.Tensor]):
    """One tensor for every argument, each built anew."""
    return lambda dtype, device: tuple(build(dtype, device) for _ in range(n_tensors))


def spoil(position: int, bad: Callable[[torch.Tensor], torch.Tensor], *shapes: tuple[int, ...]):
    """Normal tensors of `shapes`, the one at `position` turned into something else."""

    def arguments(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
        tensors = [normal(shape, dtype, device, i) for i, shape in enumerate(shapes)]
        tensors[position] = bad(tensors[position])
        return tuple(tensors)

    return arguments


def put(position: int, make: Callable[[torch.Tensor], torch.Tensor]):
    """For calls whose arguments are not all alike: what spoils the list of them at `position`."""

    def bad(tensors: list[torch.Tensor]) -> None:
        tensors[position] = make(tensors[position])

    return bad


def f64(t: torch.Tensor) -> torch.Tensor:
    return t.double()
