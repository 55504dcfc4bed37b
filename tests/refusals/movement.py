"""What only moves or turns elements: transpose, rope."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from edge_tensors import normal

from .calls import R, Refusal, V, alike, f64, spoil


def _movement() -> Iterator[Refusal]:
    op, turned = "transpose", (6, 8)
    yield Refusal(op, "x of float64", spoil(0, f64, R, turned), f"{op}: x has dtype", TypeError)
    yield Refusal(op, "vectors", alike(2, lambda d, v: normal(V, d, v)), f"{op}: x has 1 dim")
    yield Refusal(op, "out as [M, N]", spoil(1, lambda t: t, R, R), f"{op}: out has shape (8, 6)")
    yield Refusal(
        op, "x as a view", spoil(0, lambda t: t.t(), turned, turned), f"{op}: x is not con"
    )
    yield Refusal(
        op, "out as a view", spoil(1, lambda t: t.t(), R, R), f"{op}: out is not contiguous"
    )
    square = alike(1, lambda d, v: normal((8, 8), d, v))
    yield Refusal(op, "in place", lambda d, v: square(d, v) * 2, f"{op}: out overlaps x, wanted no")

    op, rotary = "rope", ((5, 3, 8), (5, 4), (5, 4), (5, 3, 8))
    yield Refusal(op, "x of float64", spoil(0, f64, *rotary), f"{op}: x has dtype", TypeError)
    yield Refusal(op, "sin of float64", spoil(2, f64, *rotary), f"{op}: sin has dtype", TypeError)
    yield Refusal(op, "x as a matrix", spoil(0, lambda t: t[0], *rotary), f"{op}: x has 2 dim")
    yield Refusal(
        op, "odd heads", spoil(0, lambda t: t[..., :7], *rotary), f"{op}: x has 7 columns"
    )
    whole = (rotary[0], (5, 8), *rotary[2:])
    yield Refusal(
        op, "cos of whole heads", spoil(1, lambda t: t, *whole), f"{op}: cos has shape (5, 8)"
    )
    yield Refusal(op, "a short out", spoil(3, lambda t: t[:4], *rotary), f"{op}: out has shape")
    wide = (rotary[0], (5, 8), *rotary[2:])
    yield Refusal(
        op, "strided cos", spoil(1, lambda t: t[:, ::2], *wide), f"{op}: cos is not contig"
    )

    def in_part(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
        storage = normal((6, 3, 8), dtype, device)
        angles = [normal((5, 4), dtype, device, i) for i in range(2)]
        return storage[:5], *angles, storage[1:]

    yield Refusal(op, "overlap", in_part, f"{op}: out overlaps x in part")

    def angles_in_out(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
        x, cos, sin, out = (normal(shape, dtype, device) for shape in rotary)
        return x, cos, out.view(-1)[: sin.numel()].view(sin.shape), out

    yield Refusal(op, "sin in out", angles_in_out, f"{op}: out overlaps sin, wanted no")


REFUSALS = tuple(_movement())
