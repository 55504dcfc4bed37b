"""Outputs broken on purpose: the checker must refuse each of them for every op and dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .check import Problem
from .spec import Case, OpSpec

if TYPE_CHECKING:
    import torch

# (a right output, which it may change; the problem and which of its outputs) -> a wrong one.
Mutant = Callable[["torch.Tensor", Problem, int], "torch.Tensor"]

_SEEDS = 20
_OTHER_SEED = 1000


def right_output(problem: Problem, which: int = 0) -> torch.Tensor:
    """The float64 answer of an output, rounded once to its dtype."""
    return problem.answers[which].reference.to(problem.outs[which].dtype)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """As integers: not every dtype can be moved about, or compared where it holds NaN."""
    import torch

    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(integers[tensor.element_size()])


def _dropped_last(right: torch.Tensor, _: Problem, __: int) -> torch.Tensor:
    right.view(-1)[-1:] = 0
    return right


def _zeroed_tile(right: torch.Tensor, _: Problem, __: int) -> torch.Tensor:
    flat = right.view(-1)
    flat[: max(1, flat.numel() // 8)] = 0
    return right


def _repeated_row(right: torch.Tensor, _: Problem, __: int) -> torch.Tensor:
    right[-1] = right[0]
    return right


def _one_nan(right: torch.Tensor, _: Problem, __: int) -> torch.Tensor:
    right.view(-1)[right.numel() // 2] = float("nan")
    return right


def _unwritten(right: torch.Tensor, problem: Problem, which: int) -> torch.Tensor:
    problem.poison()
    return problem.outs[which].clone()


def _one_element_off(right: torch.Tensor, problem: Problem, which: int) -> torch.Tensor:
    """The largest element, moved by two and a half allowances: two are left after rounding. By its
    last bit where nothing is allowed."""
    answer = problem.answers[which]
    at = int(answer.reference.abs().argmax())
    if float(answer.allowed.view(-1)[at]) == 0.0:
        _bits(right).view(-1)[at] ^= 1
        return right
    wanted = answer.reference.view(-1)[at] + 2.5 * answer.allowed.view(-1)[at]
    right.view(-1)[at] = wanted.to(right.dtype)
    return right


def _truncated(right: torch.Tensor, problem: Problem, which: int) -> torch.Tensor:
    """Rounded towards zero: one step nearer to it wherever rounding to nearest went away."""
    away = right.double().abs() > problem.answers[which].reference.abs()
    bits = _bits(right)
    # Sign and magnitude: the pattern below is the next number towards zero, for both signs.
    return (bits - away.to(bits.dtype)).view(right.dtype)


def _of_other_inputs(right: torch.Tensor, problem: Problem, which: int) -> torch.Tensor:
    """The answer of an earlier seed, as one who caches it would give."""
    spec = problem.spec
    inputs = spec.make_inputs(problem.case, problem.dtype, problem.device, _OTHER_SEED)
    return spec.outputs[which].reference(inputs).to(right.dtype)


def _low_precision(right: torch.Tensor, problem: Problem, which: int) -> torch.Tensor:
    if problem.spec.low_precision is None:
        raise ValueError(f"{problem.spec.stem}: no low_precision, nor a reason in omitted_mutants")
    careless = problem.spec.low_precision(problem.tensors)
    parts: tuple[torch.Tensor, ...] = careless if isinstance(careless, tuple) else (careless,)
    return parts[which]


MUTANTS: dict[str, Mutant] = {
    "zeros": lambda right, _, __: right.zero_(),
    "dropped_last": _dropped_last,
    "shifted_by_one": lambda right, _, __: (
        _bits(right).view(-1).roll(1).view(right.shape).view(right.dtype)
    ),
    "scaled_by_1_percent": lambda right, _, __: (right.double() * 1.01).to(right.dtype),
    "zeroed_tile": _zeroed_tile,
    "swapped_rows": lambda right, _, __: _bits(right).flip(0).view(right.dtype),
    "repeated_row": _repeated_row,
    "low_precision": _low_precision,
    "truncated": _truncated,
    "one_element_off": _one_element_off,
    "one_nan": _one_nan,
    "of_other_inputs": _of_other_inputs,
    "unwritten": _unwritten,
}


def keys_to_omit(spec: OpSpec, dtype: str, case: Case, mutant: str, which: int = 0) -> list[str]:
    """The keys of `omitted_mutants` that speak of this mutant here, `mutant` first.

    `name.mutant` speaks of the further output of that name alone.
    """
    keys = [mutant, f"{mutant}:{dtype}", f"{mutant}@{case.name}", f"{mutant}:{dtype}@{case.name}"]
    return keys if which == 0 else [f"{spec.outputs[which].name}.{key}" for key in keys]


def reason_to_omit(spec: OpSpec, dtype: str, case: Case, mutant: str, which: int = 0) -> str:
    """Why `mutant` need not fail here, as the spec says; empty when it must."""
    keys = keys_to_omit(spec, dtype, case, mutant, which)
    return next((spec.omitted_mutants[k] for k in keys if k in spec.omitted_mutants), "")


def survives(spec: OpSpec, dtype: str, case: Case, mutant: str, which: int = 0) -> str:
    """Why `mutant` of one output, the others being right, passes for right, or cannot be told from
    it; empty when it fails as it must.

    Judged on the first seed on which it differs from the right output: a relu may have zeroed
    what the mutant zeroes.
    """
    for seed in range(_SEEDS):
        problem = Problem(spec, case, dtype, "cpu", seed)
        wrong = MUTANTS[mutant](right_output(problem, which), problem, which)
        right = right_output(problem, which)
        if bool((wrong.double() != right.double()).any()):
            produced = [right_output(problem, other) for other in range(len(problem.outs))]
            produced[which] = wrong
            verdict = problem.judge(tuple(produced))
            return f"seed {seed}: passes for right" if verdict.ok else ""
    return f"equals the right output on {_SEEDS} seeds: choose another case, or give a reason"
