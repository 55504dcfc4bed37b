"""The Triton matmul family beyond its specs' cases: layouts as views, forms, rungs, refusals."""

from __future__ import annotations

import functools
import itertools
import math
import re
import sys

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from harness.registry import REPOSITORY, _load_by_path, load_triton
from harness.spec import Case
from harness.specs import _matmul
from harness.specs._matmul_ladder import TRITON_RUNGS
from harness.specs._matmul_layout import tma_takes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INTERPRETED = triton.knobs.runtime.interpret
F16 = torch.float16

matmul = load_triton("matmul").matmul
matmul_bias_relu = load_triton("matmul_bias_relu").matmul_bias_relu
matmul_bias_gelu = load_triton("matmul_bias_gelu").matmul_bias_gelu

runs = pytest.mark.skipif(
    DEVICE == "cpu" and not INTERPRETED, reason="needs an NVIDIA GPU or TRITON_INTERPRET=1"
)
LAYOUTS = list(itertools.product((False, True), repeat=2))
# every form, with tiles that small shapes have several of
SMALL = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "num_warps": 4}
FORMS = {
    "default": {},
    "pointers": SMALL | {"USE_DESCRIPTORS": 0},
    "descriptors": SMALL | {"PROGRAMS": 3},
    "two halves": SMALL | {"EPILOGUE_SUBTILE": 2},
}


def operand(rows: int, cols: int, transposed: bool, seed: int) -> torch.Tensor:
    shape = (cols, rows) if transposed else (rows, cols)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, F16)
    return x.t() if transposed else x


def unwritten(rows: int, cols: int) -> torch.Tensor:
    return torch.full((rows, cols), math.nan, dtype=F16, device=DEVICE)


def check_close(out: torch.Tensor, reference: torch.Tensor) -> None:
    torch.testing.assert_close(out.double(), reference, rtol=2**-10, atol=2**-9)


@functools.cache
def loop_problem() -> str:
    """Why loops cannot be interpreted here: Triton 3.6 interprets none on numpy 2.4."""
    try:
        matmul(operand(1, 1, False, 0), operand(1, 1, False, 1), unwritten(1, 1))
    except Exception as error:
        if "only 0-dimensional arrays" not in str(error):
            raise
        return "this Triton's interpreter cannot loop with this numpy; pip install 'numpy<2.4'"
    return ""


@pytest.fixture
def loops() -> None:
    if loop_problem():
        pytest.skip(loop_problem())


@runs
@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("x_transposed", "w_transposed"), LAYOUTS)
def test_every_form_takes_every_layout(x_transposed: bool, w_transposed: bool, form: str) -> None:
    # Descriptors can name the first two alone: pitches of 16 bytes; 1s make both layouts one.
    for m, n, k in ((136, 72, 40), (40, 200, 104), (37, 65, 33), (1, 9, 1)):
        x, w = operand(m, k, x_transposed, 1), operand(k, n, w_transposed, 2)
        out = unwritten(m, n)
        matmul(x, w, out, **FORMS[form])
        check_close(out, x.double() @ w.double())


@runs
@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_every_epilogue(form: str) -> None:
    x, w = operand(136, 40, False, 1), operand(40, 72, False, 2)
    b = operand(1, 72, False, 3)[0]
    total = x.double() @ w.double() + b.double()
    out = unwritten(136, 72)
    matmul_bias_relu(x, w, b, out, **FORMS[form])
    check_close(out, total.relu())
    matmul_bias_gelu(x, w, b, out.fill_(math.nan), **FORMS[form])
    check_close(out, torch.nn.functional.gelu(total, approximate="tanh"))


@runs
@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("view", ["x", "w", "out"])
def test_views_that_start_off_16_bytes_are_right(view: str) -> None:
    tensors = {"x": operand(40, 64, False, 1), "w": operand(64, 48, False, 2)}
    tensors["out"] = unwritten(40, 48)
    moved = torch.full((tensors[view].numel() + 2,), 7.0, dtype=F16, device=DEVICE)
    inside = moved[1:-1].view(tensors[view].shape).copy_(tensors[view])
    tensors[view] = inside
    matmul(*tensors.values())
    check_close(tensors["out"], tensors["x"].double() @ tensors["w"].double())
    assert moved[0] == moved[-1] == 7.0, "wrote outside the view"


@runs
@pytest.mark.usefixtures("loops")
def test_without_terms_the_epilogue_of_the_bias_is_left() -> None:
    x, w, b = operand(5, 0, False, 1), operand(0, 8, False, 2), operand(1, 8, False, 3)[0]
    out = unwritten(5, 8)
    matmul(x, w, out)
    check_close(out, torch.zeros_like(out).double())
    matmul_bias_gelu(x, w, b, out)
    check_close(out, torch.nn.functional.gelu(b.double(), approximate="tanh").expand(5, 8))


@runs
@pytest.mark.usefixtures("loops")
def test_gelu_of_sums_beyond_the_range_of_exp() -> None:
    x, w = torch.eye(16, dtype=F16, device=DEVICE), torch.zeros(16, 16, dtype=F16, device=DEVICE)
    b = torch.tensor([-math.inf, -6e4, -12.0, -0.0, 12.0, 6e4, math.inf, math.nan] * 2)
    b = b.to(DEVICE, F16)
    out = unwritten(16, 16)
    matmul_bias_gelu(x, w, b, out)
    wanted = torch.nn.functional.gelu(b.float(), approximate="tanh").to(F16).expand(16, 16)
    torch.testing.assert_close(out, wanted, rtol=2**-10, atol=0, equal_nan=True)


@runs
@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("rung", [rung.name for rung in TRITON_RUNGS])
def test_every_rung_takes_what_the_op_takes(rung: str) -> None:
    file = REPOSITORY / "triton_kernels" / "matmul" / f"{rung}.py"
    launcher = _load_by_path(f"harness._triton.matmul_{rung}", file).matmul
    for m, n, k in ((136, 72, 40), (37, 65, 33), (5, 7, 0), (0, 3, 3), (1, 1, 1)):
        for x_transposed, w_transposed in LAYOUTS:
            x, w = operand(m, k, x_transposed, 1), operand(k, n, w_transposed, 2)
            out = unwritten(m, n)
            launcher(x, w, out)
            check_close(out, x.double() @ w.double())


REFUSED = {
    "strided": (
        lambda x, w, out: (x[:, ::2], w[:4], out),
        "matmul: x is neither row-major nor the transpose of a row-major matrix (strides (8, 2)), "
        "wanted one of these; pass x.contiguous()",
    ),
    "expanded": (
        lambda x, w, out: (x, w[:1].expand(8, 8), out),
        "matmul: w is neither row-major nor the transpose of a row-major matrix (strides (0, 1)), "
        "wanted one of these; pass w.contiguous()",
    ),
    "out transposed": (
        lambda x, w, out: (x, w, out.t()),
        "matmul: out is not contiguous (strides (1, 8)), wanted row-major contiguous; "
        "pass out.contiguous()",
    ),
    "in place": (
        lambda x, w, out: (x.t(), w, x),
        "matmul: out overlaps x, wanted no shared memory; pass a fresh out",
    ),
    "rows": (
        lambda x, w, out: (x, w[:7], out),
        "matmul: w has shape (7, 8), wanted 8 rows like x's columns; pass w as [K, N]",
    ),
}


@runs
@pytest.mark.parametrize("name", REFUSED)
def test_what_matmul_refuses(name: str) -> None:
    spoil, text = REFUSED[name]
    x, w = operand(8, 8, False, 1), operand(8, 8, False, 2)
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        matmul(*spoil(x, w, unwritten(8, 8)))


@runs
@pytest.mark.parametrize("launcher", [matmul_bias_relu, matmul_bias_gelu])
def test_the_fused_ops_refuse_transposed_views(launcher) -> None:
    x, w, b = operand(8, 8, False, 1), operand(8, 8, False, 2), operand(1, 8, False, 3)[0]
    text = f"{launcher.__name__}: w is not contiguous (strides (1, 8)), wanted row-major contiguous"
    with pytest.raises(ValueError, match=re.escape(text)):
        launcher(x, w.t(), b, unwritten(8, 8))


@runs
@pytest.mark.parametrize("programs", [0, -1])
@pytest.mark.parametrize("m", [0, 8])
def test_a_grid_without_programs_is_refused(programs: int, m: int) -> None:
    text = f"PROGRAMS is {programs}, wanted 1 or more; leave it out for the default"
    x, w, b = operand(m, 8, False, 1), operand(8, 8, False, 2), operand(1, 8, False, 3)[0]
    out = unwritten(m, 8)
    with pytest.raises(ValueError, match=f"^matmul: {text}$"):
        matmul(x, w, out, PROGRAMS=programs)
    for fused in (matmul_bias_relu, matmul_bias_gelu):
        with pytest.raises(ValueError, match=f"^{fused.__name__}: {text}$"):
            fused(x, w, b, out, PROGRAMS=programs)


@pytest.mark.parametrize(("shared_kb", "block_k", "programs"), [(227, 128, 64), (99, 64, 64)])
def test_small_products_take_the_small_tile_that_fits(
    shared_kb: int, block_k: int, programs: int
) -> None:
    config = sys.modules[f"{load_triton('matmul').__package__}._matmul_config"]
    target = config.Target(config.HOPPER, shared_kb * 1024, 132)
    found = config.default_config(512, 512, 512, True, target)
    assert (64, 64, block_k) == (found.BLOCK_M, found.BLOCK_N, found.BLOCK_K)
    assert programs == found.PROGRAMS


def binding_takes_tma(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> bool:
    """is_transposed of csrc/bindings/checks.cpp and tma_takes of csrc/common/matmul_wgmma.cuh."""
    (m, k), n = x.shape, w.shape[1]
    x_row = k if x.is_contiguous() else m
    w_row = n if w.is_contiguous() else k
    aligned = all(tensor.data_ptr() % 16 == 0 for tensor in (x, w, out))
    return k > 0 and aligned and not any(row % 8 for row in (x_row, w_row, n))


@pytest.mark.parametrize("lead", ["", "offset1"])
@pytest.mark.parametrize("letters", ["nn", "nt", "tn", "tt"])
def test_the_spec_knows_which_form_both_sides_take(letters: str, lead: str) -> None:
    launchers = sys.modules[f"{load_triton('matmul').__package__}._matmul_launch"]
    parts = [part for part in (letters.replace("nn", ""), lead) if part]
    answers = set()
    for m, n, k in itertools.product((0, 1, 2, 5, 8, 16, 24), repeat=3):
        case = Case({"M": m, "N": n, "K": k}, layout="_".join(parts) or "contiguous")
        x, w = _matmul.make_inputs(case, "bf16", "cpu", 0).values()
        storage = torch.empty(m * n + 1, dtype=x.dtype)
        out = storage[1:].view(m, n) if lead else storage[: m * n].view(m, n)
        transposed = (
            launchers._is_transposed("matmul", "x", x, True),
            launchers._is_transposed("matmul", "w", w, True),
        )
        problem = launchers.Problem(x, w, None, out, m, n, k, *transposed)
        if out.numel() and k:  # nothing else has an address, or is launched in this form
            assert tma_takes(case) == problem.fits_descriptors(), case
            assert tma_takes(case) == binding_takes_tma(x, w, out), case
            answers.add(tma_takes(case))
        elif k == 0:
            assert not tma_takes(case)
    assert answers == ({False} if lead else {False, True})


def test_one_row_is_row_major_in_every_layout() -> None:
    # x is 136 elements in memory, whichever way; with "tt" the transposed row would be one.
    assert all(
        tma_takes(Case({"M": 1, "N": 8, "K": 136}, layout=layout))
        for layout in ("contiguous", "nt", "tn", "tt")
    )
