"""The Triton kernels against float64: on the GPU where there is one, else in the interpreter."""

from __future__ import annotations

import functools
import math
import re

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from harness.registry import load_triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
INF, NAN = math.inf, math.nan

vector_add = load_triton("vector_add").vector_add
softmax = load_triton("softmax").softmax
matmul_bias_relu = load_triton("matmul_bias_relu").matmul_bias_relu

pytestmark = [
    pytest.mark.skipif(
        DEVICE == "cpu" and not triton.knobs.runtime.interpret,
        reason="needs an NVIDIA GPU or TRITON_INTERPRET=1",
    ),
    # numpy, under the interpreter, warns of the NaN and Inf that these tests want
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.*"),
]


def normal(*shape: int, dtype: torch.dtype = F32, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(DEVICE, dtype)


def unwritten(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    """An output in which an element that no program wrote shows."""
    return torch.full(shape, NAN, dtype=dtype, device=DEVICE)


def check_close(out: torch.Tensor, reference: torch.Tensor, ulps: float = 4.0) -> None:
    eps = torch.finfo(out.dtype).eps
    torch.testing.assert_close(
        out.double(), reference, rtol=ulps * eps, atol=ulps * 2**-24, equal_nan=True
    )


@functools.cache
def bf16_problem() -> str:
    """Why bf16 cannot be checked here; some interpreters truncate where the hardware rounds."""
    x = torch.tensor([1.0, 1.0, -3.0, 0.1], device=DEVICE).to(BF16)
    y = torch.tensor([0.003, 0.01, 0.02, 0.7], device=DEVICE).to(BF16)
    out = torch.empty_like(x)
    try:
        vector_add(x, y, out)
    except Exception as error:
        return f"this Triton's interpreter fails on bf16: {error}"
    if not torch.equal(out, x + y):
        return "this Triton's interpreter rounds bf16 wrongly"
    return ""


def skip_unless_computable(dtype: torch.dtype) -> None:
    if dtype == BF16 and bf16_problem():
        pytest.skip(bf16_problem())


def loop_problem() -> str:
    """Why kernels with a loop cannot be checked here: Triton 3.6 interprets none on numpy 2.4."""
    if DEVICE == "cuda" or not triton.knobs.runtime.interpret:
        return ""
    try:
        softmax(normal(1, 9), unwritten(1, 9), BLOCK_N=8)
    except Exception as error:
        if "only 0-dimensional arrays" not in str(error):
            raise
        return "this Triton's interpreter cannot loop with this numpy; pip install 'numpy<2.4'"
    return ""


needs_loops = pytest.mark.skipif(bool(reason := loop_problem()), reason=reason)


# vector_add


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("n", [0, 1, 31, 33, 127, 1023, 1025, 65537])
def test_vector_add_equals_torch(n: int, dtype: torch.dtype) -> None:
    skip_unless_computable(dtype)
    x, y = normal(n, dtype=dtype), normal(n, dtype=dtype, seed=1)
    out = unwritten(n, dtype=dtype)
    vector_add(x, y, out)
    torch.testing.assert_close(out, x + y, rtol=0, atol=0)


@pytest.mark.parametrize("n", [1, 31, 127, 4097])
@pytest.mark.parametrize("starts", [(1, 1, 1), (3, 3, 3), (1, 0, 0), (0, 0, 1), (1, 2, 3)])
def test_vector_add_keeps_to_misaligned_views(n: int, starts: tuple[int, int, int]) -> None:
    x, y = normal(n + 8), normal(n + 8, seed=1)
    storage = unwritten(n + 8)
    views = [t[start : start + n] for t, start in zip((x, y, storage), starts, strict=True)]
    vector_add(*views, BLOCK_SIZE=128)
    torch.testing.assert_close(views[2], views[0] + views[1], rtol=0, atol=0)
    assert int(storage.isnan().sum()) == 8, "wrote outside the view"


def test_vector_add_in_place_and_special_values() -> None:
    x = torch.tensor([INF, INF, NAN, -0.0, 1e-42, 3e38], device=DEVICE)
    y = torch.tensor([1.0, -INF, 1.0, -0.0, 1e-42, 3e38], device=DEVICE)
    expected = x + y
    vector_add(x, y, x)
    torch.testing.assert_close(x, expected, rtol=0, atol=0, equal_nan=True)
    assert math.copysign(1.0, x[3].item()) == -1.0


# softmax


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize(
    "shape", [(0, 7), (3, 0), (1, 1), (3, 129), (5, 1000), (67, 33), (17, 256), (2, 4096)], ids=str
)
def test_softmax_is_close_to_float64(shape: tuple[int, int], dtype: torch.dtype) -> None:
    skip_unless_computable(dtype)
    x = normal(*shape, dtype=dtype) * 4
    out = unwritten(*shape, dtype=dtype)
    softmax(x, out)
    check_close(out, x.double().softmax(-1))


@needs_loops
@pytest.mark.parametrize("n_cols", [9, 64, 65, 1000, 1024])
def test_softmax_looped_form_is_close_to_float64(n_cols: int) -> None:
    x = normal(3, n_cols) * 4
    out = unwritten(3, n_cols)
    softmax(x, out, BLOCK_N=8 if n_cols < 64 else 32, num_warps=1)
    check_close(out, x.double().softmax(-1), ulps=8)


@needs_loops
def test_softmax_default_takes_the_looped_form_for_wide_rows() -> None:
    x = normal(2, 40003)
    out = unwritten(2, 40003)
    softmax(x, out)
    check_close(out, x.double().softmax(-1), ulps=8)


@pytest.mark.parametrize("block_n", [None, pytest.param(8, marks=needs_loops)])
def test_softmax_special_rows_are_those_of_torch(block_n: int | None) -> None:
    x = normal(7, 37)
    x[0, 5] = NAN
    x[1] = -INF
    x[2, 36] = INF
    x[3, :30] = -INF  # whole pieces of the looped form hold nothing else
    x[4, 9:] = -INF
    x[5] = 3e38  # times log2(e) would overflow
    out = unwritten(7, 37)
    softmax(x, out, BLOCK_N=block_n)
    expected = x.double().softmax(-1)
    assert expected[:3].isnan().all()
    assert not expected[3:].isnan().any()
    check_close(out, expected, ulps=8)


@pytest.mark.parametrize("block_n", [None, pytest.param(16, marks=needs_loops)])
def test_softmax_takes_any_row_stride(block_n: int | None) -> None:
    x = normal(5, 50)[:, 3:36]
    storage = unwritten(5, 40)
    softmax(x, storage[:, 2:35], BLOCK_N=block_n)
    check_close(storage[:, 2:35], x.double().softmax(-1), ulps=8)
    assert int(storage.isnan().sum()) == 5 * 7, "wrote outside the view"


def test_softmax_in_place() -> None:
    x = normal(9, 65)
    expected = x.double().softmax(-1)
    softmax(x, x)
    check_close(x, expected)


# matmul_bias_relu


@needs_loops
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize(
    "shape",
    [(1, 1, 1), (5, 3, 0), (7, 1, 33), (1, 129, 65), (33, 35, 1), (65, 127, 63), (127, 65, 130)],
    ids=str,
)
def test_matmul_is_close_to_float64(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    skip_unless_computable(dtype)
    m, n, k = shape
    x, w = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype, seed=1)
    b, out = normal(n, dtype=dtype, seed=2), unwritten(m, n, dtype=dtype)
    matmul_bias_relu(x, w, b, out)
    exact = (x.double() @ w.double() + b.double()).relu()
    magnitude = (x.double().abs() @ w.double().abs() + b.double().abs()) * 2**-22
    error = (out.double() - exact).abs()
    assert bool((error <= magnitude + torch.finfo(dtype).eps * exact).all()), error.max()


@needs_loops
@pytest.mark.parametrize("group_m", [1, 3, 8])
def test_matmul_covers_every_tile_in_any_group_order(group_m: int) -> None:
    x, w = normal(100, 48, dtype=F16), normal(48, 70, dtype=F16, seed=1)
    b, out = normal(70, dtype=F16, seed=2), unwritten(100, 70, dtype=F16)
    matmul_bias_relu(x, w, b, out, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=group_m)
    exact = (x.double() @ w.double() + b.double()).relu()
    torch.testing.assert_close(out.double(), exact, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(0, 5, 3), (5, 0, 3)], ids=str)
def test_matmul_without_output_launches_nothing(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    x, w = normal(m, k, dtype=F16), normal(k, n, dtype=F16)
    matmul_bias_relu(x, w, normal(n, dtype=F16), unwritten(m, n, dtype=F16))


@needs_loops
def test_matmul_relu_keeps_nan_and_infinity() -> None:
    x = torch.zeros(4, 16, dtype=F16, device=DEVICE)
    x[0, 0], x[1, 0], x[2, 0] = NAN, INF, -INF
    w = torch.ones(16, 8, dtype=F16, device=DEVICE)
    out = unwritten(4, 8, dtype=F16)
    matmul_bias_relu(x, w, torch.full((8,), -1.0, dtype=F16, device=DEVICE), out)
    assert out[0].isnan().all()
    assert out[1].isposinf().all()
    assert (out[2:] == 0).all()


# refusals: the texts of the CUDA bindings


def refused(error: type[Exception], text: str, function: object, *args: torch.Tensor) -> None:
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        function(*args)  # type: ignore[operator]


def test_vector_add_refuses() -> None:
    x, matrix, half = normal(8), normal(2, 4), normal(8, dtype=F16)
    double = normal(8, dtype=torch.float64)
    refused(
        TypeError,
        "vector_add: x has dtype torch.float64, wanted one of torch.float32, torch.bfloat16; "
        "pass x.to(torch.float32)",
        vector_add, double, double, double,
    )  # fmt: skip
    refused(
        TypeError,
        "vector_add: y has dtype torch.float16, wanted torch.float32 like x; "
        "pass y.to(torch.float32)",
        vector_add, x, half, x.clone(),
    )  # fmt: skip
    refused(
        ValueError,
        "vector_add: x has 2 dimensions, wanted 1; pass x as [N]",
        vector_add, matrix, matrix, matrix,
    )  # fmt: skip
    refused(
        ValueError,
        "vector_add: y has shape (7,), wanted (8,) like x; pass tensors of one shape",
        vector_add, x, normal(7), x,
    )  # fmt: skip
    refused(
        ValueError,
        "vector_add: y has stride 2, wanted 1; pass y.contiguous()",
        vector_add, x, normal(16)[::2], unwritten(8),
    )  # fmt: skip
    storage = normal(9)
    refused(
        ValueError,
        "vector_add: out overlaps y in part, wanted the same memory or none shared; "
        "pass a fresh out",
        vector_add, x, storage[:8], storage[1:],
    )  # fmt: skip
    refused(
        TypeError, "vector_add: y is a list, wanted a torch.Tensor; pass a tensor",
        vector_add, x, [1.0], x,
    )  # fmt: skip
    refused(
        ValueError,
        "vector_add: x is on meta, wanted a CUDA device; pass x.cuda()",
        vector_add, x.to("meta"), x, x,
    )  # fmt: skip


def test_softmax_refuses() -> None:
    x = normal(4, 6)
    refused(
        ValueError,
        "softmax: x has last-dimension stride 6, wanted 1; pass x.contiguous()",
        softmax, x.t(), unwritten(6, 4),
    )  # fmt: skip
    refused(
        ValueError,
        "softmax: x has row stride 0, wanted at least 6; pass x.contiguous()",
        softmax, x[:1].expand(4, 6), unwritten(4, 6),
    )  # fmt: skip
    refused(
        ValueError,
        "softmax: out has shape (4, 5), wanted (4, 6) like x; pass tensors of one shape",
        softmax, x, unwritten(4, 5),
    )  # fmt: skip
    refused(
        ValueError,
        "softmax: out has 1 dimensions, wanted 2; pass out as [rows, cols]",
        softmax, x, unwritten(4),
    )  # fmt: skip
    storage = normal(5, 6)
    refused(
        ValueError,
        "softmax: out overlaps x in part, wanted the same memory or none shared; "
        "pass a fresh out",
        softmax, storage[:4], storage[1:],
    )  # fmt: skip


def test_softmax_takes_column_views_side_by_side() -> None:
    storage = normal(4, 12)
    x, out = storage[:, :6], storage[:, 6:]
    softmax(x, out)
    check_close(out, x.double().softmax(-1))


def test_matmul_refuses() -> None:
    x, w, b = normal(4, 6, dtype=F16), normal(6, 8, dtype=F16), normal(8, dtype=F16)
    out = unwritten(4, 8, dtype=F16)
    square = normal(6, 6, dtype=F16)
    op = "matmul_bias_relu"
    refused(
        TypeError,
        f"{op}: x has dtype torch.float32, wanted one of torch.bfloat16, torch.float16; "
        "pass x.to(torch.bfloat16)",
        matmul_bias_relu, x.float(), w, b, out,
    )  # fmt: skip
    refused(
        ValueError,
        f"{op}: w has shape (8, 6), wanted 6 rows like x's columns; pass w as [K, N]",
        matmul_bias_relu, x, w.t().contiguous(), b, out,
    )  # fmt: skip
    refused(
        ValueError,
        f"{op}: b has shape (7,), wanted (8,) like w's columns; pass b as [N]",
        matmul_bias_relu, x, w, b[:7], out,
    )  # fmt: skip
    refused(
        ValueError,
        f"{op}: out has shape (8, 4), wanted (4, 8); pass out as [M, N]",
        matmul_bias_relu, x, w, b, unwritten(8, 4, dtype=F16),
    )  # fmt: skip
    refused(
        ValueError,
        f"{op}: w is not contiguous (strides (1, 6)), wanted row-major contiguous; "
        "pass w.contiguous()",
        matmul_bias_relu, square, square.clone().t(), b[:6], unwritten(6, 6, dtype=F16),
    )  # fmt: skip
    refused(
        ValueError,
        f"{op}: out overlaps x, wanted no shared memory; pass a fresh out",
        matmul_bias_relu, square, square.clone(), b[:6], square,
    )  # fmt: skip
