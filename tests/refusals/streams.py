"""Vectors in and out: vector_add, axpby, dropout, adamw."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from edge_tensors import normal

from .calls import R, Refusal, V, alike, f64, spoil


def _in_part(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
    storage = normal((65,), dtype, device)
    return storage[:64], normal((64,), dtype, device), storage[1:]


def _two_vectors() -> Iterator[Refusal]:
    for op in ("vector_add", "axpby"):
        yield Refusal(op, "x of float64", spoil(0, f64, V, V, V), f"{op}: x has dtype", TypeError)
        yield Refusal(op, "y of float64", spoil(1, f64, V, V, V), f"{op}: y has dtype", TypeError)
        yield Refusal(op, "matrices", alike(3, lambda d, v: normal(R, d, v)), f"{op}: x has 2 dim")
        yield Refusal(
            op, "another length", spoil(1, lambda t: t[:63], V, V, V), f"{op}: y has shape"
        )
        yield Refusal(
            op, "every second", spoil(0, lambda t: t[::2], (128,), V, V), f"{op}: x has stride"
        )
        yield Refusal(
            op, "a column", spoil(1, lambda t: t[:, 1], V, (64, 3), V), f"{op}: y has stride"
        )
        yield Refusal(
            op, "expanded", spoil(0, lambda t: t.expand(64), (1,), V, V), f"{op}: x has stride"
        )
        yield Refusal(
            op, "strided out", spoil(2, lambda t: t[::2], V, V, (128,)), f"{op}: out has stri"
        )
        yield Refusal(op, "overlap", _in_part, f"{op}: out overlaps x in part")


def _optimizers() -> Iterator[Refusal]:
    op = "dropout"
    yield Refusal(op, "x of float64", spoil(0, f64, V, V), f"{op}: x has dtype", TypeError)
    yield Refusal(op, "matrices", alike(2, lambda d, v: normal(R, d, v)), f"{op}: x has 2 dim")
    yield Refusal(op, "another length", spoil(1, lambda t: t[:63], V, V), f"{op}: out has shape")
    yield Refusal(op, "every second", spoil(0, lambda t: t[::2], (128,), V), f"{op}: x has stride")
    op, all_v = "adamw", (V,) * 7
    yield Refusal(op, "p of float64", spoil(0, f64, *all_v), f"{op}: p has dtype", TypeError)
    yield Refusal(op, "m of float64", spoil(2, f64, *all_v), f"{op}: m has dtype", TypeError)
    yield Refusal(op, "a short v", spoil(3, lambda t: t[:63], *all_v), f"{op}: v has shape")
    strided = (*all_v[:6], (128,))
    yield Refusal(
        op, "strided v_out", spoil(6, lambda t: t[::2], *strided), f"{op}: v_out has stride"
    )

    def in_part(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
        storage = normal((65,), dtype, device)
        rest = [normal(V, dtype, device, i) for i in range(5)]
        return (*rest[:2], storage[:64], *rest[2:4], storage[1:], rest[4])

    yield Refusal(op, "m_out overlaps m", in_part, f"{op}: m_out overlaps m in part")

    def one_output(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
        tensors = [normal(V, dtype, device, i) for i in range(6)]
        return (*tensors, tensors[5])

    yield Refusal(op, "one output twice", one_output, f"{op}: v_out overlaps m_out")


REFUSALS = (*_two_vectors(), *_optimizers())
