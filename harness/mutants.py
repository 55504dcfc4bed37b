"""Outputs broken on purpose: the checker must refuse each of them for every op and dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .check import Problem
from .spec import Case, OpSpec, torch_dtype

if TYPE_CHECKING:
    import torch

Mutant = Callable[["torch.Tensor", Problem], "torch.Tensor"]

_SEEDS = 20
_OTHER_SEED = 1000


def right_output(problem: Problem) -> torch.Tensor:
    """The float64 answer rounded once to the output's dtype."""
    return problem.reference.to(torch_dtype(problem.dtype))


def _dropped_last(right: torch.Tensor, _: Problem) -> torch.Tensor:
    right.view(-1)[-1:] = 0
    return right


def _zeroed_tile(right: torch.Tensor, _: Problem) -> torch.Tensor:
    flat = right.view(-1)
    flat[: max(1, flat.numel() // 8)] = 0
    return right


def _repeated_row(right: torch.Tensor, _: Problem) -> torch.Tensor:
    right[-1] = right[0]
    return right


def _one_nan(right: torch.Tensor, _: Problem) -> torch.Tensor:
    right.view(-1)[right.numel() // 2] = float("nan")
    return right


def _one_element_off(right: torch.Tensor, problem: Problem) -> torch.Tensor:
    """The largest element, moved by two and a half allowances: two are left after rounding."""
    at = int(problem.reference.abs().argmax())
    wanted = problem.reference.view(-1)[at] + 2.5 * problem.allowed.view(-1)[at]
    right.view(-1)[at] = wanted.to(right.dtype)
    return right


def _truncated(right: torch.Tensor, problem: Problem) -> torch.Tensor:
    """Rounded towards zero: one step nearer to it wherever rounding to nearest went away."""
    import torch

    away = right.double().abs() > problem.reference.abs()
    as_int = torch.int32 if right.element_size() == 4 else torch.int16
    # Sign and magnitude: the pattern below is the next number towards zero, for both signs.
    return (right.view(as_int) - away.to(as_int)).view(right.dtype)


def _of_other_inputs(right: torch.Tensor, problem: Problem) -> torch.Tensor:
    """The answer of an earlier seed, as one who caches it would give."""
    spec = problem.spec
    inputs = spec.make_inputs(problem.case, problem.dtype, problem.device, _OTHER_SEED)
    return spec.reference(inputs).to(right.dtype)


def _low_precision(right: torch.Tensor, problem: Problem) -> torch.Tensor:
    if problem.spec.low_precision is None:
        raise ValueError(f"{problem.spec.stem}: no low_precision, nor a reason in omitted_mutants")
    return problem.spec.low_precision(problem.tensors)


# Each takes a right output, which it may change, and returns a wrong one.
MUTANTS: dict[str, Mutant] = {
    "zeros": lambda right, _: right.zero_(),
    "dropped_last": _dropped_last,
    "shifted_by_one": lambda right, _: right.view(-1).roll(1).view(right.shape),
    "scaled_by_1_percent": lambda right, _: right * 1.01,
    "zeroed_tile": _zeroed_tile,
    "swapped_rows": lambda right, _: right.flip(0),
    "repeated_row": _repeated_row,
    "low_precision": _low_precision,
    "truncated": _truncated,
    "one_element_off": _one_element_off,
    "one_nan": _one_nan,
    "of_other_inputs": _of_other_inputs,
    "unwritten": lambda right, _: right.fill_(float("nan")),
}


def reason_to_omit(spec: OpSpec, dtype: str, case: Case, mutant: str) -> str:
    """Why `mutant` need not fail here, as the spec says; empty when it must."""
    reasons = spec.omitted_mutants
    for key in (mutant, f"{mutant}:{dtype}", f"{mutant}@{case.name}"):
        if key in reasons:
            return reasons[key]
    return reasons.get(f"{mutant}:{dtype}@{case.name}", "")


def survives(spec: OpSpec, dtype: str, case: Case, mutant: str) -> str:
    """Why `mutant` passes for right, or cannot be told from it; empty when it fails as it must.

    Judged on the first seed on which it differs from the right output: a relu may have zeroed
    what the mutant zeroes.
    """
    for seed in range(_SEEDS):
        problem = Problem(spec, case, dtype, "cpu", seed)
        wrong = MUTANTS[mutant](right_output(problem), problem)
        if bool((wrong != right_output(problem)).any()):
            verdict = problem.judge(wrong)
            return f"seed {seed}: passes for right" if verdict.ok else ""
    return f"equals the right output on {_SEEDS} seeds: choose another case, or give a reason"
