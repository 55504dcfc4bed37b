"""The library side of matmul: how cublasLt is told of the four layouts, and what it answers."""

from __future__ import annotations

import contextlib
import ctypes

import pytest

torch = pytest.importorskip("torch")

from harness import cublaslt, cublaslt_calls
from harness.cublaslt_calls import CublasLtError, Layout, layout_of_transpose

M, N, K = 5, 7, 3


def stored(rows: int, cols: int, transposed: bool) -> torch.Tensor:
    """Distinct values as a row-major [rows, cols] tensor, or as the view of a [cols, rows] one."""
    values = torch.arange(rows * cols, dtype=torch.float64).reshape(rows, cols)
    return values.t().contiguous().t() if transposed else values


def read(memory: torch.Tensor, layout: Layout) -> torch.Tensor:
    """What cublasLt sees: column c of the matrix begins at element c * ld; then its operation."""
    seen = torch.empty(layout.rows, layout.cols, dtype=memory.dtype)
    for col in range(layout.cols):
        seen[:, col] = memory[col * layout.ld : col * layout.ld + layout.rows]
    return seen.t() if layout.transposed else seen


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    n_elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    return torch.as_strided(tensor, (n_elements,), (1,), 0)


@pytest.mark.parametrize("x_transposed", [False, True])
@pytest.mark.parametrize("w_transposed", [False, True])
def test_the_layouts_multiply_to_the_transposed_product(x_transposed, w_transposed):
    x, w = stored(M, K, x_transposed), stored(K, N, w_transposed)
    first = layout_of_transpose("w", w.shape, w.stride())
    second = layout_of_transpose("x", x.shape, x.stride())
    assert (first.transposed, second.transposed) == (w_transposed, x_transposed)
    product = read(memory_of(w), first) @ read(memory_of(x), second)
    assert torch.equal(product, (x @ w).t())


def test_out_is_its_own_memory_by_columns():
    out = stored(M, N, False)
    layout = layout_of_transpose("out", out.shape, out.stride())
    assert layout == Layout(N, M, N, False)
    assert torch.equal(read(memory_of(out), layout), out.t())


@pytest.mark.parametrize(
    ("shape", "strides", "layout"),
    [
        ((4, 8), (16, 1), Layout(8, 4, 16, False)),  # rows in wider storage
        ((4, 8), (1, 6), Layout(4, 8, 6, True)),
        ((1, 8), (1, 1), Layout(8, 1, 8, False)),  # one row: its stride says nothing
        ((8, 1), (1, 1), Layout(1, 8, 1, False)),
        ((8, 1), (1, 8), Layout(1, 8, 1, False)),
        ((1, 1), (5, 9), Layout(1, 1, 1, False)),
    ],
)
def test_the_leading_extent_is_the_stride_between_lines(shape, strides, layout):
    found = layout_of_transpose("x", shape, strides)
    assert found == layout
    assert found.ld >= found.rows


@pytest.mark.parametrize("strides", [(16, 2), (4, 1), (1, 2)])
def test_a_layout_that_cublaslt_cannot_take_is_refused_in_one_line(strides):
    with pytest.raises(CublasLtError, match=r"^cublasLt: x has strides .*, wanted row-major .*$"):
        layout_of_transpose("x", (4, 8), strides)


def test_the_structures_are_as_large_as_the_librarys():
    # cublasLt.h: 8 words of algorithm; then a size, a status, a float and four ints.
    assert ctypes.sizeof(cublaslt_calls.Algorithm) == 64
    assert ctypes.sizeof(cublaslt_calls.Suggestion) == 64 + 8 + 4 + 4 + 16


def test_an_empty_product_needs_no_library():
    x, w = torch.ones(2, 0), torch.ones(0, 3)
    out = torch.full((2, 3), 7.0)
    assert cublaslt.best_matmul(x, w, out) is out
    assert torch.equal(out, torch.zeros(2, 3))
    none = torch.ones(0, 3)
    assert cublaslt.best_matmul(torch.ones(0, 4), torch.ones(4, 3), none) is none


def fake_product(statuses: dict[int, int]):
    class FakeProduct:
        """Suggestion i is known by its first word; it answers statuses[i]."""

        launches: list[int]

        def suggestions(self):
            made = [cublaslt_calls.Suggestion() for _ in statuses]
            for i, suggestion in enumerate(made):
                suggestion.algorithm.data[0] = i
            return made

        def launch(self, x, w, out, algorithm):
            self.last = algorithm.data[0]
            return statuses[algorithm.data[0]]

    return FakeProduct()


def test_the_fastest_suggestion_wins_and_one_that_fails_is_passed_over(monkeypatch):
    product = fake_product({0: 0, 1: 15, 2: 0})

    def time_us(launch, count):
        launch()
        return {0: 30.0, 2: 20.0}[product.last]

    monkeypatch.setattr(cublaslt, "_time_us", time_us)
    plan = cublaslt._search(product, torch.ones(2, 2), torch.ones(2, 2), torch.ones(2, 2))
    assert plan.winner == 2
    assert plan.times_us == (30.0, None, 20.0)
    assert str(plan) == "cublasLt suggestion 2 of 3, 20.00 us"


class OtherDevice:
    """A tensor of cuda:1, as far as a plan looks at it."""

    device, dtype, shape = torch.device("cuda:1"), torch.bfloat16, (8, 8)

    def stride(self):
        return (8, 1)

    def data_ptr(self):
        return 0


def test_search_and_launch_are_on_the_tensors_device_and_leave_the_callers(monkeypatch):
    current, seen = [0], []

    @contextlib.contextmanager
    def make_current(device):
        current.append(device.index)
        yield
        current.pop()

    class Product(type(fake_product({0: 0, 1: 0}))):
        def __init__(self, *_):
            seen.append(("described", current[-1]))

        def launch(self, *_):
            seen.append(("launched", current[-1]))
            return 0

    def time_us(launch, count):
        seen.append(("timed", current[-1]))
        return 1.0

    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[-1])
    monkeypatch.setattr(torch.cuda, "device", make_current)
    monkeypatch.setattr(cublaslt, "Product", Product)
    monkeypatch.setattr(cublaslt, "_time_us", time_us)
    monkeypatch.setattr(cublaslt, "_plans", {})
    x = OtherDevice()
    plan = cublaslt.plan_of(x, x, x)
    assert {what for what, _ in seen} == {"described", "launched", "timed"}
    plan.launch(x, x, x)
    assert seen[-1][0] == "launched"
    assert {device for _, device in seen} == {1}
    assert current == [0]


def test_the_current_device_is_not_made_current_again(monkeypatch):
    def never(device):
        raise AssertionError("a guard that costs host time")

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device", never)
    for name in ("cuda:1", "cpu"):
        with cublaslt_calls.device_guard(torch.device(name)):
            pass


def test_no_suggestion_that_runs_is_one_line():
    x, w, out = torch.ones(M, K), torch.ones(K, N), torch.ones(M, N)
    with pytest.raises(CublasLtError, match=r"none of 2 suggestions for M=5, N=7, K=3") as caught:
        cublaslt._search(fake_product({0: 15, 1: 15}), x, w, out)
    assert "\n" not in str(caught.value)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("x_transposed", [False, True])
@pytest.mark.parametrize("w_transposed", [False, True])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (33, 31, 127), (128, 256, 64), (300, 1000, 520)]
)
def test_the_product_is_that_of_float64(m, n, k, dtype, x_transposed, w_transposed):
    torch.manual_seed(0)
    x = torch.randn(k, m).cuda().to(dtype).t() if x_transposed else torch.randn(m, k).cuda()
    w = torch.randn(n, k).cuda().to(dtype).t() if w_transposed else torch.randn(k, n).cuda()
    x, w = x.to(dtype), w.to(dtype)
    out = torch.full((m, n), float("nan"), dtype=dtype, device="cuda")
    wanted = x.double() @ w.double()
    for _ in range(2):  # the search, then the plan
        assert cublaslt.best_matmul(x, w, out) is out
        error = (out.double() - wanted).abs()
        scale = torch.finfo(dtype).eps * wanted.abs() + 1e-5 * (x.double().abs() @ w.double().abs())
        assert bool((error <= scale).all())
        out.fill_(float("nan"))
    plan = cublaslt.plan_of(x, w, out)
    assert plan.times_us[plan.winner] == min(t for t in plan.times_us if t is not None)


@pytest.mark.gpu
def test_the_launch_is_on_the_callers_stream_and_refusals_are_one_line():
    x = torch.randn(64, 64, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(x)
    cublaslt.best_matmul(x, x, out)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        cublaslt.best_matmul(x, x, out.fill_(0))
        assert not stream.query()
    stream.synchronize()
    assert torch.allclose(out.float(), (x.float() @ x.float()), rtol=0.02, atol=0.05)
    with pytest.raises(CublasLtError, match="wanted bf16 or f16"):
        cublaslt.best_matmul(x.float(), x.float(), out.float())
