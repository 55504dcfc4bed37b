"""Rows and parameters: rms_norm, add_rms_norm, layer_norm and its gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from edge_tensors import normal

from .calls import R, Refusal, f64, put, spoil


def _rms_norms() -> Iterator[Refusal]:
    """Both norms: r and h are refused like x and out."""
    for op, n_inputs in (("rms_norm", 1), ("add_rms_norm", 2)):
        n_outputs = n_inputs
        shapes = (*[R] * n_inputs, (6,), *[R] * n_outputs)
        w, out = n_inputs, n_inputs + 1

        def bad(at: int, change: Callable[[torch.Tensor], torch.Tensor], shape=None, s=shapes):
            return spoil(at, change, *s[:at], shape or s[at], *s[at + 1 :])

        def shared(at: int, with_: int, start: int, s=shapes):
            def arguments(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
                tensors = [normal(shape, dtype, device, i) for i, shape in enumerate(s)]
                storage = normal((9, 6), dtype, device)
                tensors[with_], tensors[at] = storage[:8], storage[start : start + 8]
                return tuple(tensors)

            return arguments

        def weights_in_out(dtype: str, device: str, s=shapes, w=w, out=out):
            tensors = [normal(shape, dtype, device, i) for i, shape in enumerate(s)]
            tensors[w] = tensors[out][3]
            return tuple(tensors)

        yield Refusal(op, "x of float64", bad(0, f64), f"{op}: x has dtype", TypeError)
        yield Refusal(op, "w of float64", bad(w, f64), f"{op}: w has dtype", TypeError)
        yield Refusal(op, "w as a row", bad(w, lambda t: t[None]), f"{op}: w has 2 dim")
        yield Refusal(op, "a short w", bad(w, lambda t: t[:5]), f"{op}: w has shape (5,), wanted")
        yield Refusal(op, "every second w", bad(w, lambda t: t[::2], (12,)), f"{op}: w has stride")
        yield Refusal(op, "another width", bad(out, lambda t: t[:, :5]), f"{op}: out has shape")
        yield Refusal(op, "transposed", bad(0, lambda t: t.t(), (6, 8)), f"{op}: x has last-dim")
        yield Refusal(op, "one row", bad(0, lambda t: t.expand(8, 6), (1, 6)), f"{op}: x has row")
        yield Refusal(op, "overlap", shared(out, 0, 1), f"{op}: out overlaps x in part")
        yield Refusal(op, "w in out", weights_in_out, f"{op}: out overlaps w")
        if op == "add_rms_norm":
            yield Refusal(op, "r of float64", bad(1, f64), f"{op}: r has dtype", TypeError)
            yield Refusal(op, "another r", bad(1, lambda t: t[:7]), f"{op}: r has shape")
            yield Refusal(op, "h meets r", shared(out + 1, 1, 1), f"{op}: h overlaps r in part")
            yield Refusal(op, "h is out", shared(out + 1, out, 0), f"{op}: h overlaps out")
            yield Refusal(op, "h meets out", shared(out + 1, out, 1), f"{op}: h overlaps out")


def _layer_norms() -> Iterator[Refusal]:
    op, norm = "layer_norm", (R, (6,), (6,), R)
    yield Refusal(op, "x of float64", spoil(0, f64, *norm), f"{op}: x has dtype", TypeError)
    yield Refusal(op, "b of float64", spoil(2, f64, *norm), f"{op}: b has dtype", TypeError)
    yield Refusal(op, "w as a row", spoil(1, lambda t: t[None], *norm), f"{op}: w has 2 dim")
    yield Refusal(op, "a short out", spoil(3, lambda t: t[:7], *norm), f"{op}: out has shape")
    yield Refusal(
        op, "a short b", spoil(2, lambda t: t[:5], *norm), f"{op}: b has shape (5,), want"
    )
    turned = ((6, 8), *norm[1:])
    yield Refusal(op, "transposed", spoil(0, lambda t: t.t(), *turned), f"{op}: x has last-dim")
    strided = (R, (6,), (12,), R)
    yield Refusal(op, "strided b", spoil(2, lambda t: t[::2], *strided), f"{op}: b has stride 2")

    def in_part(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
        storage = normal((9, 6), dtype, device)
        w, b = (normal((6,), dtype, device, i) for i in range(2))
        return storage[:8], w, b, storage[1:]

    yield Refusal(op, "overlap", in_part, f"{op}: out overlaps x in part")

    def bias_in_out(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
        x, w, out = (normal(shape, dtype, device) for shape in (R, (6,), R))
        return x, w, out[0], out

    yield Refusal(op, "b in out", bias_in_out, f"{op}: out overlaps b, wanted no")

    op = "layer_norm_backward"

    def gradients(
        bad: Callable[[list[torch.Tensor]], None],
    ) -> Callable[[str, str], tuple[torch.Tensor, ...]]:
        def arguments(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
            dtypes = [dtype] * 3 + ["f32"] * 2 + [dtype] * 3
            shapes = (R, R, (6,), (8,), (8,), R, (6,), (6,))
            tensors = [normal(s, d, device) for s, d in zip(shapes, dtypes, strict=True)]
            bad(tensors)
            return tuple(tensors)

        return arguments

    calls = (
        ("dy of float64", put(0, f64), "dy has dtype", TypeError),
        ("x of float64", put(1, f64), "x has dtype", TypeError),
        ("mean of float64", put(3, f64), "mean has dtype", TypeError),
        ("rstd as a column", put(4, lambda t: t[:, None]), "rstd has 2 dim", ValueError),
        ("a short x", put(1, lambda t: t[:7]), "x has shape (7, 6)", ValueError),
        ("a short w", put(2, lambda t: t[:5]), "w has shape (5,), wanted (6,)", ValueError),
        ("a short mean", put(3, lambda t: t[:7]), "mean has shape (7,), wanted", ValueError),
        ("a short db", put(7, lambda t: t[:5]), "db has shape (5,), wanted (6,)", ValueError),
        ("rstd of one", put(4, lambda t: t[:1].expand(8)), "rstd is not contig", ValueError),
        ("out in dy", lambda ts: ts.__setitem__(5, ts[0]), "out overlaps dy, wanted", ValueError),
        ("db in dw", lambda ts: ts.__setitem__(7, ts[6]), "db overlaps dw, wanted", ValueError),
    )
    for name, bad, text, error in calls:
        yield Refusal(op, name, gradients(bad), f"{op}: {text}", error)


REFUSALS = (*_rms_norms(), *_layer_norms())
