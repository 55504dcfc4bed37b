"""The awkward calls of every op: one table of arguments, right answers, refusals and differences.

Both sides owe each call the same: the right answer, or the same refusal in the same words.
DIFFERENCES is the whole list of what they do not share, with the reason.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from edge_tensors import from_element, normal, one_in, wider
from refusals import REFUSALS as REFUSALS  # the rest of the table
from refusals import TRITON_REFUSALS as TRITON_REFUSALS
from refusals import Refusal

from harness.check import Problem
from harness.registry import Registry
from harness.spec import ITEMSIZE, Case, Tensors, torch_dtype

REGISTRY = Registry()
SIDES = ("cuda", "triton")
# Around a lane, a warp, a vector, a block and a 16-bit number of rows.
SIZES = (0, 1, 31, 33, 127, 1023, 1025, 65537)
MANY_ROWS = 70001  # above 65535, the largest gridDim.y and gridDim.z
INF, NAN = math.inf, math.nan
FUSED_PRODUCTS = ("matmul_bias_relu", "matmul_bias_gelu")
PRODUCTS = ("matmul", *FUSED_PRODUCTS)

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


# (op, call) -> why the sides differ. What Triton refuses here, CUDA answers.
DIFFERENCES = {
    ("softmax", "2^30 rows"): "Triton numbers rows in 32 bits, up to a tile past the last",
    ("softmax", "2^30 columns"): "Triton numbers columns in 32 bits, up to a tile past the last",
    **{
        (op, call): "Triton numbers rows and columns in 32 bits, up to a tile past the last"
        for op in ("rms_norm", "add_rms_norm")
        for call in ("2^30 rows", "2^30 columns")
    },
    **{
        (op, call): reason
        for op in PRODUCTS
        for call, reason in (
            ("2^24 columns", "Triton steps by BLOCK_K * N elements in 32 bits"),
            ("2^24 terms", "Triton has one limit for both extents of w"),
            ("2^30 rows", "Triton numbers rows in 32 bits, up to a tile past the last"),
        )
    },
}


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


def matmul_edges(op: str) -> Iterator[Edge]:
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


def plain_matmul_edges() -> Iterator[Edge]:
    """The spec's test cases, which have all layouts; each size in each extent, row-major and
    transposed."""
    op = "matmul"
    spec = REGISTRY.spec(op)
    named = {case.name for case in spec.test_cases}
    yield from (Edge(op, case.name, case) for case in spec.test_cases)
    sizes = [dims for n in SIZES for dims in ((n, 5, 3), (5, n, 3), (5, 3, n))]
    for m, n, k in (*sizes, (MANY_ROWS, 8, 8), (8, MANY_ROWS, 8), (101, 13, 89)):
        for layout in ("contiguous", "tt"):
            case = Case({"M": m, "N": n, "K": k}, layout=layout)
            if case.name not in named:
                yield Edge(op, case.name, case)
    square = Case({"M": 64, "N": 64, "K": 64})
    yield Edge(op, "output one element in", square, out=lambda t: one_in(t))

    def cancelling(dtype: str, device: str) -> Tensors:
        # The running sum passes 65504, f16's largest number, and comes back to nothing.
        x = torch.full((64, 64), 1e4, device=device).to(torch_dtype(dtype))
        w = torch.ones((64, 64), device=device).to(torch_dtype(dtype))
        w[32:] = -1
        return {"x": x, "w": w}

    yield Edge(op, "running sum beyond f16", square, cancelling)


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
    **{op: functools.partial(matmul_edges, op) for op in FUSED_PRODUCTS},
    "matmul": plain_matmul_edges,
}
EDGES = tuple(
    edge
    for op in REGISTRY.stems
    for edge in (OWN_EDGES[op]() if op in OWN_EDGES else common_edges(op))
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
