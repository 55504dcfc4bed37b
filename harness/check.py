"""Is an output right? A verdict with reasons, judged against float64.

Outputs are poisoned before the run that is judged, inputs are compared bit for bit after it,
guard bytes around the output must survive, and NaN is accepted only where the reference has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .spec import Case, OpSpec, Tensors, torch_dtype

if TYPE_CHECKING:
    import torch

_GUARD_BYTES = 256
_GUARD_VALUE = 0xA5
_ULP_NOISE_SIGMAS = 6.0
_UNIFORM_SIGMA = 0.29


@dataclass(frozen=True)
class Verdict:
    """`tolerance` is the allowance at the worst element; errors are against float64."""

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


class Problem:
    """One case's inputs, float64 answer and guarded output, shared by all implementations."""

    def __init__(self, spec: OpSpec, case: Case, dtype: str, device: str, seed: int) -> None:
        self.spec, self.case, self.dtype, self.device = spec, case, dtype, device
        self.tensors = spec.make_inputs(case, dtype, device, seed)
        self.out, self._guarded = _guarded_output(spec, case, dtype, device)
        self.poison()
        self._remember_answer()

    def _remember_answer(self) -> None:
        self._pristine = {name: tensor.clone() for name, tensor in self.tensors.items()}
        # Both stay alive as long as the problem: a freed reference could be handed by the
        # allocator to an implementation that then passes by returning uninitialised memory.
        self.reference = self.spec.reference(self.tensors)
        self.allowed = allowance(self.spec, self.dtype, self.tensors, self.reference)

    def reseed(self, seed: int) -> None:
        """New values in place: bound closures keep their pointers but must not their answers."""
        del self._pristine, self.reference, self.allowed  # room for their successors
        fresh = self.spec.make_inputs(self.case, self.dtype, self.device, seed)
        for name, tensor in self.tensors.items():
            tensor.copy_(fresh[name])
        self._remember_answer()

    def poison(self) -> None:
        self._guarded.fill_(_GUARD_VALUE)
        self.out.fill_(math.nan)

    def restore_inputs(self) -> list[str]:
        """The names of inputs that are no longer what they were; they are put right again.

        All of them, or the next implementation would be judged on the damage of another.
        """
        changed = [n for n, t in self.tensors.items() if not _same_bits(t, self._pristine[n])]
        for name in changed:
            self.tensors[name].copy_(self._pristine[name])
        return changed

    def judge(self, produced: torch.Tensor, unfused: bool = False) -> Verdict:
        """The verdict on `produced`, which is `out` or the fresh tensor a baseline returned.

        `unfused` grants the roundings between the kernels of a torch expression.
        """
        changed = self.restore_inputs()
        if changed:
            return _refused(f"input {', '.join(changed)} was changed")
        if produced.dtype != self.out.dtype:
            return _refused(f"dtype {produced.dtype}, wanted {self.out.dtype}")
        start = self.out.data_ptr() - self._guarded.data_ptr()
        end = start + self.out.numel() * self.out.element_size()
        for side, guard in (("before", self._guarded[:start]), ("behind", self._guarded[end:])):
            if guard.numel() and bool((guard != _GUARD_VALUE).any()):
                return _refused(f"wrote into the guard bytes {side} the output")
        allowed = self.allowed + (self._between_kernels() if unfused else 0.0)
        return compare(
            produced, self.reference, allowed, self.spec.tolerances[self.dtype].bias_ulps
        )

    def _between_kernels(self) -> torch.Tensor | float:
        import torch

        if self.spec.unfused_rounding is None:
            return 0.0
        half_ulp = 0.5 * torch.finfo(torch_dtype(self.dtype)).eps
        return half_ulp * self.spec.unfused_rounding(self.tensors)


def _guarded_output(
    spec: OpSpec, case: Case, dtype: str, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, all of its storage as bytes): 256-byte aligned, or one element in where the case
    asks for views that start one element in."""
    import torch

    element = torch_dtype(dtype)
    shape = spec.output_shape(case)
    skip = element.itemsize if case.layout == "offset1" else 0
    n_bytes = math.prod(shape) * element.itemsize
    storage = torch.empty(2 * _GUARD_BYTES + skip + n_bytes, dtype=torch.uint8, device=device)
    start = _GUARD_BYTES + skip
    out = storage[start : start + n_bytes].view(element).view(shape)
    return out, storage


def allowance(spec: OpSpec, dtype: str, tensors: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """Allowed |error| of each element, float64, by the rule of `Tolerance`."""
    import torch

    info = torch.finfo(torch_dtype(dtype))
    output = spec.tolerances[dtype].output_ulps * info.eps * reference.abs()
    inside = torch.finfo(torch.float32).eps * spec.accumulation(tensors, reference)
    # Below the smallest normal number spacing is constant: half a subnormal step, and the
    # flush to zero of float32 subnormals that approximate exp2 does on the GPU.
    floor = info.smallest_normal * info.eps + torch.finfo(torch.float32).smallest_normal
    return output + inside + floor


def compare(
    produced: torch.Tensor, reference: torch.Tensor, allowed: torch.Tensor, bias_ulps: float
) -> Verdict:
    """Elementwise and bias test of `produced` against float64 `reference`."""
    import torch

    if tuple(produced.shape) != tuple(reference.shape):
        return _refused(f"shape {tuple(produced.shape)}, wanted {tuple(reference.shape)}")
    if produced.numel() == 0:
        return Verdict(True, "", 0.0, 0.0, 0.0)
    got = produced.double()
    for kind, test in (("NaN", torch.isnan), ("+Inf", torch.isposinf), ("-Inf", torch.isneginf)):
        # A reference beyond the dtype's range rounds to infinity, as the output must.
        expected = test(reference.to(produced.dtype))
        differs = test(got) != expected
        if bool(differs.any()):
            return _failed(
                f"{kind} where the reference has none, or none where it has",
                differs,
                got,
                reference,
            )
    finite = torch.isfinite(got)
    error = torch.where(finite, (got - reference).abs(), 0.0)
    excess = torch.where(finite, error - allowed, -math.inf)
    worst = int(excess.argmax())
    numbers = (
        float(error.max()),
        float(torch.where(finite & (reference != 0), error / reference.abs(), 0.0).max()),
        float(allowed.flatten()[worst]),
    )
    wrong = excess > 0
    if bool(wrong.any()):
        verdict = _failed("error above the allowance", wrong, got, reference)
        return Verdict(False, verdict.reason, *numbers)
    bias, noise = _bias_in_ulps(got, reference, finite, produced.dtype)
    if abs(bias) > bias_ulps + noise:
        reason = f"biased: mean signed error {bias:.3g} ulp, allowed {bias_ulps + noise:.3g}"
        return Verdict(False, reason, *numbers)
    return Verdict(True, "", *numbers)


def _bias_in_ulps(
    got: torch.Tensor, reference: torch.Tensor, finite: torch.Tensor, dtype: torch.dtype
) -> tuple[float, float]:
    """(summed signed error in ulps of the summed magnitude, its noise under fair rounding)."""
    import torch

    magnitudes = torch.where(finite, reference.abs(), 0.0)
    total = float(magnitudes.sum())
    if total == 0.0:
        return 0.0, 0.0
    bias = float(torch.where(finite, got - reference, 0.0).sum()) / total
    # Rounding errors are uniform over one ulp; weighted by magnitude, only so many count.
    spread = float(magnitudes.square().sum().sqrt()) / total
    return bias / torch.finfo(dtype).eps, _ULP_NOISE_SIGMAS * _UNIFORM_SIGMA * spread


def _failed(what: str, wrong: torch.Tensor, got: torch.Tensor, reference: torch.Tensor) -> Verdict:
    count, total = int(wrong.sum()), wrong.numel()
    shown = [tuple(index) for index in wrong.nonzero()[:5].tolist()]
    examples = ", ".join(
        f"{index}: got {float(got[index]):.6g} expected {float(reference[index]):.6g}"
        for index in shown
    )
    return _refused(f"{what} at {count} of {total} elements; {examples}")


def _refused(reason: str) -> Verdict:
    """Wrong in a way that leaves no error to state."""
    return Verdict(False, reason, math.nan, math.nan, math.nan)


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    import torch

    as_int = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return bool(torch.equal(a.view(as_int), b.view(as_int)))


def _dropped_last(right: torch.Tensor) -> torch.Tensor:
    right.view(-1)[-1:] = 0
    return right


def _zeroed_tile(right: torch.Tensor) -> torch.Tensor:
    flat = right.view(-1)
    flat[: max(1, flat.numel() // 8)] = 0
    return right


def _unwritten(right: torch.Tensor) -> torch.Tensor:
    return right.fill_(math.nan)


def _swapped_rows(right: torch.Tensor) -> torch.Tensor:
    return right.flip(0)


# Each takes a right output it may change, and returns a wrong one.
MUTANTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "zeros": lambda right: right.zero_(),
    "dropped_last": _dropped_last,
    "shifted_by_one": lambda right: right.view(-1).roll(1).view(right.shape),
    "scaled_by_1_percent": lambda right: right * 1.01,
    "zeroed_tile": _zeroed_tile,
    "swapped_rows": _swapped_rows,
    "unwritten": _unwritten,
}
