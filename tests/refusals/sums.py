"""Sums in float32: reduce_sum, squared_norm, column_sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from edge_tensors import normal

from .calls import R, Refusal, V


def _summed(x: Callable[[str, str], torch.Tensor], n_sums: int, out: str = "f32"):
    """(x, an output of n_sums)."""
    return lambda dtype, device: (x(dtype, device), normal((n_sums,), out, device))


def _sums() -> Iterator[Refusal]:
    def vector(dtype: str, device: str) -> torch.Tensor:
        return normal(V, dtype, device)

    def matrix(dtype: str, device: str) -> torch.Tensor:
        return normal(R, dtype, device)

    for op in ("reduce_sum", "squared_norm"):
        double = _summed(lambda d, v: vector(d, v).double(), 1)
        yield Refusal(op, "x of float64", double, f"{op}: x has dtype", TypeError)
        narrow = _summed(vector, 1, "f16")
        yield Refusal(op, "out of float16", narrow, f"{op}: out has dtype", TypeError)
        yield Refusal(op, "a matrix", _summed(matrix, 1), f"{op}: x has 2 dim")
        yield Refusal(op, "two sums", _summed(vector, 2), f"{op}: out has shape (2,), wanted (1,)")
        second = _summed(lambda d, v: vector(d, v)[::2], 1)
        yield Refusal(op, "every second", second, f"{op}: x has stride 2, wanted 1")
        yield Refusal(op, "overlap", _sums_in_x(V, 1), f"{op}: out overlaps x")
    op = "column_sum"
    double = _summed(lambda d, v: matrix(d, v).double(), 6)
    yield Refusal(op, "x of float64", double, f"{op}: x has dtype", TypeError)
    yield Refusal(op, "out of float16", _summed(matrix, 6, "f16"), f"{op}: out has dt", TypeError)
    yield Refusal(op, "a vector", _summed(vector, 6), f"{op}: x has 1 dim")
    yield Refusal(op, "sums of rows", _summed(matrix, 8), f"{op}: out has shape (8,), wanted (6,)")
    transposed = _summed(lambda d, v: matrix(d, v).t(), 8)
    yield Refusal(op, "transposed", transposed, f"{op}: x has last-dimension stride 6")
    expanded = _summed(lambda d, v: normal((1, 6), d, v).expand(8, 6), 6)
    yield Refusal(op, "expanded rows", expanded, f"{op}: x has row stride 0")
    yield Refusal(op, "overlap", _sums_in_x(R, 6), f"{op}: out overlaps x")


def _sums_in_x(shape: tuple[int, ...], n_sums: int):
    """An output in float32 that lies in x's own memory."""

    def arguments(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
        x = normal(shape, dtype, device)
        return x, x.view(-1).view(torch.float32)[:n_sums]

    return arguments


REFUSALS = tuple(_sums())
