"""Rows in and out: softmax, swiglu and its gradient."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from edge_tensors import normal

from .calls import R, Refusal, V, alike, f64, spoil


def _in_part(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
    storage = normal((9, 8), dtype, device)
    return storage[:8], storage[1:]


def _softmax() -> Iterator[Refusal]:
    op = "softmax"
    yield Refusal(op, "x of float64", spoil(0, f64, R, R), f"{op}: x has dtype", TypeError)
    yield Refusal(op, "out of float64", spoil(1, f64, R, R), f"{op}: out has dtype", TypeError)
    yield Refusal(op, "vectors", alike(2, lambda d, v: normal(V, d, v)), f"{op}: x has 1 dim")
    yield Refusal(op, "another width", spoil(1, lambda t: t[:, :5], R, R), f"{op}: out has shape")
    yield Refusal(op, "transposed", spoil(0, lambda t: t.t(), (6, 8), R), f"{op}: x has last-dim")
    yield Refusal(
        op, "transposed out", spoil(1, lambda t: t.t(), R, (6, 8)), f"{op}: out has last-"
    )
    yield Refusal(
        op,
        "every second column",
        spoil(0, lambda t: t[:, ::2], (8, 12), R),
        f"{op}: x has last-dim",
    )
    yield Refusal(
        op,
        "expanded rows",
        spoil(0, lambda t: t.expand(8, 6), (1, 6), R),
        f"{op}: x has row stride",
    )
    yield Refusal(
        op,
        "expanded columns",
        spoil(0, lambda t: t.expand(8, 6), (8, 1), R),
        f"{op}: x has last-dim",
    )
    yield Refusal(op, "overlap", _in_part, f"{op}: out overlaps x in part")


def _gated() -> Iterator[Refusal]:
    for op, names in (
        ("swiglu", ("gate", "up", "out")),
        ("swiglu_backward", ("dout", "gate", "up", "out", "dup")),
    ):
        plain = (R,) * len(names)
        first, last = names[0], names[-1]
        double = spoil(0, f64, *plain)
        yield Refusal(op, "first of float64", double, f"{op}: {first} has dtype", TypeError)
        at_end = len(names) - 1
        yield Refusal(
            op, "narrow", spoil(at_end, lambda t: t[:, :5], *plain), f"{op}: {last} has sh"
        )
        vectors = alike(len(names), lambda d, v: normal(V, d, v))
        yield Refusal(op, "vectors", vectors, f"{op}: {first} has 1 dim")
        swapped = ((6, 8), *plain[1:])
        transposed = spoil(0, lambda t: t.t(), *swapped)
        yield Refusal(op, "transposed", transposed, f"{op}: {first} has last-dim")
        expanded = spoil(1, lambda t: t.expand(8, 6), plain[0], (1, 6), *plain[2:])
        yield Refusal(op, "expanded rows", expanded, f"{op}: {names[1]} has row stride")

        def in_part(dtype: str, device: str, n: int = len(names)) -> tuple[torch.Tensor, ...]:
            storage = normal((9, 6), dtype, device)
            rest = [normal(R, dtype, device, i) for i in range(n - 2)]
            return (storage[:8], *rest, storage[1:])

        yield Refusal(op, "overlap", in_part, f"{op}: {last} overlaps {first} in part")

    def one_output(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
        tensors = [normal(R, dtype, device, i) for i in range(4)]
        return (*tensors, tensors[3])

    yield Refusal(op, "one output twice", one_output, f"{op}: dup overlaps out")


REFUSALS = (*_softmax(), *_gated())
