"""Awkward calls of every op: the right answer, or the same refusal in the same words on both sides.

Without a GPU the Triton side answers through the interpreter, and the CUDA side refuses what it
can refuse before it looks at a device.
"""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from edge_cases import (
    DIFFERENCES,
    EDGES,
    MANY_ROWS,
    PRODUCTS,
    REFUSALS,
    REGISTRY,
    SIDES,
    SIZES,
    TRITON_REFUSALS,
    answer,
    launcher_of,
    refusal_of,
)

from harness.availability import extension_problem
from harness.registry import load_triton
from harness.spec import empty_outputs

INTERPRETED = triton.knobs.runtime.interpret
ON_GPU = torch.cuda.is_available()
# The interpreter rounds bf16 wrongly in some versions, and takes seconds for much more.
CPU_DTYPES = {
    op: "f16" if "f16" in dtypes else "f32" if "f32" in dtypes else dtypes[0]
    for op in REGISTRY.stems
    for dtypes in [REGISTRY.spec(op).dtypes]
}
CPU_ELEMENTS = 1 << 19
CPU_ROWS = 4096

interpreted = pytest.mark.skipif(not INTERPRETED, reason="needs TRITON_INTERPRET=1")
# numpy, under the interpreter, warns of the NaN and Inf that these tests want.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.*")


def small_enough(edge) -> bool:
    # Programs that loop over rows take the interpreter milliseconds each.
    most = CPU_ELEMENTS if edge.op in ("vector_add", "softmax") else CPU_ROWS
    return edge.n_elements <= CPU_ELEMENTS and max(edge.case.dims.values()) <= most


def ids(case) -> str:
    return f"{case.op}-{case.name}".replace(" ", "_")


def answer_or_skip(edge, dtype: str, side: str, device: str) -> str:
    try:
        return answer(edge, dtype, side, device)
    except Exception as error:
        if "0-dimensional arrays" in f"{error} {error.__cause__}":
            pytest.skip("this Triton's interpreter cannot loop with this numpy")
        raise


@interpreted
@pytest.mark.parametrize("edge", list(filter(small_enough, EDGES)), ids=ids)
def test_triton_answers_in_the_interpreter(edge):
    assert answer_or_skip(edge, CPU_DTYPES[edge.op], "triton", "cpu") == ""


@interpreted
@pytest.mark.parametrize("refusal", [*REFUSALS, *TRITON_REFUSALS], ids=ids)
def test_triton_refuses(refusal):
    kind, text = refusal_of(refusal, CPU_DTYPES[refusal.op], "triton", "cpu")
    assert text.startswith(refusal.text)
    assert kind == refusal.error.__name__
    assert "; pass" in text, "says nothing of what to do"


@pytest.mark.parametrize("op", REGISTRY.stems)
def test_cpu_tensors_are_refused_alike(op, monkeypatch):
    """The one refusal of the CUDA side that needs no GPU."""
    if reason := extension_problem():
        pytest.skip(reason)
    # Without the interpreter the Triton side takes no CPU tensor either.
    monkeypatch.setattr(load_triton("_checks"), "cpu_tensors_allowed", lambda: False)
    spec = REGISTRY.spec(op)
    case = spec.test_cases[3]
    tensors = spec.make_inputs(case, spec.dtypes[0], "cpu", 1).values()
    outs = empty_outputs(spec, case, spec.dtypes[0])
    texts = []
    for side in SIDES:
        first = spec.arguments[0]
        wanted = f"{op}: {first} is on cpu, wanted a CUDA device"
        with pytest.raises(ValueError, match=wanted) as caught:
            launcher_of(op, side)(*tensors, *outs)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_what_is_no_tensor_is_a_type_error_on_both_sides():
    """By design the words differ: the CUDA side's are pybind11's, before any check of ours."""
    if reason := extension_problem():
        pytest.skip(reason)
    for side in SIDES:
        with pytest.raises(TypeError):
            launcher_of("softmax", side)([1.0], torch.empty(1, 1))


def test_every_size_meets_every_op_and_names_are_distinct():
    names = [(e.op, e.name) for e in (*EDGES, *REFUSALS)]
    assert len(names) == len(set(names))
    for op in REGISTRY.stems:
        spec = REGISTRY.spec(op)
        extents = {n for e in EDGES if e.op == op for n in e.case.dims.values()}
        free = [dim for dim in spec.mutant_cases[0].dims if dim not in spec.extents]
        assert extents >= set(SIZES) or not free
    for op in ("softmax", *PRODUCTS):
        assert any(e.case.dims["M"] == MANY_ROWS for e in EDGES if e.op == op)


def test_the_table_of_differences_is_the_list_of_one_sided_refusals():
    assert {(r.op, r.name) for r in TRITON_REFUSALS} == set(DIFFERENCES)
    for pair, reason in DIFFERENCES.items():
        print(f"{pair[0]}, {pair[1]}: {reason}")


# ---- on a GPU ------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("op", REGISTRY.stems)
@pytest.mark.parametrize("side", SIDES)
def test_every_edge_is_answered(op, side):
    """One test an op and side: a thousand calls that take milliseconds each."""
    wrong = [
        f"{edge.name} {dtype}: {reason}"
        for edge in EDGES
        if edge.op == op
        for dtype in REGISTRY.spec(op).dtypes
        if (reason := answer(edge, dtype, side, "cuda"))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.gpu
@pytest.mark.parametrize("refusal", REFUSALS, ids=ids)
def test_both_sides_refuse_in_the_same_words(refusal):
    for dtype in REGISTRY.spec(refusal.op).dtypes:
        cuda, on_triton = (refusal_of(refusal, dtype, side, "cuda") for side in SIDES)
        assert cuda == on_triton
        assert cuda[0] == refusal.error.__name__
        assert cuda[1].startswith(refusal.text)


@pytest.mark.gpu
@pytest.mark.parametrize("op", REGISTRY.stems)
def test_an_output_on_the_host_is_refused_in_the_same_words(op):
    spec = REGISTRY.spec(op)
    case = spec.test_cases[3]
    tensors = spec.make_inputs(case, spec.dtypes[0], "cuda", 1).values()
    outs = empty_outputs(spec, case, spec.dtypes[0])
    texts = []
    for side in SIDES:
        with pytest.raises(ValueError, match="out is on cpu") as caught:
            launcher_of(op, side)(*tensors, *outs)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


@pytest.mark.gpu
@pytest.mark.parametrize("refusal", TRITON_REFUSALS, ids=ids)
def test_a_difference_is_a_refusal_on_triton_and_an_answer_on_cuda(refusal):
    dtype = REGISTRY.spec(refusal.op).dtypes[0]
    kind, text = refusal_of(refusal, dtype, "triton", "cuda")
    assert (kind, text.startswith(refusal.text)) == ("ValueError", True), text
    shapes = [tensor.shape for tensor in refusal.arguments(dtype, "cuda")]
    need_memory(sum(2 * math.prod(shape) for shape in shapes))
    # Ones make exact sums: 1/n of a power of two, and 1 * 1 * K, plus 1 where there is a bias.
    tensors = [torch.ones(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes]
    out = tensors[-1].fill_(math.nan)
    launcher_of(refusal.op, "cuda")(*tensors)
    rows, cols = shapes[0]
    want = {
        "softmax": lambda: 1 / cols,
        "matmul": lambda: cols,
        "matmul_bias_relu": lambda: cols + 1,
        "matmul_bias_gelu": lambda: float(
            torch.nn.functional.gelu(torch.tensor(cols + 1.0), approximate="tanh")
        ),
    }[refusal.op]()
    # The count alone: pytest takes minutes to print a tensor of 2^30.
    n_wrong = int((out != torch.tensor(float(want)).bfloat16()).sum())
    assert n_wrong == 0


# ---- more than 2^31 elements ---------------------------------------------------------------------


def need_memory(n_bytes: int) -> None:
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    if free < 2 * n_bytes:
        pytest.skip(f"needs {2 * n_bytes / 1e9:.0f} GB")


BEYOND = (1 << 31) + (1 << 20)


@pytest.mark.gpu
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("n_cols", [8, 4096, 32768])
def test_softmax_of_more_than_two_to_the_31_elements(side, n_cols):
    n_rows = BEYOND // n_cols + 1
    need_memory(2 * 2 * n_rows * n_cols)
    x = torch.empty(n_rows, n_cols, device="cuda", dtype=torch.bfloat16).normal_()
    out = torch.full_like(x, math.nan)
    launcher_of("softmax", side)(x, out)
    n_rows_at_once = (1 << 26) // n_cols
    for part, got in zip(x.split(n_rows_at_once), out.split(n_rows_at_once), strict=True):
        torch.testing.assert_close(got.float(), part.float().softmax(-1), rtol=2**-7, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(BEYOND // 32768 + 1, 32768, 16), (BEYOND // 1024 + 1, 24, 1024), (8, BEYOND // 256 + 8, 256)],
    ids=["out", "x", "w"],
)
def test_matmul_of_more_than_two_to_the_31_elements(side, m, n, k):
    need_memory(2 * (m * k + k * n + n + m * n))
    # Small integers: every sum is exact in float32, whatever the order, and most fit bf16.
    x, w, b = (
        torch.randint(-2, 3, shape, device="cuda", dtype=torch.int8).bfloat16()
        for shape in ((m, k), (k, n), (n,))
    )
    out = torch.full((m, n), math.nan, device="cuda", dtype=torch.bfloat16)
    launcher_of("matmul_bias_relu", side)(x, w, b, out)
    rows, cols = 1 + (1 << 26) // max(n, k), 1 << 20
    for r in range(0, m, rows):
        for c in range(0, n, cols):
            part = x[r : r + rows].float() @ w[:, c : c + cols].float()
            want = (part + b[c : c + cols].float()).relu_().bfloat16()
            assert torch.equal(out[r : r + rows, c : c + cols], want)
