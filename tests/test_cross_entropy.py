"""Cross entropy: targets that are no class, rows at any address, the gradient in place."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from edge_cases import launcher_of

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
SIDES = ("cuda", "triton") if ON_GPU else ("triton",)
NO_CLASS = (-1, -(1 << 40), 37, 1 << 32, (1 << 32) + 3)
# The default form, and for the widths below the looped ones of both sides.
CONFIGS = {
    ("cross_entropy", "triton"): ({}, {"BLOCK_N": 32}),
    ("cross_entropy", "cuda"): ({}, {"threads_per_row": 256}),
    ("cross_entropy_dlogits", "triton"): ({}, {"BLOCK_N": 16, "num_warps": 1}),
    ("cross_entropy_dlogits", "cuda"): ({}, {"form": 2}, {"form": 3}),
}
CALLS = [
    pytest.param(stem, side, config, id=f"{stem}-{side}-{'-'.join(config) or 'default'}")
    for (stem, side), configs in CONFIGS.items()
    for config in configs
    if side in SIDES
]
pytestmark = [
    pytest.mark.skipif(
        not ON_GPU and not triton.knobs.runtime.interpret,
        reason="needs an NVIDIA GPU or TRITON_INTERPRET=1",
    ),
    # numpy, under the interpreter, warns of the NaN and Inf that these tests want
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.*"),
]


def run(stem: str, side: str, config, x, target, out=None):
    """(gradient or None, loss); skips where the interpreter has no loops."""
    loss = torch.full((x.shape[0],), 7.0, device=x.device)
    gradient = None
    if stem.endswith("dlogits"):
        gradient = torch.full(x.shape, 7.0, dtype=x.dtype, device=x.device) if out is None else out
    outs = [loss] if gradient is None else [gradient, loss]
    try:
        launcher_of(stem, side)(x, target, *outs, **config)
    except Exception as error:
        if "0-dimensional arrays" in f"{error} {error.__cause__}":
            pytest.skip("this Triton's interpreter cannot loop with this numpy")
        raise
    return gradient, loss


def expected(x, target):
    """(gradient, loss) in float64 of targets that are classes."""
    x = x.double()
    onehot = torch.nn.functional.one_hot(target, x.shape[1])
    return x.softmax(-1) - onehot, torch.nn.functional.cross_entropy(x, target, reduction="none")


def close(got, want) -> None:
    torch.testing.assert_close(got.double(), want, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(("stem", "side", "config"), CALLS)
def test_a_target_that_is_no_class_gives_nan_and_disturbs_no_other_row(stem, side, config):
    x = torch.randn(len(NO_CLASS) + 2, 37, device=DEVICE)
    target = torch.tensor([3, *NO_CLASS, 36], device=DEVICE)
    gradient, loss = run(stem, side, config, x, target)
    valid = torch.tensor([True, *(False for _ in NO_CLASS), True], device=DEVICE)
    want, want_loss = expected(x, torch.where(valid, target, 0))
    assert bool(loss[~valid].isnan().all())
    close(loss[valid], want_loss[valid])
    if gradient is not None:
        close(gradient[valid], want[valid])
        close(gradient[~valid], x.double().softmax(-1)[~valid])


@pytest.mark.parametrize(("stem", "side", "config"), CALLS)
def test_rows_at_any_address_and_targets_at_their_ends(stem, side, config):
    """Every start and width around a pack, for rows that the packs of a pass do not divide."""
    for start in range(5):
        for width in (1, 3, 4, 5, 9, 65) + (531, 2051) * ON_GPU:
            storage = torch.randn(start + 5 * (width + start), device=DEVICE)
            x = torch.as_strided(storage, (5, width), (width + start, 1), start)
            ends = (0, min(3, width - 1), width // 2, max(width - 3, 0), width - 1)
            target = torch.tensor(ends, device=DEVICE)
            # Aligned as x is, so that the forms that need it are taken.
            place = torch.full_like(storage, 7.0)
            out = torch.as_strided(place, x.shape, x.stride(), start)
            gradient, loss = run(stem, side, config, x, target, out)
            want, want_loss = expected(x, target)
            close(loss, want_loss)
            if gradient is not None:
                close(gradient, want)
                assert int((place == 7.0).sum()) == place.numel() - 5 * width


@pytest.mark.parametrize(
    ("stem", "side", "config"), [call for call in CALLS if "dlogits" in call.values[0]]
)
@pytest.mark.parametrize("width", [37, 520])
def test_the_gradient_may_be_written_over_the_logits(stem, side, config, width):
    x = torch.randn(9, width, device=DEVICE)
    target = torch.randint(0, width, (9,), device=DEVICE)
    want, want_loss = expected(x, target)
    gradient, loss = run(stem, side, config, x, target, out=x)
    close(gradient, want)
    close(loss, want_loss)


@pytest.mark.gpu
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("width", [40000, 50257, 131072])
def test_wide_gradients_may_be_written_over_the_logits(side, width):
    """Parts of a row in several blocks or programs: the target's logit is read before it goes."""
    x = torch.randn(300, width, device="cuda").bfloat16()
    target = torch.randint(0, width, (300,), device="cuda")
    want, want_loss = run("cross_entropy_dlogits", side, {}, x, target)
    for _ in range(20):
        own = x.clone()
        gradient, loss = run("cross_entropy_dlogits", side, {}, own, target, out=own)
        assert torch.equal(gradient, want)
        assert torch.equal(loss, want_loss)
