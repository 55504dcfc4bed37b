"""Products of matrices, plain and with an epilogue of a bias."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from edge_tensors import normal

from .calls import Refusal, f64, spoil

MATMUL = ((4, 6), (6, 8), (8,), (4, 8))


def _in_place(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
    storage = normal((8, 8), dtype, device)
    return storage, normal((8, 8), dtype, device), normal((8,), dtype, device), storage


def _plain_in_place(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
    x, w, _, out = _in_place(dtype, device)
    return x, w, out


def _fused(op: str) -> Iterator[Refusal]:
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


def _plain() -> Iterator[Refusal]:
    op = "matmul"
    plain = ((4, 6), (6, 8), (4, 8))
    yield Refusal(op, "x of float64", spoil(0, f64, *plain), f"{op}: x has dtype", TypeError)
    yield Refusal(op, "w as [N, K]", spoil(1, lambda t: t.t(), *plain), f"{op}: w has shape")
    yield Refusal(op, "out as [N, M]", spoil(2, lambda t: t.t(), *plain), f"{op}: out has shape")
    transposed_out = ((4, 6), (6, 8), (8, 4))
    yield Refusal(
        op, "transposed out", spoil(2, lambda t: t.t(), *transposed_out), f"{op}: out is not contig"
    )
    neither = "is neither row-major nor the transpose of a row-major matrix (strides"
    wide, tall = ((4, 12), *plain[1:]), (plain[0], (8, 12), plain[2])
    yield Refusal(op, "strided x", spoil(0, lambda t: t[:, ::2], *wide), f"{op}: x {neither}")
    yield Refusal(
        op, "part of w.t()", spoil(1, lambda t: t[:, :6].t(), *tall), f"{op}: w {neither}"
    )
    expanded = ((1, 6), *plain[1:])
    yield Refusal(
        op, "expanded x", spoil(0, lambda t: t.expand(4, 6), *expanded), f"{op}: x {neither}"
    )
    yield Refusal(op, "overlap", _plain_in_place, f"{op}: out overlaps x")


REFUSALS = (*_plain(), *_fused("matmul_bias_relu"), *_fused("matmul_bias_gelu"))
