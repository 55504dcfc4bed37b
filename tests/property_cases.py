"""Random shapes, strides, alignments and contents of every op, and the seeds that were used.

A shape is drawn by hypothesis within a family: an op and a dtype, for Triton also what its compiler
specialises on, so that 300 shapes cost some 25 compilations. Each shape meets all of CONTENTS.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from harness.check import Problem
from harness.registry import REPOSITORY, Registry
from harness.spec import Case, Config, OpSpec, Tensors, torch_dtype

REGISTRY = Registry()
INF, NAN = math.inf, math.nan
CONTENTS = ("normal", "wide", "small", "special", "integers")
LIMIT = 1 << 19  # elements of an output: a float64 reference of it takes no time


@dataclass(frozen=True)
class Shape:
    """`starts`: elements before the first one, for each input. `padding`: columns between rows."""

    op: str
    dtype: str
    dims: tuple[tuple[str, int], ...]
    starts: tuple[int, ...]
    out_start: int = 0
    padding: int = 0
    transposed: str = ""  # a product's layout, such as "nt"; "" where all is row-major
    config: tuple[tuple[str, int], ...] = field(default=(), compare=False)

    @property
    def case(self) -> Case:
        layout = self.transposed or ("offset1" if self.out_start else "contiguous")
        return Case(dict(self.dims), layout=layout)


# ---- contents ------------------------------------------------------------------------------------


def values(shape: tuple[int, ...], kind: str, tiny: float, generator) -> torch.Tensor:
    """float32 on the generator's device. `small` has magnitude `tiny`."""
    device = generator.device
    normal = torch.randn(shape, generator=generator, device=device)
    if kind == "wide":
        exponents = torch.randint(-20, 20, shape, generator=generator, device=device)
        return normal * torch.exp2(exponents.float())
    if kind == "small":
        return normal * tiny
    if kind == "integers":
        return torch.randint(-8, 9, shape, generator=generator, device=device).float()
    return normal


SPECIAL = (NAN, INF, -INF, 0.0, -0.0, 1e-40, -1e-40)


def sprinkle(tensor: torch.Tensor, generator) -> torch.Tensor:
    """Special values in about one element of sixty, of at most 64 rows."""
    rows = tensor.view(-1, tensor.shape[-1])[:64] if tensor.numel() else tensor
    pool = torch.tensor(SPECIAL, device=tensor.device)
    picked = torch.randint(0, len(SPECIAL), rows.shape, generator=generator, device=tensor.device)
    chosen = torch.rand(rows.shape, generator=generator, device=tensor.device) < 1 / 60
    rows.copy_(torch.where(chosen, pool[picked], rows))
    return tensor


def operands(shape: Shape, kind: str, generator) -> list[torch.Tensor]:
    dims = dict(shape.dims)
    if shape.op in VECTOR_OPS:
        pair = [values((dims["N"],), kind, 1e-39, generator) for _ in range(2)]
        return [sprinkle(t, generator) for t in pair] if kind == "special" else pair
    if shape.op in GATED_OPS:
        return gated_operands(shape, kind, generator)
    if shape.op == "softmax":
        x = values((dims["M"], dims["N"]), "normal", 1.0, generator)
        if kind == "wide":
            x *= 20
        elif kind == "small":  # little of the row counts; what does not is -Inf
            x[torch.rand(x.shape, generator=generator, device=x.device) < 0.5] = -INF
        elif kind == "integers":
            x = x * 3 + torch.randint(-8, 9, (dims["M"], 1), generator=generator, device=x.device)
        return [sprinkle(x, generator) if kind == "special" else x]
    m, n, k = dims["M"], dims["N"], dims["K"]
    plain = "normal" if kind in ("wide", "small") else kind
    x, w, b = (values(s, plain, 1.0, generator) for s in ((m, k), (k, n), (n,)))
    if kind != "integers":
        w *= max(k, 1) ** -0.5
    if kind == "wide":  # far from f16's 65504: a result at the edge may fall on either side of it
        x, b = x * 2000, b * 2000
    if kind == "small":  # most products are zero
        x[torch.rand(x.shape, generator=generator, device=x.device) < 0.8] = 0.0
    if kind == "special":
        x, b = sprinkle(x, generator), sprinkle(b, generator)
    return [x, w, b][: len(REGISTRY.spec(shape.op).arguments)]


def gated_operands(shape: Shape, kind: str, generator) -> list[torch.Tensor]:
    """Wide: sigmoids from 1 to below float32's smallest normal number. Integers: but for gate, or
    so few different results would share their rounding errors. Small: a product of two stays above
    half precision's smallest normal number: below it even fair rounding leans to zero."""
    extents = tuple(extent for _, extent in shape.dims)
    scale = {"wide": 25.0, "small": 2e-2}.get(kind, 1.0)
    made = []
    for name in REGISTRY.spec(shape.op).arguments:
        contents = kind if kind == "integers" and name != "gate" else "normal"
        tensor = values(extents, contents, 1.0, generator) * scale
        made.append(sprinkle(tensor, generator) if kind == "special" else tensor)
    return made


def placed(plain: torch.Tensor, dtype: str, start: int, padding: int) -> torch.Tensor:
    """The values in `dtype`, `start` elements into their storage, rows `padding` columns apart."""
    shape = list(plain.shape)
    shape[-1] += padding
    storage = torch.empty(start + math.prod(shape), dtype=torch_dtype(dtype), device=plain.device)
    view = storage[start:].view(shape)[..., : plain.shape[-1]]
    return view.copy_(plain)


def spec_of(shape: Shape) -> OpSpec:
    """The op with inputs of this shape; the seed's last digit chooses the contents."""
    spec = REGISTRY.spec(shape.op)
    if shape.op not in OWN_SHAPES:
        return spec

    def make_inputs(case: Case, dtype: str, device: str, number: int) -> Tensors:
        generator = torch.Generator(device=device).manual_seed(number)
        made = operands(shape, CONTENTS[number % len(CONTENTS)], generator)
        starts = zip(made, shape.starts, strict=True)
        views = [placed(t, dtype, start, shape.padding) for t, start in starts]
        for i, letter in enumerate(shape.transposed):
            if letter == "t":
                views[i] = placed(made[i].t(), dtype, shape.starts[i], 0).t()
        return dict(zip(spec.arguments, views, strict=True))

    return replace(spec, make_inputs=make_inputs)


# ---- shapes --------------------------------------------------------------------------------------


def extents(most: int, least: int = 1):
    """As many small ones as large ones, and the neighbours of powers of two."""
    top = most.bit_length() - 1
    near = st.builds(lambda e, d: (1 << e) + d, st.integers(0, top), st.integers(-1, 1))
    spread = st.builds(lambda e, f: int(2 ** (e * f)), st.just(math.log2(most)), st.floats(0, 1))
    return st.one_of(spread, near).map(lambda n: min(max(n, least), most))


VECTOR_OPS, GATED_OPS = ("vector_add", "axpby"), ("swiglu", "swiglu_backward")
PRODUCTS = ("matmul", "matmul_bias_relu", "matmul_bias_gelu")
OWN_SHAPES = (*VECTOR_OPS, *GATED_OPS, "softmax", *PRODUCTS)
TRANSPOSED = ("nt", "tn", "tt")


@st.composite
def common_shape(draw, op: str, dtype: str, most: int = LIMIT) -> Shape:
    """For an op without shapes of its own: any extents, contiguous, the spec's own contents."""
    spec = REGISTRY.spec(op)
    left, dims = most, {}
    names = list(spec.mutant_cases[0].dims)
    for name in draw(st.permutations(names)):
        least, step = spec.extents.get(name, (1, 1))
        extent = draw(extents(max(step, min(left, 40000)), max(1, least)))
        dims[name] = -(-extent // step) * step
        left = max(1, left // dims[name])
    ordered = tuple((name, dims[name]) for name in names)
    shape = Shape(op, dtype, ordered, ())
    while any(math.prod(o.shape(shape.case)) > 4 * most for o in spec.outputs):
        dims = {name: max(spec.extents.get(name, (1, 1))[0], 1) for name in names}
        shape = Shape(op, dtype, tuple(dims.items()), ())
    return shape


@st.composite
def product_shape(draw, op: str, dtype: str, most: int) -> Shape:
    """Rows in memory of whole 16-byte chunks, or not; K = 0 among the rest."""
    sides = [draw(extents(min(600, math.isqrt(most)))) for _ in range(3)]
    aligned = draw(st.sampled_from((True, True, False)))
    m, n, k = (-(-v // 8) * 8 for v in sides) if aligned else sides
    if draw(st.integers(0, 31)) == 0:
        k = 0
    if aligned and draw(st.booleans()):  # the extents that no row's length depends on
        m = sides[0]
    n_arguments = len(REGISTRY.spec(op).arguments)
    starts = tuple(draw(st.sampled_from((0, 0, 0, 0, 0, 1))) for _ in range(n_arguments))
    transposed = draw(st.sampled_from(("", *TRANSPOSED))) if op == "matmul" else ""
    dims = (("M", m), ("N", n), ("K", k))
    return Shape(op, dtype, dims, starts, transposed=transposed)


@st.composite
def any_shape(draw, op: str, dtype: str, most: int = LIMIT) -> Shape:
    """For the CUDA side: everything its launcher takes, with any of its configurations."""
    if op not in OWN_SHAPES:
        return draw(common_shape(op, dtype, most))
    start = st.integers(0, 7)
    if op in VECTOR_OPS:
        dims = (("N", draw(extents(most))),)
        shape = Shape(op, dtype, dims, (draw(start), draw(start)), draw(st.integers(0, 1)))
    elif op in GATED_OPS:
        i = draw(extents(min(40000, most)))
        m = draw(extents(max(1, min(5000, most // i))))
        starts = tuple(draw(start) for _ in REGISTRY.spec(op).arguments)
        padding = draw(st.sampled_from((0, 0, 1, 8)))
        dims = (("M", m), ("I", i))
        shape = Shape(op, dtype, dims, starts, draw(st.integers(0, 1)), padding)
    elif op == "softmax":
        multiple = draw(st.sampled_from((1, 8, 64)))  # rows of whole 16-byte packs, or not
        n = -(-draw(extents(min(40000, most))) // multiple) * multiple
        m = draw(extents(max(1, min(5000, most // n))))
        padding = draw(st.sampled_from((0, 0, 0, 0, 1, 8)))
        begin = draw(st.sampled_from((0, 0, 0, 0, 1, 8)))
        shape = Shape(op, dtype, (("M", m), ("N", n)), (begin,), padding=padding)
    else:
        shape = draw(product_shape(op, dtype, most))
    return replace(shape, config=draw(st.sampled_from(configs(shape))))


def configs(shape: Shape) -> list[tuple[tuple[str, int], ...]]:
    """The default and, where memory is aligned, every candidate of `make tune`."""
    candidates = REGISTRY.spec(shape.op).tuning["cuda"](shape.case, shape.dtype)
    aligned = not any(shape.starts) and not shape.padding
    if shape.op in ("softmax", *PRODUCTS) and not aligned:
        candidates = []
    return [(), *(tuple(config.items()) for config in candidates)]


@dataclass(frozen=True)
class Family:
    """Shapes for which Triton compiles one kernel, or a few. `draw` makes a Shape of a dtype."""

    op: str
    dtype: str
    name: str
    draw: Callable[[st.DrawFn, str], Shape]

    @property
    def shapes(self):
        @st.composite
        def drawn(draw) -> Shape:
            return self.draw(draw, self.dtype)

        return drawn()


def _multiple_of_16(draw, most: int) -> int:
    return 16 * draw(st.integers(1, most // 16))


def _odd(draw, most: int, least: int = 3) -> int:
    return 2 * draw(st.integers(least // 2, (most - 1) // 2)) + 1


def _pair(
    draw, dtype: str, op: str, aligned: bool, starts: tuple[int, int], out_start: int
) -> Shape:
    n = _multiple_of_16(draw, 1 << 15) if aligned else _odd(draw, 1 << 15)
    return Shape(op, dtype, (("N", n),), starts, out_start)


def _gated(draw, dtype: str, op: str, aligned: bool, padding: int) -> Shape:
    i = _multiple_of_16(draw, 2000) if aligned else _odd(draw, 2000)
    dims = (("M", _odd(draw, 9)), ("I", i))
    return Shape(op, dtype, dims, (0,) * len(REGISTRY.spec(op).arguments), padding=padding)


def _softmax(draw, dtype: str, aligned: bool, looped: bool) -> Shape:
    least, most = (1025, 8000) if looped else (3, 1000)
    n = _multiple_of_16(draw, most) if aligned else _odd(draw, most, least)
    config = {"BLOCK_N": 1024, "num_warps": 4} | ({"num_stages": 3} if looped else {"ROWS": 2})
    dims = (("M", _odd(draw, 7 if looped else 60)), ("N", n))
    padding = 0 if aligned else 2 * draw(st.integers(0, 3))
    return Shape("softmax", dtype, dims, (0,), padding=padding, config=tuple(config.items()))


SMALL_TILE = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "num_warps": 4, "num_stages": 3}


def _product(draw, dtype: str, op: str, kind: str, transposed: str = "") -> Shape:
    if kind == "odd":
        m, n, k = (_odd(draw, 128) for _ in range(3))
    else:
        m, n = (_multiple_of_16(draw, 128) for _ in range(2))
        k = _multiple_of_16(draw, 128)
        k = k // 32 * 32 + (16 if kind == "16" else 32)
    starts = (int(kind == "misaligned"), *(0,) * (len(REGISTRY.spec(op).arguments) - 1))
    dims = (("M", m), ("N", n), ("K", k))
    config = tuple(SMALL_TILE.items())
    return Shape(op, dtype, dims, starts, transposed=transposed, config=config)


def families(op: str) -> list[Family]:
    """What Triton specialises on: dtype, multiples of 16, aligned pointers, its constexprs."""
    drawers: dict[str, dict[str, Callable[..., Shape]]] = {
        **{
            op: {
                "multiples of 16": functools.partial(
                    _pair, op=op, aligned=True, starts=(0, 0), out_start=0
                ),
                "odd": functools.partial(_pair, op=op, aligned=False, starts=(0, 0), out_start=0),
                "shifted alike": functools.partial(
                    _pair, op=op, aligned=False, starts=(1, 1), out_start=1
                ),
                "shifted apart": functools.partial(
                    _pair, op=op, aligned=True, starts=(1, 0), out_start=0
                ),
            }
            for op in VECTOR_OPS
        },
        **{
            op: {
                "back to back": functools.partial(_gated, op=op, aligned=False, padding=0),
                "strided": functools.partial(_gated, op=op, aligned=True, padding=16),
                "strided, odd": functools.partial(_gated, op=op, aligned=False, padding=2),
            }
            for op in GATED_OPS
        },
        "softmax": {
            "multiples of 16": functools.partial(_softmax, aligned=True, looped=False),
            "odd": functools.partial(_softmax, aligned=False, looped=False),
            "looped": functools.partial(_softmax, aligned=False, looped=True),
        },
        **{
            op: {
                "even K": functools.partial(_product, op=op, kind="32"),
                "multiples of 16": functools.partial(_product, op=op, kind="16"),
                "odd": functools.partial(_product, op=op, kind="odd"),
                "misaligned": functools.partial(_product, op=op, kind="misaligned"),
            }
            for op in PRODUCTS
        },
    }
    drawers["matmul"] |= {
        f"{layout}, {words}": functools.partial(_product, op="matmul", kind=kind, transposed=layout)
        for layout in TRANSPOSED
        for kind, words in (("16", "multiples of 16"), ("odd", "odd"))
    }
    chosen = drawers.get(op, {"any": lambda draw, dtype: draw(common_shape(op, dtype, 1 << 14))})
    return [
        Family(op, dtype, name, draw)
        for name, draw in chosen.items()
        for dtype in REGISTRY.spec(op).dtypes
    ]


# ---- running -------------------------------------------------------------------------------------


def wrong_contents(shape: Shape, launch: Callable[..., None], device: str, first: int) -> list[str]:
    """Contents on which a side's answer is not right, with the reason."""
    problem, wrong = None, []
    for number in range(first, first + len(CONTENTS)):
        if problem is None:
            problem = Problem(spec_of(shape), shape.case, shape.dtype, device, number)
        else:
            problem.reseed(number)
            problem.poison()
        config: Config = dict(shape.config)
        launch(*problem.tensors.values(), *problem.outs, **config)
        verdict = problem.judge(problem.produced)
        if not verdict.ok:
            wrong.append(f"{CONTENTS[number % len(CONTENTS)]}: {verdict.reason}")
    return wrong


def explore(shapes, n_examples: int, check: Callable[[Shape], None], number: int | None) -> set:
    """Check `n_examples` drawn shapes; returns those seen. `number` None: the same ones always."""
    seen = set()

    @settings(
        max_examples=n_examples,
        derandomize=number is None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        # Not shrunk: a shape says enough, and a kernel that faults leaves nothing to try again.
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
        print_blob=True,
    )
    @given(shapes)
    def prop(shape: Shape) -> None:
        seen.add(shape)
        check(shape)

    (prop if number is None else seed(number)(prop))()
    return seen


SEEDS = REPOSITORY / ".hypothesis" / "passed_seeds"


def next_seed(file: Path = SEEDS) -> int:
    """CVT_SEED_START, else the first seed after those that passed on this machine."""
    given_seed = os.environ.get("CVT_SEED_START")
    if given_seed is not None:
        return int(given_seed)
    passed = file.read_text().split() if file.is_file() else []
    return max(map(int, passed), default=-1) + 1


def remember_seed(number: int, file: Path = SEEDS) -> None:
    file.parent.mkdir(exist_ok=True)
    with file.open("a") as lines:
        lines.write(f"{number}\n")
