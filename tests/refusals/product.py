"""A product of matrices: matmul_bias_relu."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from edge_tensors import normal

from .calls import Refusal, f64, spoil

MATMUL = ((4, 6), (6, 8), (8,), (4, 8))


def _in_place(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
    storage = normal((8, 8), dtype, device)
    return storage, normal((8, 8), dtype, device), normal((8,), dtype, device), storage


def _matmul() -> Iterator[Refusal]:
    op = "matmul_bias_relu"
    yield Refusal(op, "x of float64", spoil(0, f64, *MATMUL), f"{op}: x has dtype", TypeError)
    yield Refusal(op, "b of float64", spoil(2, f64, *MATMUL), f"{op}: b has dtype", TypeError)
    yield Refusal(op, "b as a row", spoil(2, lambda t: t[None], *MATMUL), f"{op}: b has 2 dim")
    yield Refusal(op, "w as [N, K]", spoil(1, lambda t: t.t(), *MATMUL), f"{op}: w has shape")
    yield Refusal(op, "a short b", spoil(2, lambda t: t[:7], *MATMUL), f"{op}: b has shape")
    yield Refusal(op, "out as [N, M]", spoil(3, lambda t: t.t(), *MATMUL), f"{op}: out has shape")
    swapped = ((4, 6), (8, 6), (8,), (4, 8))
    yield Refusal(op, "transposed w", spoil(1, lambda t: t.t(), *swapped), f"{op}: w is not contig")
    wide = ((4, 12), *MATMUL[1:])
    yield Refusal(
        op, "strided x", spoil(0, lambda t: t[:, ::2], *wide), f"{op}: x is not contiguous"
    )
    one = (*MATMUL[:2], (1,), MATMUL[3])
    yield Refusal(op, "expanded b", spoil(2, lambda t: t.expand(8), *one), f"{op}: b is not contig")
    yield Refusal(op, "overlap", _in_place, f"{op}: out overlaps x")


REFUSALS = tuple(_matmul())
