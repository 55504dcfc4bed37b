"""An output against float64, element by element and in the mean, and why it is right or wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_NOISE_SIGMAS = 6.0
_UNIFORM_SIGMA = 0.29  # of an error uniform over one unit: 1 / sqrt(12)
_MOST_SORTED = 1 << 20  # elements: larger outputs repeat little, and sorting them takes memory
_SHOWN = 5


@dataclass(frozen=True)
class Verdict:
    """`tolerance` is the allowance at the worst element, the one that uses the largest share of
    it; errors are against float64."""

    ok: bool
    reason: str
    max_abs_err: float
    max_rel_err: float
    tolerance: float

    def columns(self) -> dict[str, Any]:
        """The row's columns while nothing is timed yet."""
        return {
            "status": "untimed" if self.ok else "mismatch",
            "reason": self.reason,
            "max_abs_err": self.max_abs_err,
            "max_rel_err": self.max_rel_err,
            "tolerance": self.tolerance,
        }


def refused(reason: str) -> Verdict:
    """Wrong in a way that leaves no error to state."""
    return Verdict(False, reason, math.nan, math.nan, math.nan)


def nearest_to_its_limit(verdicts: Sequence[Verdict]) -> Verdict:
    """Of right outputs, the one whose largest error uses most of its allowance."""

    def used(verdict: Verdict) -> float:
        return verdict.max_abs_err / verdict.tolerance if verdict.tolerance else 0.0

    return max(verdicts, key=used)


@dataclass(frozen=True)
class Precision:
    """Relative spacing and smallest normal number of a dtype; both 0 for integers, where nothing
    is rounded."""

    eps: float
    smallest_normal: float

    @classmethod
    def of(cls, dtype: torch.dtype) -> Precision:
        import torch

        if not dtype.is_floating_point:
            return cls(0.0, 0.0)
        info = torch.finfo(dtype)
        return cls(info.eps, info.smallest_normal)


@dataclass(frozen=True)
class Bias:
    """A summed signed error and its limit, in ulps of the summed magnitude.

    `direction` is what counts as positive: "away from zero" shows truncation whatever the signs of
    the outputs, "upwards" shows rounding down.
    """

    direction: str
    ulps: float
    allowed: float

    @property
    def ok(self) -> bool:
        return abs(self.ulps) <= self.allowed


@dataclass(frozen=True)
class Mask:
    """Where a special value is and where it should be."""

    kind: str
    got: torch.Tensor
    expected: torch.Tensor

    @property
    def differs(self) -> torch.Tensor:
        return self.got != self.expected


def _independent_weight(magnitudes: torch.Tensor, smallest_normal: float) -> float:
    """The root of the summed squares of what errs independently, in place of `magnitudes`.

    Errors of fair rounding are uniform over one spacing, which stops shrinking below the smallest
    normal number; weighted by magnitude, only so many elements count. Equal magnitudes round alike
    and are one sample: of the rows of gelu(x @ w + b) without terms, all but the first say nothing.
    """
    if magnitudes.numel() > _MOST_SORTED:
        spacing = magnitudes.clamp_(min=smallest_normal)
    else:
        values, counts = magnitudes.unique(return_counts=True)
        spacing = values.clamp_(min=smallest_normal).mul_(counts)
    return float(spacing.square_().sum().sqrt())


class Comparison:
    """`produced` against float64 `reference` of the same shape, not empty.

    allowed: |error| that each element may have. bias_ulps: the bias beyond sampling noise that
    may remain. signed_zeros: a zero must have the reference's sign.
    """

    def __init__(
        self,
        produced: torch.Tensor,
        reference: torch.Tensor,
        allowed: torch.Tensor,
        bias_ulps: float,
        signed_zeros: bool = False,
    ) -> None:
        import torch

        self._dtype, self._reference, self._allowed = produced.dtype, reference, allowed
        self._bias_ulps, self._signed_zeros = bias_ulps, signed_zeros
        self._got = produced.double()
        self._finite = torch.isfinite(self._got)
        error = torch.where(self._finite, (self._got - reference).abs(), 0.0)
        self._max_abs = float(error.max())
        # Where the allowance is not a number neither is the reference; the masks judge there.
        self.share = torch.where(self._finite, error / allowed, 0.0).nan_to_num_(0.0, math.inf)
        self._worst = int(self.share.argmax())
        relative = error.div_(reference.abs()).masked_fill_(reference == 0, 0.0)
        self._max_rel = float(torch.where(self._finite, relative, 0.0).max())

    def masks(self) -> list[Mask]:
        import torch

        # A reference beyond the dtype's range rounds to infinity, as the output must. As float64,
        # since not every dtype has these tests.
        rounded = self._reference.to(self._dtype).double()
        tests = (("NaN", torch.isnan), ("+Inf", torch.isposinf), ("-Inf", torch.isneginf))
        return [Mask(kind, test(self._got), test(rounded)) for kind, test in tests]

    def wrong_zeros(self) -> torch.Tensor | None:
        """Zeros with the other sign than the reference; None where the op's policy allows them."""
        import torch

        if not self._signed_zeros:
            return None
        return (self._got == 0) & (torch.signbit(self._got) != torch.signbit(self._reference))

    def biases(self) -> list[Bias]:
        import torch

        info = Precision.of(self._dtype)
        magnitudes = torch.where(self._finite, self._reference.abs(), 0.0)
        total = float(magnitudes.sum())
        if total == 0.0 or not math.isfinite(total) or info.eps == 0.0:
            return []
        weight = _independent_weight(magnitudes, info.smallest_normal)
        noise = _NOISE_SIGMAS * _UNIFORM_SIGMA * weight / total
        signed = torch.where(self._finite, self._got - self._reference, 0.0)
        up = float(signed.sum()) / total / info.eps
        away = float(signed.mul_(torch.sign(self._reference)).nansum()) / total / info.eps
        allowed = self._bias_ulps + noise
        return [Bias("away from zero", away, allowed), Bias("upwards", up, allowed)]

    def verdict(self) -> Verdict:
        for mask in self.masks():
            if bool(mask.differs.any()):
                what = f"{mask.kind} where the reference has none, or none where it has"
                return refused(self._examples(what, mask.differs))
        zeros = self.wrong_zeros()
        if zeros is not None and bool(zeros.any()):
            return refused(self._examples("zero of the wrong sign", zeros))
        numbers = (self._max_abs, self._max_rel, self.element(self._worst)["allowed"])
        wrong = self.share > 1
        if bool(wrong.any()):
            return Verdict(False, self._examples("error above the allowance", wrong), *numbers)
        for bias in self.biases():
            if not bias.ok:
                reason = (
                    f"biased {bias.direction}: mean signed error {bias.ulps:.3g} ulp, allowed "
                    f"{bias.allowed:.3g}"
                )
                return Verdict(False, reason, *numbers)
        return Verdict(True, "", *numbers)

    def element(self, flat: int) -> dict[str, Any]:
        """Index, values, error, allowance and share of one element."""
        index, left = [], flat
        for extent in reversed(self.share.shape):
            index.append(left % extent)
            left //= extent
        at = tuple(reversed(index))
        return {
            "index": list(at),
            "got": float(self._got[at]),
            "expected": float(self._reference[at]),
            "error": float((self._got[at] - self._reference[at]).abs()),
            "allowed": float(self._allowed.expand_as(self.share)[at]),
            "share": float(self.share[at]),
        }

    def explanation(self) -> dict[str, Any]:
        """What `verdict` rests on, as JSON; for right outputs too."""
        masks, zeros = self.masks(), self.wrong_zeros()
        bad = self.share > 1
        for mask in masks:
            bad = bad | mask.differs
        if zeros is not None:
            bad = bad | zeros
        shown = bad.flatten().nonzero().flatten()[:_SHOWN].tolist()
        return {
            "elements": self.share.numel(),
            "worst": self.element(self._worst),
            "bad": int(bad.sum()),
            "first_bad": [self.element(flat) for flat in shown],
            "masks": {
                mask.kind: {
                    "expected": int(mask.expected.sum()),
                    "got": int(mask.got.sum()),
                    "wrong": int(mask.differs.sum()),
                }
                for mask in masks
            },
            "wrong_zeros": None if zeros is None else int(zeros.sum()),
            "bias": [
                {"direction": b.direction, "ulps": b.ulps, "allowed": b.allowed}
                for b in self.biases()
            ],
        }

    def _examples(self, what: str, wrong: torch.Tensor) -> str:
        shown = [tuple(index) for index in wrong.nonzero()[:_SHOWN].tolist()]
        examples = ", ".join(
            f"{index}: got {float(self._got[index]):.6g} expected "
            f"{float(self._reference[index]):.6g}"
            for index in shown
        )
        return f"{what} at {int(wrong.sum())} of {wrong.numel()} elements; {examples}"


def compare(
    produced: torch.Tensor,
    reference: torch.Tensor,
    allowed: torch.Tensor,
    bias_ulps: float,
    signed_zeros: bool = False,
) -> Verdict:
    """Elementwise and bias test of `produced` against float64 `reference`, as in Comparison."""
    if tuple(produced.shape) != tuple(reference.shape):
        return refused(f"shape {tuple(produced.shape)}, wanted {tuple(reference.shape)}")
    if produced.numel() == 0:
        return Verdict(True, "", 0.0, 0.0, 0.0)
    return Comparison(produced, reference, allowed, bias_ulps, signed_zeros).verdict()
