"""Rows to fp8 and scales: quant_fp8_token, quant_fp8_group."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from edge_tensors import normal

from .calls import Refusal, f64, put


def _quant(
    x: tuple[int, ...],
    scale: tuple[int, ...],
    bad: Callable[[list[torch.Tensor]], None] = lambda tensors: None,
):
    """x, out and scale of the shapes, then made wrong."""

    def arguments(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
        out = torch.empty(x, dtype=torch.float8_e4m3fn, device=device)
        tensors = [normal(x, dtype, device), out, torch.empty(scale, device=device)]
        bad(tensors)
        return tuple(tensors)

    return arguments


def _scale_in_x(tensors: list[torch.Tensor]) -> None:
    x, _, scale = tensors
    tensors[2] = x.view(-1)[: 2 * scale.numel()].view(torch.float32).view(scale.shape)


def _quants() -> Iterator[Refusal]:
    for op, shape, right in (
        ("quant_fp8_token", (8, 6), (8,)),
        ("quant_fp8_group", (8, 256), (8, 2)),
    ):
        calls = (
            ("x of float32", put(0, torch.Tensor.float), "x has dtype", TypeError),
            ("out of float16", put(1, torch.Tensor.half), "out has dtype", TypeError),
            ("scale of float64", put(2, f64), "scale has dtype", TypeError),
            ("scale of 3-D", put(2, lambda t: t[..., None, None]), "scale has ", ValueError),
            ("a short scale", put(2, lambda t: t[:7]), "scale has shape", ValueError),
            ("a short out", put(1, lambda t: t[:7]), "out has shape", ValueError),
            ("scale in x", _scale_in_x, "scale overlaps x", ValueError),
        )
        for name, bad, text, error in calls:
            yield Refusal(op, name, _quant(shape, right, bad), f"{op}: {text}", error)
        wide = (*shape[:-1], 2 * shape[-1])
        halved = _quant(
            wide, right, lambda ts: ts.__setitem__(slice(2), [t[:, ::2] for t in ts[:2]])
        )
        yield Refusal(op, "every second column", halved, f"{op}: x is not contiguous")
    empty = _quant((8, 0), (8,))
    yield Refusal("quant_fp8_token", "no columns", empty, "quant_fp8_token: x has 0 columns")
    ragged = _quant((8, 129), (8, 2))
    yield Refusal("quant_fp8_group", "a part of a group", ragged, "quant_fp8_group: x has 129 col")


REFUSALS = tuple(_quants())
