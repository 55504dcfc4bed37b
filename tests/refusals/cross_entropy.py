"""Logits and targets: cross_entropy and its gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from edge_tensors import normal

from .calls import R, Refusal, f64, put


def _classified(shapes: str, bad: Callable[[list[torch.Tensor]], None] = lambda ts: None):
    """(logits, targets, outputs), one a letter of `shapes`: r as the logits, n a number a row."""

    def arguments(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
        target = torch.zeros(8, dtype=torch.int64, device=device)
        outs = [
            normal(R, dtype, device) if s == "r" else normal((8,), "f32", device) for s in shapes
        ]
        tensors = [normal(R, dtype, device), target, *outs]
        bad(tensors)
        return tuple(tensors)

    return arguments


def _loss_in_x(tensors: list[torch.Tensor]) -> None:
    tensors[-1] = tensors[0].view(-1).view(torch.float32)[:8]


def _cross_entropy() -> Iterator[Refusal]:
    for op, shapes, loss in (
        ("cross_entropy", "n", "out"),
        ("cross_entropy_dlogits", "rn", "loss"),
    ):
        calls = (
            ("x of float64", put(0, f64), "x has dtype", TypeError),
            ("target of int32", put(1, torch.Tensor.int), "target has dtype", TypeError),
            ("losses of f64", put(-1, f64), f"{loss} has dtype", TypeError),
            ("one row", put(0, lambda t: t[0]), "x has 1 dim", ValueError),
            ("a short target", put(1, lambda t: t[:7]), "target has shape (7,)", ValueError),
            ("short losses", put(-1, lambda t: t[:7]), f"{loss} has shape (7,)", ValueError),
            ("every second", put(1, _doubled), "target has stride 2", ValueError),
            ("loss in x", _loss_in_x, f"{loss} overlaps x", ValueError),
        )
        for name, bad, text, error in calls:
            yield Refusal(op, name, _classified(shapes, bad), f"{op}: {text}", error)
    op = "cross_entropy"
    turned = _classified("n", put(0, lambda t: t.view(6, 8).t()))
    yield Refusal(op, "transposed", turned, f"{op}: x has last-dimension stride 8")
    wide = _classified("n", put(0, lambda t: t[:1].expand(8, 6)))
    yield Refusal(op, "expanded rows", wide, f"{op}: x has row stride 0")
    op = "cross_entropy_dlogits"
    narrow = _classified("rn", put(2, lambda t: t[:, :5]))
    yield Refusal(op, "another width", narrow, f"{op}: out has shape (8, 5)")
    turned = _classified("rn", put(2, lambda t: t.view(6, 8).t()))
    yield Refusal(op, "transposed out", turned, f"{op}: out has last-dimension stride 8")

    def shifted(tensors: list[torch.Tensor]) -> None:
        storage = tensors[0].new_zeros((9, 6))
        tensors[0], tensors[2] = storage[:8], storage[1:]

    yield Refusal(op, "overlap", _classified("rn", shifted), f"{op}: out overlaps x in part")


def _doubled(t: torch.Tensor) -> torch.Tensor:
    """The same values, two elements apart."""
    return t.repeat_interleave(2)[::2]


REFUSALS = tuple(_cross_entropy())
