"""rms_norm and add_rms_norm beyond their specs' cases: in place, in wider matrices, every form."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from harness.availability import unavailable
from harness.registry import load_triton

EPS = 1e-6
interpreted = pytest.mark.skipif(
    not triton.knobs.runtime.interpret, reason="needs TRITON_INTERPRET=1"
)
SIDES = [
    pytest.param("triton", "cpu", marks=interpreted, id="interpreter"),
    pytest.param("triton", "cuda", marks=pytest.mark.gpu, id="triton"),
    pytest.param("cuda", "cuda", marks=pytest.mark.gpu, id="cuda"),
]
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.*")


def launcher(stem: str, side: str):
    if side == "triton":
        return getattr(load_triton(stem), stem)
    if reason := unavailable(side):
        pytest.fail(f"{side} cannot run here: {reason}")
    from harness import _cuda

    return getattr(_cuda, stem)


def normal(*shape: int, device: str, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randn(shape, generator=generator, device=device)


def wanted(rows: torch.Tensor, w: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    rows = rows.double()
    return rows * (rows.square().mean(-1, keepdim=True) + eps).rsqrt() * w.double()


def check_close(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got.double(), want.double(), rtol=2**-20, atol=1e-30)


# rows in registers; rows that are not 16-byte packs; staged in shared memory; looped
WIDTHS = {"registers": 1000, "elements": 1001, "staged": 1000, "looped": 1000}
FORMS = {"staged": {"form": 2}, "looped": {"form": 3}}  # of CUDA, which the width does not choose


def configured(form: str, side: str) -> dict[str, int]:
    if side == "cuda":
        return FORMS.get(form, {})
    return {"BLOCK_N": 256} if form == "looped" else {}


@pytest.mark.parametrize("form", WIDTHS)
@pytest.mark.parametrize(("side", "device"), SIDES)
def test_rms_norm_in_place(side, device, form):
    x, w = normal(9, WIDTHS[form], device=device), normal(WIDTHS[form], device=device, seed=1)
    want = wanted(x, w)
    launcher("rms_norm", side)(x, w, x, **configured(form, side))
    check_close(x, want)


@pytest.mark.parametrize("form", WIDTHS)
@pytest.mark.parametrize(("side", "device"), SIDES)
@pytest.mark.parametrize(("out_is", "h_is"), [("x", "r"), ("r", "x"), ("", "r"), ("x", "")])
def test_add_rms_norm_in_place(side, device, form, out_is, h_is):
    n = WIDTHS[form]
    tensors = {"x": normal(9, n, device=device), "r": normal(9, n, device=device, seed=2)}
    w = normal(n, device=device, seed=1)
    x, r = tensors.values()
    total = x.double() + r.double()
    out = tensors.get(out_is, torch.empty_like(x))
    h = tensors.get(h_is, torch.empty_like(x))
    launcher("add_rms_norm", side)(x, r, w, out, h, **configured(form, side))
    check_close(h, total)
    check_close(out, wanted(total, w))


@pytest.mark.parametrize("margin", [3, 4])
@pytest.mark.parametrize(("side", "device"), SIDES)
def test_every_tensor_has_a_row_stride_of_its_own(side, device, margin):
    n = 96
    x, r, out, h = (
        normal(11, n + k * margin, device=device, seed=k)[:, (k - 1) * margin :][:, :n]
        for k in (1, 2, 3, 4)
    )
    w = normal(n, device=device)
    kept = torch.full((11, n + 2 * margin), 7.0, device=device)
    total = x.double() + r.double()
    launcher("add_rms_norm", side)(x, r, w, out, h)
    check_close(h, total)
    check_close(out, wanted(total, w))
    inner = kept[:, margin : margin + n]
    launcher("rms_norm", side)(x, w, inner)
    check_close(inner, wanted(x, w))
    assert bool((kept[:, :margin] == 7).all()) and bool((kept[:, margin + n :] == 7).all())


@pytest.mark.parametrize("eps", [0.0, 1e-6, 0.5])
@pytest.mark.parametrize(("side", "device"), SIDES)
def test_eps_is_an_argument(side, device, eps):
    x, w = normal(5, 64, device=device) * 0.1, normal(64, device=device, seed=1)
    out = torch.empty_like(x)
    launcher("rms_norm", side)(x, w, out, eps=eps)
    check_close(out, wanted(x, w, eps))


@pytest.mark.parametrize(("side", "device"), SIDES)
def test_the_norm_is_taken_of_the_sum_before_it_is_rounded(side, device):
    """As in FlashInfer and quack; torch, vLLM and Liger round x + r first."""
    x, r = (normal(8, 512, device=device, seed=seed).half() for seed in (0, 1))
    w, out, h = normal(512, device=device, seed=2).half(), torch.empty_like(x), torch.empty_like(x)
    launcher("add_rms_norm", side)(x, r, w, out, h)
    assert torch.equal(h, x + r)
    of_sum = wanted(x.double() + r.double(), w).half()
    of_h = wanted(h, w).half()
    assert float((out != of_sum).double().mean()) < 0.01  # near the middle of two f16 numbers
    assert float((out != of_h).double().mean()) > 0.1


@pytest.mark.gpu
@pytest.mark.parametrize("stem", ["rms_norm", "add_rms_norm"])
def test_cuda_refuses_a_configuration_that_does_not_fit(stem):
    launch = launcher(stem, "cuda")
    rows = [normal(4, 4096, device="cuda", seed=k) for k in range(4)]
    w = normal(4096, device="cuda")
    arguments = (rows[0], w, rows[1]) if stem == "rms_norm" else (*rows[:2], w, *rows[2:])
    for config in (
        {"form": 9},
        {"threads_per_row": 32},  # 1024 packs
        {"threads_per_row": 100},
        {"threads_per_row": 256, "rows_per_thread": 4},
        {"form": 2, "blocks_per_row": 3},
        {"form": 2, "threads_per_row": 128},
        {"form": 3, "threads_per_row": 512},
    ):
        with pytest.raises(ValueError, match="is not a configuration for this shape"):
            launch(*arguments, **config)
