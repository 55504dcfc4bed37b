"""Philox, e4m3 and AdamW against what others publish: Random123, torch's fp8, torch.optim."""

from __future__ import annotations

import math
import re

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from harness.registry import load_triton
from harness.specs import adamw as adamw_spec
from harness.specs.dropout import keep_mask, philox

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAN = math.nan
dropout = load_triton("dropout").dropout
adamw = load_triton("adamw").adamw
quant_fp8_group = load_triton("quant_fp8_group").quant_fp8_group
quant_fp8_token = load_triton("quant_fp8_token").quant_fp8_token

interpreted = pytest.mark.skipif(
    DEVICE == "cpu" and not triton.knobs.runtime.interpret,
    reason="needs an NVIDIA GPU or TRITON_INTERPRET=1",
)
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.*")


# Philox

# Of kat_vectors in Random123 1.14: philox4x32, 10 rounds.
KNOWN_ANSWERS = (
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
)


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_the_reference_gives_the_published_words(counter, key, words):
    assert philox(tuple(torch.tensor(c) for c in counter), key) == tuple(map(torch.tensor, words))


@interpreted
@pytest.mark.parametrize("seed", [0, 1, -1, 1 << 31, (1 << 40) + 3])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.999])
def test_triton_keeps_what_the_reference_keeps(seed: int, p: float):
    x = torch.ones(1027, device=DEVICE)
    out = torch.full_like(x, NAN)
    dropout(x, out, p=p, seed=seed)
    keep = keep_mask(x.numel(), DEVICE, p, seed)
    assert torch.equal(out != 0, keep)
    torch.testing.assert_close(out[keep], x[keep] / (1 - p), rtol=2**-23, atol=0)
    assert abs(float(keep.double().mean()) - (1 - p)) < 0.06


@interpreted
def test_dropout_in_place_drops_nan_and_refuses_what_is_no_probability():
    x = torch.full((64,), NAN, device=DEVICE)
    dropout(x, x)
    assert torch.equal(x.isnan(), keep_mask(64, DEVICE))
    for p in (1.0, -0.1, NAN):
        text = f"dropout: p is {p}, wanted 0 <= p < 1; pass a probability"
        with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
            dropout(x, x, p=p)


# e4m3


def every_f16_up_to_448() -> torch.Tensor:
    """The largest one first in each row, so that all rows are scaled by 1; NaN and Inf left out."""
    every = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    every = every[every.abs() <= 448]
    rows = every[: every.numel() // 127 * 127].view(-1, 127)
    return torch.cat([torch.full((rows.shape[0], 1), 448.0, dtype=torch.float16), rows], 1)


@interpreted
def test_every_f16_rounds_to_e4m3_as_torch_rounds_it():
    x = every_f16_up_to_448().to(DEVICE)
    out = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=DEVICE)
    for quantise, shape in ((quant_fp8_token, x.shape[:1]), (quant_fp8_group, (x.shape[0], 1))):
        scale = torch.full(shape, NAN, device=DEVICE)
        out.fill_(NAN)
        quantise(x, out, scale)
        assert bool((scale == 1).all())
        want = x.float().to(torch.float8_e4m3fn)
        assert torch.equal(out.view(torch.uint8), want.view(torch.uint8))


@interpreted
def test_a_group_of_zeros_has_a_finite_scale_and_nan_stays_in_its_group():
    x = torch.zeros(2, 384, dtype=torch.float16, device=DEVICE)
    x[0, 130] = NAN
    out = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=DEVICE)
    scale = torch.full((2, 3), NAN, device=DEVICE)
    quant_fp8_group(x, out, scale)
    assert scale.isnan().nonzero().tolist() == [[0, 1]]
    assert bool((scale[~scale.isnan()] == 2.0**-33 / 448).all())
    assert torch.equal(out.double().isnan().sum(1).cpu(), torch.tensor([128, 0]))


# AdamW


def states(n: int = 70, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    p, g, m, v = (t.to(DEVICE, dtype) for t in torch.randn(4, n, generator=generator))
    return [p, g, m, v.square()]


def test_the_reference_is_the_step_of_torch_optim():
    p, g, m, v = states(dtype=torch.float64)
    weight = torch.nn.Parameter(p.clone())
    optimizer = torch.optim.AdamW([weight], foreach=False)  # torch's defaults are ours
    before = torch.tensor(float(adamw_spec.STEP - 1))
    optimizer.state[weight] = {"step": before, "exp_avg": m.clone(), "exp_avg_sq": v.clone()}
    weight.grad = g
    optimizer.step()
    tensors = {"p": p, "g": g, "m": m, "v": v}
    state = optimizer.state[weight]
    for output, torchs in zip(
        adamw_spec.SPEC.outputs, (weight.data, state["exp_avg"], state["exp_avg_sq"]), strict=True
    ):
        torch.testing.assert_close(output.reference(tensors), torchs, rtol=1e-12, atol=0)


@interpreted
def test_a_step_in_place_is_the_step_out_of_place():
    p, g, m, v = states()
    outs = [torch.full_like(p, NAN) for _ in range(3)]
    adamw(p, g, m, v, *outs, step=3, weight_decay=0.1)
    adamw(p, g, m, v, p, m, v, step=3, weight_decay=0.1)
    for got, want in zip((p, m, v), outs, strict=True):
        assert torch.equal(got, want)


@interpreted
def test_a_step_refuses_what_it_would_get_wrong():
    p, g, m, v = states(8)
    out, m_out, v_out = (torch.empty_like(p) for _ in range(3))
    longer = torch.empty(9, device=DEVICE)
    for text, tensors, further in (
        ("m_out overlaps out, wanted no shared memory; pass a fresh m_out", (out, out, v_out), {}),
        (
            "v_out overlaps m_out, wanted no shared memory; pass a fresh v_out",
            (out, longer[:8], longer[1:]),
            {},
        ),
        ("step is 0, wanted 1 or more; count steps from 1", (out, m_out, v_out), {"step": 0}),
        (
            "out has shape (9,), wanted (8,) like p; pass tensors of one shape",
            (longer, m_out, v_out),
            {},
        ),
    ):
        with pytest.raises(ValueError, match=f"^adamw: {re.escape(text)}$"):
            adamw(p, g, m, v, *tensors, **further)
