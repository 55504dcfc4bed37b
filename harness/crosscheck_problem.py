"""A case too large for a float64 answer of its whole, checked slice by slice."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .check import Problem, Verdict, allowance, compare
from .spec import Case, OpSpec

if TYPE_CHECKING:
    import torch

# Answer, allowance and the checker's temporaries take twenty times the bytes of an f32 output.
_WHOLE_BYTES = 4 << 30
_SLICE_ELEMENTS = 1 << 26


def is_sliceable(spec: OpSpec) -> bool:
    """Can a case be judged slice by slice, where its float64 answers would not fit whole?"""
    one_rounding = spec.unfused_rounding is None
    return spec.family == "elementwise" and one_rounding and not spec.further_outputs


def problem_for(spec: OpSpec, case: Case, dtype: str, seed: int) -> Problem:
    n_bytes = spec.bytes_read(case, dtype) + spec.bytes_written(case, dtype)
    kind = SlicedProblem if is_sliceable(spec) and n_bytes > _WHOLE_BYTES else Problem
    return kind(spec, case, dtype, "cuda", seed)


class SlicedProblem(Problem):
    """Of an elementwise op: slices of the inputs give slices of the answer.

    Every element is checked. Guard bytes and untouched inputs are not: the smaller cases of the
    same kernels show those, and copies of the inputs are memory that this case lacks.
    """

    def _remember_answer(self) -> None:
        pass

    def judge(self, produced: torch.Tensor, unfused: bool = False) -> Verdict:
        """The first slice's verdict that is not right, else the worst errors of all.

        `unfused` grants nothing: ops with such a rounding are never sliced.
        """
        verdicts: list[Verdict] = []
        length = produced.shape[0]
        step = max(1, length * _SLICE_ELEMENTS // max(produced.numel(), 1))
        for start in range(0, length, step):
            verdict = self._judge_slice(produced, slice(start, start + step))
            if not verdict.ok:
                reason = f"from {start} of {length} on: {verdict.reason}"
                return Verdict(False, reason, math.nan, math.nan, math.nan)
            verdicts.append(verdict)
        return max(verdicts, key=lambda v: v.max_abs_err)

    def _judge_slice(self, produced: torch.Tensor, part: slice) -> Verdict:
        # What is broadcast along the first extent has no slices.
        tensors = {
            name: t[part] if (t.dim(), t.shape[0]) == (produced.dim(), produced.shape[0]) else t
            for name, t in self.tensors.items()
        }
        reference = self.spec.reference(tensors)
        allowed = allowance(self.spec, self.dtype, tensors, reference)
        bias_ulps = self.spec.tolerances[self.dtype].bias_ulps
        return compare(produced[part], reference, allowed, bias_ulps)
