"""Streaming ops beyond their spec's cases: in place, packed gradients, scalars, autograd's answer.

On a GPU both sides are called; elsewhere the Triton side in its interpreter.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from edge_cases import launcher_of, one_in

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
SIDES = ("cuda", "triton") if GPU else ("triton",)

pytestmark = pytest.mark.skipif(
    not GPU and not triton.knobs.runtime.interpret,
    reason="needs an NVIDIA GPU or TRITON_INTERPRET=1",
)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(DEVICE)


def gradients(dout: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of autograd, in float64."""
    leaves = [t.double().detach().requires_grad_() for t in (gate, up)]
    (torch.nn.functional.silu(leaves[0]) * leaves[1]).backward(dout.double())
    return leaves[0].grad, leaves[1].grad


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("a", "b"), [(0.3, 7.0), (-1.5, 0.0), (1.0, 1.0)])
def test_axpby_takes_its_scalars(side: str, a: float, b: float) -> None:
    x, y = normal(1027), normal(1027, seed=1)
    want = a * x.double() + b * y.double()
    launcher_of("axpby", side)(x, y, y, a=a, b=b)
    close(y, want)


@pytest.mark.parametrize("side", SIDES)
def test_swiglu_in_place_of_either_input(side: str) -> None:
    for name in ("gate", "up"):
        inputs = {"gate": normal(5, 133), "up": normal(5, 133, seed=1)}
        want = torch.nn.functional.silu(inputs["gate"].double()) * inputs["up"].double()
        launcher_of("swiglu", side)(**inputs, out=inputs[name])
        close(inputs[name], want)


@pytest.mark.parametrize("side", SIDES)
def test_gradients_are_autograds_and_may_replace_inputs(side: str) -> None:
    dout, gate, up = (normal(7, 133, seed=i) for i in range(3))
    dgate, dup = gradients(dout, gate, up)
    # Crossed: each position is read before either of its outputs is written.
    launcher_of("swiglu_backward", side)(dout, gate, up, up, gate)
    close(up, dgate)
    close(gate, dup)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("n_cols", [128, 133])
def test_gradients_go_to_the_halves_of_one_tensor(side: str, n_cols: int) -> None:
    dout, both = normal(9, n_cols), normal(9, 2 * n_cols, seed=1)
    gate, up = both[:, :n_cols], both[:, n_cols:]
    packed = torch.full_like(both, float("nan"))
    halves = packed[:, :n_cols], packed[:, n_cols:]
    launcher_of("swiglu_backward", side)(dout, gate, up, *halves)
    for got, want in zip(halves, gradients(dout, gate, up), strict=True):
        close(got, want)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("n_cols", [5, 1000])
def test_gradients_that_differ_in_alignment(side: str, n_cols: int) -> None:
    dout, gate, up = (normal(3, n_cols, seed=i) for i in range(3))
    out, dup = torch.empty_like(gate), one_in(torch.empty_like(gate))
    launcher_of("swiglu_backward", side)(dout, gate, one_in(up), out, dup)
    for got, want in zip((out, dup), gradients(dout, gate, up), strict=True):
        close(got, want)
