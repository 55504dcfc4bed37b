"""One case's problem: guarded inputs and output, the float64 answer, and what may deviate from it.

Outputs are poisoned before the run that is judged, inputs and their guards are compared bit for
bit after it, guard bytes around the output must survive; verdict.py judges the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .guards import GuardedInput, GuardedOutput, shares_memory
from .spec import Case, OpSpec, Output, Tensors, lead_elements, torch_dtype
from .verdict import Comparison, Precision, Verdict, compare, nearest_to_its_limit, refused

if TYPE_CHECKING:
    import torch

__all__ = ["Problem", "Verdict", "allowance", "bias_allowance", "compare"]


@dataclass(frozen=True)
class Answer:
    """What one output should be: float64, and the |error| that each element may have."""

    output: Output
    reference: torch.Tensor
    allowed: torch.Tensor


class Problem:
    """One case's inputs, float64 answers and guarded outputs, shared by all implementations.

    `out` is the op's first output, `outs` all of them; `produced` is what a launch that writes them
    produces: `out` alone or the tuple.
    """

    def __init__(self, spec: OpSpec, case: Case, dtype: str, device: str, seed: int) -> None:
        self.spec, self.case, self.dtype, self.device = spec, case, dtype, device
        given = spec.make_inputs(case, dtype, device, seed)
        # Popped, so that no more than one input is held twice.
        self._inputs = {name: GuardedInput(given.pop(name)) for name in list(given)}
        self.tensors: Tensors = {name: guarded.tensor for name, guarded in self._inputs.items()}
        self._outputs = [self._guarded(output) for output in spec.outputs]
        self.outs = tuple(guarded.tensor for guarded in self._outputs)
        self.out = self.outs[0]
        self.produced = self.outs if len(self.outs) > 1 else self.out
        self.poison()
        self._remember_answer()

    def _guarded(self, output: Output) -> GuardedOutput:
        element = torch_dtype(output.dtype or self.dtype)
        lead = lead_elements(self.case) * element.itemsize
        return GuardedOutput(output.shape(self.case), element, lead, self.device)

    @property
    def reference(self) -> torch.Tensor:
        """The float64 answer of `out`."""
        return self.answers[0].reference

    @property
    def allowed(self) -> torch.Tensor:
        """The |error| that each element of `out` may have."""
        return self.answers[0].allowed

    def _remember_answer(self) -> None:
        for guarded in self._inputs.values():
            guarded.remember()
        # Both stay alive as long as the problem: a freed reference could be handed by the
        # allocator to an implementation that then passes by returning uninitialised memory.
        self.answers = tuple(self._answer(output) for output in self.spec.outputs)

    def _answer(self, output: Output) -> Answer:
        reference = output.reference(self.tensors)
        allowed = allowance(self.spec, self.dtype, self.tensors, reference, output)
        return Answer(output, reference, allowed)

    def reseed(self, seed: int) -> None:
        """New values in place: bound closures keep their pointers but must not their answers."""
        del self.answers  # room for their successors
        for guarded in self._inputs.values():
            guarded.forget()
        fresh = self.spec.make_inputs(self.case, self.dtype, self.device, seed)
        for name, tensor in self.tensors.items():
            tensor.copy_(fresh.pop(name))
        self._remember_answer()

    def nudge(self, seed: int) -> None:
        """A few values change sign in place: what knows its inputs by a sample of them shows."""
        import torch

        del self.answers
        generator = torch.Generator(device=self.device).manual_seed(seed)
        for name, tensor in self.tensors.items():
            self._inputs[name].forget()
            if tensor.numel() and tensor.is_floating_point():
                n_chosen = 1 + tensor.numel() // 1024
                chosen = torch.randint(
                    tensor.numel(), (n_chosen,), generator=generator, device=self.device
                )
                where = torch.unravel_index(chosen, tensor.shape)
                tensor[where] = -tensor[where]
        self._remember_answer()

    def poison(self) -> None:
        for guarded in self._outputs:
            guarded.poison()

    def restore_inputs(self) -> list[str]:
        """What happened to the inputs, a clause each kind; they are put right again.

        All of them, or the next implementation would be judged on the damage of another.
        """
        damaged: dict[str, list[str]] = {"values": [], "guards": []}
        for name, guarded in self._inputs.items():
            damage = guarded.damage()
            if damage:
                damaged[damage].append(name)
                guarded.restore()
        texts = {
            "values": "input {} was changed",
            "guards": "wrote into the guards around input {}",
        }
        return [texts[kind].format(", ".join(names)) for kind, names in damaged.items() if names]

    def judge(self, produced: Any, unfused: bool = False) -> Verdict:
        """The verdict on `produced`: this problem's own, or the fresh tensors a baseline returned.

        `unfused` grants the roundings between the kernels of a torch expression. Of several outputs
        the first that is wrong decides; when none is, the one nearest to its limit is reported.
        """
        changed = self.restore_inputs()
        if changed:
            return refused("; ".join(changed))
        parts, reason = self._parts(produced)
        if reason:
            return refused(reason)
        verdicts = []
        for which, part in enumerate(parts):
            verdict = self._judge_part(which, part, unfused)
            if not verdict.ok:
                return self._named(which, verdict)
            verdicts.append(verdict)
        return nearest_to_its_limit(verdicts)

    def _parts(self, produced: Any) -> tuple[tuple[Any, ...], str]:
        """(one tensor an output, why there are not as many as that)."""
        parts = tuple(produced) if isinstance(produced, (tuple, list)) else (produced,)
        wanted = len(self.outs)
        if len(parts) == wanted:
            return parts, ""
        names = ", ".join(output.name for output in self.spec.outputs)
        return (), f"returned {len(parts)} tensors, wanted {wanted} ({names})"

    def _judge_part(self, which: int, part: Any, unfused: bool) -> Verdict:
        reason = self._wrong_kind(which, part)
        if reason:
            return refused(reason)
        side = self._outputs[which].damage()
        if side:
            return refused(f"wrote into the guard bytes {side} the output")
        return compare(part, self.answers[which].reference, *self._limits(which, unfused))

    def _named(self, which: int, verdict: Verdict) -> Verdict:
        """The verdict, its reason with the output's name where there are several."""
        if len(self.outs) == 1:
            return verdict
        return replace(verdict, reason=f"{self.spec.outputs[which].name}: {verdict.reason}")

    def explain(self, produced: Any, unfused: bool = False) -> dict[str, Any]:
        """The numbers behind `judge`'s verdict on the output nearest to its limit, as JSON; empty
        where there is none to compare."""
        found: list[dict[str, Any]] = []
        for which, part in enumerate(self._parts(produced)[0]):
            if self._wrong_kind(which, part) or part.numel() == 0:
                continue
            reference = self.answers[which].reference
            if part.shape == reference.shape:
                limits = self._limits(which, unfused)
                name = {"output": self.spec.outputs[which].name} if len(self.outs) > 1 else {}
                found.append(Comparison(part, reference, *limits).explanation() | name)
        return max(found, key=lambda e: (e["bad"] > 0, e["worst"]["share"]), default={})

    def _wrong_kind(self, which: int, produced: Any) -> str:
        """Why `produced` is not that output of this case whatever its values; empty when it is."""
        import torch

        out = self.outs[which]
        if not isinstance(produced, torch.Tensor):
            return f"returned a {type(produced).__name__}, wanted a tensor"
        if produced.device != out.device:
            return f"output on {produced.device}, wanted {out.device}"
        if produced.dtype != out.dtype:
            return f"dtype {produced.dtype}, wanted {out.dtype}"
        if produced.shape == out.shape and not produced.is_contiguous():
            return f"strides {produced.stride()}, wanted {out.stride()}: other memory traffic"
        for name, tensor in self.tensors.items():
            if shares_memory(produced, tensor):
                return f"returned the memory of input {name}, wanted an output of its own"
        return ""

    def _limits(self, which: int, unfused: bool) -> tuple[torch.Tensor, float, bool]:
        """(allowed, bias_ulps, signed_zeros) of Comparison."""
        answer = self.answers[which]
        return (
            answer.allowed + (self._between_kernels(answer.output) if unfused else 0.0),
            bias_allowance(self.spec, self.dtype, self.case, answer.output),
            self.spec.special_values.signed_zeros == "kept",
        )

    def _between_kernels(self, output: Output) -> torch.Tensor | float:
        if output.unfused_rounding is None:
            return 0.0
        half_ulp = 0.5 * Precision.of(torch_dtype(self.dtype)).eps
        return half_ulp * output.unfused_rounding(self.tensors)


def allowance(
    spec: OpSpec,
    dtype: str,
    tensors: Tensors,
    reference: torch.Tensor,
    output: Output | None = None,
) -> torch.Tensor:
    """Allowed |error| of each element of `output` (default `out`), float64, by the rule of
    `Tolerance`."""
    import torch

    output = output or spec.outputs[0]
    own = Precision.of(torch_dtype(output.dtype or dtype))
    float32 = torch.finfo(torch.float32)
    # The spacing of numbers is proportional to them, but constant below the smallest normal one.
    spacing = own.eps * reference.abs().clamp(min=own.smallest_normal)
    allowed = spacing.mul_(output.tolerances[dtype].output_ulps)
    allowed += float32.eps * output.accumulation(tensors, reference)
    if spec.special_values.subnormals == "flushed" and own.eps:
        allowed += float32.smallest_normal
    return allowed


def bias_allowance(spec: OpSpec, dtype: str, case: Case, output: Output | None = None) -> float:
    """Bias in ulps of `output` (default `out`), beyond sampling noise, by the rule of
    `Tolerance`."""
    import torch

    output = output or spec.outputs[0]
    own = Precision.of(torch_dtype(output.dtype or dtype))
    shared = output.drift(case) * torch.finfo(torch.float32).eps
    return output.tolerances[dtype].bias_ulps + (shared / own.eps if own.eps else 0.0)
