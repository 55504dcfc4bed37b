"""What an op is: frozen facts that every other part of the harness reads and none repeats.

Importing this module or any spec needs neither torch nor triton; the callables import torch
when they run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

Tensors = dict[str, "torch.Tensor"]
Config = dict[str, int]
Level = Literal["quick", "default", "full"]

LEVELS: tuple[Level, ...] = ("quick", "default", "full")
BACKENDS = ("cuda", "triton", "torch", "compile", "library")
# Others' implementations of an op, and the package that each is imported from.
PEER_PACKAGES = {"liger": "liger_kernel", "quack": "quack"}
ITEMSIZE = {"f32": 4, "bf16": 2, "f16": 2, "f8e4m3": 1, "i8": 1}


@dataclass(frozen=True)
class Case:
    """One point of an op's sweep.

    `dims` are extents in elements. `layout` names the view that `make_inputs` builds
    ("contiguous", "offset1", ...). A bench case runs from its `level` upwards: a "quick" case
    also runs by default and in full. `baselines` marks the cases on which torch.compile and
    the library run by default, `all_dtypes` those that run by default in dtypes that else ride
    along.
    """

    dims: Mapping[str, int]
    layout: str = "contiguous"
    level: Level = "full"
    baselines: bool = False
    all_dtypes: bool = False

    @property
    def dims_text(self) -> str:
        return ";".join(f"{name}={extent}" for name, extent in self.dims.items())

    @property
    def name(self) -> str:
        suffix = "" if self.layout == "contiguous" else f":{self.layout}"
        return "x".join(short_extent(extent) for extent in self.dims.values()) + suffix


def short_extent(extent: int) -> str:
    """`2^20` for a large power of two, `2^28-1` for its neighbour below, else the number."""
    if extent >= 1 << 16:
        for offset, text in ((0, ""), (1, "-1")):
            whole = extent + offset
            if whole & (whole - 1) == 0:
                return f"2^{whole.bit_length() - 1}{text}"
    return str(extent)


@dataclass(frozen=True)
class Tolerance:
    """How far one dtype's output may lie from float64.

    Elementwise: |got - reference| <= output_ulps * spacing(dtype, reference)
    + eps(float32) * OpSpec.accumulation(...), where spacing is eps(dtype) * |reference| and stops
    shrinking at the smallest normal number. Bias: the summed signed error, upwards and away from
    zero, in ulps of the summed magnitude, stays within bias_ulps
    + eps(float32) / eps(dtype) * OpSpec.drift(...) plus sampling noise. `reason` says where both
    numbers come from, and names them.
    """

    output_ulps: float
    bias_ulps: float
    reason: str


@dataclass(frozen=True)
class SpecialValues:
    """What an op owes to NaN, infinities, zeros and subnormal numbers; both sides share it.

    NaN and infinities are never the op's to choose: NaN only where the reference has NaN, infinity
    with the same sign. signed_zeros: "kept" means an output zero has the reference's sign.
    subnormals: "flushed" means that a result, or a value on the way to it, below float32's
    smallest normal number may become zero. `text` says all of it in words, with the reason.
    """

    text: str = ""
    signed_zeros: Literal["kept", "any"] = "any"
    subnormals: Literal["kept", "flushed"] = "flushed"


@dataclass(frozen=True)
class Output:
    """One tensor that an op writes beside `out`: the fields of OpSpec that speak of one output.

    Launchers and `library` take it by `name`, in order, after `out`; `eager` and `low_precision`
    return a tuple with `out` first. `dtype` "" is the case's; `tolerances` are by the case's dtype.
    """

    name: str
    shape: Callable[[Case], tuple[int, ...]]
    reference: Callable[[Tensors], torch.Tensor]
    accumulation: Callable[[Tensors, torch.Tensor], torch.Tensor]
    tolerances: Mapping[str, Tolerance]
    dtype: str = ""
    drift: Callable[[Case], float] = lambda case: 0.0
    unfused_rounding: Callable[[Tensors], torch.Tensor] | None = None


@dataclass(frozen=True)
class Rung:
    """A simpler implementation than a side's headline, in `<stem>/<name>` beside its file: launcher
    `<stem>_<name>` in CUDA, `<stem>` of its own file in Triton, both without configuration.

    `step` says in a clause what it does that the rung below does not; `dtypes` () are all. Cases of
    more than `most_flops` operations leave it out: it would take minutes of a run.
    """

    name: str
    step: str
    dtypes: tuple[str, ...] = ()
    most_flops: float = math.inf


@dataclass(frozen=True)
class OpSpec:
    """All facts of one op.

    `make_inputs(case, dtype, device, seed)` returns the tensors named in `arguments`, in that
    order, without the output. `output_shape(case)` is the shape of `out`. `reference(tensors)`
    is float64. `accumulation(tensors, reference)` is the magnitude that float32 arithmetic
    inside the op rounds at, elementwise, times how often it does; it grows with the length of a
    reduction. `drift(case)` is the part of it that may share one sign over the whole output, as a
    multiple of the summed magnitude. `unfused_rounding`, for an op that torch runs as several
    kernels, is the magnitude that those kernels round in the output's dtype in between; only
    `torch`, `compile` and `unfused_peers` are granted it. `bytes_read`, `bytes_written` and `flops`
    count the distinct bytes and the model operations of a case. `eager(*tensors)` is the plain
    torch expression; `library(*tensors, out)` the best fused library call, None where `absent` says
    why. `absent` maps a backend to the reason it has no implementation. `low_precision`
    is the op computed carelessly in its own dtype: the checker must refuse it. `mutant_cases` are
    those on which outputs broken on purpose must fail; `omitted_mutants` maps one that cannot to
    the reason, as `mutant`, `mutant:dtype`, `mutant@case` or `mutant:dtype@case`. `reduced_dim` is
    the extent that an output element sums over, "" for none. `tuning` maps a backend to the
    configurations worth trying on a case in a dtype. `sweep_dim` is the extent that the bench
    cases vary. `out_dtype` is `out`'s where it is not the case's. `further_outputs` are written
    beside `out`. `peers` maps one of PEER_PACKAGES to its version of the op, called like `eager`: a
    row of its own where the package is installed; `unfused_peers` are those that round as torch's
    kernels do. `extents` maps a dimension that not every size suits to (the least, what it must be
    a multiple of). `ladders` maps a backend to its rungs, the simplest first; they run by default
    on the quick cases that have baselines. `full_dtypes` are those of `dtypes` that ride along:
    they are benched in full, or where they are asked for. --quick leaves out ladders, torch.compile
    and all dtypes but the first; the default runs torch.compile on quick cases in the first dtype.
    """

    stem: str
    family: Literal["elementwise", "row_reduction", "reduction", "movement", "matmul"]
    formula: str
    arguments: tuple[str, ...]
    dtypes: tuple[str, ...]
    bench_cases: tuple[Case, ...]
    test_cases: tuple[Case, ...]
    make_inputs: Callable[[Case, str, str, int], Tensors]
    output_shape: Callable[[Case], tuple[int, ...]]
    reference: Callable[[Tensors], torch.Tensor]
    accumulation: Callable[[Tensors, torch.Tensor], torch.Tensor]
    bytes_read: Callable[[Case, str], int]
    bytes_written: Callable[[Case, str], int]
    flops: Callable[[Case], int]
    tolerances: Mapping[str, Tolerance]
    eager: Callable[..., Any]
    library: Callable[..., Any] | None = None
    low_precision: Callable[[Tensors], Any] | None = None
    unfused_rounding: Callable[[Tensors], torch.Tensor] | None = None
    absent: Mapping[str, str] = field(default_factory=dict)
    special_values: SpecialValues = field(default_factory=SpecialValues)
    drift: Callable[[Case], float] = lambda case: 0.0
    reduced_dim: str = ""
    mutant_cases: tuple[Case, ...] = ()
    omitted_mutants: Mapping[str, str] = field(default_factory=dict)
    tuning: Mapping[str, Callable[[Case, str], Sequence[Config]]] = field(default_factory=dict)
    compute_bound: bool = False
    math_mode: str = "ieee"
    distribution: str = "normal(0,1)"
    sweep_dim: str = ""
    out_dtype: str = ""
    further_outputs: tuple[Output, ...] = ()
    peers: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    unfused_peers: tuple[str, ...] = ()
    extents: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    ladders: Mapping[str, tuple[Rung, ...]] = field(default_factory=dict)
    full_dtypes: tuple[str, ...] = ()

    @property
    def outputs(self) -> tuple[Output, ...]:
        """`out` and what is written beside it, in the order of the launchers' arguments."""
        out = Output(
            "out",
            self.output_shape,
            self.reference,
            self.accumulation,
            self.tolerances,
            self.out_dtype,
            self.drift,
            self.unfused_rounding,
        )
        return (out, *self.further_outputs)

    def n_output_elements(self, case: Case) -> int:
        return sum(math.prod(output.shape(case)) for output in self.outputs)

    def bench_cases_at(self, level: Level) -> tuple[Case, ...]:
        wanted = LEVELS[: LEVELS.index(level) + 1]
        return tuple(case for case in self.bench_cases if case.level in wanted)


def torch_dtype(name: str) -> torch.dtype:
    import torch

    return {
        "f32": torch.float32,
        "bf16": torch.bfloat16,
        "f16": torch.float16,
        "f8e4m3": torch.float8_e4m3fn,
        "i8": torch.int8,
    }[name]


def lead_elements(case: Case) -> int:
    """Elements before the first one of an output: one where the case asks for such views."""
    return 1 if case.layout == "offset1" else 0


def empty_outputs(
    spec: OpSpec, case: Case, dtype: str, device: str = "cpu"
) -> tuple[torch.Tensor, ...]:
    """All outputs as the harness places them, without values or guards."""
    import torch

    start = lead_elements(case)
    made = []
    for output in spec.outputs:
        shape = output.shape(case)
        n_elements = start + math.prod(shape)
        flat = torch.empty(n_elements, dtype=torch_dtype(output.dtype or dtype), device=device)
        made.append(flat[start:].view(shape))
    return tuple(made)


def random_tensor(
    shape: tuple[int, ...], dtype: str, device: str, seed: int, scale: float = 1.0
) -> torch.Tensor:
    """Normal values times `scale`, drawn in float32 and rounded once to `dtype`."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    values = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
    return values.mul_(scale).to(torch_dtype(dtype))


def view_from_element(tensor: torch.Tensor, start: int) -> torch.Tensor:
    """The same 1-D values in storage that begins `start` elements earlier: a misaligned view."""
    import torch

    storage = torch.empty(tensor.numel() + start, dtype=tensor.dtype, device=tensor.device)
    view = storage[start:]
    view.copy_(tensor)
    return view
