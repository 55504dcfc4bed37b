"""The awkward calls of every op: one table of arguments, right answers, refusals and differences.

Both sides owe each call the same: the right answer, or the same refusal in the same words.
DIFFERENCES is the whole list of what they do not share, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from harness.check import Problem
from harness.registry import Registry
from harness.spec import ITEMSIZE, Case, Tensors, random_tensor, torch_dtype

REGISTRY = Registry()
SIDES = ("cuda", "triton")
# Around a lane, a warp, a vector, a block and a 16-bit number of rows.
SIZES = (0, 1, 31, 33, 127, 1023, 1025, 65537)
MANY_ROWS = 70001  # above 65535, the largest gridDim.y and gridDim.z
INF, NAN = math.inf, math.nan

Build = Callable[[str, str], Tensors]  # (dtype, device) -> inputs


@dataclass(frozen=True)
class Edge:
    """A call that should be answered. `inputs` None takes the spec's own for the case; `out`
    makes the output from the problem's storage where it is not a plain tensor."""

    op: str
    name: str
    case: Case
    inputs: Build | None = None
    out: Callable[[torch.Tensor], torch.Tensor] | None = None

    @property
    def n_elements(self) -> int:
        """Of the largest operand or of the output."""
        spec = REGISTRY.spec(self.op)
        n_read = spec.bytes_read(self.case, "f32") // ITEMSIZE["f32"]
        return max(n_read, spec.n_output_elements(self.case))


@dataclass(frozen=True)
class Refusal:
    """A call that must be refused before anything is launched; `text` begins the message."""

    op: str
    name: str
    arguments: Callable[[str, str], tuple[torch.Tensor, ...]]
    text: str
    error: type[Exception] = ValueError


# (op, call) -> why the sides differ. What Triton refuses here, CUDA answers.
DIFFERENCES = {
    ("softmax", "2^30 rows"): "Triton numbers rows in 32 bits, up to a tile past the last",
    ("softmax", "2^30 columns"): "Triton numbers columns in 32 bits, up to a tile past the last",
    **{
        (op, call): "Triton numbers rows and columns in 32 bits, up to a tile past the last"
        for op in ("rms_norm", "add_rms_norm")
        for call in ("2^30 rows", "2^30 columns")
    },
    ("matmul_bias_relu", "2^24 columns"): "Triton steps by BLOCK_K * N elements in 32 bits",
    ("matmul_bias_relu", "2^24 terms"): "Triton has one limit for both extents of w",
    ("matmul_bias_relu", "2^30 rows"): "Triton numbers rows in 32 bits, up to a tile past the last",
}


def normal(shape: tuple[int, ...], dtype: str, device: str, seed: int = 5) -> torch.Tensor:
    return random_tensor(shape, dtype, device, seed)


def from_element(shape: tuple[int, ...], start: int, dtype: str, device: str, seed: int = 5):
    """Contiguous values that begin `start` elements into their storage."""
    flat = normal((start + math.prod(shape),), dtype, device, seed)
    return flat[start:].view(shape)


# ---- calls to answer -----------------------------------------------------------------------------


def vector_add_edges() -> Iterator[Edge]:
    op = "vector_add"
    for n in (*SIZES, 8191):
        for layout in ("contiguous", "offset1", "mixed1"):
            if n or layout == "contiguous":
                yield Edge(op, f"{n} {layout}", Case({"N": n}, layout=layout))

    def starts(n: int, x: int, y: int) -> Build:
        return lambda dtype, device: {
            "x": from_element((n,), x, dtype, device),
            "y": from_element((n,), y, dtype, device, 6),
        }

    for x, y in ((1, 3), (2, 2), (7, 0)):
        yield Edge(op, f"views from {x} and {y}", Case({"N": 1025}), starts(1025, x, y))
    yield Edge(
        op,
        "one element expanded",
        Case({"N": 1}),
        lambda dtype, device: dict.fromkeys("xy", normal((1, 1), dtype, device).expand(1, 1)[0]),
    )

    def pairs(*values: tuple[float, float]) -> Build:
        def build(dtype: str, device: str) -> Tensors:
            table = torch.tensor(values, device=device, dtype=torch.float64).to(torch_dtype(dtype))
            x, y = table.repeat(5, 1).t().contiguous()
            return {"x": x.clone(), "y": y.clone()}

        return build

    tiny = 1e-40
    special = ((-INF, -INF), (INF, -INF), (NAN, 0.0), (-0.0, -0.0), (-0.0, 0.0), (tiny, -tiny))
    yield Edge(op, "special values", Case({"N": 35}), pairs(*special, (tiny, tiny)))
    yield Edge(op, "nothing but -Inf", Case({"N": 5}), pairs((-INF, -INF)))


def softmax_edges() -> Iterator[Edge]:
    op = "softmax"
    for n in SIZES:
        yield Edge(op, f"{n} columns", Case({"M": 3, "N": n}))
        yield Edge(op, f"{n} rows", Case({"M": n, "N": 5}))
    for m, n in ((7, 8191), (101, 13), (2, 40009), (MANY_ROWS, 8), (1, 1)):
        yield Edge(op, f"{m}x{n}", Case({"M": m, "N": n}))
    for layout, n in (("padded", 1000), ("outliers", 1024), ("special", 257)):
        yield Edge(op, layout, Case({"M": 11, "N": n}, layout=layout))

    def view(m: int, n: int, take: Callable[[torch.Tensor], torch.Tensor]) -> Build:
        return lambda dtype, device: {"x": take(normal((m, n), dtype, device))}

    nine = Case({"M": 9, "N": 72})
    yield Edge(op, "row slice", nine, view(20, 72, lambda t: t[5:14]))
    yield Edge(op, "every second row", nine, view(18, 72, lambda t: t[::2]))
    yield Edge(op, "columns from an odd one", nine, view(9, 80, lambda t: t[:, 3:75]))
    yield Edge(op, "odd leading dimension", nine, view(9, 73, lambda t: t[:, :72]))
    yield Edge(
        op, "one column of a matrix", Case({"M": 9, "N": 1}), view(9, 7, lambda t: t[:, 3:4])
    )
    yield Edge(op, "a column as a row", Case({"M": 1, "N": 40}), view(40, 1, lambda t: t.t()))
    yield Edge(
        op, "one row expanded", Case({"M": 1, "N": 40}), view(1, 40, lambda t: t.expand(1, 40))
    )
    yield Edge(
        op,
        "one element in",
        nine,
        lambda dtype, device: {"x": from_element((9, 72), 1, dtype, device)},
    )
    yield Edge(op, "output in a wider matrix", nine, out=lambda t: wider(t, 3))
    yield Edge(op, "output one element in", nine, out=lambda t: one_in(t))
    # A sum of f16 values this large overflows f16; one of float32 does not.
    yield Edge(op, "large magnitudes", nine, view(9, 72, lambda t: t * 3000))


def matmul_edges() -> Iterator[Edge]:
    op = "matmul_bias_relu"
    for n in SIZES:
        yield Edge(op, f"{n} rows", Case({"M": n, "N": 5, "K": 3}))
        yield Edge(op, f"{n} columns", Case({"M": 5, "N": n, "K": 3}))
        yield Edge(op, f"{n} terms", Case({"M": 5, "N": 3, "K": n}))
    for m, n, k in ((MANY_ROWS, 8, 8), (8, MANY_ROWS, 8), (101, 13, 89), (1, 1, 1)):
        yield Edge(op, f"{m}x{n}x{k}", Case({"M": m, "N": n, "K": k}))
    yield Edge(op, "special values", Case({"M": 33, "N": 40, "K": 48}, layout="special"))
    square = Case({"M": 64, "N": 64, "K": 64})

    def starts(x: int, w: int, b: int) -> Build:
        return lambda dtype, device: {
            "x": from_element((64, 64), x, dtype, device),
            "w": from_element((64, 64), w, dtype, device, 6) / 8
            if not w
            else one_in(normal((64, 64), dtype, device, 6) / 8),
            "b": from_element((64,), b, dtype, device, 7),
        }

    for x, w, b in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)):
        yield Edge(op, f"views from {x}, {w} and {b}", square, starts(x, w, b))
    yield Edge(op, "output one element in", square, out=lambda t: one_in(t))

    def cancelling(dtype: str, device: str) -> Tensors:
        # The running sum passes 65504, f16's largest number, and comes back: relu(b) is left.
        x = torch.full((64, 64), 1e4, device=device).to(torch_dtype(dtype))
        w = torch.ones((64, 64), device=device).to(torch_dtype(dtype))
        w[32:] = -1
        return {"x": x, "w": w, "b": normal((64,), dtype, device)}

    def overflowing(dtype: str, device: str) -> Tensors:
        x, w = (normal((64, 64), dtype, device, seed) * 3000 for seed in (1, 2))
        return {"x": x, "w": w, "b": normal((64,), dtype, device)}

    def nothing_but_inf(dtype: str, device: str) -> Tensors:
        x, w = (normal((64, 64), dtype, device, seed) for seed in (1, 2))
        x[5] = -INF
        return {"x": x, "w": w.abs() + 1, "b": normal((64,), dtype, device)}

    yield Edge(op, "running sum beyond f16", square, cancelling)
    yield Edge(op, "results beyond f16", square, overflowing)
    yield Edge(op, "a row of nothing but -Inf", square, nothing_but_inf)


def wider(plain: torch.Tensor, margin: int) -> torch.Tensor:
    """Like `plain`, NaN, in a matrix with `margin` more columns on each side."""
    rows, cols = plain.shape
    return plain.new_full((rows, cols + 2 * margin), NAN)[:, margin : margin + cols]


def one_in(plain: torch.Tensor) -> torch.Tensor:
    """The values of `plain`, contiguous, one element into their storage."""
    storage = plain.new_full((plain.numel() + 1,), NAN)
    storage[1:].copy_(plain.reshape(-1))
    return storage[1:].view(plain.shape)


def common_edges(op: str) -> Iterator[Edge]:
    """For an op without a list of its own: the spec's test cases, and each extent at each size."""
    spec = REGISTRY.spec(op)
    for case in spec.test_cases:
        yield Edge(op, case.name, case)
    small = min(spec.mutant_cases, key=spec.n_output_elements)
    for dim, extent in small.dims.items():
        least, step = spec.extents.get(dim, (0, 1))
        for size in SIZES:
            case = Case(dict(small.dims) | {dim: max(least, -(-size // step) * step)})
            if case.dims[dim] != extent and case.name not in {c.name for c in spec.test_cases}:
                yield Edge(op, f"{dim} = {size}", case)


OWN_EDGES = {
    "vector_add": vector_add_edges,
    "softmax": softmax_edges,
    "matmul_bias_relu": matmul_edges,
}
EDGES = tuple(
    edge
    for op in REGISTRY.stems
    for edge in (OWN_EDGES[op]() if op in OWN_EDGES else common_edges(op))
)


# ---- calls to refuse -----------------------------------------------------------------------------


def _same(n_tensors: int, build: Callable[[str, str], torch.Tensor]):
    return lambda dtype, device: tuple(build(dtype, device) for _ in range(n_tensors))


def _at(position: int, bad: Callable[[torch.Tensor], torch.Tensor], *shapes: tuple[int, ...]):
    """Normal tensors of `shapes`, the one at `position` turned into something else."""

    def arguments(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
        tensors = [normal(shape, dtype, device, i) for i, shape in enumerate(shapes)]
        tensors[position] = bad(tensors[position])
        return tuple(tensors)

    return arguments


def _huge(*shapes: tuple[int, ...]):
    """Tensors of one stored element each: refused before their strides are looked at."""
    return lambda dtype, device: tuple(
        normal((1,) * len(shape), dtype, device).expand(shape) for shape in shapes
    )


def _overlapping(op: str):
    def arguments(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
        if op in ("vector_add", "axpby"):
            storage = normal((65,), dtype, device)
            return storage[:64], normal((64,), dtype, device), storage[1:]
        if op == "softmax":
            storage = normal((9, 8), dtype, device)
            return storage[:8], storage[1:]
        storage = normal((8, 8), dtype, device)
        return storage, normal((8, 8), dtype, device), normal((8,), dtype, device), storage

    return arguments


V, R = (64,), (8, 6)
MATMUL = ((4, 6), (6, 8), (8,), (4, 8))


def _double(t: torch.Tensor) -> torch.Tensor:
    return t.double()


def _refusals() -> Iterator[Refusal]:
    for op in ("vector_add", "axpby"):
        yield Refusal(op, "x of float64", _at(0, _double, V, V, V), f"{op}: x has dtype", TypeError)
        yield Refusal(op, "y of float64", _at(1, _double, V, V, V), f"{op}: y has dtype", TypeError)
        yield Refusal(op, "matrices", _same(3, lambda d, v: normal(R, d, v)), f"{op}: x has 2 dim")
        yield Refusal(op, "another length", _at(1, lambda t: t[:63], V, V, V), f"{op}: y has shape")
        yield Refusal(
            op, "every second", _at(0, lambda t: t[::2], (128,), V, V), f"{op}: x has stride"
        )
        yield Refusal(
            op, "a column", _at(1, lambda t: t[:, 1], V, (64, 3), V), f"{op}: y has stride"
        )
        yield Refusal(
            op, "expanded", _at(0, lambda t: t.expand(64), (1,), V, V), f"{op}: x has stride"
        )
        yield Refusal(
            op, "strided out", _at(2, lambda t: t[::2], V, V, (128,)), f"{op}: out has stri"
        )
        yield Refusal(op, "overlap", _overlapping(op), f"{op}: out overlaps x in part")
    op = "softmax"
    yield Refusal(op, "x of float64", _at(0, _double, R, R), f"{op}: x has dtype", TypeError)
    yield Refusal(op, "out of float64", _at(1, _double, R, R), f"{op}: out has dtype", TypeError)
    yield Refusal(op, "vectors", _same(2, lambda d, v: normal(V, d, v)), f"{op}: x has 1 dim")
    yield Refusal(op, "another width", _at(1, lambda t: t[:, :5], R, R), f"{op}: out has shape")
    yield Refusal(op, "transposed", _at(0, lambda t: t.t(), (6, 8), R), f"{op}: x has last-dim")
    yield Refusal(op, "transposed out", _at(1, lambda t: t.t(), R, (6, 8)), f"{op}: out has last-")
    yield Refusal(
        op, "every second column", _at(0, lambda t: t[:, ::2], (8, 12), R), f"{op}: x has last-dim"
    )
    yield Refusal(
        op, "expanded rows", _at(0, lambda t: t.expand(8, 6), (1, 6), R), f"{op}: x has row stride"
    )
    yield Refusal(
        op, "expanded columns", _at(0, lambda t: t.expand(8, 6), (8, 1), R), f"{op}: x has last-dim"
    )
    yield Refusal(op, "overlap", _overlapping(op), f"{op}: out overlaps x in part")
    op = "matmul_bias_relu"
    yield Refusal(op, "x of float64", _at(0, _double, *MATMUL), f"{op}: x has dtype", TypeError)
    yield Refusal(op, "b of float64", _at(2, _double, *MATMUL), f"{op}: b has dtype", TypeError)
    yield Refusal(op, "b as a row", _at(2, lambda t: t[None], *MATMUL), f"{op}: b has 2 dim")
    yield Refusal(op, "w as [N, K]", _at(1, lambda t: t.t(), *MATMUL), f"{op}: w has shape")
    yield Refusal(op, "a short b", _at(2, lambda t: t[:7], *MATMUL), f"{op}: b has shape")
    yield Refusal(op, "out as [N, M]", _at(3, lambda t: t.t(), *MATMUL), f"{op}: out has shape")
    swapped = ((4, 6), (8, 6), (8,), (4, 8))
    yield Refusal(op, "transposed w", _at(1, lambda t: t.t(), *swapped), f"{op}: w is not contig")
    wide = ((4, 12), *MATMUL[1:])
    yield Refusal(op, "strided x", _at(0, lambda t: t[:, ::2], *wide), f"{op}: x is not contiguous")
    one = (*MATMUL[:2], (1,), MATMUL[3])
    yield Refusal(op, "expanded b", _at(2, lambda t: t.expand(8), *one), f"{op}: b is not contig")
    yield Refusal(op, "overlap", _overlapping(op), f"{op}: out overlaps x")


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


def _replace(position: int, make: Callable[[torch.Tensor], torch.Tensor]):
    def bad(tensors: list[torch.Tensor]) -> None:
        tensors[position] = make(tensors[position])

    return bad


def _scale_in_x(tensors: list[torch.Tensor]) -> None:
    x, _, scale = tensors
    tensors[2] = x.view(-1)[: 2 * scale.numel()].view(torch.float32).view(scale.shape)


def _optimizer_refusals() -> Iterator[Refusal]:
    op = "dropout"
    yield Refusal(op, "x of float64", _at(0, _double, V, V), f"{op}: x has dtype", TypeError)
    yield Refusal(op, "matrices", _same(2, lambda d, v: normal(R, d, v)), f"{op}: x has 2 dim")
    yield Refusal(op, "another length", _at(1, lambda t: t[:63], V, V), f"{op}: out has shape")
    yield Refusal(op, "every second", _at(0, lambda t: t[::2], (128,), V), f"{op}: x has stride")
    op, all_v = "adamw", (V,) * 7
    yield Refusal(op, "p of float64", _at(0, _double, *all_v), f"{op}: p has dtype", TypeError)
    yield Refusal(op, "m of float64", _at(2, _double, *all_v), f"{op}: m has dtype", TypeError)
    yield Refusal(op, "a short v", _at(3, lambda t: t[:63], *all_v), f"{op}: v has shape")
    strided = (*all_v[:6], (128,))
    yield Refusal(
        op, "strided v_out", _at(6, lambda t: t[::2], *strided), f"{op}: v_out has stride"
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


def _quant_refusals() -> Iterator[Refusal]:
    for op, shape, right in (
        ("quant_fp8_token", (8, 6), (8,)),
        ("quant_fp8_group", (8, 256), (8, 2)),
    ):
        calls = (
            ("x of float32", _replace(0, torch.Tensor.float), "x has dtype", TypeError),
            ("out of float16", _replace(1, torch.Tensor.half), "out has dtype", TypeError),
            ("scale of float64", _replace(2, _double), "scale has dtype", TypeError),
            ("scale of 3-D", _replace(2, lambda t: t[..., None, None]), "scale has ", ValueError),
            ("a short scale", _replace(2, lambda t: t[:7]), "scale has shape", ValueError),
            ("a short out", _replace(1, lambda t: t[:7]), "out has shape", ValueError),
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


def _gated_refusals() -> Iterator[Refusal]:
    for op, names in (
        ("swiglu", ("gate", "up", "out")),
        ("swiglu_backward", ("dout", "gate", "up", "out", "dup")),
    ):
        plain = (R,) * len(names)
        first, last = names[0], names[-1]
        double = _at(0, _double, *plain)
        yield Refusal(op, "first of float64", double, f"{op}: {first} has dtype", TypeError)
        at_end = len(names) - 1
        yield Refusal(op, "narrow", _at(at_end, lambda t: t[:, :5], *plain), f"{op}: {last} has sh")
        vectors = _same(len(names), lambda d, v: normal(V, d, v))
        yield Refusal(op, "vectors", vectors, f"{op}: {first} has 1 dim")
        swapped = ((6, 8), *plain[1:])
        transposed = _at(0, lambda t: t.t(), *swapped)
        yield Refusal(op, "transposed", transposed, f"{op}: {first} has last-dim")
        expanded = _at(1, lambda t: t.expand(8, 6), plain[0], (1, 6), *plain[2:])
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


def _summed(x: Callable[[str, str], torch.Tensor], n_sums: int, out: str = "f32"):
    """(x, an output of n_sums)."""
    return lambda dtype, device: (x(dtype, device), normal((n_sums,), out, device))


def _sum_refusals() -> Iterator[Refusal]:
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


def _movement_refusals() -> Iterator[Refusal]:
    op, turned = "transpose", (6, 8)
    yield Refusal(op, "x of float64", _at(0, _double, R, turned), f"{op}: x has dtype", TypeError)
    yield Refusal(op, "vectors", _same(2, lambda d, v: normal(V, d, v)), f"{op}: x has 1 dim")
    yield Refusal(op, "out as [M, N]", _at(1, lambda t: t, R, R), f"{op}: out has shape (8, 6)")
    yield Refusal(op, "x as a view", _at(0, lambda t: t.t(), turned, turned), f"{op}: x is not con")
    yield Refusal(
        op, "out as a view", _at(1, lambda t: t.t(), R, R), f"{op}: out is not contiguous"
    )
    square = _same(1, lambda d, v: normal((8, 8), d, v))
    yield Refusal(op, "in place", lambda d, v: square(d, v) * 2, f"{op}: out overlaps x, wanted no")

    op, rotary = "rope", ((5, 3, 8), (5, 4), (5, 4), (5, 3, 8))
    yield Refusal(op, "x of float64", _at(0, _double, *rotary), f"{op}: x has dtype", TypeError)
    yield Refusal(op, "sin of float64", _at(2, _double, *rotary), f"{op}: sin has dtype", TypeError)
    yield Refusal(op, "x as a matrix", _at(0, lambda t: t[0], *rotary), f"{op}: x has 2 dim")
    yield Refusal(op, "odd heads", _at(0, lambda t: t[..., :7], *rotary), f"{op}: x has 7 columns")
    whole = (rotary[0], (5, 8), *rotary[2:])
    yield Refusal(
        op, "cos of whole heads", _at(1, lambda t: t, *whole), f"{op}: cos has shape (5, 8)"
    )
    yield Refusal(op, "a short out", _at(3, lambda t: t[:4], *rotary), f"{op}: out has shape")
    wide = (rotary[0], (5, 8), *rotary[2:])
    yield Refusal(op, "strided cos", _at(1, lambda t: t[:, ::2], *wide), f"{op}: cos is not contig")

    def in_part(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
        storage = normal((6, 3, 8), dtype, device)
        angles = [normal((5, 4), dtype, device, i) for i in range(2)]
        return storage[:5], *angles, storage[1:]

    yield Refusal(op, "overlap", in_part, f"{op}: out overlaps x in part")

    def angles_in_out(dtype: str, device: str) -> tuple[torch.Tensor, ...]:
        x, cos, sin, out = (normal(shape, dtype, device) for shape in rotary)
        return x, cos, out.view(-1)[: sin.numel()].view(sin.shape), out

    yield Refusal(op, "sin in out", angles_in_out, f"{op}: out overlaps sin, wanted no")


def _rms_refusals() -> Iterator[Refusal]:
    """Both norms: r and h are refused like x and out."""
    for op, n_inputs in (("rms_norm", 1), ("add_rms_norm", 2)):
        n_outputs = n_inputs
        shapes = (*[R] * n_inputs, (6,), *[R] * n_outputs)
        w, out = n_inputs, n_inputs + 1

        def bad(at: int, change: Callable[[torch.Tensor], torch.Tensor], shape=None, s=shapes):
            return _at(at, change, *s[:at], shape or s[at], *s[at + 1 :])

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

        yield Refusal(op, "x of float64", bad(0, _double), f"{op}: x has dtype", TypeError)
        yield Refusal(op, "w of float64", bad(w, _double), f"{op}: w has dtype", TypeError)
        yield Refusal(op, "w as a row", bad(w, lambda t: t[None]), f"{op}: w has 2 dim")
        yield Refusal(op, "a short w", bad(w, lambda t: t[:5]), f"{op}: w has shape (5,), wanted")
        yield Refusal(op, "every second w", bad(w, lambda t: t[::2], (12,)), f"{op}: w has stride")
        yield Refusal(op, "another width", bad(out, lambda t: t[:, :5]), f"{op}: out has shape")
        yield Refusal(op, "transposed", bad(0, lambda t: t.t(), (6, 8)), f"{op}: x has last-dim")
        yield Refusal(op, "one row", bad(0, lambda t: t.expand(8, 6), (1, 6)), f"{op}: x has row")
        yield Refusal(op, "overlap", shared(out, 0, 1), f"{op}: out overlaps x in part")
        yield Refusal(op, "w in out", weights_in_out, f"{op}: out overlaps w")
        if op == "add_rms_norm":
            yield Refusal(op, "r of float64", bad(1, _double), f"{op}: r has dtype", TypeError)
            yield Refusal(op, "another r", bad(1, lambda t: t[:7]), f"{op}: r has shape")
            yield Refusal(op, "h meets r", shared(out + 1, 1, 1), f"{op}: h overlaps r in part")
            yield Refusal(op, "h is out", shared(out + 1, out, 0), f"{op}: h overlaps out")
            yield Refusal(op, "h meets out", shared(out + 1, out, 1), f"{op}: h overlaps out")


def _norm_refusals() -> Iterator[Refusal]:
    op, norm = "layer_norm", (R, (6,), (6,), R)
    yield Refusal(op, "x of float64", _at(0, _double, *norm), f"{op}: x has dtype", TypeError)
    yield Refusal(op, "b of float64", _at(2, _double, *norm), f"{op}: b has dtype", TypeError)
    yield Refusal(op, "w as a row", _at(1, lambda t: t[None], *norm), f"{op}: w has 2 dim")
    yield Refusal(op, "a short out", _at(3, lambda t: t[:7], *norm), f"{op}: out has shape")
    yield Refusal(op, "a short b", _at(2, lambda t: t[:5], *norm), f"{op}: b has shape (5,), want")
    turned = ((6, 8), *norm[1:])
    yield Refusal(op, "transposed", _at(0, lambda t: t.t(), *turned), f"{op}: x has last-dim")
    strided = (R, (6,), (12,), R)
    yield Refusal(op, "strided b", _at(2, lambda t: t[::2], *strided), f"{op}: b has stride 2")

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
        ("dy of float64", _replace(0, _double), "dy has dtype", TypeError),
        ("x of float64", _replace(1, _double), "x has dtype", TypeError),
        ("mean of float64", _replace(3, _double), "mean has dtype", TypeError),
        ("rstd as a column", _replace(4, lambda t: t[:, None]), "rstd has 2 dim", ValueError),
        ("a short x", _replace(1, lambda t: t[:7]), "x has shape (7, 6)", ValueError),
        ("a short w", _replace(2, lambda t: t[:5]), "w has shape (5,), wanted (6,)", ValueError),
        ("a short mean", _replace(3, lambda t: t[:7]), "mean has shape (7,), wanted", ValueError),
        ("a short db", _replace(7, lambda t: t[:5]), "db has shape (5,), wanted (6,)", ValueError),
        ("rstd of one", _replace(4, lambda t: t[:1].expand(8)), "rstd is not contig", ValueError),
        ("out in dy", lambda ts: ts.__setitem__(5, ts[0]), "out overlaps dy, wanted", ValueError),
        ("db in dw", lambda ts: ts.__setitem__(7, ts[6]), "db overlaps dw, wanted", ValueError),
    )
    for name, bad, text, error in calls:
        yield Refusal(op, name, gradients(bad), f"{op}: {text}", error)


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


def _cross_entropy_refusals() -> Iterator[Refusal]:
    for op, shapes, loss in (
        ("cross_entropy", "n", "out"),
        ("cross_entropy_dlogits", "rn", "loss"),
    ):
        calls = (
            ("x of float64", _replace(0, _double), "x has dtype", TypeError),
            ("target of int32", _replace(1, torch.Tensor.int), "target has dtype", TypeError),
            ("losses of f64", _replace(-1, _double), f"{loss} has dtype", TypeError),
            ("one row", _replace(0, lambda t: t[0]), "x has 1 dim", ValueError),
            ("a short target", _replace(1, lambda t: t[:7]), "target has shape (7,)", ValueError),
            ("short losses", _replace(-1, lambda t: t[:7]), f"{loss} has shape (7,)", ValueError),
            ("every second", _replace(1, _doubled), "target has stride 2", ValueError),
            ("loss in x", _loss_in_x, f"{loss} overlaps x", ValueError),
        )
        for name, bad, text, error in calls:
            yield Refusal(op, name, _classified(shapes, bad), f"{op}: {text}", error)
    op = "cross_entropy"
    turned = _classified("n", _replace(0, lambda t: t.view(6, 8).t()))
    yield Refusal(op, "transposed", turned, f"{op}: x has last-dimension stride 8")
    wide = _classified("n", _replace(0, lambda t: t[:1].expand(8, 6)))
    yield Refusal(op, "expanded rows", wide, f"{op}: x has row stride 0")
    op = "cross_entropy_dlogits"
    narrow = _classified("rn", _replace(2, lambda t: t[:, :5]))
    yield Refusal(op, "another width", narrow, f"{op}: out has shape (8, 5)")
    turned = _classified("rn", _replace(2, lambda t: t.view(6, 8).t()))
    yield Refusal(op, "transposed out", turned, f"{op}: out has last-dimension stride 8")

    def shifted(tensors: list[torch.Tensor]) -> None:
        storage = tensors[0].new_zeros((9, 6))
        tensors[0], tensors[2] = storage[:8], storage[1:]

    yield Refusal(op, "overlap", _classified("rn", shifted), f"{op}: out overlaps x in part")


def _doubled(t: torch.Tensor) -> torch.Tensor:
    """The same values, two elements apart."""
    return t.repeat_interleave(2)[::2]


REFUSALS = (
    *_norm_refusals(),
    *_refusals(),
    *_gated_refusals(),
    *_movement_refusals(),
    *_optimizer_refusals(),
    *_quant_refusals(),
    *_sum_refusals(),
    *_rms_refusals(),
    *_cross_entropy_refusals(),
)

_NK, _ROWS = 1 << 24, 1 << 30
# Refused by Triton alone, as DIFFERENCES says: nothing is stored but one element a tensor.
TRITON_REFUSALS = (
    Refusal("softmax", "2^30 rows", _huge((_ROWS, 1), (_ROWS, 1)), "softmax: rows is 1073741824"),
    Refusal(
        "softmax", "2^30 columns", _huge((1, _ROWS), (1, _ROWS)), "softmax: cols is 1073741824"
    ),
    *(
        Refusal(
            op, f"2^30 {extent}", _huge(*shapes), f"{op}: {extent.replace('columns', 'cols')} is"
        )
        for extent, rows, cols in (("rows", _ROWS, 1), ("columns", 1, _ROWS))
        for op, n in (("rms_norm", 1), ("add_rms_norm", 2))
        for shapes in [(*[(rows, cols)] * n, (cols,), *[(rows, cols)] * n)]
    ),
    Refusal(
        "matmul_bias_relu",
        "2^24 columns",
        _huge((1, 1), (1, _NK), (_NK,), (1, _NK)),
        "matmul_bias_relu: N is 16777216",
    ),
    Refusal(
        "matmul_bias_relu",
        "2^24 terms",
        _huge((1, _NK), (_NK, 1), (1,), (1, 1)),
        "matmul_bias_relu: K is 16777216",
    ),
    Refusal(
        "matmul_bias_relu",
        "2^30 rows",
        _huge((_ROWS, 1), (1, 1), (1,), (_ROWS, 1)),
        "matmul_bias_relu: M is 1073741824",
    ),
)


# ---- running -------------------------------------------------------------------------------------


def launcher_of(op: str, side: str) -> Callable[..., None]:
    if side == "cuda":
        from harness import _cuda

        return getattr(_cuda, op)
    return getattr(REGISTRY.triton_module(op), op)


def answer(edge: Edge, dtype: str, side: str, device: str) -> str:
    """What is wrong with a side's answer; empty when it is right."""
    spec = REGISTRY.spec(edge.op)
    if edge.inputs is not None:
        made = edge.inputs(dtype, device)
        spec = replace(spec, make_inputs=lambda *_: made)
    problem = Problem(spec, edge.case, dtype, device, seed=11)
    out = edge.out(problem.out) if edge.out else problem.out
    problem.poison()
    launcher_of(edge.op, side)(*problem.tensors.values(), out, *problem.outs[1:])
    if edge.out:
        wrote = _outside(out)
        if wrote:
            return wrote
    verdict = problem.judge(out.clone().contiguous() if edge.out else problem.produced)
    return "" if verdict.ok else verdict.reason


def _outside(out: torch.Tensor) -> str:
    """The storage around a view was NaN and must still be."""
    storage = torch.tensor([], dtype=out.dtype, device=out.device).set_(out.untyped_storage())
    n_written = int((~storage.isnan()).sum())
    return "" if n_written == out.numel() else f"{n_written} of {out.numel()} elements written"


def refusal_of(refusal: Refusal, dtype: str, side: str, device: str) -> tuple[str, str]:
    """(type, text) of what a side raises; ("", "") when it raises nothing."""
    try:
        launcher_of(refusal.op, side)(*refusal.arguments(dtype, device))
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""
